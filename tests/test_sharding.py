"""Memories over a mesh: agents divided, the slots of a memory divided, and both. What comes out is what one device
would have made of it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import dmem_jax as dmem
from dmem_jax import ann, clusters, sharding
from tests.lives import PAYLOAD, assert_trees_equal, random_experiences, random_queries

AGENTS, STEPS = 4, 120
WHOLE = dmem.Config(embedding_dim=5, core_capacity=4, buffer_capacity=8, top_k=4, warmup=4)
KINDS = [
    {},
    {"duplicates": "search", "buffer_capacity": 4, "store_next": True, "store_dtype": "int8", "fusion": "min_max"},
    {"duplicates": "off", "fusion": "plain", "buffer_eviction": "age_frequency"},
    # Plain: equal scores of a softmax, whose sums the devices round in another order, may fall either way.
    {"top_k": (3, 2), "fusion": "plain", "signal": "novelty", "weight_schedule": "fill", "salience": "surprise"},
    {"core_capacity": 8, "buffer_capacity": 0, "store_dtype": "bfloat16"},
    {"signal": "paper", "thresholds": "paper", "scale": "none", "duplicates": "off", "shadow_capacity": 6},
]


def mesh_of(axis_type: AxisType = AxisType.Auto, **axes: int) -> jax.sharding.Mesh:
    devices = jax.devices()[: int(np.prod(list(axes.values())))]
    return jax.make_mesh((*axes.values(),), (*axes,), axis_types=(axis_type,) * len(axes), devices=devices)


def life(config: dmem.Config, params: dmem.Params, memory: dmem.Memory, experiences, queries):
    """Everything that happens to a memory inside of a loop."""

    def day(memory, x):
        experience, query = x
        memory, info = dmem.step(config, params, memory, experience, query)
        best = jnp.zeros(config.recalled).at[0].set(0.5)
        memory = dmem.reinforce(config, params, memory, info.recall, experience.rpe, best)
        memory = dmem.renew(config, params, memory, info.recall, best)
        later, written = dmem.write_many(config, params, memory, jax.tree.map(lambda leaf: leaf[None], experience))
        found = dmem.recall(config, params, later, query)
        return memory, (info, written, found, dmem.attend(config, params, memory, query))

    return jax.lax.scan(day, memory, (experiences, queries))


@pytest.mark.parametrize("kind", [pytest.param(KINDS[0], marks=pytest.mark.quick), *KINDS[1:]], ids=map(str, KINDS))
def test_divided_slots_are_one_memory(kind):
    """Repeated places make duplicates, contradictions and ties; small tiers make victims and demotions."""
    whole = dataclasses.replace(WHOLE, **kind)
    split = dataclasses.replace(whole, slot_axis="slots")
    params, memory = dmem.Params.default(whole), dmem.init(whole, PAYLOAD)
    experiences = random_experiences(whole, jax.random.key(1), STEPS)
    # Asked is, every other time, where the next experience happens, so that the probe serves its write.
    step = np.arange(STEPS)
    queries = jax.tree.map(lambda x: x[step + (step + 1) % 2], random_queries(whole, jax.random.key(1), STEPS))
    mesh = mesh_of(slots=4)
    specs = sharding.specs(mesh, memory)
    in_specs, out_specs = (jax.P(), specs, jax.P(), jax.P()), (specs, jax.P())
    divided = jax.shard_map(functools.partial(life, split), mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    expected = jax.jit(functools.partial(life, whole))(params, memory, experiences, queries)
    assert_trees_equal(jax.jit(divided)(params, sharding.place(mesh, memory), experiences, queries), expected)
    stats = expected[0].stats
    assert stats.evicted > 0
    assert (stats.demoted > 0) == (whole.buffer_capacity > 0)
    assert (stats.merged > 0) == (stats.contradicted > 0) == (whole.duplicates != "off")


def days(agents: dmem.Agents):
    """What a bundle does over some days, and what it told."""
    params, memories, told = dmem.Params.default(WHOLE), agents.init(), [agents.no_experience()]
    used = np.eye(1, 4).repeat(AGENTS, axis=0)
    for day in range(6):
        experiences = random_experiences(WHOLE, jax.random.key(day), AGENTS)
        queries = random_queries(WHOLE, jax.random.key(day), AGENTS)
        memories, info = agents.step(params, memories, experiences, queries)
        memories = agents.reinforce(params, memories, info.recall, np.ones(AGENTS), used)
        memories = agents.renew(params, memories, info.recall, used)
        many = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf], axis=1), experiences)
        memories, infos = agents.write_many(params, memories, many)
        told += [info, infos, agents.recall(params, memories, queries), agents.attend(params, memories, queries)]
        if day % 3 == 2:
            batch = agents.replay(params, memories, jax.random.split(jax.random.key(day), AGENTS), size=6)
            memories = agents.reprioritize(params, memories, batch, np.ones((AGENTS, 6)))
            memories, report = agents.consolidate(params, memories)
            told += [batch, report]
    return memories, told


@functools.cache
def days_on_one_device():
    return days(dmem.make(WHOLE, PAYLOAD, agents=AGENTS))


MESHES = [{"agents": 4}, {"slots": 4}, {"agents": 2, "slots": 2}]


@pytest.mark.parametrize("axes", MESHES, ids=map(str, MESHES))
def test_a_bundle_on_a_mesh_does_what_it_does_on_one_device(axes):
    mesh = mesh_of(**axes)
    memories, told = days(dmem.make(WHOLE, PAYLOAD, agents=AGENTS, mesh=mesh))
    assert_trees_equal((memories, told), days_on_one_device())
    wanted_by_leaf = jax.tree.leaves(sharding.shardings(mesh, memories))
    for leaf, wanted in zip(jax.tree.leaves(memories), wanted_by_leaf, strict=True):
        assert leaf.size == 0 or leaf.sharding.is_equivalent_to(wanted, leaf.ndim)


@pytest.mark.slow
@pytest.mark.parametrize("axes", MESHES, ids=map(str, MESHES))
def test_a_bundle_on_an_explicit_mesh(axes):
    mesh = mesh_of(AxisType.Explicit, **axes)
    with jax.set_mesh(mesh):
        assert_trees_equal(days(dmem.make(WHOLE, PAYLOAD, agents=AGENTS, mesh=mesh)), days_on_one_device())


@pytest.mark.quick
def test_explicit_axes_take_arrays_from_anywhere():
    mesh = mesh_of(AxisType.Explicit, agents=2, slots=2)
    agents = dmem.make(WHOLE, PAYLOAD, agents=AGENTS, mesh=mesh)
    experiences = random_experiences(WHOLE, jax.random.key(0), AGENTS)
    memories, infos = agents.write(dmem.Params.default(WHOLE), agents.init(), experiences)
    assert (infos.id == 0).all()
    wanted = jax.NamedSharding(mesh, jax.P("agents", "slots"))
    assert memories.core.embedding.sharding.is_equivalent_to(wanted, 3)


@pytest.mark.quick
def test_many_queries_of_one_divided_memory():
    mesh = mesh_of(slots=4)
    config = dmem.Config(embedding_dim=5, core_capacity=16, buffer_capacity=48, duplicates="off", fusion="plain")
    params = dmem.Params.default(config)
    memory, _ = dmem.write_many(config, params, dmem.init(config), _integers(config, 200))
    queries = jnp.round(3 * jax.random.normal(jax.random.key(3), (32, 5)))

    def recalls(config: dmem.Config, memory: dmem.Memory, queries: jax.Array) -> dmem.Recall:
        return jax.vmap(dmem.recall, in_axes=(None, None, None, 0))(config, params, memory, queries)

    split = functools.partial(recalls, dataclasses.replace(config, slot_axis="slots"))
    specs = sharding.specs(mesh, memory)
    divided = jax.shard_map(split, mesh=mesh, in_specs=(specs, jax.P()), out_specs=jax.P())
    found = jax.jit(divided)(sharding.place(mesh, memory), queries)
    expected = jax.jit(functools.partial(recalls, config))(memory, queries)
    assert (found.id == expected.id).all()
    assert expected.valid.all()


def _integers(config: dmem.Config, n: int) -> dmem.Experience:
    embedding = jnp.round(2 * jax.random.normal(jax.random.key(1), (n, config.embedding_dim)))
    return dmem.experience(config, embedding, rpe=jnp.round(4 * jax.random.normal(jax.random.key(2), (n,))))


def test_gradients_pass_through_divided_slots():
    mesh = mesh_of(slots=4)
    memory, _ = dmem.write_many(WHOLE, dmem.Params.default(WHOLE), dmem.init(WHOLE), _integers(WHOLE, 30))
    specs = sharding.specs(mesh, memory)

    def readout(config: dmem.Config, temperature: jax.Array, memory: dmem.Memory) -> jax.Array:
        params = dataclasses.replace(dmem.Params.default(config), semantic_temperature=temperature)
        attention = dmem.attend(config, params, memory, jnp.ones(5))
        return jnp.sum(attention.readout) + jnp.sum(dmem.recall(config, params, memory, jnp.ones(5)).score)

    split = functools.partial(readout, dataclasses.replace(WHOLE, slot_axis="slots"))
    divided = jax.shard_map(split, mesh=mesh, in_specs=(jax.P(), specs), out_specs=jax.P())
    expected = jax.jit(jax.grad(functools.partial(readout, WHOLE)))(jnp.float32(0.3), memory)
    assert jnp.abs(expected) > 1e-3
    np.testing.assert_allclose(jax.jit(jax.grad(divided))(jnp.float32(0.3), memory), expected, rtol=1e-4)


@pytest.mark.parametrize("kind", [{"fusion": "min_max"}, {"signal": "novelty", "duplicates": "search"}], ids=str)
def test_a_greatest_of_all_devices_has_a_gradient(kind):
    mesh, whole = mesh_of(slots=2), dataclasses.replace(WHOLE, **kind)
    params = dmem.Params.default(whole)
    memory, _ = dmem.write_many(whole, params, dmem.init(whole), _integers(whole, 30))
    specs = sharding.specs(mesh, memory)

    def worth(config: dmem.Config, embedding: jax.Array, memory: dmem.Memory) -> jax.Array:
        later, _ = dmem.write(config, params, memory, dmem.experience(config, embedding, rpe=2.0))
        read = dmem.attend(config, params, later, jnp.ones(5, jnp.float32))
        return jnp.sum(read.readout) + jnp.sum(dmem.recall(config, params, memory, embedding).score)

    given = jnp.array([0.3, -1.0, 0.5, 0.2, 0.1], jnp.float32)
    split = functools.partial(worth, dataclasses.replace(whole, slot_axis="slots"))
    divided = jax.shard_map(split, mesh=mesh, in_specs=(jax.P(), specs), out_specs=jax.P())
    expected = jax.jit(jax.grad(functools.partial(worth, whole)))(given, memory)
    assert jnp.abs(expected).max() > 1e-3
    np.testing.assert_allclose(jax.jit(jax.grad(divided))(given, memory), expected, rtol=1e-3, atol=1e-5)


def test_payloads_keep_their_bits():
    """An id carried as the bits of a float is below the least normal number; a sum of floats would lose it, and -0."""
    words = np.array([12345, -0x80000000, 0x7FC00123, 7], np.int32)
    halves = np.array([1.5, -0.0, np.nan, 2.0], jnp.bfloat16)
    payload = {"bits": np.zeros(4, np.float32), "halves": np.zeros(4, jnp.bfloat16), "z": np.zeros(2, np.complex64)}
    agents = dmem.make(WHOLE, payload, agents=1, mesh=mesh_of(slots=2))
    z = np.array([complex(-0.0, 1.0), complex(2.0, -0.0)], np.complex64)
    given = {"bits": words.view(np.float32)[None], "halves": halves[None], "z": z[None]}
    experience = dmem.experience(WHOLE, np.ones((1, 5), np.float32), rpe=[5.0], payload=given)
    params = dmem.Params.default(WHOLE)
    memories, _ = agents.write(params, agents.init(), experience)
    found = jax.tree.map(lambda leaf: np.asarray(leaf)[0, 0], agents.recall(params, memories, np.ones((1, 5))).payload)
    assert found["bits"].view(np.int32).tolist() == words.tolist()
    assert found["halves"].view(np.int16).tolist() == halves.view(np.int16).tolist()
    assert found["z"].view(np.int32).tolist() == z.view(np.int32).tolist()


def test_only_the_first_of_several_axes_is_divided():
    memories = sharding.place(mesh_of(agents=2), dmem.init(WHOLE, batch_shape=(2, 3)))
    assert memories.core.embedding.addressable_shards[0].data.shape == (1, 3, 4, 5)


# ---- what cannot be


def test_what_needs_a_mesh_says_so_outside_of_one():
    split = dataclasses.replace(WHOLE, slot_axis="slots")
    with pytest.raises(ValueError, match=r"Config\.slot_axis: 'slots' is no axis of a mesh here"):
        dmem.recall(split, dmem.Params.default(split), dmem.init(split), jnp.ones(5))


@pytest.mark.parametrize("name", ["consolidate", "replay", "reprioritize"])
def test_what_needs_the_whole_memory_says_so_inside_of_one(name, unchecked):
    split, params = dataclasses.replace(WHOLE, slot_axis="slots"), dmem.Params.default(WHOLE)
    arguments = {"consolidate": (), "replay": (jax.random.key(0), 3), "reprioritize": (None, jnp.ones(3))}[name]
    with pytest.raises(ValueError, match=rf"Config\.slot_axis: {name} works on the whole memory"):
        getattr(dmem, name)(split, params, dmem.init(split), *arguments)


def test_what_searches_a_large_buffer_wants_it_whole():
    split, params = dataclasses.replace(WHOLE, slot_axis="slots"), dmem.Params.default(WHOLE)
    memory = dmem.init(WHOLE)
    found = clusters.fit(WHOLE, memory, jax.random.key(0), count=2)
    with pytest.raises(ValueError, match=r"Config\.slot_axis: clusters\.fit works on the whole memory"):
        clusters.fit(split, memory, jax.random.key(0), count=2)
    with pytest.raises(ValueError, match=r"Config\.slot_axis: clusters\.recall works on the whole memory"):
        clusters.recall(split, params, memory, found, jnp.ones(5), probes=1)
    with pytest.raises(ValueError, match=r"Config\.slot_axis: ann\.Index works on the whole memory"):
        ann.Index(split)


def test_ranks_are_refused():
    with pytest.raises(ValueError, match=r'Config\.fusion: "rank" needs all scores'):
        dataclasses.replace(WHOLE, fusion="rank", slot_axis="slots")
    ranked = dataclasses.replace(WHOLE, fusion="rank")
    with pytest.raises(ValueError, match=r'Config\.fusion: "rank" needs all scores'):
        dmem.make(ranked, agents=AGENTS, mesh=mesh_of(slots=2))
    dmem.make(ranked, agents=AGENTS, mesh=mesh_of(agents=2))


def test_a_bundle_takes_the_axis_from_the_mesh():
    with pytest.raises(ValueError, match="config: expected one without slot_axis"):
        dmem.make(dataclasses.replace(WHOLE, slot_axis="slots"), agents=AGENTS, mesh=mesh_of(slots=2))


def test_what_does_not_divide_is_named():
    with pytest.raises(ValueError, match=r"Config\.core_capacity: expected a multiple of the 4 devices"):
        dmem.make(dataclasses.replace(WHOLE, core_capacity=9), agents=AGENTS, mesh=mesh_of(slots=4))
    with pytest.raises(ValueError, match=r'agents: expected a multiple of the 4 devices of the mesh axis "agents"'):
        dmem.make(WHOLE, agents=6, mesh=mesh_of(agents=4))


def test_a_mesh_needs_an_axis_that_means_something(unchecked):
    with pytest.raises(ValueError, match='mesh: expected an axis "agents" or "slots"'):
        dmem.make(WHOLE, agents=AGENTS, mesh=mesh_of(data=4))
    with pytest.raises(TypeError, match=r"mesh: expected a jax\.sharding\.Mesh"):
        sharding.specs("agents", dmem.init(WHOLE))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"Config\.slot_axis: expected a name"):
        dataclasses.replace(WHOLE, slot_axis=1)  # pyright: ignore[reportArgumentType]
