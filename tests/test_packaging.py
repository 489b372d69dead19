"""What the project promises as a whole: light imports, layers that point down, one version, nothing of one machine."""

import ast
import graphlib
import importlib.metadata
import importlib.resources
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import dmem_jax

ROOT = Path(__file__).parent.parent
PACKAGE = Path(dmem_jax.__file__).parent
KERNELS = Path(str(importlib.resources.files("dmem_kernels")))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# A module or folder of dmem_jax imports from its own row or from rows above it, never in a circle. The package itself
# (`__init__.py`) is the top: it may import all, and none may import it.
LAYERS = (
    ("errors", "types", "conversion", "config", "params"),
    ("counting", "filters", "quantiles"),
    ("slots", "shards", "pool", "decay", "similarity", "storage", "signals", "payloads", "inputs", "allocation"),
    ("size",),
    ("schedules", "gating", "surprise", "shadow"),
    ("checks", "duplicates", "insertion", "retrieval", "lifecycle", "sampling", "clusters"),
    ("judging", "merging", "consolidation"),
    ("accounting",),
    ("batch_writes",),
    ("memory",),
    ("soft", "gate_training", "bundle", "monitor", "learner", "value", "sharding", "checkpoint", "ann", "encoders"),
    ("agent",),
    ("integrations", "doctor", "plots"),
    ("commands",),
    ("cli",),
)
ROW = {module: row for row, modules in enumerate(LAYERS) for module in modules}

of_the_checkout = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="looks at the checkout, and this is not one")


@pytest.mark.quick
def test_import_loads_the_core_dependencies_and_nothing_else():
    script = """
import sys, jax, flax, optax, numpy, jaxtyping
before = set(sys.modules)
import dmem_jax, dmem_kernels
print(*{name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    core = {"jax", "jaxlib", "flax", "optax", "numpy", "jaxtyping", "wadler_lindig"}  # the last is of jaxtyping
    assert set(run.stdout.split()) - core == {"dmem_jax", "dmem_kernels"}


@pytest.mark.quick
@pytest.mark.parametrize("package", ["dmem_jax", "dmem_kernels"])
def test_packages_are_typed(package: str):
    assert (importlib.resources.files(package) / "py.typed").is_file()


@pytest.mark.quick
def test_one_version():
    version = PROJECT["version"]
    assert dmem_jax.__version__ == version
    assert importlib.metadata.version("dmem-jax") == version


@of_the_checkout
def test_documents_name_the_version():
    assert f"\nversion: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## [{PROJECT['version']}] - " in (ROOT / "CHANGELOG.md").read_text()


@of_the_checkout
def test_lowest_versions_are_those_that_we_promise():
    pins = [line for line in (ROOT / "requirements/lowest.txt").read_text().splitlines() if not line.startswith("#")]
    assert pins == [dependency.replace(">=", "==") for dependency in PROJECT["dependencies"]]


def test_core_dependencies_are_few():
    names = {re.split("[<>=]", dependency)[0] for dependency in PROJECT["dependencies"]}
    assert names == {"jax", "flax", "optax", "numpy", "jaxtyping"}


def _imports(source: Path) -> Iterator[str]:
    """Dotted names of the modules that a file imports, at any depth (relative imports are barred by ruff)."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module in {"dmem_jax", "dmem_kernels"}:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


def _modules() -> dict[str, set[str]]:
    """For each module or folder right below dmem_jax, those that it imports; "" is the package itself."""
    found: dict[str, set[str]] = {}
    for source in PACKAGE.rglob("*.py"):
        name = source.relative_to(PACKAGE).parts[0].removesuffix(".py").replace("__init__", "")
        names = (imported.split(".") for imported in _imports(source))
        found.setdefault(name, set()).update(([*parts, ""])[1] for parts in names if parts[0] == PACKAGE.name)
        found[name].discard(name)
    return found


def test_layers_point_down():
    modules = _modules()
    modules.pop("")
    assert set(modules) <= set(ROW), "a new module: give it a place in LAYERS"
    upward = [f"{name} -> {other or 'dmem_jax'}" for name, others in modules.items() for other in others
              if ROW.get(other, len(LAYERS)) > ROW[name]]  # fmt: skip
    assert not upward
    assert list(graphlib.TopologicalSorter(modules).static_order())  # raises CycleError on a circle


def test_kernels_know_nothing_of_memories():
    imported = {name.partition(".")[0] for source in KERNELS.rglob("*.py") for name in _imports(source)}
    assert "dmem_jax" not in imported
    assert imported - sys.stdlib_module_names <= {"dmem_kernels", "jax", "jaxlib", "jaxtyping", "numpy"}


def test_no_module_bears_the_name_of_a_public_function():
    modules = {name for name in _modules() if name}
    functions = set(dmem_jax.__all__)
    assert not modules & functions


@of_the_checkout
def test_nothing_of_one_machine_is_written_down():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    of_one_machine = re.compile(
        r"""(?<![\w.~$}/-])/(?:root|work|home/\w+|Users/\w+)/"""  # absolute paths
        r"""|index[-_]url|find[-_]links|trusted[-_]host"""  # whence packages come is the machine's to say
        r"""|://[\w.-]*(?:pypi|pythonhosted|npmjs|conda)[\w-]*\.""",
        re.IGNORECASE,
    )
    findings = []
    for name in filter(None, listed):
        try:
            text = (ROOT / name).read_text()
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # a picture; or deleted and not yet committed
        findings += [f"{name}: {hit[0]}" for hit in of_one_machine.finditer(text)]
    assert not findings


@of_the_checkout
def test_pins_are_names_and_versions():
    for file in (ROOT / "requirements").glob("*.txt"):
        lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
        assert lines
        assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
