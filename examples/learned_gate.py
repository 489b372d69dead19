"""A gate learns what to remember where surprise misleads: key-value recall with delay.

    python -m examples.learned_gate [--quick]

An episode is a stream of experiences, each a key and a value in a context. A few are items: their immediate reward is
next to nothing, as that of routine, but at the end their keys are asked for, and only the right value pays. Distractors
pay much at once and are never asked for. The memory has fewer slots than an episode has distractors. Whether something
is an item hangs on its context, by a rule of each world's own that no single direction tells, and nobody is told.

For each world a gate (its scalars, and a small network over the embedding) is trained by the reward at the end alone,
through the soft memory; then the ordinary memory is judged with it, on other episodes. Its rivals keep by surprise, by
age, or all: for each the best of 200 settings by hand, found on as many episodes as the gate was trained on.

Prints a table, and writes `results.json` and a picture into out/learned_gate/.
"""

import argparse
import dataclasses
import functools
import json
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

matplotlib.use("Agg")  # no window: the picture is a file
import matplotlib.pyplot as plt

import dmem_jax as dmem
from dmem_jax import gate_training
from dmem_jax.gate_training import GateConfig, GateLearner
from dmem_jax.soft import soft_attend, soft_memory

STEPS, ITEMS, DISTRACTORS = 96, 6, 45  # experiences of an episode; the others are routine
DELAY = 8  # the last experiences of an episode, among which there is no item
VALUES = 16  # different values; a guess is right once in so many
KEY, CONTEXT = 28, 4  # numbers of a key and of a context
NOISE = 0.3  # of a context, against +-1 of the pure one
ROUTINE, ITEM, DISTRACTOR = range(3)  # kinds
CORE, BUFFER = 4, 8  # slots

CONFIG = dmem.Config(
    embedding_dim=KEY + CONTEXT, core_capacity=CORE, buffer_capacity=BUFFER, thresholds="learned", duplicates="off",
    warmup=0, top_k=1,
)  # fmt: skip
PAYLOAD = {"value": jax.ShapeDtypeStruct((VALUES,), jnp.float32)}
BATCH, TRAINING = 32, 300  # episodes of a training step, and steps
CHUNK, CHUNKS = 50, 4  # settings by hand that each rival may try: in all 200, each on TRIAL episodes
TRIAL = BATCH * TRAINING // (CHUNK * CHUNKS)
JUDGED = 512  # other episodes of each world, on which all are judged
SLOTS_COMPARED = (CORE + BUFFER, 256)  # of the memories through which the gradient's bytes are measured
LEARNED, SCALARS, BY_HAND, UNGATED, FIFO = "learned gate", "learned, no network", "best by hand", "ungated", "fifo"

# The start of training: an almost open gate and a sharp recall. From the default one, under which surprise decides,
# nothing is learned: what matters is hardly ever kept, and so its reward does not show.
START = {"gate_scale": 0.1, "gate_bias": 0.01, "semantic_temperature": 0.05, "semantic_weight": 0.9}
OPTIMIZER = optax.adam(2e-2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class World:
    """What is fixed for a seed, and hidden."""

    mixing: Float[Array, "D D"]  # a rotation: no number of an embedding is of the key or of the context alone
    kinds: Int[Array, " 2**CONTEXT"]  # of each pure context, a corner of the cube


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Episode:
    """What is met, and what is asked at the end."""

    met: dmem.Experience  # [STEPS], payload: the value, one-hot
    kind: Int[Array, " STEPS"]  # for figures alone
    asked: Float[Array, "ITEMS D"]
    right: Int[Array, " ITEMS"]  # the value that pays


def make_world(key: Key[Array, ""]) -> World:
    """Of the 16 pure contexts 4 are of items, 6 of routine, 6 of distractors."""
    mixing_key, kinds_key = jax.random.split(key)
    dim = CONFIG.embedding_dim
    kinds = jnp.repeat(jnp.array([ROUTINE, ITEM, DISTRACTOR]), jnp.array([6, 4, 6]), total_repeat_length=2**CONTEXT)
    return World(
        mixing=jnp.linalg.qr(jax.random.normal(mixing_key, (dim, dim)))[0],
        kinds=jax.random.permutation(kinds_key, kinds),
    )


def make_episode(world: World, key: Key[Array, ""]) -> Episode:
    """One episode; vmap over keys."""
    # Two draws for all: every call of a generator takes a second to compile.
    normal_key, uniform_key = jax.random.split(key)
    normal = jax.random.normal(normal_key, (STEPS, KEY + CONTEXT))
    uniform = jax.random.uniform(uniform_key, (STEPS, 2**CONTEXT + 5))
    chance, for_place, for_other, for_value, for_size, for_sign = jnp.split(uniform, 2**CONTEXT + np.arange(5), axis=1)

    _, item_places = jax.lax.top_k(for_place[: STEPS - DELAY, 0], ITEMS)
    is_item = jnp.zeros(STEPS, bool).at[item_places].set(True)
    _, distractor_places = jax.lax.top_k(jnp.where(is_item, -1.0, for_other[:, 0]), DISTRACTORS)
    kind = jnp.where(is_item, ITEM, ROUTINE).at[distractor_places].set(DISTRACTOR)

    corner = jnp.argmax(chance + (world.kinds == kind[:, None]), axis=1)  # any that is of the kind
    bits = (corner[:, None] >> jnp.arange(CONTEXT)) & 1
    context = 2.0 * bits.astype(jnp.float32) - 1.0 + NOISE * normal[:, KEY:]
    name = normal[:, :KEY] / np.sqrt(KEY)
    embedding = jnp.concatenate([name, context / np.sqrt(CONTEXT)], axis=1) @ world.mixing
    value = (VALUES * for_value[:, 0]).astype(jnp.int32)
    magnitude = (0.5 + for_size[:, 0]) * jnp.where(kind == DISTRACTOR, 3.0, 0.1)
    rpe = jnp.where(for_sign[:, 0] < 0.5, -magnitude, magnitude)
    nameless = jnp.zeros((ITEMS, CONTEXT))
    return Episode(
        met=dmem.experience(CONFIG, embedding, rpe=rpe, payload={"value": jax.nn.one_hot(value, VALUES)}),
        kind=kind,
        asked=jnp.concatenate([name[item_places], nameless], axis=1) @ world.mixing,
        right=value[item_places],
    )


make_episodes = jax.jit(jax.vmap(make_episode, (None, 0)))


def value_of(payload: Any) -> Array:
    """What is read out: values, one-hot, so that a read-out holds the probability of each answer."""
    return payload["value"]


def loss(params: dmem.Params, gate_logit: Any, episodes: Episode) -> Array:
    """-ln of the reward to be expected of answers drawn from the read-out. Nothing else says what an item is."""

    def of_one(episode: Episode) -> Array:
        met = dataclasses.replace(episode.met, gate_logit=gate_logit(episode.met.embedding))
        soft = soft_memory(CONFIG, params, met)
        answers = jax.vmap(lambda asked: soft_attend(params, soft, asked, over=value_of))(episode.asked)
        reward = jnp.take_along_axis(answers.readout, episode.right[:, None], axis=1)
        return -jnp.mean(jnp.log(reward + 1e-6))

    return jnp.mean(jax.vmap(of_one)(episodes))


@functools.partial(jax.jit, static_argnames=("gate_config", "steps"))
def train(gate_config: GateConfig, world: World, key: Key[Array, ""], steps: int) -> tuple[GateLearner, Array]:
    """A learner after `steps` batches of new episodes, and its losses."""
    start_key, steps_key = jax.random.split(key)
    learner = gate_training.init(gate_config, dmem.Params.default(CONFIG, **START), start_key)

    def body(learner: GateLearner, key: Array) -> tuple[GateLearner, Array]:
        episodes = jax.vmap(make_episode, (None, 0))(world, jax.random.split(key, BATCH))
        return gate_training.update(gate_config, learner, loss, episodes)

    return jax.lax.scan(body, learner, jax.random.split(steps_key, steps))


def play(config: dmem.Config, params: dmem.Params, episodes: Episode) -> tuple[Array, Array]:
    """The ordinary memory in each episode: mean reward of its answers, and the share of the items that it still had."""

    def one(episode: Episode) -> tuple[Array, Array]:
        marked = dataclasses.replace(episode.met, time=jnp.arange(STEPS, dtype=jnp.int32))
        memory, _ = dmem.write_many(config, params, dmem.init(config, PAYLOAD), marked)
        ask = lambda asked: dmem.attend(config, params, memory, asked, over=value_of).readout  # noqa: E731
        right = jnp.argmax(jax.vmap(ask)(episode.asked), axis=1) == episode.right
        held = [jnp.where(tier.id >= 0, tier.time, STEPS) for tier in (memory.core, memory.buffer)]
        is_held = jnp.zeros(STEPS, bool).at[jnp.concatenate(held)].set(True, mode="drop")
        return jnp.mean(right.astype(jnp.float32)), jnp.sum(is_held & (episode.kind == ITEM)).astype(
            jnp.float32
        ) / ITEMS

    return jax.vmap(one)(episodes)


@functools.partial(jax.jit, static_argnames=("config",))
def judge(config: dmem.Config, params: dmem.Params, episodes: Episode) -> tuple[Array, Array]:
    """Means of what `play` gives."""
    reward, held = play(config, params, episodes)
    return jnp.mean(reward), jnp.mean(held)


@functools.partial(jax.jit, static_argnames=("config",))
def search(config: dmem.Config, many: dmem.Params, episodes: Episode) -> Array:
    """Mean reward with each of the settings `many`."""
    return jax.lax.map(lambda params: jnp.mean(play(config, params, episodes)[0]), many)


def hand_settings(rival: str, chunk: int, key: Key[Array, ""]) -> tuple[dmem.Config, dmem.Params]:
    """CHUNK random settings of a rival: gate, thresholds, eviction and recall, or for those without a gate recall."""
    keys = iter(jax.random.split(key, 12))

    def uniform(low: float, high: float) -> Array:
        return jax.random.uniform(next(keys), (CHUNK,), minval=low, maxval=high)

    def log_uniform(low: float, high: float) -> Array:
        return jnp.exp(uniform(np.log(low), np.log(high)))

    changes: dict[str, Any] = {
        "semantic_weight": uniform(0.2, 1.0),
        "semantic_temperature": log_uniform(0.01, 1.0),
        "salience_temperature": log_uniform(0.1, 10.0),
    }
    config = dataclasses.replace(CONFIG, thresholds="fixed")
    if rival == FIFO:  # all goes to the buffer, which has all slots, and the oldest leaves
        config = dataclasses.replace(
            config, core_capacity=1, buffer_capacity=CORE + BUFFER, buffer_eviction="age_frequency"
        )
        changes |= {"threshold_low": 0.0, "threshold_high": np.inf}
    elif rival == UNGATED:
        changes |= {"threshold_low": 0.0}
    else:
        config = dataclasses.replace(
            config,
            thresholds=("fixed", "quantile")[chunk % 2],
            buffer_eviction=("strength", "age_frequency")[chunk // 2 % 2],
        )
        low, quantile_low = log_uniform(0.003, 4.0), uniform(0.0, 1.0)
        changes |= {
            "gate_scale": log_uniform(0.1, 10.0),
            "gate_bias": uniform(-4.0, 8.0),
            "threshold_low": low,
            "threshold_high": low * log_uniform(1.0, 8.0),
            "quantile_low": quantile_low,
            "quantile_high": quantile_low + (1.0 - quantile_low) * uniform(0.0, 1.0),
            "half_life": (half_life := log_uniform(4.0, 800.0)),  # a short one makes the memory keep what is new
            "disaster_half_life": half_life,
        }
    defaults = dmem.Params.default(config)
    many = {
        field.name: jnp.broadcast_to(jnp.float32(changes.get(field.name, getattr(defaults, field.name))), (CHUNK,))
        for field in dataclasses.fields(dmem.Params)
    }
    return config, dmem.Params(**many)


def best_by_hand(rival: str, world: World, key: Key[Array, ""], trial: int, chunks: int) -> dict[str, Any]:
    """The setting with most reward in training, each being tried on `trial` new episodes."""
    best: dict[str, Any] = {"trained": -1.0}
    for chunk in range(chunks):
        setting_key, episodes_key = jax.random.split(jax.random.fold_in(key, chunk))
        config, many = hand_settings(rival, chunk, setting_key)
        rewards = np.asarray(search(config, many, make_episodes(world, jax.random.split(episodes_key, trial))))
        if rewards.max() > best["trained"]:
            index = int(rewards.argmax())
            params = jax.tree.map(lambda leaf, index=index: leaf[index], many)
            best = {"trained": float(rewards.max()), "config": config, "params": params}
    return best


def gradient_bytes(slots: int) -> dict[str, float]:
    """Temporary memory that XLA sets aside for the gradient of one batch, through the soft memory and through a scan of
    writes: at the Params alone, and at the embeddings too, as where an encoder is trained."""
    config = dataclasses.replace(CONFIG, core_capacity=slots // 3, buffer_capacity=slots - slots // 3)

    def through_writes(params: dmem.Params, embedding: Array, episodes: Episode) -> Array:
        def of_one(embedding: Array, episode: Episode) -> Array:
            met = dataclasses.replace(episode.met, embedding=embedding)
            memory, _ = dmem.write_many(config, params, dmem.init(config, PAYLOAD), met)
            ask = lambda asked: dmem.attend(config, params, memory, asked, over=value_of).readout  # noqa: E731
            reward = jnp.take_along_axis(jax.vmap(ask)(episode.asked), episode.right[:, None], axis=1)
            return -jnp.mean(jnp.log(reward + 1e-6))

        return jnp.mean(jax.vmap(of_one)(embedding, episodes))

    def through_soft(params: dmem.Params, embedding: Array, episodes: Episode) -> Array:
        met = dataclasses.replace(episodes.met, embedding=embedding)
        no_network = lambda embedding: jnp.zeros(embedding.shape[:-1])  # noqa: E731
        return loss(params, no_network, dataclasses.replace(episodes, met=met))

    def temporary(f: Any, at: tuple[int, ...]) -> float:
        analysis = jax.jit(jax.grad(f, at)).lower(*given).compile().memory_analysis()
        return float(getattr(analysis, "temp_size_in_bytes", np.nan))

    episodes = make_episodes(make_world(jax.random.key(0)), jax.random.split(jax.random.key(1), BATCH))
    given = dmem.Params.default(CONFIG), episodes.met.embedding, episodes
    return {
        "soft memory": temporary(through_soft, (0,)),
        "writes": temporary(through_writes, (0,)),
        "soft memory, embeddings too": temporary(through_soft, (0, 1)),
        "writes, embeddings too": temporary(through_writes, (0, 1)),
    }


def one_seed(seed: int, names: tuple[str, ...], steps: int, trial: int, chunks: int, judged: int) -> dict[str, Any]:
    """All of one world: training, tuning, and judgement on episodes that neither saw."""
    world_key, train_key, tune_key, judge_key = jax.random.split(jax.random.key(seed), 4)
    world = make_world(world_key)
    episodes = make_episodes(world, jax.random.split(judge_key, judged))
    figures: dict[str, Any] = {"seed": seed}

    def note(name: str, config: dmem.Config, params: dmem.Params, episodes: Episode, **more: Any) -> None:
        reward, held = judge(config, params, episodes)
        figures[name] = {"reward": float(reward), "items_held": float(held), **more}

    for name in (name for name in names if name in (LEARNED, SCALARS)):
        hidden = (32,) if name == LEARNED else None
        gate_config = GateConfig(CONFIG.embedding_dim, hidden=hidden, optimizer=OPTIMIZER)
        learner, losses = train(gate_config, world, train_key, steps)
        params, gate_logit = gate_training.hard(gate_config, learner)
        met = dataclasses.replace(episodes.met, gate_logit=gate_logit(episodes.met.embedding))
        learned = {field: float(getattr(params, field)) for field in gate_config.learns}
        smooth = np.asarray(losses).reshape(-1, min(10, steps)).mean(1)
        note(
            name, CONFIG, params, dataclasses.replace(episodes, met=met),
            losses=smooth.tolist(), skipped=int(learner.skipped), learned=learned,
        )  # fmt: skip
    for index, rival in enumerate(name for name in names if name in (BY_HAND, UNGATED, FIFO)):
        best = best_by_hand(rival, world, jax.random.fold_in(tune_key, index), trial, chunks)
        chosen = {"thresholds": best["config"].thresholds, "buffer_eviction": best["config"].buffer_eviction}
        changed = {name: float(getattr(best["params"], name)) for name in ("threshold_low", "half_life", "gate_scale")}
        note(rival, best["config"], best["params"], episodes, trained=best["trained"], setting=chosen | changed)
    return figures


def interval(samples: list[float]) -> dict[str, float]:
    """Mean over seeds, with its 95 % bootstrap interval."""
    values = np.asarray(samples)
    draws = np.random.default_rng(0).choice(values, (10_000, values.size)).mean(1)
    low, high = np.quantile(draws, (0.025, 0.975))
    return {"mean": float(values.mean()), "low": float(low), "high": float(high), "n": values.size}


def summarise(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """Each memory's reward and share of items held, and how far the learned gate is ahead, world by world."""
    return {
        name: {
            "reward": interval([seed[name]["reward"] for seed in seeds]),
            "items_held": interval([seed[name]["items_held"] for seed in seeds]),
            "learned_minus_this": interval([seed[LEARNED]["reward"] - seed[name]["reward"] for seed in seeds]),
        }
        for name in seeds[0]
        if name != "seed"
    }


def table(summary: dict[str, Any], seeds: int) -> Table:
    """The results for a person."""
    title = f"Reward per answer, of 1; guessing {1 / VALUES:.3f}. Means over {seeds} worlds [95 % bootstrap interval]"
    grid = Table("memory", title=title)
    for name in ("reward", "learned - this, paired", "items held at the end"):
        grid.add_column(name, justify="right", no_wrap=True)
    for name, numbers in summary.items():
        shown = [f"{n['mean']:.3f} [{n['low']:.3f}, {n['high']:.3f}]" for n in
                 (numbers["reward"], numbers["learned_minus_this"], numbers["items_held"])]  # fmt: skip
        grid.add_row(name, shown[0], "" if name == LEARNED else shown[1], shown[2])
    return grid


def draw(results: dict[str, Any], out: pathlib.Path) -> None:
    """Rewards of all memories, a dot for each world, and how the training went."""
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 120, "font.size": 9})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for place, (name, numbers) in enumerate(results["summary"].items()):
        n = numbers["reward"]
        left.plot(
            [seed[name]["reward"] for seed in results["seeds"]], [place] * len(results["seeds"]), ".", c="#BBBBBB"
        )
        left.errorbar(n["mean"], place, xerr=[[n["mean"] - n["low"]], [n["high"] - n["mean"]]], fmt="o", capsize=3)
    left.axvline(1 / VALUES, color="#999999", ls=":")
    left.set_yticks(range(len(results["summary"])), list(results["summary"]))
    left.invert_yaxis()
    left.set_xlabel("reward per answer (dotted: guessing)")
    for seed in results["seeds"]:
        losses = seed[LEARNED]["losses"]
        right.plot(np.linspace(0, results["training_episodes"], len(losses)), losses, color="#0072B2", alpha=0.5)
    right.set_yscale("log")
    right.set_xlabel("training episodes")
    right.set_ylabel("loss of the soft memory")
    figure.savefig(out / "learned_gate.png", bbox_inches="tight")
    plt.close(figure)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Runs all seeds, prints the table, writes results and picture, and returns the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="worlds (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one world, fewer episodes and settings")
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("out/learned_gate"), help="default %(default)s"
    )
    given = parser.parse_args(arguments)
    seeds, steps, trial, chunks, judged = given.seeds, TRAINING, TRIAL, CHUNKS, JUDGED
    names: tuple[str, ...] = (LEARNED, SCALARS, BY_HAND, UNGATED, FIFO)
    if given.quick:
        seeds, steps, trial, chunks, judged, names = 1, 120, 8, 1, 64, (LEARNED, BY_HAND, UNGATED)
    console, start = Console(width=max(110, Console().width)), time.perf_counter()
    console.print(
        f"{seeds} worlds: training on {steps * BATCH:,} episodes each; for each rival {chunks * CHUNK} settings on "
        f"{trial} episodes each; {judged} other episodes judge"
    )
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    found = []
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("the first world compiles", total=seeds)
        for seed in range(seeds):
            found.append(one_seed(seed, names, steps, trial, chunks, judged))
            last = found[-1]
            described = ", ".join(f"{name} {last[name]['reward']:.2f}" for name in (LEARNED, BY_HAND, UNGATED))
            progress.update(bar, advance=1, description=f"world {seed}: {described}")
            console.print(f"world {seed}: {described}")
    memory = {} if given.quick else {str(slots): gradient_bytes(slots) for slots in SLOTS_COMPARED}
    results = {
        "summary": summarise(found),
        "gradient_bytes": memory,
        "training_episodes": steps * BATCH,
        "settings": chunks * CHUNK,
        "seconds": time.perf_counter() - start,
        "seeds": found,
    }
    console.print(table(results["summary"], seeds))
    for slots, sizes in memory.items():
        told = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in sizes.items())
        console.print(f"gradient of {BATCH} episodes of {STEPS}, {slots} slots: {told}")
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    draw(results, given.out)
    console.print(f"{results['seconds']:.0f} s; results.json and learned_gate.png are in {given.out}/")
    return results


if __name__ == "__main__":
    main()
