"""Where memories outlive the process: a database that holds, slot by slot, what the arrays hold (extra: agent).

A namespace is one row with the state that has no slots; a row of `slots` is a slot of its memory, free ones too once
they were used, so that another process sees by the `revision` which slots have changed since it looked. Texts are
`documents`, which the slots name. What belongs together is written in one transaction.
"""

import contextlib
import dataclasses
import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, DatabaseError, MissingExtraError, shown

try:
    import sqlalchemy as sql
    from sqlalchemy import event
    from sqlalchemy import exc as errors
    from sqlalchemy.dialects import postgresql, sqlite
except ImportError as error:
    raise MissingExtraError("MemoryBackend needs SQLAlchemy: pip install 'dmem-jax[agent]'.") from error

VERSION = 2
"""Of the tables. A file of a greater one is refused."""
_MAKING = 0x646D656D  # Postgres's name for who makes tables: any number that others don't use
_BUSY = 60  # seconds that a writer waits for another process

_tables = sql.MetaData()
_meta = sql.Table("dmem_meta", _tables, sql.Column("key", sql.Text, primary_key=True), sql.Column("value", sql.Text))
_namespaces = sql.Table(
    "dmem_namespaces",
    _tables,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("name", sql.Text, unique=True, nullable=False),
    sql.Column("revision", sql.BigInteger, nullable=False),
    sql.Column("state", sql.LargeBinary, nullable=False),
    sqlite_autoincrement=True,  # or a new one would get the id of one that was cleared, and be taken for it
)
SLOT_NUMBERS = {
    "inv_norm": float,
    "rpe": float,
    "reward": float,
    "value": float,
    "strength": float,
    "written_strength": float,
    "task": int,
    "time": int,
    "touched": int,
    "recalls": int,
    "successes": int,
    "count": int,
    "contradicted": bool,
}
"""Columns of a slot that are fields of a `Store`, with the Python type of each."""
_KINDS = {float: sql.Double, int: sql.Integer, bool: sql.Boolean}
_slots = sql.Table(
    "dmem_slots",
    _tables,
    sql.Column("namespace", sql.ForeignKey("dmem_namespaces.id", ondelete="CASCADE"), primary_key=True),
    sql.Column("tier", sql.Integer, primary_key=True),  # a Tier
    sql.Column("slot", sql.Integer, primary_key=True),  # within its tier
    sql.Column("revision", sql.BigInteger, nullable=False),
    sql.Column("id", sql.Integer, nullable=False),  # -1: free
    sql.Column("document", sql.Integer, nullable=False),
    sql.Column("embedding", sql.LargeBinary, nullable=False),
    sql.Column("scale", sql.Double),
    *(sql.Column(name, _KINDS[kind], nullable=False) for name, kind in SLOT_NUMBERS.items()),
    sql.Index("dmem_slots_revision", "namespace", "revision"),
)
_documents = sql.Table(
    "dmem_documents",
    _tables,
    sql.Column("namespace", sql.ForeignKey("dmem_namespaces.id", ondelete="CASCADE"), primary_key=True),
    sql.Column("document", sql.Integer, primary_key=True),
    sql.Column("observation", sql.Text, nullable=False),
    sql.Column("action", sql.Text),
    sql.Column("next_observation", sql.Text),
    sql.Column("rewarded", sql.Boolean, nullable=False),
    sql.Column("metadata", sql.Text, nullable=False),  # JSON
    sql.Column("created", sql.BigInteger, nullable=False),  # microseconds since 1970, UTC
    sql.Column("updated", sql.BigInteger, nullable=False),
    sql.Column("key", sql.Text),  # since version 2
    sql.Index("dmem_documents_key", "namespace", "key", unique=True),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """The texts of a memory."""

    document: int
    observation: str
    action: str | None
    next_observation: str | None
    rewarded: bool  # whether a reward was given with it
    metadata: dict[str, Any]
    created: int  # microseconds since 1970, UTC
    updated: int
    key: str | None = None  # what the caller calls it; of a namespace no two have the same


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """A namespace as it stands in the database."""

    id: int
    revision: int
    state: bytes


class Database:
    """An engine of SQLAlchemy with our tables."""

    def __init__(self, url: str | os.PathLike[str], *, about: dict[str, str], read_only: bool):
        """Opens it, and makes the tables where there are none.

        Args:
          url: a path (of a SQLite file), ":memory:", or a URL of SQLAlchemy's.
          about: what must be the same at each opening (size and name of the encoder); the first one settles it.

        Raises:
          DatabaseError: it cannot be opened, is not ours, is of a newer version, or was made with another `about`.
        """
        self.read_only = read_only
        self._alone = threading.RLock()  # a database in the process's own memory has one connection
        self.name, self._engine = _engine(url, read_only)
        self._in_memory = self.name == ":memory:"
        try:
            self._check(self._about(about), about)
        except BaseException:
            self.close()
            raise

    def _about(self, ours: dict[str, str]) -> dict[str, str]:
        """What the database says of itself; `ours`, where it said nothing."""
        with self.reading() as transaction:
            known = transaction.about()
        if known is None and self.read_only:
            raise DatabaseError(f"{self.name}: holds no memories yet, and was to be opened for reading only.")
        if known is None:
            with self.writing() as transaction:
                transaction.make_tables(ours)
                known = transaction.about() or {}
        elif known.get("version") == "1" and not self.read_only:
            with self.writing() as transaction:
                transaction.bring_up_to_date()
                known = transaction.about() or {}
        return known

    def _check(self, known: dict[str, str], about: dict[str, str]) -> None:
        version = known.get("version", "0")
        if not version.isdecimal() or int(version) > VERSION:
            raise DatabaseError(
                f"{self.name}: is of version {version}, and this dmem_jax reads up to {VERSION}: install a newer one."
            )
        if int(version) < VERSION:
            raise DatabaseError(f"{self.name}: is of version {version}: open it once for writing, which renews it.")
        for what, ours in about.items():
            if known.get(what) != ours:
                raise DatabaseError(
                    f"{self.name}: was made with {what} {known.get(what)!r}, and is now opened with {ours!r}. Nothing "
                    "was changed. Open it with what it was made with (`dmem` has the option --encoder)."
                )

    @contextlib.contextmanager
    def reading(self) -> Iterator["Transaction"]:
        """A consistent view."""
        with self._transaction(write=False) as transaction:
            yield transaction

    @contextlib.contextmanager
    def writing(self) -> Iterator["Transaction"]:
        """All of what is done in it is written, or nothing; no one else writes meanwhile (in Postgres: not to the
        namespaces that it looked up)."""
        if self.read_only:
            raise DatabaseError(f"{self.name}: was opened for reading only.")
        with self._transaction(write=True) as transaction:
            yield transaction

    @contextlib.contextmanager
    def _transaction(self, *, write: bool) -> Iterator["Transaction"]:
        options: dict[str, Any] = {"dmem_write": write}
        if self._engine.dialect.name == "postgresql" and not write:
            options["isolation_level"] = "REPEATABLE READ"  # or each statement would see another moment
        with (
            self._alone if self._in_memory else contextlib.nullcontext(),
            self.saying(),
            self._engine.connect().execution_options(**options) as connection,
            connection.begin(),
        ):
            yield Transaction(connection, write)

    @contextlib.contextmanager
    def saying(self) -> Iterator[None]:
        """SQLAlchemy's errors are said as ours."""
        try:
            yield
        except (errors.SQLAlchemyError, UnicodeDecodeError) as error:  # the latter: of a damaged file
            cause = getattr(error, "orig", None) or error
            raise DatabaseError(f"{self.name}: {str(cause).strip()}") from error

    def close(self) -> None:
        """Gives its connections back."""
        self._engine.dispose()


class Transaction:
    """What the backend reads and writes, within one transaction."""

    def __init__(self, connection: sql.Connection, write: bool):
        self._do = connection.execute
        self._connection = connection
        self._write = write

    def about(self) -> dict[str, str] | None:
        """What the database says of itself; None where it is not ours yet."""
        if not sql.inspect(self._connection).has_table(_meta.name):
            return None
        return {row.key: row.value for row in self._do(sql.select(_meta))}

    def make_tables(self, about: dict[str, str]) -> None:
        """Unless another process was first."""
        if self._connection.dialect.name == "postgresql":  # where two that make one table at once both fail
            self._do(sql.select(sql.func.pg_advisory_xact_lock(_MAKING)))
        _tables.create_all(self._connection)
        rows = [{"key": key, "value": value} for key, value in (about | {"version": str(VERSION)}).items()]
        self._do(self._insert(_meta).on_conflict_do_nothing(), rows)

    def bring_up_to_date(self) -> None:
        """From version 1, unless another process was first."""
        if self._connection.dialect.name == "postgresql":
            self._do(sql.select(sql.func.pg_advisory_xact_lock(_MAKING)))
        if (self.about() or {}).get("version") == "1":
            self._do(sql.text("ALTER TABLE dmem_documents ADD COLUMN key TEXT"))
            self._do(sql.text("CREATE UNIQUE INDEX dmem_documents_key ON dmem_documents (namespace, key)"))
            self._do(_meta.update().where(_meta.c.key == "version").values(value="2"))

    def names(self, *, empty: bool = True) -> list[str]:
        """Of all namespaces, in order; without the `empty` ones, those that hold a memory."""
        query = sql.select(_namespaces.c.name).order_by(_namespaces.c.name)
        if not empty:
            query = query.where(sql.exists().where(_slots.c.namespace == _namespaces.c.id, _slots.c.id >= 0))
        return list(self._do(query).scalars())

    def namespace(self, name: str) -> Found | None:
        """As it stands; in a transaction that writes nobody else changes it until the end."""
        query = sql.select(_namespaces.c.id, _namespaces.c.revision, _namespaces.c.state)
        query = query.where(_namespaces.c.name == name)
        row = self._do(query.with_for_update() if self._write else query).first()
        return None if row is None else Found(*row)

    def revision(self, id_: int) -> int | None:
        """Of a namespace; None where it is gone. As in `namespace`, it stays so until the end."""
        query = sql.select(_namespaces.c.revision).where(_namespaces.c.id == id_)
        return self._do(query.with_for_update() if self._write else query).scalar()

    def add_namespace(self, name: str, state: bytes) -> Found:
        """A new one; or that which another process has just made."""
        new = {"name": name, "revision": 0, "state": state}
        self._do(self._insert(_namespaces).on_conflict_do_nothing(), new)
        found = self.namespace(name)
        assert found is not None
        return found

    def save_namespace(self, id_: int, revision: int, state: bytes) -> None:
        """Its next revision."""
        self._do(_namespaces.update().where(_namespaces.c.id == id_).values(revision=revision, state=state))

    def live(self, id_: int) -> int:
        """How many memories it holds."""
        query = sql.select(sql.func.count()).where(_slots.c.namespace == id_, _slots.c.id >= 0)
        return int(self._do(query).scalar() or 0)

    def clear_namespace(self, id_: int, revision: int, state: bytes) -> None:
        """All of its slots are free then; others see it by the revision."""
        free = {"id": -1, "document": -1, "embedding": b"", "revision": revision}
        self._do(_slots.update().where(_slots.c.namespace == id_).values(**free))
        self._do(_documents.delete().where(_documents.c.namespace == id_))
        self.save_namespace(id_, revision, state)

    def drop_namespace(self, id_: int) -> None:
        """With all that is in it."""
        for table in (_slots, _documents):
            self._do(table.delete().where(table.c.namespace == id_))
        self._do(_namespaces.delete().where(_namespaces.c.id == id_))

    def slots_since(self, id_: int, revision: int) -> Sequence[dict[str, Any]]:
        """Those that changed after `revision`."""
        query = sql.select(_slots).where(_slots.c.namespace == id_, _slots.c.revision > revision)
        return [dict(row) for row in self._do(query).mappings()]

    def documents(self, id_: int, wanted: Sequence[int] | None) -> list[Document]:
        """Those `wanted`; None: all."""
        query = sql.select(*(column for column in _documents.c if column.name != "namespace"))
        query = query.where(_documents.c.namespace == id_)
        pieces = [None] if wanted is None else [wanted[i : i + 500] for i in range(0, len(wanted), 500)]
        found = []
        for piece in pieces:
            rows = self._do(query if piece is None else query.where(_documents.c.document.in_(piece)))
            found += [Document(**(dict(row) | {"metadata": json.loads(row["metadata"])})) for row in rows.mappings()]
        return found

    def put_slots(self, id_: int, rows: Iterable[dict[str, Any]]) -> None:
        """Rows with every column but the namespace."""
        self._put(_slots, [row | {"namespace": id_} for row in rows])

    def put_documents(self, id_: int, documents: Iterable[Document]) -> None:
        """New ones, or in the place of those with their numbers."""
        rows = [dataclasses.asdict(document) | {"namespace": id_} for document in documents]
        for row in rows:
            row["metadata"] = json.dumps(row["metadata"], ensure_ascii=False)
        self._put(_documents, rows)

    def drop_documents(self, id_: int, documents: Iterable[int]) -> None:
        """Texts that no memory holds any more."""
        gone = [{"which": document} for document in documents]
        if gone:
            here = _documents.c.namespace == id_
            self._do(_documents.delete().where(here, _documents.c.document == sql.bindparam("which")), gone)

    def _put(self, table: sql.Table, rows: list[dict[str, Any]]) -> None:
        if rows:
            insert = self._insert(table)
            keys = [column.name for column in table.primary_key]
            new = {column.name: insert.excluded[column.name] for column in table.c if column.name not in keys}
            self._do(insert.on_conflict_do_update(index_elements=keys, set_=new), rows)

    def _insert(self, table: sql.Table) -> Any:
        return (sqlite if self._connection.dialect.name == "sqlite" else postgresql).insert(table)


def _engine(url: str | os.PathLike[str], read_only: bool) -> tuple[str, sql.Engine]:
    """The database's name in messages, and its engine."""
    if not isinstance(url, (str, os.PathLike)) or not isinstance(os.fspath(url), str):
        raise ArgumentTypeError(f"database: expected a path or a URL, got {shown(url)}.")
    text = str(os.fspath(url))
    if not text or "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ArgumentValueError(f"database: expected a path or a URL, got {shown(text)}.")
    if "://" not in text:
        return text, _sqlite_engine(text, read_only)
    driver = text.partition(":")[0]
    try:
        parsed = sql.make_url(text)
        if parsed.get_backend_name() == "sqlite":
            return parsed.database or ":memory:", _sqlite_engine(parsed.database or ":memory:", read_only)
        engine = sql.create_engine(parsed, pool_pre_ping=True, max_overflow=-1)
    except errors.ArgumentError as error:
        raise DatabaseError(f"{text}: is neither a path nor a URL that SQLAlchemy reads ({error}).") from error
    except ImportError as error:
        raise MissingExtraError(
            f"{driver} needs its driver ({error.name}): for Postgres pip install 'dmem-jax[postgres]'."
        ) from error
    if engine.dialect.name != "postgresql":
        raise DatabaseError(f"{engine.dialect.name}: expected SQLite or Postgres.")
    return parsed.render_as_string(hide_password=True), engine


def _sqlite_engine(path: str, read_only: bool) -> sql.Engine:
    target = path
    if path != ":memory:":
        if read_only and not Path(path).exists():
            raise DatabaseError(f"{path}: there is no such file.")
        if not Path(path).absolute().parent.is_dir():
            raise DatabaseError(f"{path}: its folder does not exist.")
        # SQLite makes files for its log beside the database even to read, unless told that nobody will write.
        mode = ""
        if read_only:
            # Where it may make none, and nobody has one, all that was committed is in the file itself.
            alone = not os.access(Path(path).absolute().parent, os.W_OK) and not Path(f"{path}-wal").exists()
            mode = "?immutable=1" if alone else "?mode=ro"
        target = f"file:{quote(os.path.abspath(path))}{mode}"

    def connect() -> Any:
        connection = sqlite3.connect(target, uri=target != path, timeout=_BUSY, check_same_thread=False)
        connection.isolation_level = None  # sqlite3's own transactions begin too late to keep others out
        connection.execute("PRAGMA foreign_keys=ON")
        if not read_only:
            connection.execute("PRAGMA journal_mode=WAL")  # others may read meanwhile
            connection.execute("PRAGMA synchronous=FULL")  # what was committed survives a power cut
        return connection

    if path == ":memory:":
        engine = sql.create_engine("sqlite+pysqlite://", creator=connect, poolclass=sql.StaticPool)
    else:
        # As many connections as there are threads at work: who waits to write keeps nobody from reading.
        engine = sql.create_engine("sqlite+pysqlite://", creator=connect, poolclass=sql.QueuePool, max_overflow=-1)

    @event.listens_for(engine, "begin")
    def begin(connection: sql.Connection) -> None:
        write = connection.get_execution_options().get("dmem_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine
