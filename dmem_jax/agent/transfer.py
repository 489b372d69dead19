"""A namespace as lines of JSON, and back: every number of every memory, so that nothing is decided anew.

The first line is the state that no memory holds (what was learnt, the scale of surprise, counters), each other one a
memory: its texts and metadata to be read, its numbers, its vector in base64.
"""

import base64
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from dmem_jax.agent.checks import number as number_
from dmem_jax.agent.checks import text, whole
from dmem_jax.agent.database import SLOT_NUMBERS, Document
from dmem_jax.agent.metadata import check_metadata
from dmem_jax.agent.rows import placed
from dmem_jax.agent.times import from_microseconds
from dmem_jax.errors import ArgumentValueError, shown
from dmem_jax.types import Tier

if TYPE_CHECKING:
    from dmem_jax.agent.namespace import Namespace

FORMAT = 1
_GREATEST = float(np.finfo(np.float32).max)
_LEAST = {"inv_norm": 0.0, "strength": 0.0, "written_strength": 0.0, "recalls": 0, "successes": 0, "count": 1}
_NUMBERS = ("id", "slot", *SLOT_NUMBERS)
_TEXTS = ("observation", "action", "next_observation", "rewarded", "metadata", "created", "updated")


def lines(space: "Namespace", encoder: str) -> Iterator[dict[str, Any]]:
    """What `restored` reads. `encoder`: its name."""
    state = base64.b64encode(space.state()).decode()
    config = space.config
    about = {"encoder": encoder, "dim": config.embedding_dim, "store_dtype": config.store_dtype}
    yield {"dmem_jax": FORMAT} | about | {"state": state}
    for slot, row in space.all_rows().items():
        document = dataclasses.asdict(space.document_of(row["id"]))
        tier, within = placed(config, slot)
        yield {
            "id": row["id"],
            "key": document["key"],
            **{name: document[name] for name in _TEXTS},
            "tier": tier.name.lower(),
            "slot": within,
            **{name: row[name] for name in SLOT_NUMBERS},
            "scale": row["scale"],
            "embedding": base64.b64encode(row["embedding"].tobytes()).decode(),
        }


def header_of(line: Any, encoder: str, dim: int, dtype: np.dtype) -> bytes:
    """The state in a first line; an error that says what is wrong with it."""
    if not isinstance(line, Mapping) or line.get("dmem_jax") != FORMAT:
        raise ArgumentValueError(f"lines: expected a first line with dmem_jax: {FORMAT}, got {shown(line)}.")
    for what, ours in (("encoder", encoder), ("dim", dim), ("store_dtype", dtype.name)):
        if line.get(what) != ours:
            raise ArgumentValueError(f"lines: made with {what} {line.get(what)!r}, and this database has {ours!r}.")
    return _bytes("lines[0].state", line.get("state"))


def memory_of(line: Any, number: int, dtype: np.dtype, dim: int) -> tuple[dict[str, Any], Document]:
    """Columns of a slot, and the texts, in line `number`; an error that says what is wrong with it."""
    name = f"lines[{number}]"
    if not isinstance(line, Mapping):
        raise ArgumentValueError(f"{name}: expected a JSON object, got {shown(line)}.")
    missing = [key for key in (*_NUMBERS, *_TEXTS, "tier", "embedding") if key not in line]
    if missing:
        raise ArgumentValueError(f"{name}: expected a memory, with {missing[0]!r}.")
    kinds = {"id": int, "slot": int, **SLOT_NUMBERS}
    for key, kind in kinds.items():
        given = line[key]
        fits = (
            isinstance(given, bool) if kind is bool else isinstance(given, (int, float)) and not isinstance(given, bool)
        )
        most = 2**31 - 1 if kind is int else _GREATEST
        if not fits or not abs(given) <= most or (kind is int and int(given) != given):
            raise ArgumentValueError(f"{name}.{key}: expected a number of its kind, got {shown(given)}.")
    for key, least in _LEAST.items():
        if line[key] < least:
            raise ArgumentValueError(f"{name}.{key}: expected at least {least}, got {shown(line[key])}.")
    tier = {"core": Tier.CORE, "buffer": Tier.BUFFER}.get(str(line["tier"]))
    if tier is None or line["id"] < 0 or line["slot"] < 0:
        raise ArgumentValueError(f"{name}: expected a place in core or buffer, got {shown(line['tier'])}.")
    vector = _bytes(f"{name}.embedding", line["embedding"])
    if len(vector) != dim * dtype.itemsize:
        raise ArgumentValueError(f"{name}.embedding: expected {dim * dtype.itemsize} bytes, got {len(vector)}.")
    with np.errstate(invalid="ignore"):
        if not np.isfinite(np.frombuffer(vector, dtype).astype(np.float32)).all():
            raise ArgumentValueError(f"{name}.embedding: expected finite numbers.")
    scale = line.get("scale")
    if dtype == np.int8 or scale is not None:
        scale = number_("scale", scale, least=0.0)
    document = Document(
        document=number,
        observation=text(f"{name}.observation", line["observation"]),
        action=text(f"{name}.action", line["action"], none=True),
        next_observation=text(f"{name}.next_observation", line["next_observation"], none=True),
        rewarded=bool(line["rewarded"]),
        metadata=check_metadata(line["metadata"]),
        created=_moment(f"{name}.created", line["created"]),
        updated=_moment(f"{name}.updated", line["updated"]),
        key=text(f"{name}.key", line.get("key"), none=True),
    )
    row = {key: kind(line[key]) for key, kind in kinds.items()}
    return row | {"tier": int(tier), "document": number, "embedding": vector, "scale": scale}, document


def _moment(name: str, given: Any) -> int:
    since = whole(name, given, -(2**63))
    try:
        from_microseconds(since)
    except OverflowError as error:
        raise ArgumentValueError(f"{name}: expected microseconds since 1970, got {shown(given)}.") from error
    return since


def _bytes(name: str, given: Any) -> bytes:
    try:
        return base64.b64decode(given, validate=True)
    except (ValueError, TypeError) as error:
        raise ArgumentValueError(f"{name}: expected base64, got {shown(given)}.") from error


def check(given: Sequence[Any]) -> None:
    """Raises by name what no database could take, whatever its encoder: `given` has a first line with sizes."""
    try:
        dtype = np.dtype(jnp.dtype(given[0].get("store_dtype", "float32")))
    except TypeError as error:
        raise ArgumentValueError(f"lines[0].store_dtype: got {shown(given[0].get('store_dtype'))}.") from error
    read_all(given, given[0].get("encoder"), given[0]["dim"], dtype)


def read_all(
    given: Iterable[Any], encoder: str, dim: int, dtype: np.dtype
) -> tuple[bytes, list[dict[str, Any]], list[Document]]:
    """State, slots and texts, all checked before anything is written."""
    each = iter(given)
    state = header_of(next(each, None), encoder, dim, dtype)
    slots, documents = [], []
    for number, line in enumerate(each, 1):
        slot, document = memory_of(line, number, dtype, dim)
        slots.append(slot)
        documents.append(document)
    once = {
        "id": [row["id"] for row in slots],
        "slot": [(row["tier"], row["slot"]) for row in slots],
        "key": [document.key for document in documents if document.key is not None],
    }
    for what, keys in once.items():
        if len(set(keys)) < len(keys):
            raise ArgumentValueError(f"lines: expected each {what} once.")
    return state, slots, documents
