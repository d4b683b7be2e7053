"""Spectra of the feature covariance in TwoRoom (paper, Figure 10), on held-out frames."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from figures import style, visual_panels, visual_rows
from figures.catalog import Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

TASK = "tworoom"
#: The index that the paper's text quotes, of its 192.
QUOTED_INDEX, PAPER_DIM = 100, 192


def data(rows: pd.DataFrame, cards: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Eigenvalues of the centred feature covariance, divided by their mean, largest first, by run.

    Parameters
    ----------
    rows
        Log rows of training, of which run, κ, seed and preset are taken.
    cards
        ``model.json`` by run: ``held_out.feature_spectrum``.

    Raises
    ------
    ValueError
        If a run has no spectrum, or one that is not a list of numbers ≥ 0.
    """
    parts = []
    runs = rows[rows["task"] == TASK].drop_duplicates("run").sort_values(["kappa", "seed"])
    for run in runs.to_dict("records"):
        try:
            values = np.sort(np.asarray(cards[run["run"]]["held_out"]["feature_spectrum"], dtype=np.float64))[::-1]
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"model.json of {run['run']} holds no held_out.feature_spectrum.") from None
        if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all() or values[-1] < 0 or values[0] == 0:
            raise ValueError(f"held_out.feature_spectrum of {run['run']} must be a list of variances.")
        index = np.arange(1, len(values) + 1)
        part = pd.DataFrame({"index": index, "eigenvalue": values / values.mean(), "size": len(values)})
        parts.append(part.assign(**{name: run[name] for name in ("kappa", "seed", "preset", "origin")}))
    columns = ["kappa", "seed", "index", "eigenvalue", "size", "preset", "origin"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """One panel at column width."""
    with style.sheet():
        figure = style.new_figure(style.COLUMN_WIDTH, 2.7)
        axes = figure.add_subplot()
        axes.axhline(1.0, color=style.FAINT, lw=0.7, zorder=1)
        size = int(frame["size"].max()) if len(frame) else PAPER_DIM
        for kappa, group in frame.groupby("kappa"):
            color = visual_panels.kappa_color(float(str(kappa)))
            for number, (_, run) in enumerate(group.groupby("seed")):
                label = f"$κ = {kappa:g}$" if number == 0 else None
                axes.plot(run["index"], run["eigenvalue"], color=color, lw=1.2, label=label)
        # The same share of the coordinates as the paper's index 100 of 192.
        mark = size * QUOTED_INDEX / PAPER_DIM
        text = f"index {QUOTED_INDEX} of {PAPER_DIM}" + ("" if size == PAPER_DIM else f"\n(here {mark:.1f} of {size})")
        axes.axvline(mark, color="black", lw=0.9, ls=(0, (4, 2)), zorder=1)
        axes.annotate(
            text, (mark, 0.03), (4, 0), xycoords=("data", "axes fraction"), textcoords="offset points", fontsize=7
        )
        axes.set_xlim(1, size)
        axes.set_xlabel("index of the eigenvalue")
        axes.set_ylabel("eigenvalue of the feature covariance\n(relative to the mean)")
        axes.set_title(f"TwoRoom,\n{visual_rows.describe(frame)}")
        if frame.empty:
            axes.set_ylim(0, 2)
            visual_panels.say_not_run(axes, "here: not run\npublished: a picture without numbers")
        else:
            axes.set_yscale("log")
            axes.legend(loc="lower left", borderaxespad=0.3, labelspacing=0.3)
        style.stamp(figure, frame["origin"].dropna())
        return figure


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the runs under ``results``."""
    runs = visual_rows.VisualRuns("train", TASK)
    return data(visual_rows.one_setting(runs.rows(results)), runs.cards(results))


FIGURE = Figure(
    name="fig10_feature_spectra",
    caption="Eigenvalues of the centred feature covariance on held-out TwoRoom frames, divided by their mean. These "
    "are covariances of features, not the learned target. The dashed line is the share of coordinates that the"
    " paper quotes.",
    needs=(visual_rows.TRAIN,),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
