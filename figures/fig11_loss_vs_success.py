"""Latent prediction loss against planning success, one mark per trained run (paper, Figure 11)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from figures import style, visual_panels, visual_rows
from figures.catalog import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure


def data(episodes: pd.DataFrame, cards: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Held-out prediction error and success in percent of every run, with the best of each task marked.

    Parameters
    ----------
    episodes
        Rows of :func:`figures.visual_rows.planned`.
    cards
        ``model.json`` by run of training: ``held_out.prediction``.

    Raises
    ------
    ValueError
        If the card of a run that was planned with holds no prediction error.
    """
    lines = []
    for (task, kappa, seed), group in episodes.groupby(["task", "kappa", "training_seed"]):
        run = f"{Path(group['run'].iloc[0]).parent.as_posix()}/train"
        try:
            loss = float(cards[run]["held_out"]["prediction"])
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"model.json of {run} holds no held_out.prediction.") from None
        rate = visual_rows.pooled_interval(group)
        row = {"task": task, "kappa": kappa, "training_seed": seed, "prediction": loss, "pairs": rate.count}
        row |= {"success_percent": 100 * rate.rate, "low": 100 * rate.low, "high": 100 * rate.high}
        lines.append(row | {name: group[name].iloc[0] for name in ("preset", "protocol", "origin")})
    columns = ["task", "kappa", "training_seed", "prediction", "success_percent", "low", "high", "pairs"]
    frame = pd.DataFrame(lines, columns=[*columns, "preset", "protocol", "origin"])
    groups = frame.groupby("task")
    frame["best_planning"] = frame["success_percent"] == groups["success_percent"].transform("max")
    frame["lowest_loss"] = frame["prediction"] == groups["prediction"].transform("min")
    return frame


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """One panel per task."""
    with style.sheet():
        figure = style.new_figure(style.PAGE_WIDTH, 2.35)
        panels = figure.subplots(1, len(visual_rows.TASKS))
        for axes, task in zip(panels, visual_rows.TASKS, strict=True):
            part = frame[frame["task"] == task]
            axes.set_title(visual_rows.TITLES[task])
            axes.set_xlabel("prediction error\n(MSE, own latent)")
            if part.empty:
                visual_panels.say_not_run(axes)
                axes.set_xticks([])
                axes.set_yticks([])
            else:
                _draw_task(axes, part)
        panels[0].set_ylabel("planning success (%)")
        handles = [
            panels[0].plot([], [], "o", ms=5, mew=0, color=visual_panels.kappa_color(kappa), label=f"$κ = {kappa:g}$")[
                0
            ]
            for kappa in sorted(frame["kappa"].unique())
        ]
        for color, label in (("#CC2936", "plans best"), (style.FAINT, "lowest loss")):
            ring: dict[str, Any] = {"mfc": "none", "mec": color, "mew": 1.2, "ls": "none"}
            handles.append(panels[0].plot([], [], "o", ms=8, label=label, **ring)[0])
        title = f"{visual_rows.describe(frame, 'pairs')}; published: a picture without numbers"
        figure.legend(
            handles=handles, loc="outside upper center", ncols=8, columnspacing=1.0, handletextpad=0.3, title=title
        )
        figure.legends[0].get_title().set_fontsize(7.5)
        style.stamp(figure, frame["origin"].dropna())
        return figure


def _draw_task(axes: Axes, frame: pd.DataFrame) -> None:
    for row in frame.to_dict("records"):
        spread = [[max(0.0, row["success_percent"] - row["low"])], [max(0.0, row["high"] - row["success_percent"])]]
        color = visual_panels.kappa_color(row["kappa"])
        axes.errorbar(
            row["prediction"],
            row["success_percent"],
            spread,
            fmt="o",
            ms=5,
            mew=0,
            color=color,
            elinewidth=0.6,
            capsize=0,
        )
        for marked, size, edge in ((row["lowest_loss"], 8, style.FAINT), (row["best_planning"], 11, "#CC2936")):
            if marked:
                point = (row["prediction"], row["success_percent"])
                axes.plot(*point, "o", ms=size, mfc="none", mec=edge, mew=1.2, ls="none", zorder=4)
    width = float(frame["prediction"].max() - frame["prediction"].min()) or float(frame["prediction"].max())
    axes.set_xlim(frame["prediction"].min() - 0.2 * width, frame["prediction"].max() + 0.2 * width)
    axes.locator_params(axis="x", nbins=3)


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the runs under ``results``."""
    return data(visual_rows.planned(results), visual_rows.TRAIN.cards(results))


FIGURE = Figure(
    name="fig11_loss_vs_success",
    caption="Held-out prediction error and planning success, one mark per trained run with its 95 % Wilson interval. "
    "The red ring marks the runs that plan best, the grey one the run of lowest error. Errors are measured in "
    "each model's own latent space.",
    needs=(visual_rows.TRAIN, visual_rows.PLAN),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
