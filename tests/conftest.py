"""What holds for every test: strict numerics, four CPU devices, reproducible examples, shapes checked.

Warnings are errors by `filterwarnings` in pyproject.toml.
"""

import os
import traceback
from collections.abc import Callable
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
