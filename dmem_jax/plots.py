"""The standard pictures of a memory: what surprised, what is kept, how old it is, what was made of it (matplotlib)."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from dmem_jax import monitor
from dmem_jax.checkpoint import Checkpoint
from dmem_jax.config import Config
from dmem_jax.errors import ArgumentValueError, MissingExtraError
from dmem_jax.params import Params
from dmem_jax.types import Memory

_CORE, _BUFFER, _DELIGHT, _DISASTER = "#1f4e79", "#8fb8de", "#2e8b57", "#c0392b"


def draw(saved: Checkpoint, out: str | Path, *, agent: int | None = None) -> Path:
    """Draws a saved memory, of one agent or of many at once, into `out` (png, svg, pdf: by its suffix).

    Args:
      agent: of many, the one to draw; None: all of them together.

    Raises:
      ArgumentValueError: no such agent. MissingExtraError: matplotlib is not installed.
    """
    plt = _pyplot()
    memory = monitor.one_axis(saved.memory)
    agents = memory.clock.shape[0]
    if agent is not None:
        if not 0 <= agent < agents:
            raise ArgumentValueError(f"agent: expected one of 0 .. {agents - 1}, got {agent}.")
        memory = jax.tree.map(lambda leaf: leaf[agent : agent + 1], memory)
    told = {name: np.asarray(value) for name, value in monitor.summary(saved.config, saved.params, memory).items()}
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    who = f"agent {agent} of {agents}" if agent is not None else f"{agents} agent{'s' * (agents > 1)}"
    full = f"core {told['fill/core']:.0%} and buffer {told['fill/buffer']:.0%} full"
    figure.suptitle(f"{who}, clock {told['clock']:.0f}, {full}")
    _sizes(axes[0, 0], saved.config, saved.params, told)
    _kept(axes[0, 1], memory)
    _ages(axes[1, 0], memory)
    _fates(axes[1, 1], told)
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=120)
    plt.close(figure)
    return out


def _sizes(axis: Any, config: Config, params: Params, told: dict[str, np.ndarray]) -> None:
    """How surprising the last experiences were, dropped ones too, with the thresholds."""
    edges = told["histogram/size/edges"]
    axis.stairs(told["histogram/size"], edges, fill=True, color=_BUFFER)
    if config.thresholds in ("fixed", "paper"):
        for name, threshold in (("buffer", params.threshold_low), ("core", params.threshold_high)):
            axis.axvline(float(np.mean(threshold)), color=_CORE, linestyle="--", linewidth=1)
            axis.annotate(f" {name}", (float(np.mean(threshold)), axis.get_ylim()[1]), va="top", color=_CORE)
    xlabel = "size (|rpe| over its running mean)" if config.scale == "running" else "size (reward units)"
    axis.set(title="Surprise of the last experiences", xlabel=xlabel, ylabel="experiences")
    axis.set_yscale("symlog")


def _kept(axis: Any, memory: Memory) -> None:
    """What is kept: RPE against what it is worth, by tier."""
    for tier, colour, name in ((memory.buffer, _BUFFER, "buffer"), (memory.core, _CORE, "core")):
        live = np.asarray(tier.id) >= 0
        axis.scatter(np.asarray(tier.rpe)[live], np.asarray(tier.strength)[live], s=9, c=colour, label=name, alpha=0.6)
    axis.axvline(0, color="grey", linewidth=0.6)
    axis.set(title="What is kept", xlabel="rpe (reward units)", ylabel="strength when last touched")
    axis.legend(loc="upper center")


def _ages(axis: Any, memory: Memory) -> None:
    """How long ago it happened, delights and disasters apart."""
    ages: dict[str, list[np.ndarray]] = {"delights": [], "disasters": []}
    for tier in (memory.core, memory.buffer):
        live = np.asarray(tier.id) >= 0
        age = np.asarray(memory.clock)[:, None] - np.asarray(tier.time)
        for name, sign in (("delights", np.asarray(tier.rpe) >= 0), ("disasters", np.asarray(tier.rpe) < 0)):
            ages[name].append(age[live & sign])
    drawn = [np.concatenate(of_both) for of_both in ages.values()]
    axis.hist(drawn, bins=30, stacked=True, label=list(ages), color=[_DELIGHT, _DISASTER])
    axis.set(title="Age of what is kept", xlabel="clock units since it happened", ylabel="memories")
    axis.legend()


def _fates(axis: Any, told: dict[str, np.ndarray]) -> None:
    """What became of all experiences."""
    names = ["dropped", "refused", "refreshed", "merged", "stored", "invalid"]
    shares = [float(told[f"route/{name}"]) for name in names]
    axis.barh(names[::-1], shares[::-1], color=_CORE)
    for y, share in enumerate(shares[::-1]):
        axis.annotate(f" {share:.1%}", (share, y), va="center")
    axis.set(title="What became of the experiences", xlabel="share of all", xlim=(0, 1.12 * max(1e-9, *shares)))


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("pictures need matplotlib: pip install 'dmem-jax[cli]', or itself.") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
