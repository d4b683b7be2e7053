"""Where did ΛReg put its variance? On the coordinates that the features leave empty (docs/theory.md, T12)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from figures import style, visual_rows
from figures.catalog import Figure, require_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

#: The model of panel a.
TASK, KAPPA = "tworoom", 2.0
_MARKS = dict(zip(visual_rows.TASKS, ("o", "s", "^", "D"), strict=True))
_COLORS = dict(zip(visual_rows.TASKS, (style.TASK, style.LATENT, style.SECOND, style.THEORY), strict=True))
_COORDINATES = "coordinates.parquet"


def data(coordinates: pd.DataFrame, summaries: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Panel a: target and feature variance of each coordinate. Panels b and c: one row per model of κ > 1.

    Parameters
    ----------
    coordinates
        Rows of ``coordinates.parquet`` of any number of runs, with their ``run``.
    summaries
        ``summary.json`` by run.

    Raises
    ------
    ValueError
        If a summary says nothing of spare dimensions, or a row lacks a column.
    """
    wide = visual_rows.one_setting(coordinates[coordinates["kappa"] > 1])
    lines: list[dict[str, Any]] = []
    if len(wide):
        require_columns(wide, ["filled", "target_variance", "feature_variance"], visual_rows.DIAGNOSE.path)
    for run, group in wide.groupby("run"):
        labels = {name: group[name].iloc[0] for name in ("task", "kappa", "training_seed", "preset", "origin")}
        if labels["task"] == TASK and labels["kappa"] == KAPPA:
            for series, column in (("target", "target_variance"), ("features", "feature_variance")):
                points = zip(group["coordinate"], group["filled"], group[column], strict=True)
                lines += [
                    {"panel": "a", "series": series, "x": x, "y": y, "coordinate": index, **labels}
                    for index, x, y in points
                ]
        found = summaries[str(run)].get("occupancy")
        if not isinstance(found, Mapping):
            raise ValueError(f"summary.json of {run} says nothing of spare dimensions; diagnose again with force=true.")
        if found["num_high"]:
            counts = {"x": found["predicted_high"], "y": found["num_high"]}
            ratios = {"x": found["anisotropy_asked"], "y": found["anisotropy_kept"]}
            lines += [
                {"panel": "b", "series": "high", "dim": found["dim"], **counts, **labels},
                {"panel": "c", "series": "anisotropy", "dim": found["dim"], **ratios, **labels},
            ]
    columns = ["panel", "series", "x", "y", "coordinate", "dim", "task", "kappa", "training_seed", "preset", "origin"]
    return pd.DataFrame(lines, columns=columns)


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """Variances over occupancy, counted and predicted high coordinates, asked and kept anisotropy."""
    with style.sheet():
        figure = style.new_figure(style.PAGE_WIDTH, 2.55)
        panels = figure.subplots(1, 3)
        for axes, letter in zip(panels, "abc", strict=True):
            style.panel_letter(axes, letter)
        _draw_coordinates(panels[0], frame[frame["panel"] == "a"])
        _draw_counts(panels[1], frame[frame["panel"] == "b"])
        _draw_ratios(panels[2], frame[frame["panel"] == "c"])
        style.stamp(figure, frame["origin"].dropna())
        return figure


def _draw_coordinates(axes: Axes, part: pd.DataFrame) -> None:
    axes.set_xlabel("share of the coordinate\nthat features fill")
    axes.set_ylabel("variance (mean of the target = 1)")
    axes.set_title(f"{visual_rows.TITLES[TASK]}, $κ = {KAPPA:g}$")
    axes.set_xlim(-0.03, 1.05)
    if part.empty:
        _not_run(axes)
        return
    for series, color, mark in (("target", style.LATENT, "_"), ("features", style.TASK, "o")):
        points = part[part["series"] == series]
        size = {"_": 7.0, "o": 3.2}[mark]
        axes.plot(points["x"], points["y"], mark, ms=size, mew=1.2 if mark == "_" else 0, color=color, label=series)
    axes.set_ylim(0, 1.32 * float(part["y"].max()))
    axes.legend(loc="upper left", borderaxespad=0.1, labelspacing=0.25, handletextpad=0.3)


def _draw_counts(axes: Axes, part: pd.DataFrame) -> None:
    axes.set_xlabel("high coordinates,\ntheory of spare dimensions")
    axes.set_ylabel("high coordinates, learned")
    axes.set_title("how many")
    if part.empty:
        _not_run(axes)
        return
    limit = float(part["dim"].max())
    axes.plot([0, limit], [0, limit], color=style.FAINT, lw=0.8)
    _draw_models(axes, part)
    axes.set_xlim(0, limit)
    axes.set_ylim(0, limit)
    axes.legend(loc="upper left", borderaxespad=0.1, labelspacing=0.25, handletextpad=0.1)


def _draw_ratios(axes: Axes, part: pd.DataFrame) -> None:
    axes.set_xlabel("high over low variance,\nasked by the target (ratio)")
    axes.set_ylabel("kept by the features (ratio)")
    axes.set_title("how much of it arrives")
    if part.empty:
        _not_run(axes)
        return
    low, high = float(part["y"].min()) / 1.3, 1.3 * float(part[["x", "y"]].max().max())
    axes.plot([1, high], [1, high], color=style.FAINT, lw=0.8)
    axes.axhline(1, color=style.FAINT, lw=0.8, ls=":")
    _draw_models(axes, part)
    for scale, ticks, limits in (
        (axes.set_xscale, axes.set_xticks, axes.set_xlim(1, high)),
        (axes.set_yscale, axes.set_yticks, axes.set_ylim(low, high)),
    ):
        scale("log", base=2)
        shown = [2.0**power for power in range(-5, 9) if limits[0] <= 2.0**power <= limits[1]]
        ticks(shown, [f"{value:g}" for value in shown])


def _draw_models(axes: Axes, part: pd.DataFrame) -> None:
    for task, group in part.groupby("task", sort=False):
        axes.plot(
            group["x"],
            group["y"],
            _MARKS.get(str(task), "x"),
            ms=5,
            mew=0.6,
            mec="white",
            alpha=0.85,
            color=_COLORS.get(str(task), style.FAINT),
            label=visual_rows.TITLES.get(str(task), str(task)),
        )


def _not_run(axes: Axes) -> None:
    axes.text(0.5, 0.5, visual_rows.NOT_RUN, transform=axes.transAxes, ha="center", va="center", color=style.FAINT)


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the diagnoses under ``results``."""
    return data(visual_rows.DIAGNOSE.rows(results, _COORDINATES), visual_rows.DIAGNOSE.cards(results, "summary.json"))


FIGURE = Figure(
    name="fig_occupancy",
    caption="The anisotropy that ΛReg asks for goes to coordinates that the features leave empty. (a) Target variance "
    "and feature variance of each latent coordinate, over the share of it that the features fill: the target is large "
    "where the features are not. (b) Number of coordinates with a large target variance, learned, against the theory "
    "of over-complete latents (T12): spare dimensions first, then the directions of least relative noise. (c) Ratio of "
    "mean variances of the high and the low coordinates, as the target asks and as the features have it; on the "
    "diagonal the target would be what the planner gets, on the dotted line nothing of it arrives.",
    needs=(visual_rows.DIAGNOSE,),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
