"""The command `dmem` (extra: cli)."""

import sys
from pathlib import Path
from typing import Annotated


def main() -> None:
    """Runs the command; a missing extra is said in a sentence."""
    try:
        import typer
    except ImportError:
        sys.exit("the command dmem needs typer and matplotlib: pip install 'dmem-jax[cli]'.")
    from dmem_jax import checkpoint, plots
    from dmem_jax.errors import DmemError

    app = typer.Typer(
        help="What a saved memory holds.", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
    )

    @app.callback()
    def dmem() -> None:
        """What a saved memory holds."""  # and `plot` keeps its name while it is the only command

    @app.command()
    def plot(
        file: Annotated[Path, typer.Argument(help="A checkpoint, as dmem_jax.checkpoint.save wrote it.")],
        out: Annotated[Path, typer.Option(help="Picture to write; its suffix says of what kind.")] = Path("memory.png"),
        agent: Annotated[int | None, typer.Option(help="Of many agents, the one to draw; all, if left out.")] = None,
    ) -> None:
        """Draws the standard pictures of a saved memory."""
        try:
            print(plots.draw(checkpoint.restore(file), out, agent=agent))
        except (DmemError, OSError) as error:
            raise typer.Exit(_said(error)) from error

    def _said(error: Exception) -> int:
        print(error, file=sys.stderr)
        return 1

    app()
