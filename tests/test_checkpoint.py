"""A memory saved and restored: the same bits, wherever it goes; and what disagrees or is damaged is named."""

import dataclasses
import json
import pickle
import shutil
import types
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmem_jax as dmem
from dmem_jax import checkpoint
from dmem_jax.checkpoint import blocks, migrations, sealed
from dmem_jax.errors import CheckpointError

AGENTS = 8
CONFIG = dmem.Config(embedding_dim=4, core_capacity=4, buffer_capacity=8, top_k=(2, 1), shadow_capacity=4)
PARAMS = dmem.Params.default(CONFIG, half_life=100.0)
PAYLOAD = {"floats": jax.ShapeDtypeStruct((3,), jnp.float32), "number": jax.ShapeDtypeStruct((), jnp.int32)}
MESH = jax.make_mesh((4,), ("agents",), axis_types=(jax.sharding.AxisType.Auto,))


def numbered(like: Any) -> Any:
    """The same tree with other numbers in every leaf, no two of them alike."""
    leaves, structure = jax.tree.flatten(like)
    filled = [
        (np.arange(leaf.size).reshape(leaf.shape) * (2 * i + 3) % 251).astype(leaf.dtype)
        for i, leaf in enumerate(leaves)
    ]
    return jax.tree.map(jnp.asarray, jax.tree.unflatten(structure, filled))


MEMORY = numbered(dmem.init(CONFIG, PAYLOAD, batch_shape=(AGENTS,)))


def assert_same(got: Any, expected: Any) -> None:
    """Classes, dtypes and bits."""
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert isinstance(x, jax.Array) == isinstance(y, jax.Array)
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            assert x.dtype == y.dtype
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        if not isinstance(x, jax.Array):
            assert type(x) is type(y)
        x, y = np.asarray(x), np.asarray(y)
        assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())


# ---- what else the caller keeps


class Adam(NamedTuple):
    count: Any
    mean: Any


EXTRA = {
    "learner": Adam(count=jnp.int32(3), mean={"w": jnp.arange(6, dtype=jnp.float32).reshape(2, 3), "b": jnp.zeros(0)}),
    "keys": [jax.random.key(5), jax.random.split(jax.random.key(1, impl="rbg"), (2, 3))],
    "half": jnp.array([1.5, -0.0, np.nan], jnp.bfloat16),
    "env": {"seen": np.array([2**60, -1]), "reward": np.float64(0.1), "big endian": np.array([1, 2], ">i4")},
    "step": 2**40,
    "rate": 0.1,
    "done": True,
    "nothing": None,
}


@pytest.mark.quick
def test_extra_comes_back_in_its_classes_with_its_bits(tmp_path):
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY, extra=EXTRA)
    native = EXTRA | {"env": EXTRA["env"] | {"big endian": np.array([1, 2], "i4")}}
    saved = checkpoint.restore(tmp_path / "saved", PAYLOAD, config=CONFIG, extra=native)
    assert_same(saved.extra, native)
    assert_same(saved.memory, MEMORY)
    assert_same(saved.params, PARAMS)
    specs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype) if isinstance(x, jax.Array) else x, native)
    assert_same(checkpoint.restore(tmp_path / "saved", extra=specs).extra, native)
    by_name = checkpoint.restore(tmp_path / "saved").extra
    assert by_name["env.seen"].tolist() == [2**60, -1]
    assert by_name["keys.0"] == jax.random.key(5)
    assert by_name["learner.mean.w"].shape == (2, 3)


def test_an_extra_of_one_array(tmp_path):
    for extra in (jax.random.key(3), jnp.arange(3, dtype=jnp.int32), 7):
        checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY, extra=extra, overwrite=True)
        assert_same(checkpoint.restore(tmp_path / "saved", extra=extra).extra, extra)


def test_nothing_is_pickled(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("pickle")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY, extra=EXTRA)
    assert_same(checkpoint.restore(tmp_path / "saved", PAYLOAD).memory, MEMORY)


def test_an_extra_that_cannot_be_saved_is_named(tmp_path, unchecked):
    for extra, error, match in (
        ({"name": "x"}, TypeError, r"extra\.name: expected an array or a number, got 'x'"),
        ({"o": np.array([None])}, TypeError, r"extra\.o: expected an array of numbers, got ndarray of object"),
        ({"t": np.datetime64("2020-01-01")}, TypeError, r"extra\.t: .* datetime64"),
        ({"a.b": 1, "a": {"b": 2}}, ValueError, r"extra\.a\.b: two arrays would have this name"),
    ):
        with pytest.raises(error, match=match):
            checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY, extra=extra)
    with pytest.raises(TypeError, match=r"params: expected a dmem_jax\.Params, got Config"):
        checkpoint.save(tmp_path / "saved", CONFIG, CONFIG, MEMORY)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_an_extra_that_is_another_is_named(tmp_path):
    checkpoint.save(
        tmp_path / "saved", CONFIG, PARAMS, MEMORY, extra={"a": jnp.zeros(3, jnp.float32), "key": jax.random.key(0)}
    )
    like = {"a": jnp.zeros(3, jnp.float32), "key": jax.random.key(0)}
    for extra, match in (
        (like | {"b": jnp.zeros(1, jnp.float32)}, r"extra: b is expected, and was not saved"),
        ({"a": like["a"]}, r"extra: key was saved, and is not expected"),
        (like | {"a": jnp.zeros(4, jnp.float32)}, r"extra: a was saved as float32\[3\], expected float32\[4\]"),
        (like | {"key": jax.random.key(0, impl="rbg")}, r"extra: key was saved as key<fry>\[\], expected key<rbg>\[\]"),
    ):
        with pytest.raises(ValueError, match=match):
            checkpoint.restore(tmp_path / "saved", extra=extra)


def test_64_bits_are_not_cut(tmp_path):
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY, extra={"x": np.float64(0.1)})
    like = {"x": jax.ShapeDtypeStruct((), np.float64)}
    with jax.enable_x64(True):
        assert checkpoint.restore(tmp_path / "saved", extra=like).extra["x"] == np.float64(0.1)
    with jax.enable_x64(False), pytest.raises(ValueError, match=r"extra: x was saved as float64, .*jax_enable_x64"):
        checkpoint.restore(tmp_path / "saved", extra=like)


# ---- config and versions


def test_each_field_of_a_config_that_disagrees_is_named(tmp_path):
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY)
    other = dataclasses.replace(CONFIG, core_capacity=5, top_k=3, store_dtype="int8")
    with pytest.raises(ValueError, match="config: it disagrees") as told:
        checkpoint.restore(tmp_path / "saved", config=other)
    for field in ("core_capacity is 4 there and 5 here", "top_k is (2, 1) there and 3 here",
                  "store_dtype is 'float32' there and 'int8' here"):  # fmt: skip
        assert field in str(told.value)
    assert str(told.value).count(" there and ") == 3


def edited(folder: Path, **changes: Any) -> None:
    sealed.write(folder / "about.json", sealed.read(folder / "about.json") | changes)


def test_fields_that_are_new_or_unknown(tmp_path):
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY)
    fields = sealed.read(tmp_path / "saved" / "about.json")["config"]
    edited(tmp_path / "saved", config={name: fields[name] for name in fields if name != "store_dtype"})
    assert checkpoint.restore(tmp_path / "saved", config=CONFIG).config == CONFIG
    edited(tmp_path / "saved", config=fields | {"dreams": 3, "naps": "long"})
    with pytest.raises(ValueError, match=r"does not have: dreams=3, naps='long'"):
        checkpoint.restore(tmp_path / "saved")


def test_a_later_version_is_refused(tmp_path):
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY)
    edited(tmp_path / "saved", state_version=migrations.STATE_VERSION + 1)
    with pytest.raises(ValueError, match=r"by a later dmem_jax: its state version is 3, and this one reads up to 2"):
        checkpoint.restore(tmp_path / "saved")


def test_migrations_are_applied_in_order(tmp_path, monkeypatch):
    """As if today's form were version 4, and what is written here version 2: then the clock was called time, the probe
    kept no `closest`, and Config.warmup was warm_up."""
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY)
    fields = sealed.read(tmp_path / "saved" / "about.json")["config"]
    old_fields = {name: value for name, value in fields.items() if name != "warmup"} | {"warm_up": fields["warmup"]}
    saved = {name: np.asarray(array) for name, array in blocks.read(tmp_path / "saved").items()}
    saved["memory.time"] = saved.pop("memory.clock") * np.int32(1000)
    del saved["memory.probe.closest"]
    specs = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in saved.items()}
    blocks.write(tmp_path / "saved", specs, blocks.own_shards(saved, copy=False))
    edited(tmp_path / "saved", config=old_fields)

    def from_2(about, arrays):
        arrays["memory.clock"] = np.asarray(arrays.pop("memory.time")) // np.int32(1000)
        return about, arrays

    def from_3(about, arrays):
        arrays["memory.probe.closest"] = np.asarray(arrays["memory.clock"]).astype(np.float32)
        fields = dict(about["config"])
        return about | {"config": {"warmup": fields.pop("warm_up") + 1} | fields}, arrays

    monkeypatch.setattr(migrations, "STATE_VERSION", 4)
    monkeypatch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS | {2: from_2, 3: from_3})
    got = checkpoint.restore(tmp_path / "saved", PAYLOAD, sharding=jax.NamedSharding(MESH, jax.P("agents")))
    assert got.config == dataclasses.replace(CONFIG, warmup=CONFIG.warmup + 1)
    closest = MEMORY.clock.astype(jnp.float32)
    assert_same(got.memory, dataclasses.replace(MEMORY, probe=dataclasses.replace(MEMORY.probe, closest=closest)))
    assert len(got.memory.clock.sharding.device_set) == 4


def version_1(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """A checkpoint as dmem_jax wrote it when its state version was 1, and the arrays that were in it."""
    with zipfile.ZipFile(Path(__file__).parent / "data" / "checkpoint_version_1.zip") as kept:
        kept.extractall(tmp_path)
    with np.load(tmp_path / "arrays.npz") as arrays:
        return tmp_path / "saved", dict(arrays)


def test_version_1_is_read(tmp_path):
    folder, arrays = version_1(tmp_path)
    payload = {"floats": jax.ShapeDtypeStruct((9,), jnp.float32), "number": jax.ShapeDtypeStruct((), jnp.int32)}
    config = dmem.Config(embedding_dim=4, core_capacity=3, buffer_capacity=5, duplicates="off", top_k=(2, 1),
                         shadow_capacity=4)  # fmt: skip
    one = jax.NamedSharding(jax.make_mesh((2,), ("agents",), axis_types=(jax.sharding.AxisType.Auto,)), jax.P("agents"))
    for saved in (
        checkpoint.restore(folder, payload, config=config),
        checkpoint.restore(folder, sharding=one),
    ):
        assert saved.extra is None
        for part in ("params", "memory"):
            for path, leaf in jax.tree_util.tree_leaves_with_path(getattr(saved, part)):
                expected = arrays[f"{part}.{jax.tree_util.keystr(path, simple=True, separator='.')}"]
                assert leaf.dtype == expected.dtype
                np.testing.assert_array_equal(leaf, expected)
    names = folder / "memory" / "_METADATA"
    names.write_bytes(names.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=str(folder)):
        checkpoint.restore(folder, payload)


# ---- other devices


def mesh(*shape: int) -> jax.sharding.Mesh:
    names = ("agents", "slots")[: len(shape)]
    devices = jax.devices()[: int(np.prod(shape))]
    return jax.make_mesh(shape, names, devices=devices, axis_types=(jax.sharding.AxisType.Auto,) * len(shape))


def agents_and_slots(name: str, spec: jax.ShapeDtypeStruct) -> jax.sharding.Sharding:
    """On a mesh of 2 x 2: agents over one axis, the slots of core and buffer over the other."""
    slots = ["slots"] if name.startswith(("core", "buffer")) else []
    return jax.NamedSharding(mesh(2, 2), jax.P("agents", *slots))


SHARDINGS = {
    "default": None,
    "one": jax.NamedSharding(mesh(1), jax.P("agents")),
    "two": jax.NamedSharding(mesh(2), jax.P("agents")),
    "four": jax.NamedSharding(mesh(4), jax.P("agents")),
    "four, each all": jax.NamedSharding(mesh(4), jax.P()),
    "two by two": agents_and_slots,
    "two by two, of agents": jax.NamedSharding(mesh(2, 2), jax.P(("agents", "slots"))),
    "the last device": jax.sharding.SingleDeviceSharding(jax.devices()[3]),
}


@pytest.mark.quick
@pytest.mark.parametrize("before", ["default", "four", "two by two", "four, each all"])
def test_any_devices_to_any_devices(before, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(blocks, "BLOCK", 60)  # many in an array, and some shards begin within one
        checkpoint.save(tmp_path / "whole", CONFIG, PARAMS, MEMORY)
        memory = checkpoint.restore(tmp_path / "whole", PAYLOAD, sharding=SHARDINGS[before]).memory
        checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, memory)
    sizes = [(tmp_path / name / "arrays-0.bin").stat().st_size for name in ("whole", "saved")]
    assert sizes[1] < 2 * sizes[0]  # of equal shards one is written
    for sharding in SHARDINGS.values():
        got = checkpoint.restore(tmp_path / "saved", PAYLOAD, sharding=sharding).memory
        assert_same(got, MEMORY)
        for path, leaf in jax.tree_util.tree_leaves_with_path(got):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            wanted = sharding(name, leaf) if isinstance(sharding, types.FunctionType) else sharding
            assert wanted is None or leaf.sharding == wanted


def test_an_extra_goes_where_its_leaves_say(tmp_path):
    split = jax.NamedSharding(MESH, jax.P("agents"))
    extra = {"keys": jax.random.split(jax.random.key(0), 4), "x": jnp.arange(8, dtype=jnp.float32)}
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY, extra=extra)
    for like in (
        jax.device_put(extra, split),
        {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=split) for name, x in extra.items()},
    ):
        got = checkpoint.restore(tmp_path / "saved", extra=like).extra
        assert_same(got, extra)
        assert got["x"].sharding == split
        assert len(got["keys"].sharding.device_set) == 4
    assert not checkpoint.restore(tmp_path / "saved", extra=extra).extra["x"].committed


def test_a_sharding_that_does_not_fit_is_named(tmp_path):
    memory = numbered(dmem.init(CONFIG, PAYLOAD, batch_shape=(6,)))
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, memory)
    with pytest.raises(ValueError, match=r"sharding: it does not fit .* \[6"):
        checkpoint.restore(tmp_path / "saved", PAYLOAD, sharding=SHARDINGS["four"])  # type: ignore[arg-type]
    checkpoint.save(tmp_path / "one", CONFIG, PARAMS, jax.tree.map(lambda leaf: leaf[0], memory))
    with pytest.raises(ValueError, match=r"sharding: it does not fit .* \[\]"):
        checkpoint.restore(tmp_path / "one", PAYLOAD, sharding=SHARDINGS["four"])  # type: ignore[arg-type]


@pytest.mark.quick
@pytest.mark.parametrize("sharding", ["default", "four", "four, each all"])
def test_a_restored_memory_may_be_donated(sharding, tmp_path):
    """On a CPU several devices may then hold the same bytes, those that were read."""
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY)
    restored = checkpoint.restore(tmp_path / "saved", PAYLOAD, sharding=SHARDINGS[sharding]).memory
    more = jax.jit(lambda memory: jax.tree.map(lambda leaf: leaf + leaf, memory), donate_argnums=0)
    for _ in range(3):
        restored = more(restored)
    expected = MEMORY
    for _ in range(3):
        expected = jax.tree.map(lambda leaf: leaf + leaf, expected)
    assert_same(restored, expected)
    for got, leaf in zip(jax.tree.leaves(restored), jax.tree.leaves(expected), strict=True):
        for shard in got.addressable_shards:
            np.testing.assert_array_equal(shard.data, np.asarray(leaf)[shard.index])


# ---- damage


def damaged(folder: Path, scratch: Path) -> Any:
    """Copies of a checkpoint, each with one file that is missing, cut, or has one byte changed."""
    random = np.random.default_rng(0)
    for file in sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file()):
        whole = (folder / file).read_bytes()
        cuts = {0, len(whole) // 2, len(whole) - 1}
        places = {0, len(whole) - 1, *random.integers(0, len(whole), 12).tolist()}
        changed = [whole[:cut] for cut in cuts] + [None]
        changed += [whole[:at] + bytes([whole[at] ^ 1 << int(random.integers(8))]) + whole[at + 1 :] for at in places]
        for content in changed:
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(folder, scratch)
            (scratch / file).unlink()
            if content is not None:
                (scratch / file).write_bytes(content)
            yield file


def test_damage_is_an_error_that_names_the_path_or_changes_nothing(tmp_path):
    extra = {"key": jax.random.key(1), "x": jnp.arange(9, dtype=jnp.float32)}
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY, extra=extra)
    found = {}
    for file in damaged(tmp_path / "saved", tmp_path / "damaged"):
        told = None
        try:
            got = checkpoint.restore(tmp_path / "damaged", PAYLOAD, extra=extra)
        except (CheckpointError, FileNotFoundError) as error:
            told = str(error)
        else:
            assert got.config == CONFIG
            assert_same((got.params, got.memory, got.extra), (PARAMS, MEMORY, extra))
        assert told is None or str(tmp_path / "damaged") in told
        found.setdefault(file.name, []).append(told is not None)
    assert all(found["arrays-0.bin"])
    for name in ("about.json", "arrays.json", "arrays-0.json"):
        assert sum(found[name]) > 10
    for name in ("_CHECKPOINT_METADATA", "commit_success.txt"):  # orbax's own
        assert not any(found.get(name, []))


def test_a_part_that_is_missing_is_an_error(tmp_path):
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY)
    index = tmp_path / "saved" / "arrays-0.json"
    content = sealed.read(index)
    content["shards"] = [entry for entry in content["shards"] if entry["name"] != "memory.clock"]
    sealed.write(index, content)
    with pytest.raises(CheckpointError, match=r"memory\.clock: its parts"):
        checkpoint.restore(tmp_path / "saved", PAYLOAD)


def test_sealed_files_are_json(tmp_path):
    content = {"a": [1, 2.5, None, "\u00e9"], "b": {"c": True}}
    sealed.write(tmp_path / "x.json", content)
    assert json.loads((tmp_path / "x.json").read_text())["content"] == content
    assert sealed.read(tmp_path / "x.json") == content


# ---- what is in the way


def test_a_save_that_replaces_keeps_one_complete_at_every_moment(tmp_path):
    """The states in which a kill can leave the disk."""
    path = tmp_path / "saved"
    other = dataclasses.replace(MEMORY, clock=MEMORY.clock + jnp.int32(1))
    checkpoint.save(path, CONFIG, PARAMS, MEMORY)
    shutil.copytree(path, tmp_path / ".saved.dmem-new")  # complete, and not in its place yet
    assert_same(checkpoint.restore(path, PAYLOAD).memory, MEMORY)
    checkpoint.save(path, CONFIG, PARAMS, other, overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["saved"]
    assert_same(checkpoint.restore(path, PAYLOAD).memory, other)

    path.rename(tmp_path / ".saved.dmem-old")  # killed between the two renames
    checkpoint.save(tmp_path / ".saved.dmem-new", CONFIG, PARAMS, MEMORY)
    assert_same(checkpoint.restore(path, PAYLOAD).memory, MEMORY)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        checkpoint.save(path, CONFIG, PARAMS, other)
    checkpoint.save(path, CONFIG, PARAMS, other, overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["saved"]
    assert_same(checkpoint.restore(path, PAYLOAD).memory, other)


def test_what_would_not_come_back_is_not_saved(tmp_path, unchecked):
    grown = dataclasses.replace(CONFIG, buffer_capacity=CONFIG.buffer_capacity + 4)
    with pytest.raises(dmem.ArgumentValueError, match=r"memory\.buffer\.\w+: expected .* by the config, got"):
        checkpoint.save(tmp_path / "saved", grown, PARAMS, MEMORY)
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY)
    with pytest.raises(TypeError, match="sharding: expected a Mesh"):
        checkpoint.restore(tmp_path / "saved", sharding="cpu")  # pyright: ignore[reportArgumentType]


def test_extra_of_the_other_byte_order_comes_back(tmp_path):
    extra = {"big": np.arange(3, dtype=">i4")}
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY, extra=extra)
    found = checkpoint.restore(tmp_path / "saved", PAYLOAD, extra=extra).extra["big"]
    assert found.tolist() == [0, 1, 2]


def test_neighbours_of_a_like_name_are_left_alone(tmp_path):
    for name in ("saved.old", "saved.new"):
        checkpoint.save(tmp_path / name, CONFIG, PARAMS, MEMORY)
    with pytest.raises(FileNotFoundError):
        checkpoint.restore(tmp_path / "saved")
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY)
    checkpoint.save(tmp_path / "saved", CONFIG, PARAMS, MEMORY, overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["saved", "saved.new", "saved.old"]


def test_a_folder_of_something_else_is_no_checkpoint(tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        checkpoint.restore(tmp_path / "other")
