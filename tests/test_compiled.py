"""What must hold of the compiled program: a loop copies nothing of the memory, and donation is used.

Run on the program that users get: other tests compile with fewer optimisations.
"""

import functools
import re
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmem_jax as dmem
from benchmarks.copies import wide_shapes
from benchmarks.hlo import instructions, whole_writes
from dmem_jax import batch_writes
from dmem_kernels import products
from tests.lives import PAYLOAD, random_experiences, random_queries
from tests.test_laws import AGENTS, KINDS, fresh_carry, life_step, seldom, small_config


def life_loop(config: dmem.Config):
    """All of it donated in one scan."""

    @functools.partial(jax.jit, donate_argnums=0)
    def loop(carry, key, params):
        return jax.lax.scan(functools.partial(life_step, config, params), carry, jax.random.split(key, 7))

    return loop


ALL_KINDS = [*KINDS, {"store_dtype": "int8"}]  # bfloat16 XLA:CPU scatters as float32, for which it rewrites the store


@functools.cache
def compiled_life(index: int):
    """The compiled loop of ALL_KINDS[index], and a carry for it: compiled once for all tests that read its text."""
    config = small_config(**ALL_KINDS[index])
    carry = fresh_carry(config)
    compiled = life_loop(config).lower(carry, jax.random.key(0), dmem.Params.default(config)).compile()
    return str(compiled.as_text()), carry


@pytest.mark.parametrize("index", [0, 1, 2, seldom(3), seldom(4), 5], ids=map(str, ALL_KINDS))
def test_no_embedding_or_payload_is_copied_in_a_loop(index):
    text, (memories, _) = compiled_life(index)
    shapes = wide_shapes(memories.core) | wide_shapes(memories.buffer)
    assert any(shape in text for shape in shapes)
    assert whole_writes(text, shapes) == []


@pytest.mark.parametrize("index", range(3), ids=map(str, KINDS[:3]))
def test_no_conditional_and_no_select_over_a_store(index):
    text, (memories, _) = compiled_life(index)
    shapes = wide_shapes(memories.core) | wide_shapes(memories.buffer)
    assert "conditional" not in {i.op for i in instructions(text)}
    assert not [i.name for i in instructions(text) if i.op == "select" and shapes.intersection(i.shapes)]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("duplicates", ["probe", seldom("search"), seldom("off")])
def test_the_memory_of_one_agent_is_not_copied_either(duplicates, dtype):
    """Without vmap XLA writes a row by a dynamic-update-slice, into whose fusion it takes the reads of other tiers."""
    config = small_config(duplicates=duplicates, store_dtype=dtype, core_capacity=48, buffer_capacity=96)
    params, memory = dmem.Params.default(config), dmem.init(config, PAYLOAD)
    met = random_experiences(config, jax.random.key(0), 7), random_queries(config, jax.random.key(1), 7)

    @functools.partial(jax.jit, donate_argnums=0)
    def loop(memory, met):
        return jax.lax.scan(lambda memory, x: dmem.step(config, params, memory, *x), memory, met)

    with mock.patch.object(products, "_BLOCK", 2**9):  # int8 is widened in a loop, which one of a single turn is not
        text = str(loop.lower(memory, met).compile().as_text())
    shapes = wide_shapes(memory.core) | wide_shapes(memory.buffer)
    assert all(shape in text for shape in shapes)
    assert whole_writes(text, shapes) == []


def test_many_writes_move_rows_in_place():
    """Batches in a loop, cut short and with fewer slots to choose from than there are."""
    config = small_config(duplicates="off")
    carry, _ = fresh_carry(config)
    many = [random_experiences(config, jax.random.key(i), AGENTS) for i in range(8)]
    many = jax.tree.map(lambda *x: jnp.stack(x, axis=1), *many)

    @functools.partial(jax.jit, donate_argnums=0)
    def loop(memories, many, params):
        def body(memories, _):
            return jax.vmap(dmem.write_many, in_axes=(None, None, 0, 0))(config, params, memories, many)

        return jax.lax.scan(body, memories, None, length=3)

    with mock.patch.multiple(batch_writes, _BATCH=4, _SPARE=1):
        text = str(loop.lower(carry, many, dmem.Params.default(config)).compile().as_text())
    shapes = wide_shapes(carry.core) | wide_shapes(carry.buffer)
    assert any(shape in text for shape in shapes)
    assert whole_writes(text, shapes) == []
    assert not [line for line in text.splitlines() if " conditional(" in line]


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


# As GPUs and TPUs write their programs: tuples, fusions of several outputs, asynchronous copies, layouts in brackets.
FUSED = {
    "fused_update": """%fused_update (param_0: f32[8,16,32], param_1: f32[8,1,32], p: s32[]) -> (f32[8,16,32], f32[8]) {
  %param_0 = f32[8,16,32]{2,1,0} parameter(0)
  %param_1 = f32[8,1,32]{2,1,0} parameter(1)
  %p = s32[] parameter(2)
  %bitcast.1 = f32[8,16,32]{2,1,0} bitcast(%param_0)
  %update.1 = f32[8,16,32]{2,1,0} dynamic-update-slice(%bitcast.1, %param_1, %p, %p, %p)
  %sum.1 = f32[8]{0} reduce(%param_1, %p), dimensions={1,2}, to_apply=%add
  ROOT %tuple.1 = (f32[8,16,32]{2,1,0}, f32[8]{0}) tuple(%update.1, %sum.1)
}""",
    "fused_scale": """%fused_scale (param_0: f32[8,16,32], param_1: f32[8,1,32], p: s32[]) -> f32[8,16,32] {
  %param_0 = f32[8,16,32]{2,1,0} parameter(0)
  %param_1 = f32[8,1,32]{2,1,0} parameter(1)
  %p = s32[] parameter(2)
  %scaled = f32[8,16,32]{2,1,0} multiply(%param_0, %param_0)
  ROOT %update.2 = f32[8,16,32]{2,1,0} dynamic-update-slice(%scaled, %param_1, %p, %p, %p)
}""",
    "fused_dots": """%fused_dots (param_0: f32[8,16,32], param_1: f32[8,16,32]) -> f32[8,16] {
  %param_0 = f32[8,16,32]{2,1,0} parameter(0)
  %param_1 = f32[8,16,32]{2,1,0} parameter(1)
  %products = f32[8,16,32]{2,1,0} multiply(%param_0, %param_1)
  ROOT %dots = f32[8,16]{1,0} reduce(%products, %param_1), dimensions={2}, to_apply=%add
}""",
}
LOOP = """
%body (arg: (s32[], f32[8,16,32], f32[8,1,32])) -> (s32[], f32[8,16,32], f32[8,1,32]) {
  %arg = (s32[], f32[8,16,32]{2,1,0:T(8,128)S(1)}, /*index=2*/f32[8,1,32]{2,1,0}) parameter(0)
  %i = s32[] get-tuple-element(%arg), index=0
  %store = f32[8,16,32]{2,1,0:T(8,128)} get-tuple-element(%arg), index=1
  %row = f32[8,1,32]{2,1,0} get-tuple-element(%arg), index=2
  INSTRUCTION
  ROOT %out = (s32[], f32[8,16,32]{2,1,0}, f32[8,1,32]{2,1,0}) tuple(%i, %store, %row)
}

ENTRY %main (p: f32[8,16,32]) -> f32[8,16,32] {
  %p = f32[8,16,32]{2,1,0} parameter(0)
  ROOT %once = f32[8,16,32]{2,1,0} copy(%p)
}
"""
WIDE = "f32[8,16,32]{2,1,0:T(8,128)}"
IN_PLACE = {
    "several outputs": f"%x = ({WIDE}, f32[8]{{0}}) fusion(%store, %row, %i), kind=kLoop, calls=%fused_update",
    "inside of a fusion": "%x = f32[8,16]{1,0} fusion(%store, %store), kind=kInput, calls=%fused_dots",
    "a graph of commands": f"%x = ({WIDE}, s32[]) call(%store, %i), to_apply=%commands",
    "a kernel of an alias": f"%x = {WIDE} custom-call(%store), output_to_operand_aliasing={{{{}}: (0, {{}})}}",
}
WRITTEN = {
    "asynchronous copy": f"%x = ({WIDE}, {WIDE}, u32[]{{:S(2)}}) copy-start(%store), cross_program_prefetch_index=0",
    "computed, then set": f"%x = {WIDE} fusion(%store, %row, %i), kind=kLoop, calls=%fused_scale",
    "copy": f"%x = {WIDE} copy(%store)",
    "kernel": f'%x = {WIDE} custom-call(%store), custom_call_target="k"',
}


def in_a_loop(instruction: str) -> list[str]:
    fusions = [body for name, body in FUSED.items() if name in instruction]
    return whole_writes("\n".join((*fusions, LOOP.replace("INSTRUCTION", instruction))), {"f32[8,16,32]"})


@pytest.mark.parametrize("instruction", IN_PLACE.values(), ids=IN_PLACE)
def test_what_writes_no_array_is_not_counted(instruction):
    assert in_a_loop(instruction) == []


@pytest.mark.parametrize("instruction", WRITTEN.values(), ids=WRITTEN)
def test_each_writer_is_counted_once(instruction):
    assert len(in_a_loop(instruction)) == 1


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


# ---- over a mesh


_COLLECTIVES = ("all-", "reduce-scatter", "collective-")


@functools.cache
def divided_life(axis: str):
    """The compiled text of a loop of steps over four devices, and what one of them holds."""
    config = dmem.Config(embedding_dim=32, core_capacity=64, buffer_capacity=192, top_k=4)
    mesh = jax.make_mesh((4,), (axis,), axis_types=(jax.sharding.AxisType.Auto,))
    agents = dmem.make(config, PAYLOAD, agents=AGENTS, mesh=mesh)
    memories, params = agents.init(), dmem.Params.default(config)
    experiences = random_experiences(config, jax.random.key(0), AGENTS)

    @functools.partial(jax.jit, donate_argnums=0)
    def loop(memories, experiences):
        def body(memories, _):
            memories, info = agents.step(params, memories, experiences, experiences.embedding)
            return memories, info.recall.id

        return jax.lax.scan(body, memories, None, length=5)

    text = str(loop.lower(memories, experiences).compile().as_text())
    return text, jax.tree.map(lambda leaf: leaf.addressable_shards[0].data, memories)


def test_divided_agents_tell_each_other_nothing():
    text, part = divided_life("agents")
    assert not [i for i in instructions(text) if i.op.startswith(_COLLECTIVES)]
    assert whole_writes(text, wide_shapes(part.core) | wide_shapes(part.buffer)) == []


def test_divided_slots_send_rows_and_candidates_and_no_store():
    """What goes round is of the size of a row, or of k candidates a device; and nothing of a store is copied."""
    text, part = divided_life("slots")
    sent = [shape for i in instructions(text) if i.op.startswith(_COLLECTIVES) for shape in i.shapes]
    numbers = [int(np.prod([int(n) for n in re.findall(r"\d+", shape.partition("[")[2])])) for shape in sent]
    assert 0 < max(numbers) <= AGENTS * 4 * 32
    shapes = wide_shapes(part.core) | wide_shapes(part.buffer)
    assert any(shape in text for shape in shapes)
    assert whole_writes(text, shapes) == []
