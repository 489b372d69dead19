"""The command `dmem` (extra: cli)."""

import sys


def main() -> None:
    """Runs the command; a missing extra is said in a sentence."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        sys.exit("the command dmem needs typer, rich and matplotlib: pip install 'dmem-jax[cli]'.")
    from dmem_jax.commands import app

    app()
