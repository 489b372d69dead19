"""A durable memory for agents that speak (extra: agent).

from dmem_jax.agent import MemoryBackend, render_prompt

with MemoryBackend("memory.db", encoder=encoder) as backend:
    backend.add_memory("I am allergic to peanuts", action="suggested satay", reward=-5.0, namespace="ann")
    found = backend.get_relevant_memories("what shall we cook tonight?", namespace="ann")
    print(render_prompt(found))
    backend.feedback(found[:1], rpe=1.0, namespace="ann")
"""

from dmem_jax.agent.backend import MemoryBackend
from dmem_jax.agent.prompt import render_prompt
from dmem_jax.agent.records import Added, Recalled, Stored

__all__ = ["Added", "MemoryBackend", "Recalled", "Stored", "render_prompt"]
