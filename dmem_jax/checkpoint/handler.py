"""How orbax calls us: it makes a temporary folder, lets every process write into it, in the background if it may, waits
for all of them and renames the folder. Imported where something is saved, so that nobody else needs orbax."""

import dataclasses
import logging
from pathlib import Path
from typing import Any

import jax

from dmem_jax.checkpoint import blocks, sealed
from dmem_jax.errors import MissingExtraError

try:
    import orbax.checkpoint as ocp
    from orbax.checkpoint import future
except ImportError as error:
    raise MissingExtraError(
        "checkpoints need orbax: pip install 'dmem-jax[checkpoint]', or orbax-checkpoint itself."
    ) from error

logging.getLogger("absl").setLevel(logging.WARNING)  # orbax says a dozen lines for each checkpoint


class Handler(ocp.AsyncCheckpointHandler):
    """Writes `Content`; reading needs no orbax."""

    async def async_save(self, directory: Any, args: "Content") -> list[future.Future]:
        async def write() -> None:
            args.write(Path(directory))

        return [future.CommitFutureAwaitingContractedSignals(write(), name="dmem_jax_save")]

    def save(self, directory: Any, args: "Content") -> None:
        args.write(Path(directory))

    def restore(self, directory: Any, args: Any = None) -> Any:
        raise NotImplementedError("dmem_jax.checkpoint.restore reads checkpoints.")


@ocp.args.register_with_handler(Handler, for_save=True, for_restore=True)
@dataclasses.dataclass
class Content(ocp.args.CheckpointArgs):
    """All that is saved: what is known as JSON, and the arrays."""

    about: dict[str, Any]
    arrays: dict[str, jax.ShapeDtypeStruct]
    shards: list[blocks.Shard]

    def write(self, folder: Path) -> None:
        blocks.write(folder, self.arrays, self.shards)
        if jax.process_index() == 0:
            sealed.write(folder / "about.json", self.about)


def checkpointer() -> ocp.AsyncCheckpointer:
    return ocp.AsyncCheckpointer(Handler())


def barrier(name: str) -> None:
    """Waits until every process is here."""
    ocp.multihost.sync_global_processes(f"dmem_jax.checkpoint.{name}")
