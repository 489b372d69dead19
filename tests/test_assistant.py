"""The dialogue assistant: a world that is fair to every memory, rewards in range, and a run from end to end."""

import dataclasses
import http.server
import itertools
import json
import random
import re
import threading

import numpy as np
import pytest

pytest.importorskip("sqlalchemy", reason="needs the extra agent")

from examples import encoding
from examples.assistant import __main__ as assistant
from examples.assistant import chat, memories, rewards, scoring, talk, world
from examples.assistant.world import TOPICS

SEEDS = range(100, 112)


@pytest.fixture(scope="module")
def dialogues():
    return [world.dialogue(seed) for seed in SEEDS]


def test_a_dialogue_is_that_of_its_seed(dialogues):
    assert world.dialogue(SEEDS[0]) == dialogues[0]
    assert len({dialogue.exchanges[0].reply for dialogue in dialogues}) > 1


def test_no_two_dialogues_are_alike(dialogues):
    said = [{exchange.reply for exchange in dialogue.exchanges} for dialogue in dialogues]
    told = [dialogue.exchanges[fact.told].reply for dialogue in dialogues for fact in dialogue.facts]
    assert len(set(told)) == len(told)
    for one, other in itertools.combinations(said, 2):
        assert len(one & other) < 0.1 * len(one)


def test_weeks_of_hundreds_of_exchanges_with_three_facts_told_early_and_once(dialogues):
    for dialogue in dialogues:
        times = [exchange.time for exchange in dialogue.exchanges]
        assert len(times) > 300
        assert times == sorted(times)
        assert times[-1] < dialogue.asked
        assert sorted(fact.kind for fact in dialogue.facts) == sorted(world.KINDS)
        for fact in dialogue.facts:
            weeks_ago = (dialogue.asked - times[fact.told]).days / 7
            assert weeks_ago >= 4
            assert fact.thing.lower() in dialogue.exchanges[fact.told].reply.lower()
            others = [each for place, each in enumerate(dialogue.exchanges) if place != fact.told]
            named = re.compile(rf"\b{re.escape(fact.thing)}\b", re.IGNORECASE)
            assert not any(named.search(f"{each.action} {each.reply}") for each in others)


def test_a_question_shares_no_word_of_meaning_with_what_was_told():
    for seed in range(100, 300):
        dialogue = world.dialogue(seed, weeks=2)
        for fact in dialogue.facts:
            told = dialogue.exchanges[fact.told]
            assert not world.content_words(fact.question) & world.content_words(f"{told.action} {told.reply}")
            assert len(world.content_words(fact.question)) >= 1


def test_every_thing_statement_and_question_can_come_up():
    for topic in TOPICS:
        for thing, statement in itertools.product(topic.things, topic.statements):
            said = world.content_words(statement.format(thing=thing))
            assert any(not said & world.content_words(question) for question in topic.questions), (topic.name, thing)
        for question in topic.questions:
            assert any(not world.content_words(question) & world.content_words(each) for each in topic.stumbles)


def test_rewards_are_in_range_routine_is_small_and_what_stirs_is_not(dialogues):
    routine, stumbled = [], {"delight": [], "harm": []}
    for dialogue in dialogues:
        facts = {fact.told: fact for fact in dialogue.facts}
        for place, exchange in enumerate(dialogue.exchanges):
            worth = rewards.reward(exchange)
            assert -1.0 <= worth <= 1.0
            if place not in facts:
                routine.append(worth)
            elif facts[place].stumbled:
                stumbled["delight" if facts[place].kind == "delight" else "harm"].append(worth)
    assert np.median(np.abs(routine)) < 0.15
    assert np.mean(stumbled["harm"]) < -0.4
    assert np.mean(stumbled["delight"]) > 0.4


@pytest.mark.parametrize("text", ["", "!!!", "no", "not not not bad", "bad " * 500, "love " * 500, "\ud800", "好"])
def test_sentiment_is_finite_and_within_one(text):
    assert -1.0 <= rewards.sentiment(text) <= 1.0


def test_sentiment_hears_negation_and_nothing_of_allergies():
    assert rewards.sentiment("That was good") > 0 > rewards.sentiment("That was not good")
    tones = [rewards.sentiment(said.format(thing=topic.things[1])) for topic in TOPICS for said in topic.statements]
    assert np.mean(np.array(tones) == 0.0) > 0.3  # many are told in words that the lexicon does not know


def test_engagement_is_bounded_and_zero_at_the_usual():
    assert rewards.engagement(rewards.USUAL_MINUTES) == 0.0
    assert rewards.engagement(1e9) == 1.0
    assert rewards.engagement(1e-9) == -1.0


def test_one_exchange_has_one_friend_in_it():
    action, reply = talk.exchange(("How is {friend}?", "{friend} is well."), random.Random(0))
    assert action.removeprefix("How is ").rstrip("?") == reply.removesuffix(" is well.")


def test_a_memory_is_given_nothing_that_only_the_world_knows(dialogues):
    told = {field.name for field in dataclasses.fields(world.Exchange)}
    assert told == {"time", "action", "reply", "button", "minutes"}
    for dialogue in dialogues:
        for exchange in dialogue.exchanges:
            assert not {"allergy", "delight"} & world.content_words(f"{exchange.action} {exchange.reply}")


def test_hashed_words_are_of_length_one_and_know_no_other_words():
    vectors = encoding.HashedWords()(["order the soup", "Order the soup!", "my throat closes", ""])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 1, 1, 0], rtol=1e-6)
    np.testing.assert_array_equal(vectors[0], vectors[1])
    assert abs(float(vectors[0] @ vectors[2])) < 0.3


def test_an_encoder_is_asked_once_for_each_text():
    class Counting(encoding.HashedWords):
        asked: tuple[str, ...] = ()

        def __call__(self, things, /):
            self.asked += tuple(things)
            return super().__call__(things)

    counting = Counting()
    once = encoding.Once(counting)
    first = once(["a", "b", "a"])
    np.testing.assert_array_equal(first[0], first[2])
    np.testing.assert_array_equal(once(["b"])[0], first[1])
    assert counting.asked == ("a", "b")
    assert once([]).shape == (0, 256)


def _texts(memory, count):
    return [found.observation for found in memory.recall("x", count, world.START)]


def test_what_the_lists_keep():
    encoder = encoding.HashedWords()
    for policy in memories.POLICIES[1:]:
        memory = memories.make(policy, encoder, seed=0)
        for place in range(100):
            memory.add(f"text {place}", "said", -1.0 if place in (3, 50) else 0.001 * place, world.START)
        kept = {int(text.removeprefix("text ")) for text in _texts(memory, 100)}
        assert len(kept) == (100 if policy == "everything" else memories.CAPACITY)
        if policy == "fifo":
            assert kept == set(range(100 - memories.CAPACITY, 100))
        if policy == "strongest":
            assert {3, 50} <= kept
            assert kept - {3, 50} == set(range(100 - memories.CAPACITY + 2, 100))
        if policy == "similarity":
            assert min(kept) < 50 < max(kept)


def test_a_reservoir_keeps_all_exchanges_alike():
    held = np.zeros(40)
    for seed in range(400):
        rule, kept = memories.reservoir(seed), list(range(10))
        for place in range(10, 40):
            if (slot := rule(np.zeros(10), 0.0, place)) >= 0:
                kept[slot] = place
        held[kept] += 1
    np.testing.assert_allclose(held / 400, 0.25, atol=0.09)  # four deviations


def test_outcomes():
    fact = world.Fact("allergy", "meals", "kiwi", True, 0, "What shall we order?")

    def outcome(*found):
        return scoring.outcome(1, fact, "kiwi!", [memories.Found(*each) for each in found])

    assert outcome(("joy", 1.0), ("kiwi!", -1.0)).heads  # first of its sign
    second = outcome(("pain", -0.1), ("kiwi!", -1.0))
    assert second.recalled
    assert not second.heads
    mistaken = outcome(("kiwi!", 0.2))  # taken for a delight
    assert mistaken.recalled
    assert not mistaken.heads
    assert not outcome().recalled


def test_intervals_are_over_dialogues():
    def outcomes(rights):
        return [
            scoring.Outcome(seed, "harm", "drinks", True, right, right)
            for seed, right in enumerate(rights)
            for _ in range(3)
        ]

    half = scoring.rate(outcomes([True, False] * 20), "recalled", "all")
    assert half["mean"] == 0.5
    assert half["n"] == 120
    # A dialogue's three facts stand or fall together: the interval is that of 40 coins, not of 120.
    assert half["high"] - half["low"] == pytest.approx(2 * 1.96 * 0.5 / np.sqrt(40), rel=0.15)
    ahead = scoring.rate(outcomes([True] * 40), "recalled", "all", against=outcomes([True, False] * 20))
    assert ahead["mean"] == 0.5
    assert scoring.rate(outcomes([True]), "recalled", "in passing") == {"mean": 0.0, "low": 0.0, "high": 0.0, "n": 0}


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    out = tmp_path_factory.mktemp("assistant")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENAI_BASE_URL", raising=False)
        return assistant.main(["--quick", "--encoder", "hashed", "--out", str(out)]), out


def test_the_quick_run_writes_what_it_found(quick):
    results, out = quick
    assert json.loads((out / "results.json").read_text()) == json.loads(json.dumps(results))
    for name in ("recall_rates", "rpe", "stores", "recalls"):
        assert (out / f"{name}.png").stat().st_size > 10_000
    assert list(results["policies"]) == list(memories.POLICIES)
    for rates in results["policies"].values():
        for what, group in itertools.product(scoring.RATES, scoring.GROUPS):
            numbers = rates[what][group]
            assert 0.0 <= numbers["low"] <= numbers["mean"] <= numbers["high"] <= 1.0
        assert rates["recalled"]["all"]["n"] == 3 * results["dialogues"]
    assert results["answered_by"] == "template"
    assert len(results["answers"]) == 3


def test_dmem_recalls_more_than_what_forgets_by_age_or_chance(quick):
    rates = {policy: numbers["recalled"]["all"]["mean"] for policy, numbers in quick[0]["policies"].items()}
    assert rates["dmem_jax"] > rates["fifo"]
    assert rates["dmem_jax"] > rates["similarity"]


@pytest.fixture
def chat_stub(monkeypatch):
    """A server of the chat API; yields what it was asked, and what it is to answer."""
    asked, answer = [], {"status": 200, "body": {"choices": [{"message": {"content": " No peanuts. "}}]}}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, self.headers["Authorization"], json.loads(body)))
            content = json.dumps(answer["body"]).encode()
            self.send_response(answer["status"])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1/")
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        yield asked, answer
        server.shutdown()
        thread.join()


def test_a_chat_model_gets_the_prompt_and_its_answer_is_reported(chat_stub, tmp_path, monkeypatch):
    asked, _ = chat_stub
    monkeypatch.setenv("OPENAI_MODEL", "stub")
    monkeypatch.setattr(assistant, "QUICK_WEEKS", 2)  # the shortest
    results = assistant.main(["--quick", "--dialogues", "2", "--encoder", "hashed", "--out", str(tmp_path)])
    assert results["answered_by"] == "chat model"
    assert [each["answer"] for each in results["answers"]] == ["No peanuts."] * 3
    for (path, key, body), told in zip(asked, results["answers"], strict=True):
        assert path == "/v1/chat/completions"
        assert key == "Bearer key"
        assert body["model"] == "stub"
        system, user = body["messages"]
        assert told["prompt"] in system["content"]
        assert user == {"role": "user", "content": told["question"]}


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (401, {"error": "no such key"}, "401.*no such key"),
        (200, {"choices": []}, "no chat completion"),
        (200, [], "no chat"),
    ],
)
def test_a_chat_model_that_fails_is_an_error_that_says_how(chat_stub, status, body, says):
    chat_stub[1].update(status=status, body=body)
    with pytest.raises(chat.ChatError, match=says):
        chat.complete([])


def test_a_chat_model_that_is_not_there(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    with pytest.raises(chat.ChatError, match="cannot be reached"):
        chat.answer("What shall we order?", "", [])


def test_the_command_line_refuses_what_it_cannot_do(tmp_path):
    (tmp_path / "file").write_text("")
    for wrong in (["--dialogues", "1"], ["--out", str(tmp_path / "file")]):
        with pytest.raises(SystemExit):
            assistant.parse(wrong)
