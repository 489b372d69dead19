"""The README's example runs as it stands, and shows what it says."""

import pathlib
import re
import subprocess
import sys

README = pathlib.Path(__file__).parent.parent / "README.md"


def test_the_training_loop_runs_and_finds_the_place_that_pays():
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    # A process of its own: a user has no strict promotion, and one CPU device.
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    place, surprise = re.fullmatch(r"\[(\d+)\] \[([\d.]+)\]\n", ran.stdout).groups()  # type: ignore[union-attr]
    assert int(place) == 7
    assert 0.9 < float(surprise) <= 1
