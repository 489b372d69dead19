"""The laws of the core: what must hold of the compiled program, whatever is computed."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmem_jax as dmem
from tests.hlo import computations, whole_writes
from tests.lives import PAYLOAD, assert_trees_equal, random_experiences, random_queries

AGENTS, CORE, BUFFER, DIM = 24, 5, 19, 40
KINDS = [
    {},
    {"duplicates": "search"},
    {"duplicates": "off"},
    {"buffer_eviction": "age_frequency", "thresholds": "quantile", "top_k": (2, 2)},
    {"store_next": True, "smoothing": "mean", "fusion": "rank"},
]


def small_config(**kinds) -> dmem.Config:
    sizes: dict[str, Any] = {"embedding_dim": DIM, "core_capacity": CORE, "buffer_capacity": BUFFER, "top_k": 4}
    return dmem.Config(**(sizes | kinds))


def life_loop(config: dmem.Config, traces: list | None = None):
    """A training loop as a user writes it: step, reinforce, renew, all donated in one scan."""
    used = jnp.eye(config.recalled)[0]

    @functools.partial(jax.jit, donate_argnums=0)
    def loop(carry, key, params):
        if traces is not None:
            traces.append(1)

        def body(carry, key):
            memories, last = carry
            queries = random_queries(config, key, AGENTS)
            memories, info = jax.vmap(dmem.step, in_axes=(None, None, 0, 0, 0))(config, params, memories, last, queries)
            outcome = jax.random.normal(key, (AGENTS,))
            memories = jax.vmap(dmem.reinforce, in_axes=(None, None, 0, 0, 0, None))(
                config, params, memories, info.recall, outcome, used
            )
            memories = jax.vmap(dmem.renew, in_axes=(None, None, 0, 0, None))(
                config, params, memories, info.recall, used
            )
            return (memories, random_experiences(config, key, AGENTS)), (info.recall.score, info.recall.payload)

        return jax.lax.scan(body, carry, jax.random.split(key, 7))

    return loop


def fresh_carry(config: dmem.Config):
    return (
        dmem.init(config, PAYLOAD, batch_shape=(AGENTS,)),
        dmem.no_experience(config, PAYLOAD, batch_shape=(AGENTS,)),
    )


def wide_shapes(store: dmem.Store) -> set[str]:
    """The shapes of a store's embedding and payload arrays, as compiled text has them."""
    names = {"float32": "f32", "int32": "s32", "bool": "pred"}
    wide = jax.tree.leaves((store.embedding, store.next_embedding, store.payload))
    return {f"{names[str(x.dtype)]}[{','.join(map(str, x.shape))}]" for x in wide if x.ndim > 2}


@functools.cache
def compiled_life(index: int):
    """The compiled loop of KINDS[index], and a carry for it: compiled once for all tests that read its text."""
    config = small_config(**KINDS[index])
    carry = fresh_carry(config)
    compiled = life_loop(config).lower(carry, jax.random.key(0), dmem.Params.default(config)).compile()
    return str(compiled.as_text()), carry


@pytest.mark.parametrize("index", range(len(KINDS)), ids=map(str, KINDS))
def test_no_embedding_or_payload_is_copied_in_a_loop(index):
    text, (memories, _) = compiled_life(index)
    shapes = wide_shapes(memories.core) | wide_shapes(memories.buffer)
    assert any(shape in text for shape in shapes)
    assert whole_writes(text, shapes) == []


@pytest.mark.parametrize("index", range(3), ids=map(str, KINDS[:3]))
def test_no_conditional_and_no_select_over_a_store(index):
    text, (memories, _) = compiled_life(index)
    shapes = wide_shapes(memories.core) | wide_shapes(memories.buffer)
    instructions = [i for body in computations(text).values() for i in body]
    assert "conditional" not in {i["op"] for i in instructions}
    assert not [i["name"] for i in instructions if i["op"] == "select" and i["shape"] in shapes]


def test_temporary_memory_is_a_tenth_of_the_stores():
    config = dmem.Config(embedding_dim=256, core_capacity=64, buffer_capacity=192)
    carry = fresh_carry(config)
    compiled = life_loop(config).lower(carry, jax.random.key(0), dmem.Params.default(config)).compile()
    stores = sum(x.nbytes for x in jax.tree.leaves((carry[0].core, carry[0].buffer)))
    analysis = compiled.memory_analysis()
    assert analysis is not None
    assert analysis.temp_size_in_bytes < stores / 10


def test_the_copy_test_sees_a_copy():
    """Read, then write, without a dependence between them: the fault that the laws are about."""

    @functools.partial(jax.jit, donate_argnums=0)
    def loop(store, queries):
        def body(store, query):
            scores = jnp.einsum("and,ad->an", store, query)
            return store.at[jnp.arange(8), 3].set(query), scores

        return jax.lax.scan(body, store, queries)

    text = str(loop.lower(jnp.zeros((8, 16, 32)), jnp.ones((5, 8, 32))).compile().as_text())
    assert whole_writes(text, {"f32[8,16,32]"})


def test_a_donated_memory_is_updated_in_place():
    config = small_config()
    agents = dmem.make(config, PAYLOAD, agents=AGENTS)
    params, memories = dmem.Params.default(config), agents.init()

    def pointers(m):
        return [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves((m.core, m.buffer))]

    before = pointers(memories)
    experiences = random_experiences(config, jax.random.key(0), AGENTS)
    memories, _ = agents.write(params, memories, experiences)
    memories, info = agents.step(params, memories, experiences, random_queries(config, jax.random.key(1), AGENTS))
    used = jnp.ones((AGENTS, config.recalled))
    memories = agents.reinforce(params, memories, info.recall, jnp.ones(AGENTS), used)
    memories = agents.renew(params, memories, info.recall, used)
    assert pointers(memories) == before


def test_no_two_leaves_share_a_buffer():
    memory = dmem.init(small_config(store_next=True, smoothing="mean"), PAYLOAD)
    pointers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(memory) if leaf.size]
    assert len(set(pointers)) == len(pointers)


def test_one_trace():
    config = small_config()
    params = dmem.Params.default(config)
    traces = []
    loop = life_loop(config, traces)
    carry, _ = loop(fresh_carry(config), jax.random.key(0), params)
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


@pytest.mark.parametrize("kinds", [KINDS[0], KINDS[3], KINDS[4]], ids=str)
def test_vmapped_equals_looped_and_jitted_equals_eager(kinds):
    config = small_config(**kinds, warmup=2)
    params = dmem.Params.default(config, half_life=7.0)
    n = 3
    together = dmem.init(config, PAYLOAD, batch_shape=(n,))
    apart = [dmem.init(config, PAYLOAD) for _ in range(n)]
    step_together = jax.jit(jax.vmap(dmem.step, in_axes=(None, None, 0, 0, 0)))
    step_apart = jax.jit(dmem.step)
    eager = apart[0]
    for i in range(20):
        key = jax.random.key(i)
        experiences, queries = random_experiences(config, key, n), random_queries(config, key, n)
        together, _ = step_together(config, params, together, experiences, queries)
        one = [jax.tree.map(lambda x, a=a: x[a], (experiences, queries)) for a in range(n)]
        apart = [step_apart(config, params, m, *args)[0] for m, args in zip(apart, one, strict=True)]
        if i < 3:
            eager, _ = dmem.step(config, params, eager, *one[0])
            assert_trees_equal(eager, apart[0])
    for a in range(n):
        assert_trees_equal(jax.tree.map(lambda x, a=a: x[a], together), apart[a])


def test_write_many_is_a_scan_of_write():
    config = small_config(duplicates="search", warmup=2)
    params = dmem.Params.default(config)
    experiences = random_experiences(config, jax.random.key(0), 30)
    many, infos = jax.jit(dmem.write_many)(config, params, dmem.init(config, PAYLOAD), experiences)
    one = dmem.init(config, PAYLOAD)
    write = jax.jit(dmem.write)
    for i in range(30):
        one, info = write(config, params, one, jax.tree.map(lambda x, i=i: x[i], experiences))
        assert_trees_equal(jax.tree.map(lambda x, i=i: x[i], infos), info)
    assert_trees_equal(many, one)


def test_params_may_be_swept_by_vmap():
    config = small_config()
    sweep = jax.vmap(lambda bias: dmem.Params.default(config, gate_bias=bias))(jnp.array([0.0, 2.0, 4.0]))
    experience = jax.tree.map(lambda x: x[0], random_experiences(config, jax.random.key(0), 1))
    _, infos = jax.vmap(dmem.write, in_axes=(None, 0, None, None))(
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

    grads = jax.grad(loss)(dmem.Params.default(config))
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
