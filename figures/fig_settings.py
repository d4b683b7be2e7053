"""Which settings matter for ordering: a small factorial on TwoRoom, one training seed per cell (ours)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from figures import style, visual_rows
from figures.catalog import Figure
from visual.permutation import bootstrap_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

TASK = "tworoom"
COMMAND = (
    "python -m visual study tasks=[tworoom] kappas=[1,4] stages=[train,diagnose] 'changes={steps: [2000], "
    "latent_dim: [16, 32], regularizer_weight: [0.03, 0.27], target_lr_multiplier: [1, 10]}'"
)
#: Factors of the panels, from left to right, with their symbols.
FACTORS = {
    "kappa": "bound $κ$",
    "target_lr_multiplier": "target's rate /\nlearning rate",
    "regularizer_weight": "weight $λ$",
    "latent_dim": "latent dimension $D$",
}


class _Factorial(visual_rows.VisualRuns):
    """Runs of variants, with the command that makes those of the factorial."""

    @property
    def command(self) -> str:
        """The command that computes all of them."""
        return COMMAND


RUNS = _Factorial("diagnose", TASK, variants=True)
TRAINING = _Factorial("train", TASK, variants=True)
COSTS = {"pred": "$J_\\mathrm{pred}$ agreement (%)", "enc": "$J_\\mathrm{enc}$ agreement (%)"}
LEVEL, EFFECT = "level", "effect"


def data(pairs: pd.DataFrame, settings: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Agreement at both ends of each factor, all else equal, and the mean change.

    Parameters
    ----------
    pairs
        Rows of ``diagnose`` of variants with their ``run``; of several training seeds, that of the most cells counts.
    settings
        Settings of the training runs, by run.

    Returns
    -------
    pandas.DataFrame
        ``kind`` is ``"level"``: ``value`` is the mean agreement of a model at ``x``, the lowest or highest level of
        ``factor``; two rows of one ``cell`` differ in nothing else. Or ``"effect"``: ``value`` is the mean change from
        the lowest to the highest level over cells, with its interval over pairs, episodes drawn whole, and ``cells``
        and ``same_sign`` count the cells and those whose change has the sign of the mean.

    Raises
    ------
    ValueError
        If a diagnosed variant has no training run that says what its settings are.
    """
    columns = [
        *("factor", "kind", "cost", "cell", "x", "value", "low", "high", "cells", "same_sign"),
        *("kappa", "task", "preset", "training_seed", "origin"),
    ]
    every = {run: _factors(str(run), group, settings) for run, group in pairs.groupby("run")}
    # One model of each: κ = 1 under several rates of a target that it does not have is the same model.
    models = dict({repr(sorted(own.items())): (run, own) for run, own in every.items()}.values())
    # One seed: another one that only some cells have would weigh them more than others.
    seeds = {model["training_seed"] for model in models.values()}
    by_seed = {seed: {run: own for run, own in models.items() if own["training_seed"] == seed} for seed in seeds}
    models = max(by_seed.values(), key=_num_cells, default={})
    lines: list[dict[str, Any]] = []
    for factor in FACTORS:
        cells = list(_cells(models, factor))
        for cost in COSTS if cells else ():
            changes = []
            for number, ends in enumerate(cells):
                parts = [pairs[pairs["run"] == run].set_index(["episode", "pair"]) for run in ends]
                for run, part in zip(ends, parts, strict=True):
                    labels = {name: part[name].iloc[0] for name in ("kappa", "task", "training_seed", "origin")}
                    labels |= {"preset": str(part["preset"].iloc[0]).split("-")[0], "x": models[run][factor]}
                    value = float(part[f"agreement_{cost}"].mean())
                    lines.append(
                        {"factor": factor, "kind": LEVEL, "cost": cost, "cell": number, "value": value, **labels}
                    )
                changes.append((parts[1][f"agreement_{cost}"] - parts[0][f"agreement_{cost}"]).dropna())
            by_pair = pd.concat(changes, axis=1, join="inner").mean(axis=1)
            low, high = bootstrap_interval(by_pair, by_pair.index.get_level_values("episode"))
            mean = float(by_pair.mean())
            same = sum(float(change.mean()) * mean > 0 for change in changes)
            found = {"value": mean, "low": low, "high": high, "cells": len(cells), "same_sign": same}
            origin = lines[-1]["origin"]
            lines.append({"factor": factor, "kind": EFFECT, "cost": cost, "origin": origin, "task": TASK, **found})
    return pd.DataFrame(lines, columns=columns)


def _factors(run: str, group: pd.DataFrame, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Everything that tells a model from another one: the preset's settings, κ and the seed."""
    training = settings.get(f"{run.rpartition('/')[0]}/train", {}).get("preset")
    if not isinstance(training, Mapping):
        raise ValueError(f"{run} has no finished training run beside it that says what its settings are.")
    first = group.iloc[0]
    own = {name: value for name, value in training.items() if name != "name"}
    if first["kappa"] == 1:
        # There is no target that the rate could move.
        own["target_lr_multiplier"] = None
    return {**own, "kappa": float(first["kappa"]), "training_seed": int(first["training_seed"])}


def _cells(models: Mapping[Any, Mapping[str, Any]], factor: str) -> Iterator[tuple[str, str]]:
    """Pairs of runs at the lowest and the highest level of a factor that differ in nothing else."""
    levels = sorted({model[factor] for model in models.values() if model[factor] is not None})
    if len(levels) < 2:
        return
    # κ = 1 is the baseline of κ > 1 at every rate of the target.
    free = {factor, "target_lr_multiplier"} if factor == "kappa" else {factor}
    for low, first in models.items():
        for high, second in models.items():
            alike = all(first[name] == second[name] for name in first if name not in free)
            if alike and (first[factor], second[factor]) == (levels[0], levels[-1]):
                yield str(low), str(high)


def _num_cells(models: Mapping[Any, Mapping[str, Any]]) -> tuple[int, int]:
    """Cells over all factors, and to decide a tie, the seed."""
    cells = sum(len(list(_cells(models, factor))) for factor in FACTORS)
    return cells, max(model["training_seed"] for model in models.values())


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """Costs from top to bottom, factors from left to right; one line per pair of models that differ in the factor."""
    with style.sheet():
        figure = style.new_figure(style.PAGE_WIDTH, 3.9)
        panels = figure.subplots(len(COSTS), len(FACTORS), sharey="row")
        for line, (cost, label) in enumerate(COSTS.items()):
            part = frame[frame["cost"] == cost]
            panels[line, 0].set_ylabel(label)
            for column, (factor, name) in enumerate(FACTORS.items()):
                axes = panels[line, column]
                _draw_panel(axes, part[part["factor"] == factor])
                if line == len(COSTS) - 1:
                    axes.set_xlabel(name)
        style.stamp(figure, frame["origin"].dropna())
        return figure


def _draw_panel(axes: Axes, part: pd.DataFrame) -> None:
    axes.set_xlim(-0.35, 1.35)
    levels = part[part["kind"] == LEVEL]
    if levels.empty:
        axes.set_xticks([])
        axes.text(
            *(0.5, 0.5), visual_rows.NOT_RUN, transform=axes.transAxes, ha="center", va="center", color=style.FAINT
        )
        return
    ends = sorted(levels["x"].unique())
    axes.set_xticks([0, 1], [f"{value:g}" for value in ends])
    for _, cell in levels.groupby("cell"):
        cell = cell.sort_values("x")
        axes.plot([0, 1], 100 * cell["value"], "-o", ms=3, lw=0.8, color=style.FAINT)
    means = levels.groupby("x")["value"].mean()
    axes.plot([0, 1], 100 * means, "-o", ms=4.5, lw=1.8, color=style.LATENT, zorder=4)
    effect = part[part["kind"] == EFFECT].iloc[0]
    text = f"{100 * effect['value']:+.1f} [{100 * effect['low']:+.1f}, {100 * effect['high']:+.1f}]\n"
    text += f"{effect['same_sign']:.0f} of {effect['cells']:.0f}"
    axes.set_title(text.replace("-", "−"), fontsize=6.5)


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the diagnoses under ``results``."""
    return data(RUNS.rows(results), TRAINING.settings(results))


FIGURE = Figure(
    name="fig_settings",
    caption="Which settings matter for ordering on TwoRoom: a factorial of κ, the target's learning rate over that of "
    "the model, λ and the latent dimension, one training seed, 2,000 steps. A thin line joins two models that differ "
    "in one setting; the bold one is their mean. Above: mean change of agreement in points, with its 95 % interval "
    "over pairs (episodes drawn whole; other training runs are not in it), and how many of the lines go the same way. "
    "κ = 1 has no target whose rate could be changed, and is compared with κ = 4 at both rates.",
    needs=(RUNS, TRAINING),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
