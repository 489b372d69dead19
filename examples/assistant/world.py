"""Weeks of talk: seeded dialogues in which three things are named once, among hundreds of exchanges that do not matter.

An exchange is what the assistant said or did, and the user's reply to it with its signals. In each dialogue an allergy,
another harm and a delight come up once each, early; the questions where they matter come after the last exchange, in
other words. The world knows nothing of memories or rewards, and a memory is given nothing that only the world knows.
"""

import dataclasses
import datetime
import random
import re

from examples.assistant import talk
from examples.assistant.delights import DELIGHTS
from examples.assistant.harms import HARMS
from examples.assistant.topic import Kind, Topic

TOPICS = HARMS + DELIGHTS
KINDS: tuple[Kind, ...] = ("allergy", "harm", "delight")
START = datetime.datetime(2026, 3, 2, tzinfo=datetime.UTC)
A_DAY = 7.0  # exchanges, on average
NAMED_BY = 0.5  # of the weeks: facts are named before that
STUMBLED = 0.5  # of the facts come up because the assistant stumbles on them; the others the user tells in passing
FELT = 0.75  # of the facts are told with a word of feeling
PRESSED = 0.06  # of ordinary exchanges end with a button, four fifths of them with a like
STIRRED = 0.02  # of the exchanges are upsets, and as many are joys

_STOP_WORDS = """a about above after again all am an and any are as at be because been before but by can could did do
    does for from get give go had has have he her him his how i if in into is it its just like make me more my no not
    of off on one or our out over put shall she should so some still than that the their them then there these they
    thing this those to too until up us was we were what when where which while who will with would you your"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


@dataclasses.dataclass(frozen=True)
class Exchange:
    """What the assistant did, how the user took it, and when."""

    time: datetime.datetime
    action: str
    reply: str
    button: int  # 1 like, -1 dislike, 0 neither
    minutes: float  # how long the user stayed in the talk after it, > 0


@dataclasses.dataclass(frozen=True)
class Fact:
    """What matters later. For scoring alone."""

    kind: Kind
    topic: str
    thing: str
    stumbled: bool  # the assistant came upon it, else it was told in passing
    told: int  # index of the exchange
    question: str


@dataclasses.dataclass(frozen=True)
class Dialogue:
    """One user's weeks."""

    seed: int
    exchanges: tuple[Exchange, ...]
    facts: tuple[Fact, ...]  # one of each of KINDS
    asked: datetime.datetime  # when the questions come


def content_words(text: str) -> set[str]:
    """The words of a text that carry meaning, without their commonest endings.

    >>> sorted(content_words("Which dishes shall we order?"))
    ['dish', 'order']
    """
    words = {re.sub(r"'s?$", "", word) for word in re.findall(r"[^\W\d_][\w']*", text.lower())}
    return {re.sub(r"(ing|ed|es|s|e)$", "", word) if len(word) > 4 else word for word in words - STOP_WORDS}


def dialogue(seed: int, weeks: int = 8) -> Dialogue:
    """The dialogue of a seed: some 49 exchanges a week, the same at every call.

    Args:
      seed: any int; another seed is another user.
      weeks: >= 2.
    """
    chance = random.Random(f"assistant {seed}")
    days = 7 * weeks
    times = sorted(_moment(chance, day) for day in range(days) for _ in range(_poisson(chance)))
    early = [place for place, time in enumerate(times) if time < START + datetime.timedelta(days=NAMED_BY * days)]
    told = dict(zip(KINDS, chance.sample(early, len(KINDS)), strict=True))
    topics = {kind: chance.choice([topic for topic in TOPICS if topic.kind == kind]) for kind in KINDS}
    exchanges = [_ordinary(chance, time, tuple(topics.values())) for time in times]
    facts = []
    for topic in topics.values():
        place = told[topic.kind]
        fact, exchanges[place] = _named(chance, topic, place, times[place])
        facts.append(fact)
    asked = START + datetime.timedelta(days=days, hours=18)
    return Dialogue(seed, tuple(exchanges), tuple(facts), asked)


def _named(chance: random.Random, topic: Topic, told: int, time: datetime.datetime) -> tuple[Fact, Exchange]:
    """The exchange in which a topic's fact comes up, which shares no word with the question that will be asked."""
    harms = topic.kind != "delight"
    while True:  # until the words are apart
        thing, question = chance.choice(topic.things), chance.choice(topic.questions)
        stumbled = chance.random() < STUMBLED
        statement = talk.fill(chance.choice(topic.statements), chance, thing=thing) + "."
        feeling = chance.choice(talk.DREAD if harms else talk.RAPTURE) if chance.random() < FELT else ""
        if stumbled:
            action = talk.fill(chance.choice(topic.stumbles), chance, thing=thing)
            said = f"{chance.choice(talk.PROTESTS if harms else talk.CHEERS)} {statement} {feeling}".strip()
            said = talk.between(said, chance)
            # A button is pressed by six in ten who were stirred so; a shocked user leaves, a delighted one stays.
            button = (-1 if harms else 1) * (chance.random() < 0.6)
            minutes = _stay(chance, 0.4 if harms else 6.0)
        else:
            action, reply = talk.exchange(chance.choice(talk.SMALL_TALK + talk.LOGISTICS), chance)
            said = f"{reply} {statement} {feeling}".strip()
            button, minutes = 0, _stay(chance)
        if not content_words(question) & content_words(f"{action} {said}"):
            return Fact(topic.kind, topic.name, thing, stumbled, told, question), Exchange(
                time, action, said, button, minutes
            )


def _ordinary(chance: random.Random, time: datetime.datetime, topics: tuple[Topic, ...]) -> Exchange:
    """An exchange that does not matter: small talk, logistics, suggestions, now and then a stirring one."""
    button = (1 if chance.random() < 0.8 else -1) if chance.random() < PRESSED else 0
    drawn = chance.random()
    if drawn < 2 * STIRRED:
        joy = drawn < STIRRED
        pair = chance.choice(talk.JOYS if joy else talk.UPSETS)
        if chance.random() < 0.3:
            button = 1 if joy else -1
        action, reply = talk.exchange(pair, chance)
        return Exchange(time, action, talk.between(reply, chance), button, _stay(chance, 3.0 if joy else 1.5))
    if drawn < 0.4:  # a suggestion, in two thirds of them about a matter that will be asked for
        topic = chance.choice(topics if chance.random() < 2 / 3 else TOPICS)
        action = talk.fill(chance.choice(topic.offers), chance, usual=chance.choice(topic.usual))
        taken = chance.random() < 0.7
        reply = talk.fill(chance.choice(talk.TAKEN if taken else talk.DECLINED), chance) + "."
        _, more = talk.exchange(chance.choice(talk.SMALL_TALK + talk.LOGISTICS), chance)
        reply = f"{reply} {more}" if chance.random() < 0.3 else reply
    else:
        action, reply = talk.exchange(chance.choice(talk.SMALL_TALK + talk.LOGISTICS), chance)
    return Exchange(time, action, talk.between(reply, chance), button, _stay(chance))


def _moment(chance: random.Random, day: int) -> datetime.datetime:
    """A moment of a day, between seven and eleven in the evening."""
    return START + datetime.timedelta(days=day, seconds=chance.randrange(7 * 3600, 23 * 3600))


def _poisson(chance: random.Random) -> int:
    """Exchanges of a day."""
    waited, count = chance.expovariate(A_DAY), 0
    while waited < 1.0:
        waited, count = waited + chance.expovariate(A_DAY), count + 1
    return count


def _stay(chance: random.Random, median: float = 2.0) -> float:
    """Minutes, log-normal: two thirds of the stays are within a factor of 1.8 of the median."""
    return median * chance.lognormvariate(0.0, 0.6)
