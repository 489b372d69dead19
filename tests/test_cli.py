"""The command `dmem` with a database, with an encoder of a few lines in the place of a model."""

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from dmem_jax import commands, doctor
from dmem_jax.agent import MemoryBackend


class Words:
    """A text's vector is the sum of a random one for each of its words."""

    def __init__(self, name: str):
        self.name, self.dim = f"words for {name}", 16

    def __call__(self, texts: Iterable[str], /) -> np.ndarray:
        return np.stack([np.sum([_vector(word) for word in text.split()], axis=0) for text in texts])


def _vector(word: str) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "little")
    return np.random.default_rng(seed).standard_normal(16).astype(np.float32)


@pytest.fixture
def dmem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(commands, "load_encoder", Words)

    def run(*arguments: str, fails: bool = False, **options) -> Result:
        result = CliRunner().invoke(commands.app, list(arguments), **options)
        if fails:
            assert result.exit_code == 1, result.output
            assert isinstance(result.exception, SystemExit)
            assert result.stderr.strip()
            assert "Traceback" not in result.output
        else:
            assert result.exit_code == 0, (result.output, result.exception)
        return result

    return run


ALLERGY = ("Ann is allergic to peanuts", "--action", "offered satay", "--reward", "-5", "--outcome", "she was ill")
RAMEN = ("Ann asked for dinner", "--action", "suggested ramen", "--reward", "9", "--metadata", '{"kind": "food"}')


@pytest.fixture
def filled(dmem):
    for words in ALLERGY, RAMEN:
        dmem("add", *words, "--signal", "reward", "--time", "2026-11-03")
    return dmem


def cells(output: str, row: str) -> list[str]:
    (line,) = [line for line in output.splitlines() if row in line]
    return [cell.strip() for cell in re.split("[│┃]", line)[1:-1]]


def test_added_and_recalled(dmem):
    told = dmem("add", *ALLERGY, "--signal", "reward").stdout
    assert re.fullmatch(r"(core|buffer): memory 0, rpe -5\.00, size 1\.00, gate 0\.\d\d\n", told)
    dmem("add", *RAMEN, "--signal", "reward", "--time", "2026-11-03")
    output = dmem("recall", "peanuts").stdout
    names = cells(output, "similarity")
    best = dict(zip(names, cells(output, "peanuts"), strict=True))
    other = dict(zip(names, cells(output, "ramen"), strict=True))
    assert output.index("peanuts") < output.index("ramen")
    assert best["memory"] == "Ann is allergic to peanuts → offered satay → she was ill"
    assert best["rpe"] == "-5.00"
    assert other["date"] == "2026-11-03"
    with MemoryBackend("memory.db", encoder=Words("all-MiniLM-L6-v2")) as backend:
        found = backend.get_relevant_memories("peanuts")[0]
        assert found.recalls == 0  # looking is not recalling
    for name in ("score", "similarity", "keyword", "salience"):
        assert float(best[name]) == pytest.approx(getattr(found, name), abs=2e-3)


def test_recall_asks_for_less(filled):
    assert "ramen" not in filled("recall", "Ann", "-k", "1", "--sign", "-1").stdout
    assert "peanuts" not in filled("recall", "Ann", "--filter", '{"kind": {"$in": ["food"]}}').stdout
    assert "memory" in filled("recall", "Ann", "--filter", '{"kind": "other"}').stdout  # the empty table


def test_namespaces_are_apart(filled):
    filled("add", *ALLERGY, "--namespace", "bob", "--signal", "reward")
    assert "ramen" not in filled("recall", "Ann", "--namespace", "bob").stdout
    failed = filled("stats", "--namespace", "eve", fails=True)
    assert "there is no 'eve'; there are 'bob', 'default'" in failed.stderr


def test_feedback(filled):
    def strengths() -> list[float]:
        with MemoryBackend("memory.db", encoder=Words("all-MiniLM-L6-v2")) as backend:
            return [one.strength for one in backend.list()]

    before = strengths()
    assert filled("feedback", "0", "7", "--rpe", "-1.5").stdout == "1 of 2 memories found\n"
    after = strengths()
    assert after[0] < 0.9 * before[0]
    assert after[1] == pytest.approx(before[1], rel=1e-3)


def test_stats_and_consolidate(filled):
    output = filled("stats").stdout
    assert cells(output, "rpe/delights") == ["rpe/delights", "0.5"]
    assert filled("consolidate").stdout == "forgotten 0, merged 0, promoted 0, demoted 0\n"
    assert filled("consolidate", "--namespace", "default").stdout.startswith("forgotten 0")


def test_plot_of_a_database(filled, tmp_path: Path):
    filled("plot", "memory.db", "--out", "seen.png")
    assert (tmp_path / "seen.png").stat().st_size > 10_000
    assert "expected one of 0 .. 0" in filled("plot", "memory.db", "--agent", "1", fails=True).stderr


def test_export_and_import_are_one_memory(filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    filled("feedback", "1", "--rpe", "2")
    text = filled("export").stdout
    memories = text.splitlines()[1:]
    assert [json.loads(line)["observation"] for line in memories] == [ALLERGY[0], RAMEN[0]]
    filled("export", "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == text
    numbers = filled("stats").stdout
    monkeypatch.setattr(commands, "load_encoder", None)  # no text is encoded
    assert filled("import", "out.jsonl", "--db", "other.db").stdout == "2 memories read\n"
    filled("import", "--db", "other.db", "--namespace", "twin", input=text)
    assert "holds 2 memories" in filled("import", "out.jsonl", "--db", "other.db", fails=True).stderr
    for namespace in "default", "twin":
        there = "--db", "other.db", "--namespace", namespace
        assert filled("export", *there).stdout.splitlines()[1:] == memories
        assert filled("stats", *there).stdout == numbers  # what no memory holds came along: scale of surprise, counts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("recall", "x", "--db", "nothing.db"), "there is no such file"),
        (("stats", "--db", "nothing.db"), "there is no such file"),
        (("export", "new.jsonl", "--db", "nothing.db"), "there is no such file"),
        (("import", "bad.txt", "--db", "nothing.db"), "a line: expected JSON"),
        (("import", "memory.db.json", "--db", "nothing.db"), "expected what `dmem export` writes"),
        (("stats", "--db", "bad.txt"), "bad.txt"),
        (("add", "", "--reward", "1"), "observation"),
        (("add", "x", "--reward", "nan"), "reward"),
        (("add", "x", "--signal", "other"), "signal"),
        (("add", "x", "--metadata", "{"), "--metadata: expected JSON"),
        (("add", "x", "--metadata", "[1]"), "metadata: expected a dict"),
        (("recall", "x", "--filter", '{"a": {"$no": 1}}'), "unknown operator"),
        (("recall", "x", "--encoder", "another"), "another"),
        (("recall", "x", "--sign", "2"), "sign"),
        (("feedback", "0", "--rpe", "inf"), "rpe"),
        (("stats", "--capacity", "0", "0"), "capacity"),
        (("plot", "nothing"), "no checkpoint"),
        (("plot", "memory.db", "--namespace", "eve"), "there is no 'eve'"),
    ],
)
def test_what_goes_wrong_is_said(filled, tmp_path: Path, arguments, message: str, unchecked):
    (tmp_path / "bad.txt").write_text("no JSON, and no database\n" * 200)
    (tmp_path / "memory.db.json").write_text('{"id": 1}\n')
    before = {path.name for path in tmp_path.iterdir()}
    assert message in filled(*arguments, fails=True).stderr
    made = {path.name for path in tmp_path.iterdir()} - before
    assert not {name for name in made if not name.startswith(("memory.db", "bad.txt"))}
    assert "ramen" in filled("recall", "Ann").stdout  # the memory is as it was


def test_texts_cannot_steer_the_terminal(dmem):
    dmem("add", "[bold]x[/bold] \x1b[31m\nforged | row", "--reward", "3", "--signal", "reward")
    output = dmem("recall", "x").stdout
    assert "[bold]x[/bold] [31m forged | row" in output
    assert "\x1b" not in output


def test_doctor(dmem, monkeypatch: pytest.MonkeyPatch):
    output = dmem("doctor").stdout
    assert cells(output, "dmem-jax ")[1] == doctor._version("dmem-jax")
    assert cells(output, "SQLite")[1] == sqlite3.sqlite_version
    requirements = ['nothing-like-it>=2; extra == "ann"', 'dmem-jax[ann]; extra == "cli"', "numpy; extra == 'export'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: requirements)
    output = dmem("doctor").stdout
    assert cells(output, "extra ann") == ["extra ann", "missing nothing-like-it"]
    assert cells(output, "extra cli") == ["extra cli", "missing nothing-like-it"]
    assert cells(output, "extra export") == ["extra export", "installed"]
    assert "pip install 'dmem-jax[ann]'" in output
    assert "pip install 'dmem-jax[export]'" not in output
