"""The benchmarks run and print what they promise. Times are not looked at: tests measure none."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
TINY = ["--agents", "4", "--slots", "16", "--dim", "8", "--top-k", "3", "--repeats", "1"]

pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="the benchmarks live in the checkout only")


def run(*arguments: str, path: str = "") -> subprocess.CompletedProcess:
    """In a process of its own, as a user runs them: peers raise warnings and promote types that our tests forbid."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    environment = os.environ | {"OPENBLAS_CORETYPE": "Prescott", "PYTHONPATH": os.pathsep.join([path, *sys.path])}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)


def run_code(code: str) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr


def records(done: subprocess.CompletedProcess) -> dict[str, dict]:
    """By implementation."""
    assert done.returncode == 0, done.stderr
    parsed = [json.loads(line) for line in done.stdout.splitlines()]
    return {record["implementation"]: record for record in parsed}


def check(measured: dict[str, dict], benchmark: str, work: dict) -> None:
    for record in measured.values():
        assert record["benchmark"] == benchmark
        assert record["work"].items() >= work.items()
        assert min(record["seconds"], record["floor_seconds"], record["ratio"]) > 0


@pytest.mark.slow
def test_step_measures_its_peers_in_the_same_run():
    measured = records(run("step", *TINY, "--json"))
    check(measured, "step", {"agents": 4, "slots": 16, "dim": 8, "top_k": 3})
    assert {"dmem_jax", "plain_jax", "numpy_batched"} <= measured.keys()
    assert measured["dmem_jax"]["ratio_to_plain_jax"] > 0
    assert "ratio_to_plain_jax" not in measured["plain_jax"]


KERNEL = ["--memories", "40", "--dim", "8", "--top-k", "3", "--fusion", "softmax", "--repeats", "1"]


@pytest.mark.slow
def test_kernels_measures_its_peers_and_draws_a_roofline(tmp_path):
    (tmp_path / "usearch.py").write_text("raise ImportError")
    out = tmp_path / "pictures" / "roofline.png"
    done = run("kernels", *KERNEL, "--queries", "2", "--picture", str(out), "--json", path=str(tmp_path))
    measured = records(done)
    ceiling = measured.pop("ceiling")
    assert min(ceiling["gb_per_s"], ceiling["gflop_per_s"]) > 0
    check(measured, "kernels", {"agents": 1, "queries": 2, "memories": 40, "dim": 8, "top_k": 3, "fusion": "softmax"})
    assert {"dmem_kernels", "unfused", "matmul_top_k", "approx_max_k", "numpy"} <= measured.keys()
    assert all(record["share"] > 0 for record in measured.values())
    assert measured["dmem_kernels"]["temp_gib"] > 0
    assert "usearch_exact" not in measured
    assert "usearch is not installed" in done.stderr
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_kernels_tells_the_memory_of_a_work_too_long_to_run():
    sizes = ["--queries", "1024", "--memories", "1000000", "--dim", "128", "--top-k", "10", "--fusion", "plain"]
    ours = records(run("kernels", *sizes, "--json"))["dmem_kernels"]
    assert "seconds" not in ours
    assert 0 < ours["temp_gib"] < 1 < ours["all_scores_gib"]


@pytest.mark.slow
def test_the_peers_of_kernels_find_the_same():
    """A peer that didn't would be measured at another work."""
    code = """
import dataclasses, numpy
from benchmarks import kernel_works, kernel_peers
for agents, queries in ((1, 1), (1, 30), (3, 1), (70, 2)):
    spec = kernel_works.work(agents, queries, memories=300, dim=16, top_k=5, fusion="plain")
    store, x = kernel_works.store(spec), {k: v[0] for k, v in kernel_works.Stream(spec)(0).items()}
    dots = numpy.einsum("aqd,and->aqn", x["query"], store["embeddings"])
    truth = numpy.argsort(-dots, axis=-1)[..., :5]
    made = kernel_peers.make_peers(list(kernel_peers.PEERS), spec, store)
    unfused, ours = made.pop("unfused"), kernel_peers.Fused(spec, store)
    numpy.testing.assert_array_equal(ours.find(x), unfused.find(x))
    assert {"matmul_top_k", "approx_max_k", "numpy"} <= made.keys()
    for name, peer in made.items():
        numpy.testing.assert_array_equal(peer.find(x), truth, err_msg=name)
"""
    run_code(code)


@pytest.mark.slow
def test_recall_tells_of_a_missing_peer_and_of_a_work_too_large(tmp_path):
    (tmp_path / "hnswlib.py").write_text("raise ImportError")
    done = run("recall", *TINY, "--agents", "4", "100000000", "--json", path=str(tmp_path))
    measured = records(done)
    check(measured, "recall", {"agents": 4, "slots": 16, "dim": 8, "top_k": 3})
    assert {"dmem_jax", "plain_jax", "numpy_batched"} <= measured.keys()
    assert "hnswlib_per_agent" not in measured
    assert 'pip install -e ".[bench]"' in done.stderr
    assert "left out" in done.stderr


@pytest.mark.slow
def test_write_measures_the_gate_and_donation():
    measured = records(run("write", *TINY, "--json"))
    check(measured, "write", {"agents": 4, "slots": 16, "dim": 8})
    scans = {"dmem_jax", "dmem_jax_ungated", "row_set", "row_set_gated"}
    assert measured.keys() == scans | {"dmem_jax_call", "dmem_jax_call_undonated"}
    for gated in ("dmem_jax", "row_set_gated"):
        assert measured[gated]["ratio_to_ungated"] > 0


@pytest.mark.slow
def test_write_many_is_timed_in_a_scan_and_by_call():
    measured = records(run("write_many", *TINY, "--json"))
    check(measured, "write_many", {"agents": 4, "slots": 16, "dim": 8, "experiences": 64})
    assert measured.keys() == {"dmem_jax", "dmem_jax_call"}


def test_storage_of_dialogues_tells_what_each_type_finds_of_what_was_said(tmp_path):
    said = [{"dia_id": f"D1:{i + 1}", "speaker": "Ann", "text": chr(ord("a") + i) * 9} for i in range(20)]
    said[3]["blip_caption"] = "a photo of a dog"
    asked = [
        {"question": "eeeeeeeee", "evidence": ["D:1:05"]},  # both spellings occur
        {"question": "ggggggggg", "evidence": ["D1:7; D1:8"]},
        {"question": "nothing known", "evidence": ["D"]},
    ]
    sessions = {"session_1": said[:12], "session_1_date_time": "1 May", "session_1_summary": "",
                "session_2": [], "session_2_date_time": "2 May",
                "session_10": said[12:], "session_10_date_time": "9 May"}  # fmt: skip
    (tmp_path / "some.json").write_text(json.dumps([{"conversation": sessions, "qa": asked}] * 2))
    code = f"""
import numpy
from benchmarks import locomo, storage
class Letters:
    name, dim = "letters", 26
    def __call__(self, texts):
        return numpy.array([[text.count(9 * chr(97 + i)) for i in range(26)] for text in texts], numpy.float32)
dialogues = locomo.read({str(tmp_path)!r})
assert dialogues[0].questions == ["eeeeeeeee", "ggggggggg"]
assert dialogues[0].evidence == [[4], [6, 7]]
assert dialogues[0].turns[3] == '(1 May) Ann said, "ddddddddd" and shared a photo of a dog.'
assert dialogues[0].turns[-1] == '(9 May) Ann said, "ttttttttt"'
records = {{record["implementation"]: record for record in storage.run_on_dialogues(dialogues, Letters())}}
assert list(records) == list(storage.SEARCHES)
for record in records.values():  # ties go to the lower slot: the first turns, in every type
    assert record["work"] == dict(data="locomo", encoder="letters", memories=40, dim=26, queries=4, top_k=10)
    assert record["recall"] == 1 and record["score"] == record["low"] == record["high"] == 1
assert [record["bytes"] for record in records.values()] == [104, 52, 30, 30, 30]
assert storage.share_answered(numpy.array([[1, 2], [3, 4]]), [[2, 5], [9]]) == 0.25
for bad in ("[3]", "{{", '[{{"qa": []}}]'):
    open({str(tmp_path / "some.json")!r}, "w").write(bad)
    try:
        locomo.read({str(tmp_path)!r})
    except ValueError as error:
        assert "holds no LoCoMo dialogues" in str(error)
    else:
        raise AssertionError(bad)
"""
    run_code(code)


def test_storage_of_dialogues_says_what_it_needs(tmp_path):
    code = f"""
from benchmarks.__main__ import main
folder = {str(tmp_path)!r}
both = ["--folder", folder, "--encoder", folder]
for more, message in (([], "--folder: required"), (both, "storage: folder_or_name")):
    try:
        main(["storage", "--data", "locomo", *more])
    except SystemExit as error:
        assert str(error.code).startswith(message), error.code
    else:
        raise AssertionError(message)
"""
    run_code(code)


@pytest.mark.slow
def test_storage_tells_what_each_type_finds_takes_and_costs():
    measured = records(run("storage", "--memories", "40", "--dim", "8", "--queries", "4", "--repeats", "1", "--json"))
    check(measured, "storage", {"memories": 40, "dim": 8, "queries": 4, "top_k": 10})
    assert {name: record["bytes"] for name, record in measured.items()} == {
        "float32": 32,
        "bfloat16": 16,
        "int8": 12,
        "int8, coarse": 12,
        "int8, two stages": 12,
    }
    assert measured["float32"]["recall"] == 1
    assert all(0.5 < record["recall"] <= 1 and record["ratio_shared"] > 0 for record in measured.values())
    assert {name for name, record in measured.items() if "step_ratio" in record} == {"float32", "bfloat16", "int8"}


@pytest.mark.slow
def test_sharding_counts_what_is_sent():
    done = run("sharding", "--small", "--devices", "1", "2", "--repeats", "1", "--json")
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(r["work"]["axis"], r["work"]["devices"]) for r in told] == [
        ("agents", 1), ("slots", 1), ("agents", 2), ("slots", 2),
    ]  # fmt: skip
    assert [r["sent"] > 0 for r in told] == [False, False, False, True]
    assert all(r["copies"] == 0 and r["ratio"] > 0 for r in told)


@pytest.mark.slow
def test_scale_is_checked_on_as_many_devices():
    done = run("scale", "--small", "--devices", "4", "--json")
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == 6
    assert all(r["checked"] and r["device_bytes"] > 0 for r in told)
    assert {r["work"]["name"] for r in told if r["sent"] == 0} == {"a memory for each agent"}


@pytest.mark.slow
def test_backend_measures_adds_and_recalls():
    done = run("backend", "--memories", "300", "--dim", "16", "--peers", "none", "--repeats", "1", "--json")
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    names = [(record["implementation"], record["work"]["what"]) for record in told]
    assert names == [("dmem_jax", "get"), ("dmem_jax_semantic", "get"), ("dmem_jax", "add")]
    assert all(record["ratio"] > 0 for record in told)


@pytest.mark.slow
def test_checkpoint_measures_its_peers_in_the_same_run():
    measured = records(run("checkpoint", "--mebibytes", "1", "--repeats", "1", "--json"))
    check(measured, "checkpoint", {"mebibytes": 1})
    assert measured.keys() == {"dmem_jax", "orbax", "orbax_uncompressed", "numpy_savez", "flax_msgpack"}
    assert all(min(record["save_seconds"], record["restore_seconds"]) > 0 for record in measured.values())
    assert measured["dmem_jax"]["returns_after"] > 0


@pytest.mark.slow
def test_ann_tells_curves_filters_and_changes_beside_its_peers(tmp_path):
    (tmp_path / "usearch.py").write_text("raise ImportError")
    sizes = ["--memories", "2000", "--dim", "8", "--data", "spectrum", "--queries", "40", "--ef", "10", "40"]
    done = run("ann", *sizes, "--repeats", "2", "--json", path=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "usearch is not installed" in done.stderr
    told: dict[str, list[dict]] = {}
    for record in map(json.loads, done.stdout.splitlines()):
        check({"": record}, "ann", {"memories": 2000, "dim": 8, "data": "spectrum", "top_k": 10})
        told.setdefault(record["work"]["what"], []).append(record)
    assert {what: {record["implementation"] for record in records} for what, records in told.items()} == {
        **{what: {"dmem_jax", "hnswlib", "faiss_hnsw"} for what in ("build", "curve", "at 0.95")},
        "one at a time": {"dmem_jax", "dmem_jax_jitted", "dmem_jax_exact", "hnswlib"},
        "insert": {"dmem_jax", "hnswlib", "faiss_hnsw"},
        "replace": {"dmem_jax", "hnswlib"},
        "delete": {"dmem_jax", "hnswlib"},
    }
    assert all(record["bytes"] > 2000 * 8 * 4 for record in told["build"])
    assert all(0 < record["score"] <= 1 for record in told["curve"])
    assert all(record["score"] >= 0.95 for record in told["at 0.95"])
    assert {record["work"]["filter"] for record in told["at 0.95"]} == {"none", "half", "a twenty-fifth"}
    assert all(record["ratio_to_hnswlib"] > 0 for record in told["at 0.95"])


@pytest.mark.slow
def test_import_as_json_and_as_a_table():
    check(records(run("import", "--repeats", "1", "--json")), "import", {})
    table = run("import", "--repeats", "1")
    assert table.returncode == 0, table.stderr
    assert "dmem_jax" in table.stdout
    assert "ratio" in table.stdout


def parts(*arguments: str) -> dict[str, list[dict]]:
    done = run("accelerator", *arguments, "--repeats", "1", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict]] = {}
    for record in map(json.loads, done.stdout.splitlines()):
        assert record["benchmark"] == "accelerator"
        found.setdefault(record["part"], []).append(record)
    return found


def test_accelerator_checks_reads_and_measures_on_a_cpu_in_small():
    found = parts()
    assert not [record for records in found.values() for record in records if "error" in record]
    (device,), (ceiling,), (copies,) = (found.pop(name) for name in ("device", "ceiling", "copies"))
    assert device["work"]["platform"] == "cpu"
    assert min(ceiling["gb_per_s"], ceiling["gflop_per_s"]) > 0
    assert copies["copies"] == 0

    exact = found.pop("exactness")
    assert {(r["work"]["kernel"], r["implementation"]) for r in exact} == {
        ("evict_topk", "xla"),
        *(("fused_topk", name) for name in ("xla", "pallas_gpu", "pallas_tpu")),
    }
    assert all(record["failed"] == 0 < record["checked"] for record in exact)
    assert all(record["agreement"] == 1 for record in found["tuning"] if "agreement" in record)
    assert "Tile(" in found.pop("tuning")[-1]["note"]

    assert {name: {r["implementation"] for r in records} for name, records in found.items()} == {
        "step": {"dmem_jax", "plain_jax"},
        "kernels": {"dmem_kernels", "xla", "matmul_top_k"},
        "recall": {"dmem_jax", "plain_jax"},
        "write": {"dmem_jax", "dmem_jax_ungated", "dmem_jax_call", "dmem_jax_call_undonated"},
    }
    for record in (record for records in found.values() for record in records):
        assert min(record["seconds"], record["floor_seconds"], record["ratio"]) > 0


def test_accelerator_leaves_out_what_begins_too_late_and_says_so():
    found = parts("--minutes", "0.001")
    assert "was ended" in found["exactness"][-1]["error"]
    assert {"device", "ceiling"} < found.keys()
    assert all("left out" in found[name][0]["note"] for name in ("step", "kernels", "recall", "write"))
    assert "tuning" not in found  # of kernels whose check did not end


def test_a_check_that_ends_its_process_is_named():
    code = """
from benchmarks.exactness import summary
line = {"kernel": "fused_topk", "implementation": "pallas_gpu"}
first, second, third = ({**line, "spec": name} for name in ("first", "second", "third"))
(record,) = summary([first, first | {"wrong": 0}, second, second | {"error": "a fault"}, third], "ended with -6")
assert (record["checked"], record["failed"], record["error"]) == (3, 2, "ended with -6"), record
assert record["note"] == "second: a fault; third: ended with -6", record
(record,) = summary([first, first | {"wrong": 2}, second, second | {"unsupported": "so"}], None)
assert (record["checked"], record["failed"], record["unsupported"]) == (1, 1, 1), record
assert "error" not in record, record
(_, record) = summary([first, first | {"wrong": 0}], "ended with -6")
assert record["error"] == "ended with -6", record
"""
    run_code(code)


def test_what_an_accelerator_would_run_lowers_for_it():
    """There is no accelerator here: at least its programs are made, at the sizes at which it would run them."""
    code = """
import jax
from jax._src import xla_bridge
import benchmarks.__main__
from benchmarks.accelerator_works import KERNELS, TILE_OF, plan
from benchmarks.kernel_peers import Fused
from benchmarks.kernels import abstract
from dmem_kernels.fused_topk.tiles import TILES, tile_of
assert not xla_bridge.backends_are_initialized()  # a child of this process needs the device first

def lowered(platform, spec, implementation):
    fused = Fused(spec, {})
    fused.implementation = implementation
    lowered = jax.jit(fused.read).trace(*abstract(spec)).lower(lowering_platforms=(platform,)).as_text()
    return lowered.count({"cuda": "custom_call @mosaic_gpu", "tpu": "custom_call @tpu_custom_call"}[platform])

for platform, kernel in KERNELS.items():
    for small in (False, True):
        wanted = plan(platform, small)
        assert set(wanted.checked) == {"xla", kernel}, wanted
        assert wanted.tuned == kernel and wanted.tiles, wanted
        for spec in {search.spec.dtype: search.spec for search in wanted.searches}.values():
            sweeps = {"plain": 1, "softmax": 2}[spec.fusion]
            for implementation in (None, kernel):
                assert lowered(platform, spec, implementation) == sweeps, spec
            with tile_of(TILE_OF[kernel], wanted.tiles[-1]):
                assert TILES[TILE_OF[kernel]] == wanted.tiles[-1]
assert all(search.limit for platform in KERNELS for search in plan(platform, False).searches)
assert plan("cpu", False) == plan("cpu", True)
"""
    run_code(code)


def test_an_unknown_peer_is_an_error_that_names_it():
    done = run("step", *TINY, "--peers", "plain_jax,redis")
    assert done.returncode != 0
    assert "redis" in done.stderr


def test_a_size_that_is_none_is_an_error_that_names_it():
    for wrong in ("x", "0", "-1", "1.5"):
        done = run("write", "--agents", wrong)
        assert done.returncode != 0
        assert f"argument --agents: expected an integer, at least 1, got {wrong!r}" in done.stderr


@pytest.mark.slow
def test_a_store_of_one_slot_is_measured():
    measured = records(run("write", *TINY, "--agents", "1", "--slots", "1", "--dim", "1", "--peers", "none", "--json"))
    check(measured, "write", {"agents": 1, "slots": 1, "dim": 1})


def test_blas_tuning_for_another_machine_is_dropped():
    code = "import os, benchmarks; assert 'OPENBLAS_CORETYPE' not in os.environ"
    environment = os.environ | {"OPENBLAS_CORETYPE": "Prescott"}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, timeout=60)


@pytest.mark.slow
def test_the_stream_takes_every_path():
    """Otherwise a step would be timed on a memory that stands still."""
    code = """
import dataclasses
from benchmarks import streams, subject, timing
work = streams.Work(agents=16, slots=32, dim=8)
rows = streams.full_rows(work)
ours = subject.Subject(work)
loop = timing.ScanLoop(ours.step, ours.full_memory(rows), ours.stream(streams.Stream(work, rows)))
loop(0)
memory, _ = loop.state
stats = {field.name: int(getattr(memory.stats, field.name).sum()) for field in dataclasses.fields(memory.stats)}
paths = ("dropped", "refreshed", "merged", "stored", "evicted", "demoted", "contradicted")
silent = [name for name in paths if not stats[name]]
assert not silent, (silent, stats)
assert 0.4 < stats["dropped"] / stats["seen"] < 0.6, stats
assert bool((memory.core.id >= 0).all()) and bool((memory.buffer.id >= 0).all())
"""
    run_code(code)


@pytest.mark.slow
def test_encoder_tells_sentences_a_second_and_why_a_peer_is_left_out():
    done = run("encoder", "--lengths", "8", "16", "--batch", "2", "--repeats", "1", "--json")
    assert done.returncode == 0, done.stderr
    if "no package here holds MiniLM's weights" in done.stderr:
        pytest.skip("no package here holds MiniLM's weights")
    assert "torch: left out; --torch-python names" in done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["work"].get("length") for record in found[:2]] == [8, 16]
    for record in found:
        check({"": record}, "encoder", {"batch": 2})
        assert record["sentences_per_second"] > 0
