"""Approximate recall from a large buffer, through an hnswlib index on the host (extra `ann`).

    index = ann.Index(config)
    memory, infos = dmem.write_many(config, params, memory, experiences)  # any operations of the core
    index.sync(memory)  # at a step boundary: the index follows
    recall = ann.recall(config, params, memory, index, queries)  # a query, or many at once
    share = ann.measured_recall(config, params, memory, index, queries)  # against exact recall
    told = monitor.summary(config, params, memory, index=index)  # with what the index has to tell
    ann.save("run/index", index)  # and after a restart: index = ann.load("run/index", config)

For buffers of ten thousand to ten million memories. The memory stays the truth: the index only proposes candidates,
the core's own functions filter, score and choose. What is stale in an index can cost recall, never a wrong answer.
"""

from dmem_jax.ann.growth import grow
from dmem_jax.ann.index import Index
from dmem_jax.ann.measuring import measured_recall
from dmem_jax.ann.persistence import load, save
from dmem_jax.ann.recalling import Plan, merge, plan, recall, search

__all__ = ["Index", "Plan", "grow", "load", "measured_recall", "merge", "plan", "recall", "save", "search"]
