"""What a `MemoryBackend` does beside adding and recalling: upkeep in the background, twins, its clock, signals."""

import asyncio
import inspect
import itertools
import logging
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmem_jax.agent import MemoryBackend
from dmem_jax.errors import ArgumentTypeError, ArgumentValueError, ClosedError
from tests.agents import START, Book, Words, ask, held, texts


def eventually(condition) -> None:
    """Waits for what a thread will do; a minute at most."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never happened")


def upkeep_threads() -> int:
    return sum(thread.name == "dmem_jax upkeep" for thread in threading.enumerate())


# ---- in the background


def test_upkeep_forgets_what_is_weak_and_ends_with_the_backend(book: Book):
    backend = book.reopen(upkeep_every=0.01, params={"floor": 0.05, "half_life": 86400.0})
    assert upkeep_threads() == 1
    backend.add_memory("likes green tea", reward=3.0)
    backend.add_memory("hates loud bars", reward=3.0, namespace="ann")
    book.clock.move(days=30)
    backend.add_memory("plays old chess", reward=3.0)
    eventually(lambda: held_quietly(backend) == {1: "plays old chess"})
    eventually(lambda: backend.list(namespace="ann") != [] or backend.consolidate("ann"))
    backend.close()
    assert upkeep_threads() == 0
    assert held(book.reopen()) == {1: "plays old chess"}
    assert upkeep_threads() == 0


def held_quietly(backend: MemoryBackend) -> dict[int, str]:
    return {memory.id: memory.observation for memory in backend.list()}


def test_an_error_in_the_upkeep_is_logged_and_does_not_end_it(
    book: Book, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    calls = []

    def failing(self: MemoryBackend, namespace: str | None = None) -> dict[str, int]:
        calls.append(namespace)
        if len(calls) < 3:
            raise OSError("no space is left")
        return consolidate(self, namespace)

    consolidate = MemoryBackend.consolidate
    monkeypatch.setattr(MemoryBackend, "consolidate", failing)
    with caplog.at_level(logging.ERROR, "dmem_jax.agent"):
        backend = book.reopen(upkeep_every=0.01)
        backend.add_memory("likes green tea", reward=3.0)
        eventually(lambda: len(calls) >= 3)
        backend.close()
    assert upkeep_threads() == 0
    logged = [record for record in caplog.records if record.name == "dmem_jax.agent"]
    assert len(logged) == 2
    assert all("upkeep failed" in record.message and record.exc_info for record in logged)
    assert held(book.reopen()) == {0: "likes green tea"}


def test_upkeep_while_others_write(book: Book):
    backend = book.reopen(upkeep_every=0.001)
    for i in range(20):
        backend.add_memory(f"fact {i} of {i * i}", reward=3.0, namespace=f"user {i % 3}")
    before = {name: held(backend, name) for name in backend.namespaces()}
    assert sum(map(len, before.values())) == 20
    book.reopen()
    assert {name: held(book.backend, name) for name in book.backend.namespaces()} == before


@pytest.mark.parametrize("every", [0.0, -1.0, float("nan"), "soon"])
def test_an_interval_that_is_none_is_refused(unchecked: None, book: Book, every: object):
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=r"^upkeep_every"):
        book.another(upkeep_every=every)
    assert upkeep_threads() == 0


# ---- async


def test_every_method_has_a_twin():
    def public(wanted: bool) -> set[str]:
        methods = inspect.getmembers(MemoryBackend, inspect.isfunction)
        return {name for name, method in methods if not name.startswith("_") and
                inspect.iscoroutinefunction(method) == wanted}  # fmt: skip

    assert public(True) == {f"a{name}" for name in public(False)}
    assert "aadd_memory" in public(True)


@pytest.mark.quick
def test_twins_do_what_the_methods_do(book: Book):
    async def live() -> None:
        async with book.another() as backend:
            added = await asyncio.gather(*(
                backend.aadd_memory(f"fact {i} of {i * i}", reward=3.0, namespace=f"user {i % 3}") for i in range(12)
            ))  # fmt: skip
            assert sorted(one.id for one in added) == sorted([0, 1, 2, 3] * 3)
            names = await backend.anamespaces()
            assert names == ["user 0", "user 1", "user 2"]
            found = await asyncio.gather(*(backend.aget_relevant_memories("fact", namespace=name) for name in names))
            assert [len(each) for each in found] == [4, 4, 4]
            assert {memory.namespace for memory in found[1]} == {"user 1"}
            assert await backend.afeedback(found[0][:2], 1.0, namespace="user 0") == 2
            changed = await backend.aupdate(0, observation="no fact", namespace="user 0")
            assert await backend.aget(0, namespace="user 0") == changed
            assert await backend.adelete([0, 1], namespace="user 1") == 2
            assert len(await backend.alist(namespace="user 1")) == 2
            assert await backend.aclear("user 2") == 4
            assert (await backend.aconsolidate())["forgotten"] == 0
            lines = list(await backend.aexport("user 0"))
            assert await backend.arestore(lines, namespace="user 3") == 4
            assert (await backend.astats("user 0"))["agents"] == 1
            with pytest.raises(ArgumentValueError, match=r"^observation"):
                await backend.aadd_memory("")
        with pytest.raises(ClosedError):
            await backend.alist()

    asyncio.run(live())
    assert [len(held(book.backend, f"user {i}")) for i in range(4)] == [4, 2, 0, 4]


def test_a_context_manager_closes_after_an_error_too(book: Book):
    backend = book.another()

    def fail() -> None:
        with backend:
            assert backend.add_memory("likes green tea", reward=3.0).id == 0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(ClosedError):
        backend.list()
    assert held(book.backend) == {0: "likes green tea"}


# ---- the clock


def test_strength_fades_by_the_calendar(book: Book):
    days = 86400.0
    backend = book.reopen(params={"half_life": 10 * days, "disaster_half_life": 20 * days})
    backend.add_memory("likes green tea", reward=3.0)
    backend.add_memory("hates loud bars", reward=-3.0)
    delight, disaster = (memory.strength for memory in backend.list())
    for passed in 10, 20:
        book.clock.now = START
        book.clock.move(days=passed)
        assert [memory.strength for memory in backend.list()] == pytest.approx(
            [delight * 0.5 ** (passed / 10), disaster * 0.5 ** (passed / 20)], rel=1e-4
        )
        backend = book.reopen(params={"half_life": 10 * days, "disaster_half_life": 20 * days})
    assert backend.list()[0].created_at == START


def test_a_clock_that_goes_back_or_errs(unchecked: None, book: Book):
    book.backend.add_memory("likes green tea", reward=3.0)
    book.clock.move(days=-10)
    before = book.backend.list()
    book.backend.add_memory("hates loud bars", reward=3.0)
    assert book.backend.list()[0] == before[0]
    told: list[Any] = [START]
    backend = book.another(clock=lambda: told[0])
    for told[0], error in ((5, ArgumentTypeError), (datetime(2099, 1, 1), ArgumentValueError)):
        for call in (lambda: backend.add_memory("tea", reward=3.0), backend.list, lambda: ask(backend, "tea")):
            with pytest.raises(error, match=r"^clock\(\)"):
                call()
    backend.close()
    assert len(held(book.backend)) == 2


# ---- where surprise comes from


def test_a_usual_reward_surprises_no_more(book: Book):
    backend = book.reopen(signal="value")
    rpes = [backend.add_memory("likes green tea", f"way {i}", 3.0).rpe for i in range(12)]
    assert rpes[0] == pytest.approx(3.0, abs=1e-5)  # nothing was expected
    assert all(abs(after) < abs(before) for before, after in itertools.pairwise(rpes))
    assert abs(rpes[-1]) < 0.1
    backend = book.reopen(signal="value")  # what was learnt is kept, and by each user alone
    assert abs(backend.add_memory("likes green tea", "another way", 3.0).rpe) < 0.1
    assert backend.add_memory("likes green tea", "another way", -3.0).rpe == pytest.approx(-6.0, abs=0.2)
    assert backend.add_memory("likes green tea", reward=3.0, namespace="ann").rpe == pytest.approx(3.0, abs=1e-5)
    backend.clear()
    assert backend.add_memory("likes green tea", reward=3.0).rpe == pytest.approx(3.0, abs=1e-5)


def test_the_reward_is_the_surprise(book: Book):
    backend = book.reopen(signal="reward")
    assert [backend.add_memory("likes green tea", reward=r).rpe for r in (3.0, 3.0, -1.0)] == [3.0, 3.0, -1.0]
    assert backend.add_memory("likes green tea", reward=3.0, rpe=0.5).rpe == 0.5  # the caller knows better
    stored = backend.add_memory("hates loud bars", reward=-2.0, rpe=4.0)
    assert stored.id is not None
    memory = backend.get(stored.id)
    assert memory is not None
    assert (memory.reward, memory.rpe) == (-2.0, 4.0)


def test_novelty_is_the_surprise(book: Book):
    backend = book.reopen(signal="novelty")
    assert backend.add_memory("likes green tea").rpe == pytest.approx(1.0)
    cosine = float(Words()(["likes green tea"])[0] @ Words()(["likes black tea"])[0])
    assert backend.add_memory("likes black tea").rpe == pytest.approx(1 - cosine, abs=1e-4)
    assert backend.add_memory("likes green tea").rpe == pytest.approx(0.0, abs=1e-5)
    assert backend.add_memory("hates loud bars", reward=5.0).rpe > 5.0  # both
    memory = backend.get(0)
    assert memory is not None
    assert memory.reward is None


def test_a_critic_says_what_was_to_be_expected(book: Book):
    asked = []

    def critic(observation: str, action: str | None, reward: float | None, next_observation: str | None) -> float:
        asked.append((observation, action, reward, next_observation))
        return 2.5

    backend = book.reopen(signal=critic)
    assert backend.add_memory("likes green tea", "served it", 4.0, "was glad").rpe == 1.5
    assert asked == [("likes green tea", "served it", 4.0, "was glad")]
    assert backend.add_memory("hates loud bars", reward=4.0, rpe=-7.0).rpe == -7.0
    assert texts(ask(backend, "bars", sign=-1)) == ["hates loud bars"]


@pytest.mark.parametrize("answer", [float("nan"), "much", None, np.zeros(2)])
def test_a_critic_that_errs_changes_nothing(unchecked: None, book: Book, answer: object):
    book.backend.add_memory("likes green tea", reward=3.0)
    backend = book.reopen(signal=lambda *_: answer)
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=r"^signal\(\.\.\.\)"):
        backend.add_memory("hates loud bars", reward=3.0)
    assert held(book.reopen()) == {0: "likes green tea"}


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("signal", "surprise"),
        ("signal", ["value"]),
        ("capacity", (0, 5)),
        ("capacity", (3, -1)),
        ("capacity", 5),
        ("capacity", (2.5, 3)),
        ("params", {"half_life": -1.0}),
        ("params", {"no such": 1.0}),
        ("params", 5),
        ("keyword_weight", -1.0),
        ("keyword_weight", float("nan")),
        ("clock", START),
        ("encoder", None),
        ("encoder", lambda texts: texts),
        ("store_dtype", "float8"),
    ],
)
def test_a_setting_that_is_none_is_refused(unchecked: None, tmp_path: Path, name: str, given: object):
    with pytest.raises((ArgumentTypeError, ArgumentValueError)):
        Book(str(tmp_path / "other.db"), **{name: given})
    assert list(tmp_path.iterdir()) == [], "nothing was made"
