"""What holds for every test: strict numerics, four CPU devices, reproducible examples, shapes checked.

Warnings are errors by `filterwarnings` in pyproject.toml.
"""

import contextlib
import os
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Read once, when jax starts its backend. A caller's own flags stay.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis
import jax
import jaxtyping
import pytest
from beartype import beartype
from jaxtyping import install_import_hook

from tests.postgres import server

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Compiling makes a first example slow whatever it tests, so neither deadlines nor slowness say anything here.
_compiles = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("ci", derandomize=True, **_compiles)
hypothesis.settings.register_profile("nightly", max_examples=1000, print_blob=True, **_compiles)
hypothesis.settings.load_profile("ci")

_CHECKED = ("dmem_jax", "dmem_kernels")
_CONSTRUCTION = ("jaxtyping", "beartype", "dataclasses")


def check_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    """`beartype`, except that a state class is checked only when the library itself builds one.

    jax builds them too, of whatever a tree_map, an in_axes or a vmapped sharding puts into the leaves.
    """
    checked = beartype(function)
    if function.__name__ != "__init__":
        return checked

    def init(*args: Any, **kwargs: Any) -> Any:
        callers = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_stack(None))
        packages = (name.partition(".")[0] for name in callers if name != __name__)
        built_by = next(package for package in packages if package not in _CONSTRUCTION)
        return (checked if built_by in _CHECKED else function)(*args, **kwargs)

    return init


install_import_hook(_CHECKED, f"{__name__}.check_shapes")


@pytest.fixture
def unchecked():
    """Without the run-time shape checker of the tests, which users do not have: it would speak first."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="session")
def postgres():
    """The folder of a server's socket."""
    pytest.importorskip("psycopg")
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(server())
        except RuntimeError as error:
            pytest.skip(str(error))
        yield folder


@pytest.fixture
def postgres_url(postgres: str):
    """Of a schema of its own."""
    import psycopg
    import psycopg.sql

    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(host=postgres, user="postgres", dbname="postgres", autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("CREATE SCHEMA {}").format(psycopg.sql.Identifier(name)))
    return f"postgresql+psycopg://postgres@/postgres?host={postgres}&options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What a `MemoryBackend` opens: once a file, once a database of a Postgres server."""
    return str(tmp_path / "memory.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where `book` keeps its memories."""
    return tmp_path / "memory.db"


@pytest.fixture
def book(file: Path):
    """A backend that can be opened again."""
    from tests.agents import Book

    book = Book(str(file))
    yield book
    book.backend.close()


@pytest.fixture
def either(database: str):
    """As `book`, of a file and of a Postgres server."""
    from tests.agents import Book

    book = Book(database)
    yield book
    book.backend.close()
