"""The operations compiled, for tests that call them often: one by one, their hundreds of primitives take longer.

Shared, so that a program which several tests of a process use is compiled once.
"""

import inspect

import jax

import dmem_jax as dmem

_STATIC = {"rpe_fn", "reprice", "size", "replacement", "overwrite"}


def _jitted(name: str):
    function = getattr(dmem, name)
    return jax.jit(function, static_argnames=_STATIC & {*inspect.signature(function).parameters})


write, write_many, step = _jitted("write"), _jitted("write_many"), _jitted("step")
recall, attend, reinforce, renew = _jitted("recall"), _jitted("attend"), _jitted("reinforce"), _jitted("renew")
consolidate, replay, reprioritize = _jitted("consolidate"), _jitted("replay"), _jitted("reprioritize")
