"""The scenario's pictures: who learns, what surprised and was kept, and how full the memory is."""

import pathlib

import matplotlib
import numpy as np

matplotlib.use("Agg")  # no window: the pictures are files
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from examples.coder.agent import Try
from examples.coder.report import firsts

# Distinct also for readers who do not tell red from green (Okabe and Ito).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#999999", "#CC79A7")
ROUTES = {
    "dropped": "#BBBBBB",
    "buffer": "#56B4E9",
    "core": "#0072B2",
}  # a merged or refreshed one counts to the buffer
THRESHOLDS = (1.0, 2.0)  # of the size: above the first the buffer, above the second core


def draw(summary: dict, lives: list[list[Try]], file: pathlib.Path) -> None:
    """The learning curves, and of the lives with dmem_jax the surprises and the stores."""
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 120, "font.size": 9})
    figure, (learning, surprise, stores) = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
    _curves(learning, summary)
    _surprises(surprise, lives)
    _stores(stores, lives)
    figure.savefig(file)
    plt.close(figure)


def _curves(axis: Axes, summary: dict) -> None:
    for (policy, numbers), colour in zip(summary.items(), COLOURS, strict=False):
        low, mean, high = ([block[what] for block in numbers["curve"]] for what in ("low", "mean", "high"))
        at = (np.arange(len(mean)) + 0.5) / max(len(mean), 1)
        axis.fill_between(at, low, high, color=colour, alpha=0.15, lw=0)
        axis.plot(at, mean, color=colour, label=policy)
    axis.set(xlabel="part of the life", ylabel="traps solved at the first try", ylim=(-0.02, 1))
    axis.legend(frameon=False, loc="upper left")
    axis.set_title("Who learns (bands: 95 %)")


def _surprises(axis: Axes, lives: list[list[Try]]) -> None:
    tries = [one for life in lives for one in life]
    signed = np.clip([np.sign(one.kept.rpe) * one.kept.size for one in tries], -8, 8)
    route = np.array([one.kept.route if one.kept.route in ROUTES else "buffer" for one in tries])
    bins = np.linspace(-8, 8, 65).tolist()
    axis.hist(
        [signed[route == name] for name in ROUTES], bins, stacked=True, color=list(ROUTES.values()), label=list(ROUTES)
    )
    for threshold in THRESHOLDS:
        for sign in (-1, 1):
            axis.axvline(sign * threshold, color="black", lw=0.8, ls="--" if threshold == 1 else "-")
    axis.set_yscale("log")
    axis.set(xlabel="RPE, in multiples of the average surprise", ylabel="experiences")
    axis.legend(frameon=False)
    axis.set_title("What surprised, and what became of it")


def _stores(axis: Axes, lives: list[list[Try]]) -> None:
    shortest = min(len(firsts(life)) for life in lives)
    held = np.array([[one.held for one in firsts(life)[:shortest]] for life in lives], float)
    axis.plot(held.mean(0), color=COLOURS[0], label="memories held")
    kept = np.array([[_was_kept(one) for one in firsts(life)[:shortest]] for life in lives])
    axis.set(xlabel="ticket", ylabel="memories held, mean")
    other = axis.twinx()
    width = max(shortest // 20, 1)
    smooth = np.convolve(kept.mean(0), np.ones(width) / width, "valid")
    other.plot(np.arange(smooth.size) + width / 2, smooth, color=COLOURS[1])
    other.set_ylabel("first tries kept, share (orange)")
    axis.set_title("The store over time")


def _was_kept(one: Try) -> float:
    return float(one.kept.route not in ("dropped", "refused"))
