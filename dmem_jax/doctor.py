"""What is installed here, and what is missing for what."""

import importlib.metadata
import platform
import re
import sqlite3

import jax

_OURS = "dmem-jax"
_FOR = {  # extras that users install; the others are for work on the library itself
    "agent": "memory of agents that speak, in a database",
    "ann": "the approximate index of a large buffer",
    "checkpoint": "checkpoints of arrays",
    "cli": "the command dmem and pictures",
    "export": "compiled programs as files",
    "postgres": "memories in Postgres",
    "text": "encoders of texts",
}


def findings() -> list[tuple[str, str]]:
    """Versions and devices, name and value."""
    names = (_OURS, "jax", "jaxlib", "flax", "optax", "numpy")
    versions = [(name, _version(name) or "not installed") for name in names]
    devices = ", ".join(f"{device.device_kind} ({device.platform})" for device in jax.devices())
    return [
        ("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        *versions,
        ("devices", devices),
        ("SQLite", sqlite3.sqlite_version),
        *((f"extra {extra}", "missing " + ", ".join(lacks) if lacks else "installed") for extra, lacks in _lacking()),
    ]


def complaints() -> list[tuple[str, str, str]]:
    """Of each extra that is not complete: its name, what it is for, how to install it."""
    return [(extra, f"no {_FOR[extra]}", f"pip install '{_OURS}[{extra}]'") for extra, lacks in _lacking() if lacks]


def _lacking() -> list[tuple[str, list[str]]]:
    """Each extra with the packages of it that are not installed."""
    wanted = _extras()
    return [(extra, [name for name in wanted[extra] if _version(name) is None]) for extra in _FOR if extra in wanted]


def _extras() -> dict[str, list[str]]:
    """The packages that each extra asks for."""
    asked: dict[str, list[str]] = {}
    for line in importlib.metadata.requires(_OURS) or []:
        requirement, _, marker = line.partition(";")
        if extra := re.search(r"""extra == ['"]([\w-]+)['"]""", marker):
            asked.setdefault(extra[1], []).append(requirement.strip())
    return {extra: sorted(_packages(extra, asked)) for extra in asked}


def _packages(extra: str, asked: dict[str, list[str]]) -> set[str]:
    found: set[str] = set()
    for requirement in asked[extra]:
        if ours := re.match(rf"{_OURS}\[([\w, -]+)\]", requirement):
            found |= {name for other in ours[1].split(",") for name in _packages(other.strip(), asked)}
        else:
            found |= set(re.findall(r"^[\w.-]+", requirement))
    return found


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
