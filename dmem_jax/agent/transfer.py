"""A namespace as lines of JSON, and back: every number of every memory, so that nothing is decided anew.

The first line is the state that no memory holds (what was learnt, the scale of surprise, counters), each other one a
memory: its texts and metadata to be read, its numbers, its vector in base64.
"""

import base64
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dmem_jax.agent.database import SLOT_NUMBERS, Document
from dmem_jax.agent.metadata import check_metadata
from dmem_jax.agent.rows import placed
from dmem_jax.errors import ArgumentValueError, shown
from dmem_jax.types import Tier

if TYPE_CHECKING:
    from dmem_jax.agent.namespace import Namespace

FORMAT = 1
_NUMBERS = ("id", "slot", *SLOT_NUMBERS)
_TEXTS = ("observation", "action", "next_observation", "rewarded", "metadata", "created", "updated")


def lines(space: "Namespace", encoder: str) -> Iterator[dict[str, Any]]:
    """What `restored` reads. `encoder`: its name."""
    state = base64.b64encode(space.state()).decode()
    config = space.config
    about = {"encoder": encoder, "dim": config.embedding_dim, "store_dtype": config.store_dtype}
    yield {"dmem_jax": FORMAT} | about | {"state": state}
    for id_ in sorted(space.slot_of):
        slot, row = space.row(id_)
        document = dataclasses.asdict(space.document_of(id_))
        tier, within = placed(space.config, slot)
        yield {
            "id": id_,
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


def memory_of(line: Any, number: int, itemsize: int, dim: int) -> tuple[dict[str, Any], Document]:
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
        if not fits or (kind is int and (int(given) != given or not -(2**31) <= given < 2**31)) or given != given:
            raise ArgumentValueError(f"{name}.{key}: expected a number of its kind, got {shown(given)}.")
    tier = {"core": Tier.CORE, "buffer": Tier.BUFFER}.get(line["tier"])
    if tier is None or line["id"] < 0 or line["slot"] < 0:
        raise ArgumentValueError(f"{name}: expected a place in core or buffer, got {shown(line['tier'])}.")
    vector = _bytes(f"{name}.embedding", line["embedding"])
    if len(vector) != dim * itemsize:
        raise ArgumentValueError(f"{name}.embedding: expected {dim * itemsize} bytes, got {len(vector)}.")
    document = Document(document=number, **{key: line[key] for key in _TEXTS})
    texts = (document.observation, document.action or "", document.next_observation or "")
    if not all(isinstance(text, str) for text in texts) or not isinstance(document.rewarded, bool):
        raise ArgumentValueError(f"{name}: expected texts, got {shown(texts)}.")
    check_metadata(document.metadata)
    row = {key: kind(line[key]) for key, kind in kinds.items()}
    return row | {"tier": int(tier), "document": number, "embedding": vector, "scale": line.get("scale")}, document


def _bytes(name: str, given: Any) -> bytes:
    try:
        return base64.b64decode(given, validate=True)
    except (ValueError, TypeError) as error:
        raise ArgumentValueError(f"{name}: expected base64, got {shown(given)}.") from error


def read_all(
    given: Iterable[Any], encoder: str, dim: int, dtype: np.dtype
) -> tuple[bytes, list[dict[str, Any]], list[Document]]:
    """State, slots and texts, all checked before anything is written."""
    each = iter(given)
    state = header_of(next(each, None), encoder, dim, dtype)
    slots, documents = [], []
    for number, line in enumerate(each, 1):
        slot, document = memory_of(line, number, dtype.itemsize, dim)
        slots.append(slot)
        documents.append(document)
    for what, keys in (("id", [row["id"] for row in slots]), ("slot", [(row["tier"], row["slot"]) for row in slots])):
        if len(set(keys)) < len(keys):
            raise ArgumentValueError(f"lines: expected each {what} once.")
    return state, slots, documents
