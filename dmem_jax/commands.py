"""What the command `dmem` can do. Imported only where typer and rich are."""

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dmem_jax.doctor import complaints, findings
from dmem_jax.errors import ArgumentValueError, DmemError, MissingExtraError, shown

app = typer.Typer(
    help="An agent's memory, from the shell.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
P = ParamSpec("P")

Db = Annotated[str, typer.Option(help="SQLite file, or a URL such as postgresql+psycopg://...")]
NamespaceName = Annotated[str, typer.Option(help="Whose memories.")]
Encoder = Annotated[str, typer.Option(help='Name or folder of a text model; "static" for the fast one of wordllama.')]
Capacity = Annotated[tuple[int, int], typer.Option(help="Memories that core and buffer of a namespace hold.")]
_STANDARD = Path("-")
_DB, _NAMESPACE, _ENCODER, _CAPACITY = "memory.db", "default", "all-MiniLM-L6-v2", (256, 3840)


def load_encoder(name: str) -> Any:
    """What turns texts into vectors; see `dmem_jax.encoders`."""
    from dmem_jax import encoders

    if name == "static":
        return encoders.StaticEncoder.from_pretrained()
    return encoders.TextEncoder.from_pretrained(name)


def _command(function: Callable[P, None]) -> Callable[P, None]:
    """A command that says in a sentence what went wrong."""

    @functools.wraps(function)
    def said(*args: P.args, **options: P.kwargs) -> None:
        try:
            function(*args, **options)
        except (DmemError, OSError) as error:
            print(error, file=sys.stderr)
            raise typer.Exit(1) from error

    return app.command(function.__name__.rstrip("_"))(said)


@_command
def add(
    observation: Annotated[str, typer.Argument(help="Where the outcome was met: what was seen, asked, or to be done.")],
    action: Annotated[str | None, typer.Option(help="What was done.")] = None,
    reward: Annotated[float | None, typer.Option(help="How well it went.")] = None,
    outcome: Annotated[str | None, typer.Option(help="What followed.")] = None,
    rpe: Annotated[float | None, typer.Option(help="The surprise itself, where it is known better.")] = None,
    metadata: Annotated[str | None, typer.Option(help="A JSON object.")] = None,
    time: Annotated[datetime | None, typer.Option(help="When it happened, UTC; now, if left out.")] = None,
    signal: Annotated[str, typer.Option(help='Where surprise comes from: "value", "reward" or "novelty".')] = "value",
    db: Db = _DB,
    namespace: NamespaceName = _NAMESPACE,
    encoder: Encoder = _ENCODER,
    capacity: Capacity = _CAPACITY,
) -> None:
    """Adds an experience; it is kept if it surprises."""
    with _opened(db, load_encoder(encoder), capacity, signal=signal) as backend:
        added = backend.add_memory(
            observation, action, reward, outcome,
            namespace=namespace, rpe=rpe, metadata=_json("--metadata", metadata), time=time,
        )  # fmt: skip
    where = "no memory" if added.id is None else f"memory {added.id}"
    gone = "" if added.evicted_id is None else f"; memory {added.evicted_id} had to go"
    print(f"{added.route}: {where}, rpe {added.rpe:+.2f}, size {added.size:.2f}, gate {added.gate:.2f}{gone}")


@_command
def recall(
    state: Annotated[str, typer.Argument(help="What is to be decided now.")],
    k: Annotated[int, typer.Option("-k", help="Memories at most.")] = 8,
    filter: Annotated[str | None, typer.Option(help='Of metadata, JSON: {"key": {"$gte": 3}}.')] = None,
    sign: Annotated[int, typer.Option(help="1: delights only, -1: disasters only.")] = 0,
    db: Db = _DB,
    namespace: NamespaceName = _NAMESPACE,
    encoder: Encoder = _ENCODER,
    capacity: Capacity = _CAPACITY,
) -> None:
    """Shows what matters now, and why: nearness of meaning and words, and how much it matters by itself. Changes
    nothing, and is not counted as a recall."""
    with _opened(db, load_encoder(encoder), capacity, read_only=True) as backend:
        _known(backend, namespace)
        found = backend.get_relevant_memories(
            state, k, namespace=namespace, filter=_json("--filter", filter), sign=sign, count=False
        )
    rows = [
        [str(one.id), *(f"{x:.3f}" for x in (one.score, one.similarity, one.keyword, one.salience)),
         f"{one.rpe:+.2f}", one.tier, f"{one.created_at:%Y-%m-%d}", _told(one)]
        for one in found
    ]  # fmt: skip
    _show("id", "score", "similarity", "keyword", "salience", "rpe", "tier", "date", "memory", rows=rows)


@_command
def feedback(
    ids: Annotated[list[int], typer.Argument(help="Memories that the decision stood on.")],
    rpe: Annotated[float, typer.Option(help="How much better (> 0) or worse than they foretold; 0: as foretold.")],
    db: Db = _DB,
    namespace: NamespaceName = _NAMESPACE,
    capacity: Capacity = _CAPACITY,
) -> None:
    """Tells what came of memories: it strengthens, weakens or renews them."""
    with _opened(db, None, capacity) as backend:
        _known(backend, namespace)
        print(f"{backend.feedback(ids, rpe, namespace=namespace)} of {len(ids)} memories found")


@_command
def stats(db: Db = _DB, namespace: NamespaceName = _NAMESPACE, capacity: Capacity = _CAPACITY) -> None:
    """Numbers of a namespace, as a log would have them."""
    with _opened(db, None, capacity, read_only=True) as backend:
        _known(backend, namespace)
        told = backend.stats(namespace)
    _show("name", "value", rows=[[name, f"{value:.6g}"] for name, value in sorted(told.items())])


@_command
def plot(
    file: Annotated[Path, typer.Argument(help="A database, or a checkpoint of dmem_jax.checkpoint.save.")],
    out: Annotated[Path, typer.Option(help="Picture to write; its suffix says of what kind.")] = Path("memory.png"),
    agent: Annotated[int | None, typer.Option(help="Of many agents, the one to draw; all, if left out.")] = None,
    namespace: NamespaceName = _NAMESPACE,
    capacity: Capacity = _CAPACITY,
) -> None:
    """Draws the standard pictures of a saved memory: how surprising what was met is, with the thresholds; what is kept;
    how old it is; what became of the rest."""
    from dmem_jax import checkpoint, plots

    if not file.is_file():
        print(plots.draw(checkpoint.restore(file), out, agent=agent))
        return
    with _opened(str(file), None, capacity, read_only=True) as backend:
        _known(backend, namespace)
        with backend._spaces.reading(namespace) as space:
            saved = checkpoint.Checkpoint(config=space.config, params=space.params, memory=space.memory)
        print(plots.draw(saved, out, agent=agent))


@_command
def consolidate(
    db: Db = _DB,
    namespace: Annotated[str | None, typer.Option(help="Whose memories; everybody's, if left out.")] = None,
    capacity: Capacity = _CAPACITY,
) -> None:
    """A rest: forgets what is weak, merges what says the same, promotes what proved itself."""
    with _opened(db, None, capacity) as backend:
        if namespace is not None:
            _known(backend, namespace)
        done = backend.consolidate(namespace)
    print(", ".join(f"{name} {count}" for name, count in done.items()))


@_command
def export(
    out: Annotated[Path, typer.Argument(help='File to write; "-": standard output.')] = _STANDARD,
    db: Db = _DB,
    namespace: NamespaceName = _NAMESPACE,
    capacity: Capacity = _CAPACITY,
) -> None:
    """Writes all of a namespace as JSON Lines: one that tells of the whole, then a memory a line."""
    if out != _STANDARD and out.exists() and out.open("rb").read(15) == b"SQLite format 3":
        raise ArgumentValueError(f"out: expected a file for lines of JSON, and {out} is a database.")
    with _opened(db, None, capacity, read_only=True) as backend:
        _known(backend, namespace)
        # In ASCII: no terminal, pipe or text of a memory can spoil it.
        lines = [json.dumps(line) + "\n" for line in backend.export(namespace)]
    if out == _STANDARD:
        sys.stdout.writelines(lines)
    else:
        out.write_text("".join(lines))
    print(f"{len(lines) - 1} memories written", file=sys.stderr)


@_command
def import_(
    file: Annotated[Path, typer.Argument(help='What `dmem export` wrote; "-": standard input.')] = _STANDARD,
    db: Db = _DB,
    namespace: NamespaceName = _NAMESPACE,
    capacity: Capacity = _CAPACITY,
) -> None:
    """Reads a namespace back, exactly as it was, into one that holds nothing; makes the database if there is none."""
    from dmem_jax.agent.transfer import check

    with contextlib.nullcontext(sys.stdin) if file == _STANDARD else file.open(encoding="utf-8") as text:
        lines = _lines(text)
        first = next(lines, None)
        if not isinstance(first, dict) or not isinstance(first.get("dim"), int) or first["dim"] < 1:
            raise ArgumentValueError(f"{file}: expected what `dmem export` writes, got {shown(first)}.")
        made_with = _MadeWith(str(first.get("encoder")), first["dim"])
        read = [first, *lines]
        check(read)  # before there is a database
        with _opened(db, made_with, capacity, store_dtype=first.get("store_dtype", "float32")) as backend:
            count = backend.restore(read, namespace=namespace)
    print(f"{count} memories read")


@_command
def doctor() -> None:
    """Tells versions and devices, and what is missing."""
    _show("what", "is", rows=findings())
    if missing := complaints():
        _show("missing", "without it", "to install it", rows=missing)


class _MadeWith:
    """Stands for the encoder that a database was made with, where no text is to be encoded."""

    def __init__(self, name: str, dim: int):
        self.name, self.dim = name, dim

    def __call__(self, texts: Sequence[str], /) -> Any:
        raise AssertionError("a command that encodes texts has to load the encoder")


def _opened(
    db: str,
    encoder: Any,
    capacity: tuple[int, int],
    *,
    read_only: bool = False,
    signal: Any = "value",
    store_dtype: Any = "float32",
) -> Any:
    """The backend, with what the database was made with. Only a command that has an encoder makes a new one."""
    try:
        from dmem_jax.agent import MemoryBackend
        from dmem_jax.agent.database import Database
    except ImportError as error:
        if isinstance(error, MissingExtraError):
            raise
        raise MissingExtraError(f"memories in a database need {error.name}: pip install 'dmem-jax[agent]'.") from error
    if encoder is None or read_only or "://" in db or Path(db).exists():
        database = Database(db, about={}, read_only=True)
        with database.reading() as transaction:
            about = transaction.about() or {}
        database.close()
        store_dtype = about["store_dtype"]
        encoder = _MadeWith(about["encoder"], int(about["embedding size"])) if encoder is None else encoder
    return MemoryBackend(
        db, encoder=encoder, capacity=capacity, signal=signal, store_dtype=store_dtype, read_only=read_only
    )


def _lines(file: Iterable[str]) -> Iterator[Any]:
    line = ""
    try:
        for line in file:
            yield json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ArgumentValueError(f"a line: expected JSON in UTF-8, got {shown(line)} ({error}).") from error


def _known(backend: Any, namespace: str) -> None:
    names = backend.namespaces()
    if namespace not in names:
        there = f"there are {', '.join(map(repr, names[:10]))}" if names else "there is none yet"
        raise ArgumentValueError(f"--namespace: there is no {namespace!r}; {there}.")


def _json(name: str, given: str | None) -> Any:
    try:
        return None if given is None else json.loads(given)
    except (ValueError, RecursionError) as error:
        raise ArgumentValueError(f"{name}: expected JSON, got {shown(given)} ({error}).") from error


def _told(memory: Any) -> str:
    said = [memory.observation, memory.action, memory.next_observation]
    return " → ".join(text for text in said if text) + (" (contradicted)" if memory.contradicted else "")


def _show(*columns: str, rows: Sequence[Sequence[str]]) -> None:
    """A table; texts in it are never markup, nor can they steer the terminal."""
    from dmem_jax.agent.prompt import one_line

    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    Console().print(table)
