"""The examples run as they stand and reach what they claim; small, with --quick."""

import importlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from dmem_jax import MissingExtraError
from examples import agent, demo, encoders, own_critic, tune, world

ROOT = pathlib.Path(__file__).parents[1]


def test_own_critic_keeps_what_the_critic_did_not_foresee(capsys):
    figures = own_critic.main(["--quick"])
    assert figures["kept |rpe|"] > 2 * figures["let go |rpe|"]
    assert figures["share of find kept"] > 0.95  # the rare one, a smaller reward than the wage
    assert figures["share of wage kept"] < 0.05
    assert figures["share recalling"] > 0.9
    assert "find" in capsys.readouterr().out


def test_encoders_foretells_the_pit_of_the_step_that_leads_there_and_of_no_other(capsys):
    found = encoders.main()
    for into, told in found.items():
        assert told == {name: -1.0 if name == into else 0.0 for name in found}
    assert "foretold" in capsys.readouterr().out


@pytest.mark.skipif(
    importlib.util.find_spec("gymnax") is None,
    reason='needs gymnax: pip install -e ".[examples]" (gymnax 1.0 asks for jax below 0.12)',
)
@pytest.mark.slow
def test_public_env_needs_memory_and_dmem_has_it():
    # In a process of its own: a public environment is not written for strict promotion and warnings as errors.
    code = "import json; from examples.public_env import main; print(json.dumps(main(['--quick'])))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    table, rows = ran.stdout, json.loads(ran.stdout.splitlines()[-1])
    assert "95 % interval" in table
    for cue_age in (10, 30, 100):
        of = {row["variant"]: row for row in rows if row["cue_age"] == cue_age}
        low, least = of["dmem"]["right"] - of["dmem"]["half_width"], 0.5
        for other in ("no memory", "newest kept"):
            least = max(least, of[other]["right"] + of[other]["half_width"])
        assert low > least
        assert low > 0.85
        assert abs(of["no memory"]["right"] - 0.5) < 2 * of["no memory"]["half_width"]  # the cue leaks nowhere else
        assert of["dmem"]["kept_surprise"] > 2 * of["dmem"]["let_go_surprise"]
        assert of["dmem"]["kept_per_episode"] < 0.4 * cue_age


def test_without_its_package_public_env_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnax", None)
    with pytest.raises(MissingExtraError, match=r'pip install -e "\.\[examples\]"'):
        importlib.import_module("examples.public_env")


def test_without_its_package_public_env_as_a_script_says_so_in_one_line(tmp_path):
    (tmp_path / "gymnax.py").write_text("raise ImportError")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "examples.public_env", "--help"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 1
    assert ran.stderr == 'gymnax is not installed. In the checkout: pip install -e ".[examples]"\n'


def test_tuning_tells_what_it_overwrites_before_it_starts(capsys, tmp_path):
    with pytest.raises(SystemExit):
        tune.parse(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "committed file" in shown
    assert "minutes" in shown
    parsed = tune.parse(["--trials", "2", "--out", str(tmp_path / "new" / "tuned.json")])
    assert parsed.out.parent.is_dir()
    assert tune.trials(2)[0] == tune.DEFAULT
    assert len(tune.trials(2)) == 2
    for wrong in (["--trials", "0"], ["--trials", "37"], ["--out", str(tmp_path)]):
        with pytest.raises(SystemExit):
            tune.parse(wrong)
        assert f"{wrong[0]}: expected" in capsys.readouterr().err


def test_the_demo_looks_at_its_arguments_before_it_runs(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    for wrong in (["--worlds", "0"], ["--worlds", "-1"], ["--out", str(tmp_path / "file")]):
        with pytest.raises(SystemExit):
            demo.parse(wrong)
        assert f"{wrong[0]}: expected" in capsys.readouterr().err
    assert demo.parse(["--out", str(tmp_path / "a" / "b")]).out.is_dir()


def test_a_death_counts_as_again_only_where_that_cell_has_killed_before():
    killed_at = [None, (3, 4), (4, 3), (3, 4), None, (3, 4)]  # one a day
    hours = 5
    reward, place = np.zeros((6, hours)), np.zeros((6, hours, 2), int)
    for day, cell in enumerate(killed_at):
        if cell is not None:
            reward[day, 2], place[day, 2] = world.DEATH, cell
            place[day, 3:] = (9, 9)  # where it lies afterwards does not matter
    other = jnp.zeros(reward.shape)
    lived = agent.Hour(jnp.array(reward), rpe=other, size=other, alive=other, place=jnp.array(place))
    deaths, again = demo.deaths_of(lived)
    assert deaths.tolist() == [False, True, True, True, False, True]
    assert again.tolist() == [False, False, False, True, False, True]
