"""The checkpoints of a run: one folder each, saved in the background, the last few kept."""

import shutil
from pathlib import Path
from types import TracebackType

import jax
from jaxtyping import PyTree

from dmem_jax import inputs
from dmem_jax.checkpoint import blocks, migrations, single, state
from dmem_jax.checkpoint.state import Checkpoint, Shardings
from dmem_jax.config import Config
from dmem_jax.conversion import positive, whole_number
from dmem_jax.errors import ArgumentValueError, CheckpointError, ProcessLostError
from dmem_jax.params import Params
from dmem_jax.types import Memory

UNFINISHED = ".orbax-checkpoint-tmp", ".deleted"
"""What follows the step in the name of a folder that a killed process left. All others are complete."""


class Checkpoints:
    """Saves without keeping the training waiting, and keeps the last few.

    A checkpoint is the folder `folder/STEP`, which `checkpoint.restore` and `dmem plot` read, too. In a run of several
    processes each makes one of these and calls the same methods; all see the same folder.
    """

    def __init__(self, folder: str | Path, config: Config, *, keep: int = 3):
        """Makes the folder, if it is not there. The first `save` removes what a killed process left half written.

        Args:
          keep: checkpoints to keep, >= 1; while one is being written the disk holds one more.

        Raises:
          ArgumentTypeError, ArgumentValueError: named. MissingExtraError: orbax is not installed.
        """
        from dmem_jax.checkpoint import handler

        inputs.check_config(config)
        self.folder, self.config, self.keep = Path(folder).resolve(), config, positive("keep", keep)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._checkpointer, self._saving, self._cleaned, self._closed = handler.checkpointer(), None, False, False

    def save(self, step: int, params: Params, memory: Memory, *, extra: PyTree = None) -> None:
        """Copies all arrays and returns; they are written in the background. Waits for the save before.

        The arrays may be donated right away.

        Args:
          step: of the run, greater than those saved before.
          extra: what else belongs to it, a pytree of arrays, typed keys and numbers.

        Raises:
          CheckpointError: the save before failed; this one was not begun. ArgumentTypeError, ArgumentValueError: named.
        """
        step = whole_number("step", step, 0)
        if self._closed:
            raise CheckpointError(f"{self.folder}: these checkpoints are closed.")
        about, arrays = state.named(self.config, params, memory, extra)
        self.wait()
        latest = max(self.steps(), default=-1)
        if step <= latest:
            raise ArgumentValueError(f"step: expected one after {latest}, the latest in {self.folder}, got {step}.")
        self._clean()
        from dmem_jax.checkpoint import handler

        specs = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in arrays.items()}
        content = handler.Content(about, specs, blocks.own_shards(arrays, copy=True))
        self._saving = step
        self._checkpointer.save(self.folder / str(step), args=content)

    def _clean(self) -> None:
        """Removes what a killed process left: once, and not for those who only read, for another may be writing."""
        if jax.process_index() == 0 and not self._cleaned:
            for left in self.folder.iterdir():
                if any(left.name == f"{left.name.partition('.')[0]}{end}" for end in UNFINISHED) and _step(left.stem):
                    shutil.rmtree(left)
        self._cleaned = True

    def wait(self) -> None:
        """Returns when all that was saved is on the disk. Raises CheckpointError if it could not be written."""
        step, self._saving = self._saving, None
        try:
            self._checkpointer.wait_until_finished()
        except Exception as error:
            raise CheckpointError(f"{self.folder / str(step)}: could not be saved: {error}") from error
        if jax.process_index() == 0 and step is not None:  # who only reads removes nothing
            for old in self.steps()[: -self.keep]:
                # Renamed first: a folder with the name of a step is complete, also if this process dies here.
                gone = self.folder / f"{old}.deleted"
                (self.folder / str(old)).rename(gone)
                shutil.rmtree(gone)

    def steps(self) -> list[int]:
        """Those with a complete checkpoint on the disk, in order."""
        found = (path for path in self.folder.iterdir() if _step(path.name) and migrations.is_checkpoint(path))
        return sorted(int(path.name) for path in found)

    def restore(
        self,
        payload: PyTree = None,
        *,
        step: int | None = None,
        extra: PyTree = None,
        sharding: Shardings = None,
    ) -> Checkpoint:
        """Brings one back, the latest unless `step` names another. See `checkpoint.restore`, also for its errors."""
        self.wait()
        steps = self.steps()
        if not steps or (step is not None and step not in steps):
            wanted = "no checkpoint" if step is None else f"no checkpoint of step {step}"
            raise FileNotFoundError(f"{self.folder}: {wanted} is there.")
        path = self.folder / str(steps[-1] if step is None else step)
        return single.restore(path, payload, config=self.config, extra=extra, sharding=sharding)

    def close(self) -> None:
        """`wait`, and ends the background threads."""
        try:
            self.wait()
        finally:
            self._checkpointer.close()
            self._closed = True

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ProcessLostError):
            return  # what is being saved waits for the lost one, too, and will not be complete
        self.close()


def _step(name: str) -> bool:
    return name.isdecimal() and str(int(name)) == name
