"""Learned target spectra (paper, Figure 4): at the end by task, and over one TwoRoom run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from figures import published, style, visual_panels, visual_rows
from figures.catalog import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

#: On the right: the run of this seed, or of the smallest.
KAPPA, RUN_TASK, SEED = 2.0, "tworoom", 3072
#: Moments of the run on the right, as shares of its length.
MOMENTS = (0.0, 0.05, 0.15, 0.3, 0.6, 1.0)
FINAL, DURING, COUNTED = "final", "during", "published count"


def data(rows: pd.DataFrame) -> pd.DataFrame:
    """Target variances by rank: of each task's runs at the end (panel a), of one run at a few steps (panel b).

    Parameters
    ----------
    rows
        Log rows of training: ``task, kappa, seed, step, target_variances``.

    Raises
    ------
    ValueError
        If a spectrum is not a list of positive variances.
    """
    counts = published.read("fig04_high_coordinates").rename(columns={"latent_dim": "size"})
    parts = [counts.assign(panel="a", kind=COUNTED, origin="published")]
    rows = rows[rows["kappa"] == KAPPA]
    for _, run in rows.groupby(["task", "seed"], sort=False):
        parts.append(_spectrum(run.sort_values("step").iloc[-1], "a", FINAL))
    chosen = rows[rows["task"] == RUN_TASK]
    if not chosen.empty:
        seed = SEED if SEED in set(chosen["seed"]) else int(chosen["seed"].min())
        run = chosen[chosen["seed"] == seed].sort_values("step").reset_index(drop=True)
        wanted = np.array(MOMENTS) * float(run["step"].iloc[-1])
        for index in sorted({int((run["step"] - step).abs().idxmin()) for step in wanted}):
            parts.append(_spectrum(run.iloc[index], "b", DURING))
    columns = ["panel", "kind", "task", "kappa", "seed", "step", "rank", "share", "variance", "high", "size"]
    return pd.concat(parts, ignore_index=True).reindex(columns=[*columns, "preset", "origin", "source"])


def _spectrum(row: pd.Series, panel: str, kind: str) -> pd.DataFrame:
    variances = np.sort(np.asarray(row["target_variances"], dtype=np.float64))[::-1]
    if variances.ndim != 1 or len(variances) == 0 or not (np.isfinite(variances) & (variances > 0)).all():
        raise ValueError(f"target_variances of {row['run']} must be lists of positive numbers.")
    rank = np.arange(1, len(variances) + 1)
    table = pd.DataFrame({"rank": rank, "share": rank / len(variances), "variance": variances})
    names = ("task", "kappa", "seed", "step", "preset", "origin")
    return table.assign(
        panel=panel, kind=kind, size=len(variances), high=row["target_high"], **{n: row[n] for n in names}
    )


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """Two panels at page width."""
    with style.sheet():
        figure = style.new_figure(style.PAGE_WIDTH, 3.2)
        left, right = figure.subplots(1, 2, sharey=True)
        _draw_final(left, frame[frame["panel"] == "a"])
        _draw_during(right, frame[frame["panel"] == "b"])
        for axes, letter in ((left, "a"), (right, "b")):
            axes.axhline(1.0, color="black", lw=0.9, ls=(0, (4, 2)), zorder=1)
            axes.set_xlim(0, 1)
            axes.set_xlabel("rank / latent dimension")
            style.panel_letter(axes, letter)
        left.annotate("isotropic target", (0.02, 1.0), (0, -3), textcoords="offset points", va="top", fontsize=7)
        low, high = frame["variance"].min(), frame["variance"].max()
        left.set_ylim((0.5, 1.5) if frame["variance"].isna().all() else (0.94 * low - 0.05, 1.04 * high + 0.03))
        left.set_ylabel("target variance (mean 1)")
        style.stamp(figure, frame["origin"].dropna())
        return figure


def _draw_final(axes: Axes, frame: pd.DataFrame) -> None:
    counts = frame[frame["kind"] == COUNTED].set_index("task")
    final = frame[frame["kind"] == FINAL]
    for task, title in visual_rows.TITLES.items():
        runs = final[final["task"] == task]
        label = f"{title}: {_counts(runs)}"
        if task in counts.index:
            label += f" (published: {counts['high'][task]:.0f} of {counts['size'][task]:.0f})"
        for _, run in runs.groupby("seed", sort=False):
            _stairs(axes, run, visual_panels.TASK_COLORS[task])
        axes.plot([], [], color=visual_panels.TASK_COLORS[task], label=label)
    _legend(axes, "coordinates above the mean at $κ = 2$")


def _stairs(axes: Axes, run: pd.DataFrame, color: Any, label: str | None = None) -> None:
    """One spectrum as a staircase: each coordinate as wide as its share of the dimension."""
    edges = np.linspace(0.0, 1.0, len(run) + 1)
    axes.stairs(run["variance"], edges, baseline=None, color=color, lw=1.2, label=label)


def _legend(axes: Axes, title: str, columns: int = 1) -> None:
    """A legend above the panel, where it hides no line."""
    legend = axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns, borderaxespad=0.2, labelspacing=0.25, title=title
    )
    legend.get_title().set_fontsize(7.5)
    legend.set_alignment("left")


def _counts(runs: pd.DataFrame) -> str:
    if runs.empty:
        return visual_rows.NOT_RUN
    high = sorted({int(value) for value in runs["high"]})
    text = f"{high[0]}" if len(high) == 1 else f"{high[0]} to {high[-1]}"
    return f"{text} of {runs['size'].iloc[0]:.0f}"


def _draw_during(axes: Axes, frame: pd.DataFrame) -> None:
    import matplotlib as mpl

    if frame.empty:
        visual_panels.say_not_run(axes, f"{visual_rows.NOT_RUN}:\npython -m visual train task=tworoom kappa=2")
        return
    steps = sorted(frame["step"].unique())
    for index, step in enumerate(steps):
        run = frame[frame["step"] == step]
        color = mpl.colormaps["viridis"](0.88 * index / max(1, len(steps) - 1))
        _stairs(axes, run, color, f"{step:,.0f}")
    row = frame.iloc[0]
    _legend(axes, f"TwoRoom, $κ = 2$, seed {row['seed']:.0f} ({row['preset']} preset), training step", 3)


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the runs under ``results``."""
    return data(visual_rows.one_setting(visual_rows.TRAIN.rows(results)))


FIGURE = Figure(
    name="fig04_target_spectra",
    caption="Target variances at κ = 2, sorted. (a) At the end of training, one line per seed; the legend counts the "
    "coordinates above the mean, beside the published counts. (b) During one TwoRoom run.",
    needs=(visual_rows.TRAIN,),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
