"""The n weakest: the tuned form against the definition, and that against plain Python where numbers are exact."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmem_jax as dmem
import dmem_kernels
from dmem_jax import insertion
from dmem_kernels.evict_topk import api, evict_topk, reference, xla
from dmem_kernels.evict_topk.arg_specs import ARG_SPECS, ArgSpec

INT_MAX, INT_MIN = 2**31 - 1, -(2**31)
LEAST = float(np.finfo(np.float32).min)


@functools.cache
def program(implementation, n: int, batched: bool):
    """(strength, touched, half_life, live, now) -> key, slot; compiled."""
    one = lambda *arguments: implementation(*arguments, n)  # noqa: E731
    return jax.jit(jax.vmap(one) if batched else one)


def arguments(spec: ArgSpec, seed: int, exact: bool) -> tuple:
    """Many ties; clocks anywhere in int32. `exact`: every key is a whole number, of which float32 makes no other."""
    random = np.random.default_rng(seed)
    shape = (spec.slots,) if spec.stores is None else (spec.stores, spec.slots)
    now = np.int32(random.choice([0, 100, INT_MAX, INT_MIN + 2**21]))
    ages = random.choice([0, 1024, 4096, 2**20] if exact else [0, 1, 999, 2**20, 2**31 - 1, 2**32 - 1], shape)
    touched = np.maximum(np.int64(now) - ages, INT_MIN).astype(np.int32)
    some = np.exp2(random.integers(-20, 20, shape)) if exact else np.exp(random.normal(size=shape) * 20)
    strength = np.where(random.random(shape) < 0.2, 0, np.where(random.random(shape) < 0.3, 2.0**-3, some))
    half_life = random.choice([512, 1024, np.inf] if exact else [1e-30, 0.3, 800, 1e30, np.inf], shape)
    live = random.random(shape) >= spec.free
    now = now if spec.stores is None else np.full(spec.stores, now)
    return strength.astype(np.float32), touched, half_life.astype(np.float32), live, now


@pytest.mark.parametrize("spec", ARG_SPECS.values(), ids=ARG_SPECS)
@given(seed=st.integers(0, 2**31), exact=st.booleans())
@settings(max_examples=15)
def test_the_tuned_form_is_the_definition(spec, seed, exact):
    given = arguments(spec, seed, exact)
    batched = spec.stores is not None
    expected, tuned = (program(f, spec.n, batched)(*given) for f in (reference.evict_topk, xla.evict_topk))
    for a, b in zip(expected, tuned, strict=True):
        assert a.dtype == b.dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@given(seed=st.integers(0, 2**31))
@settings(max_examples=25)
def test_the_definition_in_plain_python(seed):
    spec = ARG_SPECS["half_full"]
    strength, touched, half_life, live, now = arguments(spec, seed, exact=True)

    def key(slot: int) -> float:
        if not live[slot]:
            return -math.inf
        if strength[slot] == 0:
            return LEAST
        return math.log2(strength[slot]) - (int(now) - int(touched[slot])) / float(half_life[slot])

    keys, slots = program(evict_topk, spec.n, False)(strength, touched, half_life, live, now)
    order = sorted(range(spec.slots), key=lambda slot: (key(slot), slot))[: spec.n]
    assert slots.tolist() == order
    np.testing.assert_allclose(keys, [key(slot) for slot in order], rtol=1e-6, atol=1e-6)


def test_it_orders_as_eviction_does():
    """Bit for bit the key that insertion compares: one formula, one canonical form."""
    assert xla.canonical is reference.canonical is insertion.canonical is dmem_kernels.canonical
    strength, touched, half_life, live, now = arguments(ARG_SPECS["one_store"], 3, exact=False)
    half_life = np.where(half_life < 1, np.float32(800), np.float32(50))
    slots = len(strength)
    config = dmem.Config(embedding_dim=1, core_capacity=slots, buffer_capacity=0)
    params = dmem.Params.default(config, half_life=800, disaster_half_life=50)

    @jax.jit
    def both(store, now):
        strength, half_life = insertion.priority(config, params, dmem.Tier.CORE, store)
        sorted_key, slot = evict_topk(strength, store.touched, half_life, store.id >= 0, now, slots)
        return sorted_key, insertion.eviction_key(config, params, dmem.Tier.CORE, store, now)[slot]

    rpe = np.where(half_life == 50, -1, 1).astype(np.float32)
    store = dataclasses.replace(
        dmem.init(config).core,
        strength=jnp.asarray(strength),
        touched=jnp.asarray(touched),
        rpe=jnp.asarray(rpe),
        id=jnp.where(live, jnp.int32(7), jnp.int32(-1)),
    )
    sorted_key, key = both(store, now)
    assert np.asarray(sorted_key).tobytes() == np.asarray(key).tobytes()
    assert (np.diff(sorted_key[np.isfinite(sorted_key)]) >= 0).all()


def test_what_does_not_fit_is_named():
    strength, touched, half_life, live, now = (
        jnp.asarray(x) for x in arguments(ARG_SPECS["more_than_there_are"], 0, exact=True)
    )
    with pytest.raises(ValueError, match=r"^n: expected at least 1, got 0"):
        api.evict_topk(strength, touched, half_life, live, now, 0)


@pytest.mark.usefixtures("unchecked")
def test_arrays_of_other_lengths_are_named():
    strength, touched, half_life, live, now = (
        jnp.asarray(x) for x in arguments(ARG_SPECS["more_than_there_are"], 0, exact=True)
    )
    with pytest.raises(ValueError, match=r"^half_life: expected the shape of strength, \[5\], got \[4\]"):
        api.evict_topk(strength, touched, half_life[1:], live, now, 2)
