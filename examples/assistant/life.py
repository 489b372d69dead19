"""One user's weeks with one memory: every exchange is written, and at the end each question asked."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from dmem_jax import Config, Params
from dmem_jax.agent import Added, Recalled
from dmem_jax.encoders import Encoder
from examples.assistant import memories, scoring
from examples.assistant.rewards import reward
from examples.assistant.world import Dialogue


@dataclasses.dataclass(frozen=True)
class Life:
    """What `dmem_jax` did in one dialogue, for walk-through and pictures."""

    dialogue: Dialogue
    config: Config  # of the memory
    k: int  # memories that the assistant sees
    added: list[Added]  # of each exchange
    recalled: list[list[Recalled]]  # for each fact's question all that is held, best first; the assistant sees k


def outcomes(policy: str, encoder: Encoder, dialogue: Dialogue, k: int) -> list[scoring.Outcome]:
    """The dialogue with a policy's memory: whether each fact came back."""
    memory = memories.make(policy, encoder, dialogue.seed)
    live(memory, dialogue)
    return asked(memory, dialogue, k)


def live(memory: memories.Memories, dialogue: Dialogue) -> None:
    """All that a memory is ever told: the reply, what it replied to, the reward, the time."""
    for exchange in dialogue.exchanges:
        memory.add(exchange.reply, exchange.action, reward(exchange), exchange.time)


def asked(memory: memories.Memories, dialogue: Dialogue, k: int) -> list[scoring.Outcome]:
    """Asks each fact's question, weeks later."""
    return [
        scoring.outcome(
            dialogue.seed, fact, dialogue.exchanges[fact.told].reply, memory.recall(fact.question, k, dialogue.asked)
        )
        for fact in dialogue.facts
    ]


def watched(encoder: Encoder, dialogue: Dialogue, k: int) -> tuple[list[scoring.Outcome], Life]:
    """The same with `dmem_jax`, and what it did."""
    memory = memories.Surprises(encoder)
    with memory.backend:
        live(memory, dialogue)
        found = asked(memory, dialogue, k)
        everything = [memory.ask(fact.question, memories.CAPACITY, dialogue.asked) for fact in dialogue.facts]
    return found, Life(dialogue, memory.backend.config, k, memory.added, everything)


def terms_of(recalled: Sequence[Recalled], params: Params) -> tuple[np.ndarray, np.ndarray]:
    """The two terms of each score, [n] each: meaning (with keywords) and salience, weighed and normalised over all that
    is held, which `recalled` must be."""

    def share(scores: list[float], temperature: float) -> np.ndarray:
        logits = np.array(scores) / temperature
        exponentials = np.exp(logits - logits.max(initial=-np.inf))
        return exponentials / max(exponentials.sum(), 1e-30)

    weight = float(params.semantic_weight)
    near = [each.similarity + memories.KEYWORD_WEIGHT * each.keyword for each in recalled]
    meaning = weight * share(near, float(params.semantic_temperature))
    salience = (1 - weight) * share([each.salience for each in recalled], float(params.salience_temperature))
    return meaning, salience
