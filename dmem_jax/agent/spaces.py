"""Which namespaces are in this process's memory, and who may use them: one thread at a time each."""

import collections
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from dmem_jax.agent.database import Database, Transaction
from dmem_jax.agent.namespace import Namespace
from dmem_jax.errors import ClosedError, UnknownMemoryError

_LOADED = 256  # namespaces that stay; of more those that were used least lately go, and come back when asked for


class Spaces:
    """All namespaces of one backend."""

    def __init__(self, database: Database, make: Callable[[str], Namespace]):
        self.closed = False
        self._database = database
        self._make = make
        self._loaded: collections.OrderedDict[str, Namespace] = collections.OrderedDict()
        self._lock = threading.Lock()

    def check_open(self) -> None:
        """Raises ClosedError."""
        if self.closed:
            raise ClosedError("this MemoryBackend is closed.")

    def changed(self) -> list[str]:
        """Names of those that have changed since they were consolidated."""
        with self._lock:
            return [] if self.closed else [space.name for space in self._loaded.values() if space.changed]

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[Namespace | None]:
        """The namespace as the database has it now; None where there is none, and then nothing of it stays."""
        with self._alone_with(name) as space:
            with self._database.reading() as transaction:
                known = space.catch_up(transaction, self._database.name)
            if not known:
                self._let_go(space)
            yield space if known else None

    @contextlib.contextmanager
    def writing(self, name: str, *, create: bool = False) -> Iterator[tuple[Any, Transaction]]:
        """The same, to be changed: with the block's end it is committed, or, after an error, as it was."""
        with self._alone_with(name) as space:
            with self._database.writing() as transaction:
                known = space.catch_up(transaction, self._database.name, create=create)
                yield space if known else None, transaction
            if not known:
                self._let_go(space)

    def close(self) -> None:
        """Waits for whoever is at work, and writes what is left to write."""
        with self._lock:
            self.closed = True
            spaces = list(self._loaded.values())
        for space in spaces:
            with space.lock:
                try:
                    self._settle(space)
                finally:
                    space.forget()

    @contextlib.contextmanager
    def _alone_with(self, name: str) -> Iterator[Namespace]:
        space = self._space(name)
        with space.lock:
            self.check_open()  # it may have been closed meanwhile
            try:
                yield space
            except UnknownMemoryError:
                raise  # nothing was done
            except BaseException:
                space.forget()
                raise

    def _space(self, name: str) -> Namespace:
        with self._lock:
            self.check_open()
            space = self._loaded.get(name)
            if space is None:
                space = self._loaded[name] = self._make(name)
            self._loaded.move_to_end(name)
            oldest = next(iter(self._loaded.values())) if len(self._loaded) > _LOADED else None
        if oldest is not None and oldest.lock.acquire(blocking=False):
            try:
                self._settle(oldest)
                self._let_go(oldest)
                oldest.forget()
            finally:
                oldest.lock.release()
        return space

    def _let_go(self, space: Namespace) -> None:
        with self._lock:
            if self._loaded.get(space.name) is space:
                del self._loaded[space.name]

    def _settle(self, space: Namespace) -> None:
        """Counts of recalls that the database does not have yet."""
        if space.has_uncounted and not self._database.read_only:
            with self._database.writing() as transaction:
                if space.catch_up(transaction, self._database.name):
                    space.save_counts(transaction)
