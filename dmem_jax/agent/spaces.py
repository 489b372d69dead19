"""Which namespaces are in this process's memory, and who may use them: one thread at a time each."""

import collections
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from dmem_jax.agent.database import Database, Transaction
from dmem_jax.agent.namespace import Namespace
from dmem_jax.errors import ClosedError, DatabaseError, UnknownMemoryError

_log = logging.getLogger("dmem_jax.agent")
_LOADED = 256  # namespaces that stay; of more those that were used least lately go, and come back when asked for


class Spaces:
    """All namespaces of one backend."""

    def __init__(self, database: Database, make: Callable[[str], Namespace]):
        self.closed = False
        self._database = database
        self._make = make
        self._loaded: collections.OrderedDict[str, Namespace] = collections.OrderedDict()
        self._gone_changed: set[str] = set()  # names of those that had to go before they were consolidated
        self._lock = threading.Lock()

    def check_open(self) -> None:
        """Raises ClosedError."""
        if self.closed:
            raise ClosedError("this MemoryBackend is closed.")

    def to_consolidate(self, *, idle: bool) -> list[str]:
        """Names of those that have changed since they were consolidated; with `idle` of all that are loaded."""
        with self._lock:
            gone, self._gone_changed = self._gone_changed, set()
            loaded = {space.name for space in self._loaded.values() if space.changed or idle}
            return [] if self.closed else sorted(loaded | gone)

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

    def clear(self, name: str) -> int:
        """Nothing is left of it but the number of its next id. How many memories there were."""
        with self._alone_with(name) as space, self._database.writing() as transaction:
            found = transaction.namespace(name)
            if found is None:
                self._let_go(space)
                return 0
            count = transaction.live(found.id)
            try:
                space.catch_up(transaction, self._database.name)
            except DatabaseError:  # it is damaged: then not even that
                transaction.drop_namespace(found.id)
            else:
                space.clear(transaction)
            space.forget()
            return count

    def close(self) -> None:
        """Waits for whoever is at work, and writes what is left to write."""
        with self._lock:
            self.closed = True
            spaces = list(self._loaded.values())
        failed: list[DatabaseError] = []
        for space in spaces:
            with space.lock:
                try:
                    self._settle(space)
                except DatabaseError as error:  # the others are to be settled all the same
                    failed.append(error)
                finally:
                    space.forget()
        if failed:
            raise failed[0]

    @contextlib.contextmanager
    def _alone_with(self, name: str) -> Iterator[Namespace]:
        with contextlib.ExitStack() as stack:
            space = self._space(name)
            stack.enter_context(space.lock)
            while not self._is_loaded(space):  # it had to go while this thread waited for it
                stack.close()
                space = self._space(name)
                stack.enter_context(space.lock)
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
            except DatabaseError:
                _log.exception("counts of recalls in namespace %r are lost", oldest.name)
            finally:
                with self._lock:
                    if oldest.changed:
                        self._gone_changed.add(oldest.name)
                self._let_go(oldest)
                oldest.forget()
                oldest.lock.release()
        return space

    def _is_loaded(self, space: Namespace) -> bool:
        with self._lock:
            self.check_open()
            return self._loaded.get(space.name) is space

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
