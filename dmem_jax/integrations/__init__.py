"""Adapters to frameworks, one file each, thin over `MemoryBackend`; each needs the extra of its name.

Nothing is imported here: whoever asks for `dmem_jax.integrations.langgraph` has LangGraph.
"""
