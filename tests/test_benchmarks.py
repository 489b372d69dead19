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


def test_step_measures_its_peers_in_the_same_run():
    measured = records(run("step", *TINY, "--json"))
    check(measured, "step", {"agents": 4, "slots": 16, "dim": 8, "top_k": 3})
    assert {"dmem_jax", "plain_jax", "numpy_batched"} <= measured.keys()
    assert measured["dmem_jax"]["ratio_to_plain_jax"] > 0
    assert "ratio_to_plain_jax" not in measured["plain_jax"]


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


@pytest.mark.slow
def test_import_as_json_and_as_a_table():
    check(records(run("import", "--repeats", "1", "--json")), "import", {})
    table = run("import", "--repeats", "1")
    assert table.returncode == 0, table.stderr
    assert "dmem_jax" in table.stdout
    assert "ratio" in table.stdout


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
stats = {field.name: int(getattr(loop.carry.stats, field.name).sum()) for field in dataclasses.fields(loop.carry.stats)}
paths = ("dropped", "refreshed", "merged", "stored", "evicted", "demoted", "contradicted")
silent = [name for name in paths if not stats[name]]
assert not silent, (silent, stats)
assert 0.4 < stats["dropped"] / stats["seen"] < 0.6, stats
assert bool((loop.carry.core.id >= 0).all()) and bool((loop.carry.buffer.id >= 0).all())
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
