"""The demo's pictures: what surprised, what was kept, what is recalled and why, and who did best."""

import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

matplotlib.use("Agg")  # no window: the pictures are files
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

import dmem_jax as dmem
from examples import policies, world

# One colour per policy, distinct also for readers who do not tell red from green (Okabe and Ito).
COLOURS = dict(
    zip(
        (policy.name for policy in policies.POLICIES),
        ("#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#CC79A7", "#009E73", "#999999"),
        strict=True,
    )
)
SLOTS = 16  # the capacity that the single pictures show
BAD, GOOD, DULL = "#D55E00", "#009E73", "#BBBBBB"
Lives = Any  # demo.Lives; demo imports this module


def draw_all(summary: dict, results: dict[tuple[str, int], Lives], out: pathlib.Path) -> None:
    """Write every picture into `out`."""
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 120, "font.size": 9})
    lives = results["dmem", SLOTS]
    drawn = {
        "returns": returns(summary),
        "rpe": surprises(lives),
        "stores": stores(results),
        "recalls": recalls(lives),
    }
    for name, figure in drawn.items():
        figure.savefig(out / f"{name}.png", bbox_inches="tight")
        plt.close(figure)


def returns(summary: dict) -> Figure:
    """Return and deaths late in life, with 95 % intervals, by capacity."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True, sharey="row", layout="constrained")
    for column, (setting, by_slots) in enumerate(summary["settings"].items()):
        for row, (what, label) in enumerate((("return", "return per day"), ("deaths", "deaths per 100 days"))):
            axis = axes[row, column]
            for place, name in enumerate(COLOURS):
                numbers = [capacity[name][what] for capacity in by_slots.values()]
                means = np.array([number["mean"] for number in numbers])
                half = np.array([number["high"] for number in numbers]) - means
                at = np.arange(len(numbers)) + 0.09 * (place - 3)
                axis.errorbar(at, means, half, fmt="o", ms=5, capsize=2, color=COLOURS[name], label=name)
            axis.set_xticks(range(len(by_slots)), [f"{slots} slots" for slots in by_slots])
            axis.grid(axis="y", alpha=0.3)
            if column == 0:
                axis.set_ylabel(f"{label}, last quarter of life")
            if row == 0:
                axis.set_title("the find stays" if setting == "stationary" else "the find moves at half-time")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(COLOURS), frameon=False
    )
    return figure


def surprises(lives: Lives) -> Figure:
    """How the critic's surprise at each kind of outcome fades, and which sizes of surprise are kept."""
    hours = lives.hours
    kinds = {
        "wage": (hours.reward == world.WAGE, "#CC79A7"),
        "find": (hours.reward == world.FIND, GOOD),
        "death": (hours.reward == world.DEATH, BAD),
        "nothing": ((hours.reward == 0) & hours.alive, DULL),
    }
    figure, (fading, sizes) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for name, (mask, colour) in kinds.items():
        count = mask.sum((0, 2))
        mean = np.where(count > 0, (hours.rpe * mask).sum((0, 2)) / np.maximum(count, 1), np.nan)
        fading.plot(np.arange(world.DAYS), mean, color=colour, marker=".", ms=4, lw=1, label=name)
    fading.axhline(0, color="black", lw=0.5)
    fading.set(
        xlabel="day", ylabel="mean RPE at the outcome", title="The wage is the largest reward, and soon no surprise"
    )
    fading.legend(frameon=False)

    low, high = _thresholds()
    floor, ceiling = 1e-3, 1e3
    bins = np.logspace(np.log10(floor), np.log10(ceiling), 61)
    for name, (mask, colour) in kinds.items():
        sizes.hist(
            np.clip(hours.size[mask], floor, ceiling), bins=bins, histtype="step", lw=1.5, color=colour, label=name
        )
    sizes.set(xscale="log", yscale="log", xlabel="size: |RPE| / current average |RPE| (clipped to the axis)")
    sizes.set(ylabel="experiences", title="What is dropped, and what goes to which store\n")
    for threshold in (low, high):
        sizes.axvline(threshold, color="black", ls="--", lw=1)
    stores = (low / 2, "dropped", "right"), (np.sqrt(low * high), "buffer", "center"), (high * 2, "core", "left")
    for x, text, side in stores:
        sizes.text(x, 1.02, text, ha=side, transform=sizes.get_xaxis_transform(), fontsize=8)
    sizes.legend(frameon=False, loc="upper left")
    return figure


def stores(results: dict[tuple[str, int], Lives]) -> Figure:
    """D-MEM's stores, who knows where the find is, and return, over a life in which the find moves."""
    figure, (filling, knowing, earning) = plt.subplots(1, 3, figsize=(14, 3.6), layout="constrained")
    days = np.arange(world.DAYS)
    half = results["dmem", SLOTS].returns.shape[0] // 2
    for slots, style in ((8, ":"), (16, "--"), (64, "-")):
        evenings = results["dmem", slots].evenings
        filling.plot(days, evenings.core[half:].mean(0), style, color="#0072B2", label=f"core, {slots} slots in all")
        filling.plot(days, evenings.buffer[half:].mean(0), style, color="#E69F00", label=f"buffer, {slots}")
    filling.set(xlabel="day", ylabel="memories held", title="dmem: the stores")
    filling.legend(frameon=False, fontsize=7, bbox_to_anchor=(0.5, -0.17), loc="upper center", ncols=3)
    for name, colour in COLOURS.items():
        lives = results[name, SLOTS]
        knowing.plot(days, lives.evenings.knows_find[half:].mean(0), color=colour, label=name)
        smooth = np.convolve(lives.returns[half:].mean(0), np.ones(3) / 3, mode="valid")
        earning.plot(days[1:-1], smooth, color=colour, label=name)
    knowing.set(xlabel="day", ylabel="share of agents", ylim=(0, 1.02), title=f"The find is in memory, {SLOTS} slots")
    earning.set(xlabel="day", ylabel="return per day (mean of three)", title=f"Return, {SLOTS} slots")
    earning.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    for axis in (filling, knowing, earning):
        axis.axvline(world.DAYS / 2, color="black", lw=0.8, ls=":")
    return figure


def recalls(lives: Lives, agent: int = 0) -> Figure:
    """What one agent recalls at one place of its map, and what each of the two score terms had to say."""
    policy = policies.POLICIES[0]
    config = policies.config_of(policy.family, SLOTS)
    params = policies.params_of(policy.family, config, policies.tuned_for(policy, SLOTS))
    memory = jax.tree.map(lambda leaf: jnp.asarray(leaf[agent]), lives.memory)
    hours = jax.tree.map(lambda leaf: leaf[agent], lives.hours)
    died = hours.place[hours.reward == world.DEATH]
    walked = hours.place[-1]
    nearest = np.abs(walked[:, None] - died).sum(-1).min(-1).argmin()
    place = walked[nearest]  # where on its last day it came closest to a danger that it knows
    query = world.place_cells(jnp.asarray(place))
    recall = jax.device_get(dmem.recall(config, params, memory, query))
    # A recall with all weight on one term has that term, normalised over the pool, as its score.
    terms = {}
    for name, weight in (("meaning", 1.0), ("salience", 0.0)):
        alone = dataclasses.replace(params, semantic_weight=jnp.float32(weight))
        found = jax.device_get(dmem.recall(config, alone, memory, query))
        score = dict(zip(found.id.tolist(), found.score.tolist(), strict=True))
        share = float(params.semantic_weight) if name == "meaning" else 1 - float(params.semantic_weight)
        terms[name] = np.array([share * score.get(i, 0.0) for i in recall.id.tolist()])
    valid = recall.valid
    places, rewards = recall.payload["place"][valid], recall.payload["reward"][valid]

    figure, (grid, bars) = plt.subplots(1, 2, figsize=(11, 5), width_ratios=(1, 1.1), layout="constrained")
    deaths = {tuple(p) for p in hours.place[hours.reward == world.DEATH].tolist()}
    finds = {tuple(p) for p in hours.place[(hours.reward == world.FIND)].tolist()}
    for marks, colour, text in ((deaths, BAD, "died here"), (finds, GOOD, "the find")):
        rows, columns = zip(*marks, strict=True) if marks else ((), ())
        grid.scatter(columns, rows, marker="s", s=330, color=colour, alpha=0.25, lw=0, label=text)
    colours = [GOOD if rpe > 0 else BAD for rpe in recall.rpe[valid]]
    hollow = [
        "none" if rpe * reward <= 0 else c for rpe, reward, c in zip(recall.rpe[valid], rewards, colours, strict=True)
    ]
    size = 30 + 500 * recall.score[valid]
    grid.scatter(places[:, 1], places[:, 0], s=size, facecolor=hollow, edgecolor=colours, zorder=3)
    for rank, (row, column) in enumerate(places, start=1):
        grid.annotate(str(rank), (column, row), xytext=(4, 4), textcoords="offset points", fontsize=7, zorder=5)
    grid.scatter(place[1], place[0], marker="*", s=180, color="black", zorder=4, label="the agent")
    grid.set(xlim=(-0.6, world.SIDE - 0.4), ylim=(world.SIDE - 0.4, -0.6), aspect="equal")
    grid.set_xticks(range(world.SIDE))
    grid.set_yticks(range(world.SIDE))
    grid.grid(alpha=0.2)
    grid.set_title(
        "What it recalls here: area is score, green delight, red disaster,\nhollow: a relief or a disappointment"
    )
    grid.legend(loc="upper center", bbox_to_anchor=(0.5, -0.05), ncols=3, frameon=False)

    ranks = np.arange(valid.sum())
    bars.barh(ranks, terms["meaning"][valid], color="#56B4E9", label="meaning: similar place")
    bars.barh(
        ranks, terms["salience"][valid], left=terms["meaning"][valid], color="#E69F00", label="salience: strength"
    )
    labels = [
        f"{rank + 1}  {tuple(where.tolist())}  rpe {rpe:+.1f}"
        for rank, where, rpe in zip(ranks, places, recall.rpe[valid], strict=True)
    ]
    bars.set_yticks(ranks, labels, family="monospace", fontsize=7)
    bars.invert_yaxis()
    bars.set(xlabel="score, and the two terms it is the sum of", title="Why: the two terms of each score")
    bars.legend(frameon=False, loc="lower right")
    return figure


def _thresholds() -> tuple[float, float]:
    policy = policies.POLICIES[0]
    params = policies.params_of(policy.family, policies.config_of(policy.family, SLOTS), {})
    return float(params.threshold_low), float(params.threshold_high)
