"""Slots split over the devices of a mesh: what each device holds, and what all of them come to know.

With `Config.slot_axis` the functions of a memory run inside `jax.shard_map`, where each device sees a run of core's
slots and one of the buffer's, and everything else whole. Slots are told by their places in the whole memory: device i
of n holds the i-th n-th of each tier. Whoever holds a slot changes it; a row that all must know is sent to all, and so
are a few numbers of each device. Embeddings stay where they are.

Without `slot_axis` every function here is the plain one, and costs nothing.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, Shaped

from dmem_jax import slots
from dmem_jax.config import Config
from dmem_jax.errors import ArgumentValueError
from dmem_jax.slots import Tree
from dmem_jax.types import Store
from dmem_kernels import first_min

_CAPACITIES = ("core_capacity", "buffer_capacity")
_WORDS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}


def count(config: Config) -> int:
    """Devices that share a memory."""
    if config.slot_axis is None:
        return 1
    try:
        return jax.lax.axis_size(config.slot_axis)
    except NameError:
        raise ArgumentValueError(
            f"Config.slot_axis: {config.slot_axis!r} is no axis of a mesh here. Call this inside of jax.shard_map, or "
            "use dmem_jax.make(config, payload, agents=..., mesh=...); on a whole memory leave slot_axis out."
        ) from None


def part(config: Config) -> Config:
    """What one device holds."""
    if config.slot_axis is None:
        return config
    n = count(config)
    check_divisible(config, n)
    capacities = {name: getattr(config, name) // n for name in _CAPACITIES}
    return dataclasses.replace(config, slot_axis=None, **capacities)


def check_divisible(config: Config, devices: int) -> None:
    """Every device holds as many slots of a tier."""
    for name in _CAPACITIES:
        if getattr(config, name) % devices:
            raise ArgumentValueError(
                f"Config.{name}: expected a multiple of the {devices} devices that share its slots, "
                f"got {getattr(config, name)}."
            )


def whole_only(config: Config, name: str) -> None:
    """Refuses what one device cannot do with its part of a memory."""
    if isinstance(config, Config) and config.slot_axis is not None:
        raise ArgumentValueError(
            f"Config.slot_axis: {name} works on the whole memory. Call it outside of shard_map, with a config whose "
            "slot_axis is None; the compiler splits it over the same devices."
        )


def capacity(config: Config, store: Store) -> int:
    """Slots of the whole tier of which `store` is this device's part."""
    return slots.capacity(store) * count(config)


def first(config: Config, store: Store) -> Int32[Array, ""] | int:
    """The place of this device's first slot in the whole tier."""
    return 0 if config.slot_axis is None else jax.lax.axis_index(config.slot_axis) * slots.capacity(store)


def here(config: Config, store: Store, slot: Int32[Array, "*k"]) -> Int32[Array, "*k"]:
    """Which slots of this device those of the whole tier are; its capacity where they are another's."""
    if config.slot_axis is None:
        return slot
    size, own = slots.capacity(store), slot - first(config, store)
    return jnp.where((own >= 0) & (own < size), own, size)


def read(config: Config, store: Store, slot: Int32[Array, "*k"]) -> Store:
    """The rows at slots of the whole tier, on all devices; of no meaning where `slot` is its capacity."""
    if config.slot_axis is None:
        return slots.read(store, slot)
    place = here(config, store, slot)
    return sent(config, slots.keep_rows(place < slots.capacity(store), slots.read(store, place)))


def sent(config: Config, rows: Tree) -> Tree:
    """What is zero on all devices but one, on all of them, to the bit."""
    if config.slot_axis is None:
        return rows
    leaves, structure = jax.tree.flatten(rows)
    of_floats = [jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in leaves]
    floats = [leaf for leaf, is_float in zip(leaves, of_floats, strict=True) if is_float]
    others = [leaf for leaf, is_float in zip(leaves, of_floats, strict=True) if not is_float]
    # Each kind in one go. Numbers of less than 32 bits are none that every network can add.
    wide = [x.astype(jnp.int32) if x.dtype.itemsize < 4 else x for x in others]
    summed = {
        True: iter(_floats_sent(config.slot_axis, floats)),
        False: (x.astype(y.dtype) for x, y in zip(jax.lax.psum(wide, config.slot_axis), others, strict=True)),
    }
    return jax.tree.unflatten(structure, [next(summed[is_float]) for is_float in of_floats])


def weakest(config: Config, store: Store, keys: Float[Array, " n"]) -> tuple[Float[Array, ""], Int32[Array, ""]]:
    """The least of the keys and the lowest slot of the whole tier that has it."""
    least, slot = first_min(keys)
    if config.slot_axis is None:
        return least, slot
    all_least, all_slots = everywhere(config, (least, slot + first(config, store)))
    least, device = first_min(all_least)
    return least, all_slots[device]


def everywhere(config: Config, given: Tree) -> Tree:
    """What each device has, on a leading axis of devices, on all of them."""
    if config.slot_axis is None:
        return jax.tree.map(lambda x: x[None], given)
    n, i = count(config), jax.lax.axis_index(config.slot_axis)
    # As a sum: unlike an all_gather, its type says that all devices have the same.
    return sent(config, jax.tree.map(lambda x: jnp.zeros((n, *x.shape), x.dtype).at[i].set(x), given))


def total(config: Config, x: Shaped[Array, "*n"]) -> Shaped[Array, "*n"]:
    """The sum over devices."""
    return x if config.slot_axis is None else jax.lax.psum(x, config.slot_axis)


def greatest(config: Config, x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The greatest over devices."""
    # Unlike a pmax it has a gradient.
    return x if config.slot_axis is None else jnp.max(everywhere(config, x), axis=0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _floats_sent(axis: str, floats: list[Array]) -> list[Array]:
    """As sums of their bits: a sum of floats knows no -0, may know nothing below the least normal number, and a payload
    may hold bits that only look like floats."""
    parts = [[x.real, x.imag] if jnp.iscomplexobj(x) else [x] for x in floats]
    summed = jax.lax.psum([[_bits(x) for x in part] for part in parts], axis)
    sent = [[_of_bits(x, like) for x, like in zip(*pair, strict=True)] for pair in zip(summed, parts, strict=True)]
    return [jax.lax.complex(*part) if len(part) == 2 else part[0] for part in sent]


@_floats_sent.defjvp
def _jvp(axis: str, primals: tuple, tangents: tuple) -> tuple[list[Array], list[Array]]:
    return _floats_sent(axis, *primals), jax.lax.psum(tangents[0], axis)


def _bits(x: Array) -> Array:
    whole = jax.lax.bitcast_convert_type(x, _WORDS[x.dtype.itemsize])
    return whole.astype(jnp.uint32) if x.dtype.itemsize < 4 else whole


def _of_bits(bits: Array, like: Array) -> Array:
    return jax.lax.bitcast_convert_type(bits.astype(_WORDS[like.dtype.itemsize]), like.dtype)
