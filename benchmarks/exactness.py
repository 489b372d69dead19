"""Whether kernels find on this device what their references find on the host: `python -m benchmarks.exactness`.

`fused_topk` under plain fusion of whole numbers must find the same slots and scores to the last bit; under softmax
fusion of any numbers the scores within TOLERANCE of themselves. `evict_topk` must find the same slots as its reference
on the same device, for a logarithm is not the same to the last bit everywhere.

It runs in a process of its own, ahead of all else: a kernel that hangs, or touches memory that is not its own, takes
its process with it, and we want to be told of the rest.
"""

import argparse
import dataclasses
import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.accelerator_works import Plan, plan, platform
from benchmarks.evict_topk import slots_of
from benchmarks.output import Record, progress
from dmem_kernels import fused_topk
from dmem_kernels.evict_topk import arg_specs as evicted
from dmem_kernels.evict_topk import reference, xla
from dmem_kernels.fused_topk.arg_specs import ArgSpec, arguments

TOLERANCE = 2e-5
SAID = 160  # letters of an exception


def checks(plan: Plan) -> Iterator[tuple[dict[str, str], Callable[[], Record]]]:
    """What is checked, and the check: it gives how many results are `wrong`, or says why there are none."""
    for name, spec in plan.evicted.items():
        yield {"kernel": "evict_topk", "implementation": "xla", "spec": name}, functools.partial(evict, spec)
    for implementation, specs in plan.checked.items():
        for spec in specs:
            for exact in (True, False):
                told = {"implementation": implementation, "spec": f"{spec.name}{'' if exact else ', softmax'}"}
                yield {"kernel": "fused_topk"} | told, functools.partial(search, implementation, spec, exact)


def search(implementation: Any, spec: ArgSpec, exact: bool) -> Record:
    args, call = _called(implementation, spec, exact)
    try:
        jax.eval_shape(call, *args)
    except NotImplementedError as error:
        if "cannot do this" not in str(error):
            raise
        return {"unsupported": str(error)}
    found = [np.asarray(x) for x in jax.jit(call)(*args)]
    scores, indices, _ = _truth(spec, exact)
    if exact:
        return {"wrong": int(np.sum((found[1] != indices) | (found[0] != scores)))}
    with np.errstate(invalid="ignore"):
        error = np.where(found[0] == scores, 0.0, np.abs(found[0] - scores) / np.abs(scores))
    largest = float(np.max(error, where=np.isfinite(error), initial=0.0))
    return {"wrong": int(np.sum(~(error <= TOLERANCE))), "largest_error": largest}


def _called(implementation: Any, spec: ArgSpec, exact: bool) -> tuple[tuple[Any, ...], Callable]:
    spec = dataclasses.replace(spec, fusion="plain" if exact else "softmax")
    args, named = arguments(spec, integers=exact)
    call = functools.partial(fused_topk, **named, implementation=implementation)
    return args, jax.vmap(call) if spec.agents else call


@functools.cache
def _truth(spec: ArgSpec, exact: bool) -> list[np.ndarray]:
    args, call = _called("reference", spec, exact)
    try:
        host = jax.devices("cpu")[0]
    except RuntimeError:  # jax was told to use the accelerator alone
        host = jax.devices()[0]
    return [np.asarray(x) for x in jax.jit(call)(*jax.device_put(args, host))]


def evict(spec: evicted.ArgSpec) -> Record:
    given = slots_of(spec)

    def found(form: Any) -> list[np.ndarray]:
        one = functools.partial(form.evict_topk, now=jnp.int32(900), n=spec.n)
        return [np.asarray(x) for x in jax.jit(jax.vmap(one))(*given)]

    (keys, slots), (true_keys, true_slots) = found(xla), found(reference)
    near = np.isclose(keys, true_keys, rtol=1e-6, atol=0.0)
    return {"wrong": int(np.sum((slots != true_slots) | ~near))}


def said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:SAID]


def main(small: bool) -> None:
    """A line before each check and one after it, so that a process that ends has told where it was."""
    for about, check in checks(plan(platform(), small)):
        print(json.dumps(about), flush=True)
        try:
            result = check()
        except Exception as error:
            result = {"error": said(error)}
        progress(f"  {about['implementation']} {about['kernel']}, {about['spec']}: {result}")
        print(json.dumps(about | result), flush=True)


def in_a_process(small: bool, seconds: float) -> list[Record]:
    """A record for each implementation of each kernel."""
    command = [sys.executable, "-m", "benchmarks.exactness", *(["--small"] if small else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    ended = None
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        ended = f"its process was ended after {seconds:.0f} s"
    if process.returncode and not ended:
        ended = f"its process ended with {process.returncode}"
    return summary([line for line in map(_parsed, out.splitlines()) if line], ended)


def _parsed(line: str) -> Record | None:
    try:
        return json.loads(line)
    except ValueError:  # cut off with its process
        return None


def summary(lines: list[Record], ended: str | None) -> list[Record]:
    """Of the lines that `main` prints. A check without a result is the one at which the process `ended`; what came
    after it is told nowhere, and its record has an `error`."""
    by_check: dict[tuple[str, str], dict[str, Record]] = {}
    for line in lines:
        by_check.setdefault((line["kernel"], line["implementation"]), {})[line["spec"]] = line
    records = [_of_implementation(*names, found, ended) for names, found in by_check.items()]
    if ended and not any("error" in record for record in records):
        records.append({"benchmark": "exactness", "implementation": "all", "work": {}, "error": ended})
    return records


def _of_implementation(kernel: str, implementation: str, found: dict[str, Record], ended: str | None) -> Record:
    supported = {name: line for name, line in found.items() if "unsupported" not in line}
    failed = {name: line for name, line in supported.items() if line.get("wrong") != 0}
    record: Record = {
        "benchmark": "exactness",
        "implementation": implementation,
        "work": {"kernel": kernel},
        "checked": len(supported),
        "failed": len(failed),
        "unsupported": len(found) - len(supported),
    }
    errors = [line["largest_error"] for line in supported.values() if "largest_error" in line]
    record |= {"largest_error": max(errors)} if errors else {}
    if failed:
        record["note"] = "; ".join(f"{name}: {_reason(line, ended)}" for name, line in failed.items())
    if ended and any(_reason(line, ended) == ended for line in failed.values()):
        record["error"] = ended
    elif supported and not any("wrong" in line for line in supported.values()):
        record["error"] = "none of its checks came to a result"
    return record


def _reason(line: Record, ended: str | None) -> str:
    return f"{line['wrong']} wrong" if "wrong" in line else line.get("error", ended or "no result")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exactness", description=__doc__)
    parser.add_argument("--small", action="store_true")
    main(parser.parse_args().small)
