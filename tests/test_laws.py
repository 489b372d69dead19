"""The laws of the core: what must hold of the compiled program, whatever is computed."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmem_jax as dmem
from tests import jitted
from tests.lives import PAYLOAD, assert_trees_equal, random_experiences, random_queries, rows

AGENTS, CORE, BUFFER, DIM = 24, 5, 19, 40
KINDS = [
    {},
    {"duplicates": "search"},
    {"duplicates": "off"},
    {"buffer_eviction": "age_frequency", "thresholds": "quantile", "top_k": (2, 2)},
    {"store_next": True, "smoothing": "mean", "fusion": "rank"},
]


def seldom(kind):
    """A case for the nightly run: it takes long to compile, and most of it the others have, too."""
    return pytest.param(kind, marks=pytest.mark.slow)


def small_config(**kinds) -> dmem.Config:
    sizes: dict[str, Any] = {"embedding_dim": DIM, "core_capacity": CORE, "buffer_capacity": BUFFER, "top_k": 4}
    return dmem.Config(**(sizes | kinds))


def life_step(config: dmem.Config, params: dmem.Params, carry, key):
    """One turn of a training loop as a user writes it: step, reinforce, renew."""
    used = jnp.eye(config.recalled)[0]
    memories, last = carry
    queries = random_queries(config, key, AGENTS)
    memories, info = jax.vmap(dmem.step, in_axes=(None, None, 0, 0, 0))(config, params, memories, last, queries)
    outcome = jax.random.normal(key, (AGENTS,))
    memories = jax.vmap(dmem.reinforce, in_axes=(None, None, 0, 0, 0, None))(
        config, params, memories, info.recall, outcome, used
    )
    memories = jax.vmap(dmem.renew, in_axes=(None, None, 0, 0, None))(config, params, memories, info.recall, used)
    return (memories, random_experiences(config, key, AGENTS)), (info.recall.score, info.recall.payload)


def fresh_carry(config: dmem.Config):
    return (
        dmem.init(config, PAYLOAD, batch_shape=(AGENTS,)),
        dmem.no_experience(config, PAYLOAD, batch_shape=(AGENTS,)),
    )


def test_no_two_leaves_share_a_buffer():
    memory = dmem.init(small_config(store_next=True, smoothing="mean"), PAYLOAD)
    pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(memory) if leaf.size]
    assert len(set(pointers)) == len(pointers)


def test_one_trace():
    config = small_config()
    params = dmem.Params.default(config)
    traces = []

    @functools.partial(jax.jit, donate_argnums=0)
    def loop(carry, key, params):
        traces.append(1)
        return life_step(config, params, carry, key)[0]

    carry = loop(fresh_carry(config), jax.random.key(0), params)
    loop(carry, jax.random.key(1), params)
    assert len(traces) == 1


@pytest.mark.parametrize("kinds", KINDS, ids=str)
def test_every_operation_keeps_the_types(kinds):
    config = small_config(**kinds)
    params = dmem.Params.default(config)
    memory = dmem.init(config, PAYLOAD)
    experience = jax.tree.map(lambda x: x[0], random_experiences(config, jax.random.key(0), 1))
    query = jax.tree.map(lambda x: x[0], random_queries(config, jax.random.key(0), 1))
    used = jnp.ones(config.recalled)

    def operations(memory):
        stepped, info = dmem.step(config, params, memory, experience, query)
        return {
            "step": stepped,
            "write": dmem.write(config, params, memory, experience)[0],
            "reinforce": dmem.reinforce(config, params, memory, info.recall, jnp.float32(1.0), used),
            "renew": dmem.renew(config, params, memory, info.recall, used),
            "rebase": dmem.rebase(memory, 3),
        }

    for name, changed in jax.eval_shape(operations, memory).items():
        same = jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), memory, changed)
        assert all(jax.tree.leaves(same)), name
        assert not any(leaf.weak_type for leaf in jax.tree.leaves(changed)), name


@pytest.mark.parametrize("kinds", [KINDS[0], *map(seldom, KINDS[3:])], ids=str)
def test_vmapped_equals_looped_and_jitted_equals_eager(kinds):
    config = small_config(**kinds, warmup=2)
    params = dmem.Params.default(config, half_life=7.0)
    n = 3
    together = dmem.init(config, PAYLOAD, batch_shape=(n,))
    apart = [dmem.init(config, PAYLOAD) for _ in range(n)]
    step_together = jax.jit(jax.vmap(dmem.step, in_axes=(None, None, 0, 0, 0)))
    eager = apart[0]
    for i in range(20):
        key = jax.random.key(i)
        experiences, queries = random_experiences(config, key, n), random_queries(config, key, n)
        together, _ = step_together(config, params, together, experiences, queries)
        one = [rows((experiences, queries), a) for a in range(n)]
        apart = [jitted.step(config, params, m, *args)[0] for m, args in zip(apart, one, strict=True)]
        if i < 2 and kinds == {}:
            eager, _ = dmem.step(config, params, eager, *jax.tree.map(jnp.asarray, one[0]))
            assert_trees_equal(eager, apart[0])
    for a in range(n):
        assert_trees_equal(rows(together, a), apart[a])


def test_write_many_is_a_scan_of_write():
    config = small_config(duplicates="search", warmup=2)
    params = dmem.Params.default(config)
    experiences = random_experiences(config, jax.random.key(0), 30)
    many, infos = jitted.write_many(config, params, dmem.init(config, PAYLOAD), experiences)
    one = dmem.init(config, PAYLOAD)
    for i in range(30):
        one, info = jitted.write(config, params, one, rows(experiences, i))
        assert_trees_equal(rows(infos, i), info)
    assert_trees_equal(many, one)


def test_params_may_be_swept_by_vmap():
    config = small_config()
    sweep = jax.vmap(lambda bias: dmem.Params.default(config, gate_bias=bias))(jnp.array([0.0, 2.0, 4.0]))
    experience = jax.tree.map(lambda x: x[0], random_experiences(config, jax.random.key(0), 1))
    _, infos = jax.jit(jax.vmap(dmem.write, in_axes=(None, 0, None, None)))(
        config, sweep, dmem.init(config, PAYLOAD), experience
    )
    np.testing.assert_allclose(infos.gate, jax.nn.sigmoid(infos.size - jnp.array([0.0, 2.0, 4.0])), rtol=1e-6)


def test_the_gate_receives_a_gradient_through_memory():
    """Strengths are set by the gate, and `attend` weighs by strength: a later loss reaches alpha and beta."""
    config = small_config(top_k=2, warmup=2)
    experiences = random_experiences(config, jax.random.key(3), 12)

    def loss(params):
        memory, _ = dmem.write_many(config, params, dmem.init(config, PAYLOAD), experiences)
        return jnp.square(dmem.attend(config, params, memory, jnp.ones(DIM)).readout).sum()

    grads = jax.jit(jax.grad(loss))(dmem.Params.default(config))
    assert all(bool(jnp.isfinite(g)) for g in jax.tree.leaves(grads))
    for name in (
        "gate_scale",
        "gate_bias",
        "semantic_weight",
        "semantic_temperature",
        "salience_temperature",
        "half_life",
    ):
        assert float(jnp.abs(getattr(grads, name))) > 0, name


def test_every_path_scores_through_one_function(monkeypatch):
    """Eviction, duplicate search and recall share `canonical`: swap it and each of them changes."""
    import dmem_kernels
    from dmem_jax import duplicates, insertion, retrieval

    assert insertion.canonical is duplicates.canonical is retrieval.canonical is dmem_kernels.canonical
    config = small_config(core_capacity=3, buffer_capacity=0, duplicates="search", warmup=0, thresholds="fixed")
    params = dmem.Params.default(config, threshold_low=0.0, threshold_high=0.0)
    experiences = random_experiences(config, jax.random.key(5), 20)

    def life():
        memory, infos = dmem.write_many(config, params, dmem.init(config, PAYLOAD), experiences)
        return infos.evicted_id, dmem.recall(config, params, memory, experiences.embedding[-1]).id, memory.core.count

    def reversed_order(scores):
        return jnp.where(jnp.isfinite(scores), -scores, scores)

    plain = life()
    for module in (insertion, duplicates, retrieval):
        monkeypatch.setattr(module, "canonical", reversed_order)
        changed = life()
        assert any(not np.array_equal(a, b) for a, b in zip(plain, changed, strict=True)), module.__name__
        monkeypatch.undo()


def test_nbytes_counts_what_is_there():
    config = small_config(store_next=True)
    memory = dmem.init(config, PAYLOAD)
    assert dmem.nbytes(config, PAYLOAD) == sum(leaf.nbytes for leaf in jax.tree.leaves(memory))


def test_replacing_a_field_keeps_the_rest():
    memory = dmem.init(small_config(), PAYLOAD)
    moved = dataclasses.replace(memory, clock=jnp.int32(5))
    assert int(moved.clock) == 5
    assert moved.core is memory.core


@pytest.mark.parametrize("fusion", ["softmax", "plain"])
def test_slots_may_lie_on_several_devices(fusion):
    """As a compiler shards them: what it cannot join over devices it refuses."""
    config = small_config(fusion=fusion, core_capacity=256, buffer_capacity=512)
    params, memory = dmem.Params.default(config), dmem.init(config)
    mesh = jax.make_mesh((4,), ("slots",), axis_types=(jax.sharding.AxisType.Auto,))

    def on(spec, tree):
        return jax.device_put(tree, jax.NamedSharding(mesh, spec))

    spread = dataclasses.replace(
        on(jax.P(), memory), core=on(jax.P("slots"), memory.core), buffer=on(jax.P("slots"), memory.buffer)
    )

    @jax.jit
    def life(memory):
        experience = dmem.experience(config, jnp.ones(DIM), rpe=1.0)
        memory, info = dmem.step(config, params, memory, experience, jnp.ones(DIM))
        return info.recall, dmem.attend(config, params, memory, jnp.ones(DIM))

    assert_trees_equal(life(spread), life(memory))
