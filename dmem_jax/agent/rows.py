"""Between a slot of the arrays and a row of the database, and between the rest of a memory and bytes."""

import copy
import dataclasses
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmem_jax.agent import core
from dmem_jax.agent.database import SLOT_NUMBERS, Document
from dmem_jax.agent.times import from_microseconds
from dmem_jax.config import Config
from dmem_jax.errors import DatabaseError
from dmem_jax.types import Memory, Store, Tier

_GREATEST = float(np.finfo(np.float32).max)
Row = dict[str, Any]
"""A slot: SLOT_NUMBERS, `id` (-1: free), `document`, `embedding` (NumPy [D], in the type of the store), `scale`."""


def row_of(rows: Store, i: int) -> Row:
    """The `i`-th of rows that are NumPy arrays."""
    numbers = {name: kind(getattr(rows, name)[i]) for name, kind in SLOT_NUMBERS.items()}
    return numbers | {
        "id": int(rows.id[i]),
        "document": int(rows.payload[i]),
        "embedding": np.asarray(rows.embedding[i]),
        "scale": None if rows.scale is None else float(rows.scale[i]),
    }


def columns_of(config: Config, slot: int, row: Row, revision: int) -> dict[str, Any]:
    """As the database has it; `slot` of the pool."""
    tier, within = placed(config, slot)
    free = row["id"] < 0
    embedding = b"" if free else row["embedding"].tobytes()
    return row | {"tier": int(tier), "slot": within, "revision": revision, "embedding": embedding}


def placed(config: Config, slot: int) -> tuple[Tier, int]:
    """Tier, and slot within it, of a pool slot."""
    return (Tier.CORE, slot) if slot < config.core_capacity else (Tier.BUFFER, slot - config.core_capacity)


def pool_slot_of(config: Config, columns: Mapping[str, Any]) -> int:
    """Where in the pool a row of the database belongs."""
    return columns["slot"] + (0 if columns["tier"] == Tier.CORE else config.core_capacity)


def check_rows(slots: Sequence[Mapping[str, Any]], documents: Sequence[Document]) -> None:
    """Raises ValueError or TypeError: the database holds what we never wrote."""
    for columns in slots:
        if columns["tier"] not in (Tier.CORE, Tier.BUFFER) or columns["slot"] < 0:
            raise ValueError(f"slot {columns['slot']} of tier {columns['tier']}")
        for name in (name for name, kind in SLOT_NUMBERS.items() if kind is float):
            if not abs(columns[name]) <= _GREATEST:
                raise ValueError(f"{name} {columns[name]}, which no float32 can hold")
    live = [columns for columns in slots if columns["id"] >= 0]
    for name in "id", "document":
        if len({columns[name] for columns in live}) < len(live):
            raise ValueError(f"two memories of one {name}")
    keys = [document.key for document in documents if document.key is not None]
    if len(set(keys)) < len(keys):
        raise ValueError("two memories of one key")
    for document in documents:
        each = (document.observation, document.action or "", document.next_observation or "")
        if not all(isinstance(text, str) for text in each) or not isinstance(document.metadata, dict):
            raise ValueError(f"document {document.document}: expected texts and a JSON object")
        for since in document.created, document.updated:
            from_microseconds(since)  # raises where no datetime is that far away
    missing = {columns["document"] for columns in live} - {document.document for document in documents}
    if missing:
        raise ValueError(f"document {min(missing)} is missing")


def filled(config: Config, found: Iterable[Mapping[str, Any]]) -> tuple[Store, Store]:
    """Core and buffer with the rows `found` of the database, everything else free."""
    empty = core.empty(config)
    tiers = {Tier.CORE: jax.tree.map(np.array, empty.core), Tier.BUFFER: jax.tree.map(np.array, empty.buffer)}
    for columns in found:
        if columns["id"] >= 0:
            put(tiers[Tier(columns["tier"])], columns["slot"], columns)
    return jax.tree.map(jnp.array, tiers[Tier.CORE]), jax.tree.map(jnp.array, tiers[Tier.BUFFER])


def put(rows: Store, at: int, columns: Mapping[str, Any]) -> None:
    """A row of the database into NumPy arrays."""
    for name in (*SLOT_NUMBERS, "id"):
        getattr(rows, name)[at] = columns[name]
    rows.payload[at] = columns["document"]
    if columns["id"] >= 0:
        rows.embedding[at] = np.frombuffer(columns["embedding"], rows.embedding.dtype)
    if rows.scale is not None:
        rows.scale[at] = columns["scale"] or 0.0


def record(namespace: str, tier: Tier, row: Row, strength: float, document: Document) -> dict[str, Any]:
    """The fields of a `Stored`."""
    return {
        "id": row["id"],
        "key": document.key,
        "namespace": namespace,
        "observation": document.observation,
        "action": document.action,
        "next_observation": document.next_observation,
        "reward": row["reward"] if document.rewarded else None,
        "rpe": row["rpe"],
        "strength": strength,
        "contradicted": row["contradicted"],
        "count": row["count"],
        "recalls": row["recalls"],
        "tier": tier.name.lower(),
        "created_at": from_microseconds(document.created),
        "updated_at": from_microseconds(document.updated),
        "metadata": copy.deepcopy(document.metadata),
    }


def packed(state: Any) -> bytes:
    """The arrays of a pytree, by their paths. Nothing is pickled."""
    file = io.BytesIO()
    leaves: dict[str, Any] = {
        jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(state)
    }
    np.savez(file, allow_pickle=False, **leaves)
    return file.getvalue()


def unpacked(state: bytes, like: Any, name: str) -> Any:
    """A pytree of the structure of `like`.

    Raises DatabaseError: it is damaged, or of another structure. `name`: of the database.
    """
    try:
        with np.load(io.BytesIO(state), allow_pickle=False) as arrays:
            held = {key: arrays[key] for key in arrays.files}
    except Exception as error:  # of zipfile's there are many
        raise DatabaseError(f"{name}: the state of a namespace is damaged ({error}).") from error

    def leaf(path: Any, ours: Any) -> jax.Array:
        key = jax.tree_util.keystr(path)
        found = held.get(key)
        if found is None or found.shape != ours.shape or found.dtype != ours.dtype:
            came = "nothing" if found is None else f"{found.dtype}{list(found.shape)}"
            raise DatabaseError(f"{name}: state{key}: expected {ours.dtype}{list(ours.shape)}, got {came}.")
        return jnp.array(found)

    return jax.tree_util.tree_map_with_path(leaf, like)


def state_of(memory: Memory) -> dict[str, Any]:
    """What of a memory has no slots."""
    return {name: getattr(memory, name) for name in ("router", "stats", "clock", "next_id")}


def with_state(memory: Memory, state: dict[str, Any]) -> Memory:
    """`memory` with what `state_of` gave."""
    return dataclasses.replace(memory, **state)
