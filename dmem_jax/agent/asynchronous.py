"""Async twins of the backend's methods: each runs the method in a thread, so that an event loop goes on meanwhile."""

import asyncio
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from dmem_jax.agent.records import Added, Recalled, Stored


class AsyncTwins:
    """Arguments, results and errors are those of the method without the `a`."""

    async def aadd_memory(self, *args: Any, **named: Any) -> Added:
        """`add_memory`."""
        return await self._in_thread("add_memory", args, named)

    async def aget_relevant_memories(self, *args: Any, **named: Any) -> list[Recalled]:
        """`get_relevant_memories`."""
        return await self._in_thread("get_relevant_memories", args, named)

    async def aget(self, *args: Any, **named: Any) -> Stored | None:
        """`get`."""
        return await self._in_thread("get", args, named)

    async def alist(self, *args: Any, **named: Any) -> list[Stored]:
        """`list`."""
        return await self._in_thread("list", args, named)

    async def acount(self, *args: Any, **named: Any) -> int:
        """`count`."""
        return await self._in_thread("count", args, named)

    async def anamespaces(self, *args: Any, **named: Any) -> list[str]:
        """`namespaces`."""
        return await self._in_thread("namespaces", args, named)

    async def astats(self, *args: Any, **named: Any) -> dict[str, float]:
        """`stats`."""
        return await self._in_thread("stats", args, named)

    async def afeedback(self, *args: Any, **named: Any) -> int:
        """`feedback`."""
        return await self._in_thread("feedback", args, named)

    async def aupdate(self, *args: Any, **named: Any) -> Stored:
        """`update`."""
        return await self._in_thread("update", args, named)

    async def adelete(self, *args: Any, **named: Any) -> int:
        """`delete`."""
        return await self._in_thread("delete", args, named)

    async def aclear(self, *args: Any, **named: Any) -> int:
        """`clear`."""
        return await self._in_thread("clear", args, named)

    async def aconsolidate(self, *args: Any, **named: Any) -> dict[str, int]:
        """`consolidate`."""
        return await self._in_thread("consolidate", args, named)

    async def aexport(self, *args: Any, **named: Any) -> Iterator[dict[str, Any]]:
        """`export`."""
        return await self._in_thread("export", args, named)

    async def arestore(self, *args: Any, **named: Any) -> int:
        """`restore`."""
        return await self._in_thread("restore", args, named)

    async def aclose(self) -> None:
        """`close`."""
        await self._in_thread("close", (), {})

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _in_thread(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return await asyncio.to_thread(getattr(self, name), *args, **named)
