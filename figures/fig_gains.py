"""What κ > 1 has over κ = 1: success and ordering of every pair of models, and all tasks together (ours)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from figures import comparison_tables, style, visual_panels, visual_rows
from figures.catalog import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

ALL = "all"
TITLES = {
    "success": "success",
    "J_enc": "ordering, $J_\\mathrm{enc}$",
    "J_pred": "ordering, $J_\\mathrm{pred}$",
}
_WIDTH = 0.32


def data(episodes: pd.DataFrame, ordering: pd.DataFrame) -> pd.DataFrame:
    """Gains of each pair of models, and their mean over all.

    Parameters
    ----------
    episodes, ordering
        Rows of plans and of diagnoses, of the κ that training seeds share (:func:`figures.visual_rows.apart`).

    Returns
    -------
    pandas.DataFrame
        ``points`` gained by ``kappa`` over κ = 1 in ``measure``, by ``task`` and ``training_seed``; where ``task`` is
        ``"all"``, the mean over ``models`` pairs of models with Student's 95 % interval ``low`` to ``high``.
    """
    parts = []
    for measure, column in comparison_tables.MEASURES.items():
        rows = episodes if measure == "success" else ordering
        found = comparison_tables.gains(rows, column).assign(measure=measure, models=1)
        parts.append(found)
        for kappa, group in found.groupby("kappa"):
            row = {"task": ALL, "kappa": kappa, "measure": measure, "models": len(group)}
            row["points"] = group["points"].mean()
            if len(group) > 1:
                row["low"], row["high"] = comparison_tables.over_seeds(group["points"])
            parts.append(pd.DataFrame([row]))
    columns = ["measure", "task", "kappa", "training_seed", "points", "low", "high", "models"]
    frame = pd.concat([part for part in parts if not part.empty] or parts, ignore_index=True).reindex(columns=columns)
    first = ordering if episodes.empty else episodes
    return frame.assign(**{name: first[name].iloc[0] if len(first) else None for name in ("origin", "preset")})


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """One panel per measure: tasks from left to right, κ side by side, and all together."""
    with style.sheet():
        figure = style.new_figure(style.PAGE_WIDTH, 2.5)
        panels = figure.subplots(1, len(TITLES))
        kappas = sorted(frame["kappa"].unique())
        for axes, (measure, title) in zip(panels, TITLES.items(), strict=True):
            part = frame[frame["measure"] == measure]
            axes.set_title(title)
            axes.set_ylabel("points over $κ = 1$")
            axes.set_xticks(
                range(len(visual_rows.TASKS) + 1), [*visual_rows.TITLES.values(), ALL], rotation=35, ha="right"
            )
            axes.set_xlim(-0.6, len(visual_rows.TASKS) + 0.6)
            if part.empty:
                visual_panels.say_not_run(axes)
                axes.set_yticks([])
            else:
                _draw_measure(axes, part, kappas)
        handles = [
            panels[0].plot(
                [], [], "o", ms=4.5, mew=0, color=visual_panels.kappa_color(kappa), label=f"$κ = {kappa:g}$"
            )[0]
            for kappa in kappas
        ]
        if handles:
            figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), handletextpad=0.2)
        style.stamp(figure, frame["origin"].dropna())
        return figure


def _draw_measure(axes: Axes, part: pd.DataFrame, kappas: list[float]) -> None:
    axes.axhline(0, color=style.FAINT, lw=0.8, zorder=1)
    axes.axvline(len(visual_rows.TASKS) - 0.5, color=style.FAINT, lw=0.6, ls=(0, (1, 2)))
    places = [*visual_rows.TASKS, ALL]
    for number, kappa in enumerate(kappas):
        color = visual_panels.kappa_color(kappa)
        shift = _WIDTH * (number - (len(kappas) - 1) / 2)
        for row in part[part["kappa"] == kappa].to_dict("records"):
            place = places.index(row["task"]) + shift
            if row["task"] == ALL:
                known = row["low"] == row["low"]
                spread = [[row["points"] - row["low"]], [row["high"] - row["points"]]] if known else None
                axes.errorbar(
                    place, row["points"], spread, fmt="D", ms=5, mew=0, color=color, capsize=2, elinewidth=1.1
                )
            else:
                axes.plot(place, row["points"], "o", ms=4, mec="white", mew=0.4, color=color, alpha=0.85)


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the runs under ``results``."""
    episodes, ordering = visual_rows.planned(results), visual_rows.DIAGNOSE.rows(results)
    ordering = ordering[ordering["preset"] == episodes["preset"].iloc[0]] if len(episodes) else ordering
    shared, _ = visual_rows.apart([episodes, visual_rows.one_setting(ordering)])
    return data(*shared)


FIGURE = Figure(
    name="fig_gains",
    caption="What κ > 1 has over κ = 1 of the same task and training seed, judged on the same pairs and the same "
    "stored sequences: planning success and the share of sequence pairs ordered as their outcomes. A dot is a pair of "
    "models; the diamonds are means over all of them with Student's 95 % interval.",
    needs=(visual_rows.PLAN, visual_rows.DIAGNOSE),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
