"""A part of a benchmark on as many devices as it asks for, forced on this host: in a process of its own, for JAX
decides on them when it starts."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.output import Record


def on_devices(n: int, module: str, *options: str) -> Iterator[Record]:
    """The records that `python -m module` prints, each as soon as it is there."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={n}".strip()
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", module, *options]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        yield from map(json.loads, child.stdout or ())
    if child.returncode:
        raise RuntimeError(f"{module}: the process with {n} devices ended with {child.returncode}")
