"""Work in the background, at intervals, that stops when it is told to."""

import logging
import threading
from collections.abc import Callable

from dmem_jax.errors import ArgumentValueError, ClosedError

_log = logging.getLogger("dmem_jax.agent")


class Upkeep:
    """Calls `work` every `seconds`, in a thread of its own. An error is logged, and the next call is made in time."""

    def __init__(self, work: Callable[[], object], seconds: float):
        if seconds > threading.TIMEOUT_MAX:
            raise ArgumentValueError(
                f"upkeep_every: expected at most {threading.TIMEOUT_MAX:g} seconds, got {seconds:g}."
            )
        self._work = work
        self._seconds = seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dmem_jax upkeep", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            try:
                self._work()
            except ClosedError:
                return
            except Exception:
                _log.exception("upkeep failed; it will be tried again in %g s", self._seconds)

    def stop(self) -> None:
        """Returns when the work under way, if there is any, is done."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
