"""The assistant's pictures: what surprised, what was kept over the weeks, and why the recalled ones were recalled."""

import pathlib

import matplotlib
import numpy as np

matplotlib.use("Agg")  # no window: the pictures are files
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from dmem_jax import Params
from dmem_jax.agent import Added
from examples.assistant.life import Life, terms_of
from examples.assistant.memories import CORE_SLOTS
from examples.assistant.world import KINDS

# Distinct also for readers who do not tell red from green (Okabe and Ito).
COLOURS = {"allergy": "#D55E00", "harm": "#CC79A7", "delight": "#009E73", "routine": "#BBBBBB"}
MEANING, SALIENCE = "#56B4E9", "#E69F00"
CORE, BUFFER = "#1f4e79", "#8fb8de"


def draw_all(summary: dict, lives: list[Life], params: Params, out: pathlib.Path) -> None:
    """Write `recall_rates.png`, `rpe.png`, `stores.png` and `recalls.png` into `out`."""
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 120, "font.size": 9})
    drawn = {
        "recall_rates": lambda axis: _rates(axis, summary),
        "rpe": lambda axis: _surprises(axis, lives, params),
        "stores": lambda axis: _stores(axis, lives[0]),
        "recalls": lambda axis: _recalls(axis, lives[0], params),
    }
    for name, draw in drawn.items():
        figure, axis = plt.subplots(figsize=(11, 5) if name == "recalls" else (7.5, 4), layout="constrained")
        draw(axis)
        figure.savefig(out / f"{name}.png")
        plt.close(figure)


def _rates(axis: Axes, summary: dict) -> None:
    """Right recall by policy and kind, with 95 % intervals."""
    policies = list(summary)
    for shift, kind in zip((-0.22, 0.0, 0.22), KINDS, strict=True):
        numbers = [summary[policy]["recalled"][kind] for policy in policies]
        means = np.array([number["mean"] for number in numbers])
        ends = np.array([[number["low"], number["high"]] for number in numbers]).T
        at, style = np.arange(len(policies)) + shift, {"fmt": "o", "capsize": 3, "color": COLOURS[kind]}
        axis.errorbar(at, means, np.abs(ends - means), label=kind, **style)
    axis.set_xticks(range(len(policies)), policies)
    axis.set(ylim=(-0.02, 1.02), ylabel="share recalled, 95 % interval", title="Asked weeks later, in other words")
    axis.grid(axis="y", alpha=0.3)
    axis.legend(frameon=False)


def _surprises(axis: Axes, lives: list[Life], params: Params) -> None:
    """How surprising all exchanges were, by what they were, with the thresholds between the stores."""
    sizes: dict[str, list[float]] = {name: [] for name in COLOURS}
    for life in lives:
        kinds = {fact.told: fact.kind for fact in life.dialogue.facts}
        for place, added in enumerate(life.added):
            sizes[kinds.get(place, "routine")].append(added.size)
    bins = np.logspace(-3, 2, 51)
    for name, each in sizes.items():
        style = {"histtype": "stepfilled", "alpha": 0.7} if name == "routine" else {"histtype": "step", "lw": 1.8}
        axis.hist(np.clip(each, bins[0], bins[-1]), bins=bins.tolist(), color=COLOURS[name], label=name, **style)
    low, high = float(params.threshold_low), float(params.threshold_high)
    for threshold in (low, high):
        axis.axvline(threshold, color="black", ls="--", lw=1)
    axis.set(xscale="log", yscale="log", xlabel="size: |RPE| / current average |RPE| (clipped to the axis)")
    axis.set(ylabel="exchanges of all dialogues", title="What is dropped, and what goes to which store\n")
    stores = (low / 1.4, "dropped", "right"), ((low * high) ** 0.5, "buffer", "center"), (high * 1.4, "core", "left")
    for at, text, side in stores:
        axis.text(at, 1.01, text, transform=axis.get_xaxis_transform(), ha=side, va="bottom")
    axis.legend(frameon=False, loc="upper left")


def _stores(axis: Axes, life: Life) -> None:
    """How one user's stores fill, and when each fact was told."""
    exchanges = life.dialogue.exchanges
    days = np.array([(exchange.time - exchanges[0].time).total_seconds() / 86400 for exchange in exchanges])
    core, buffer = _held(life.added)
    axis.stackplot(days, core, buffer, step="post", colors=[CORE, BUFFER], labels=["core", "buffer"])
    axis.plot(days, np.cumsum([_written(added) for added in life.added]), color="black", lw=1, label="ever stored")
    axis.plot(days, np.arange(1, days.size + 1), color=COLOURS["routine"], lw=1, label="exchanges")
    for fact in life.dialogue.facts:
        axis.axvline(days[fact.told], color=COLOURS[fact.kind], ls=":", lw=1.5)
        style = {"xycoords": axis.get_xaxis_transform(), "va": "top", "rotation": 90, "color": COLOURS[fact.kind]}
        axis.annotate(f" {fact.kind}", (days[fact.told], 1.0), **style)
    axis.set(
        yscale="symlog", xlabel="day", ylabel="exchanges", title=f"The stores of user {life.dialogue.seed} over time"
    )
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def _written(added: Added) -> bool:
    return added.route in ("core", "buffer")


def _held(added: list[Added]) -> tuple[np.ndarray, np.ndarray]:
    """Memories in core and in buffer after each exchange: without consolidation a full store stays full."""
    core = np.minimum(np.cumsum([each.route == "core" for each in added]), CORE_SLOTS)
    live = np.cumsum([int(_written(each)) - (each.evicted_id is not None) for each in added])
    return core, live - core


def _recalls(axis: Axes, life: Life, params: Params) -> None:
    """What came back to each question, and the two terms that each score is the sum of."""
    labels, place = [], 0
    for fact, recalled in zip(life.dialogue.facts, life.recalled, strict=True):
        labels.append((place, f"“{fact.question}”", "bold", "black"))
        place += 1
        meaning, salience = terms_of(recalled, params)
        statement = life.dialogue.exchanges[fact.told].reply
        for rank, memory in enumerate(recalled[: life.k]):
            names = ("meaning: near in words", "salience: how it surprised") if place == 1 else (None, None)
            axis.barh(place, meaning[rank], color=MEANING, label=names[0])
            axis.barh(place, salience[rank], left=meaning[rank], color=SALIENCE, label=names[1])
            right = memory.observation == statement
            short = memory.observation if len(memory.observation) < 84 else f"{memory.observation[:82]} ..."
            labels.append((place, f"{short}  {memory.rpe:+.2f}", "normal", COLOURS[fact.kind] if right else "#555555"))
            place += 1
    axis.set_yticks([at for at, *_ in labels], [text for _, text, *_ in labels], fontsize=6.5)
    for tick, (_, _, weight, colour) in zip(axis.get_yticklabels(), labels, strict=True):
        tick.set(fontweight=weight, color=colour)
    axis.invert_yaxis()
    axis.set(xlabel="score, and the two terms it is the sum of")
    axis.set_title("What is recalled, its RPE, and why; the fact is in colour")
    axis.legend(frameon=False, loc="lower right")
