"""How many pairs tell 87 % from 93 %: exact power of the paired test and of unpaired ones (``visual.power``).

87 and 93 % are the published rates of LeWM and AnisoWM on TwoRoom. Two models on the same pairs agree on most of them;
how many they disagree on decides what a number of pairs can show.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from figures import style
from figures.catalog import Figure
from figures.summary import curve
from visual.power import Discordance, fisher_power, mcnemar_power, newcombe_power, pairs_needed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

#: Success rates to be told apart, and the significance level and power.
FIRST, SECOND, LEVEL, POWER = 0.87, 0.93, 0.05, 0.8
#: Pairs of the paper's protocol, and of ours.
MARKS = {50: "paper", 200: "here"}
#: Largest number of pairs drawn.
MOST = 700
#: Shares of pairs that only the worse model solves: none, some, and what independent models have.
ONLY_FIRST = (0.0, 0.02, FIRST * (1 - SECOND))
FISHER, NEWCOMBE, NEEDED = "Fisher", "Newcombe", "pairs needed"


def data() -> pd.DataFrame:
    """Panel a: power over n (series by p₁₀, or the unpaired test). Panel b: pairs for 80 % power over p₁₀ + p₀₁."""
    counts = np.unique(np.append(np.geomspace(5, MOST, 120).round().astype(int), list(MARKS)))
    parts = []
    for share in ONLY_FIRST:
        models = Discordance(share, share + SECOND - FIRST)
        part = curve(counts.tolist(), mcnemar_power(counts, models, LEVEL).tolist(), "a", "McNemar")
        parts.append(part.assign(only_first=share))
    coarse = np.unique(np.append(np.geomspace(10, MOST, 28).round().astype(int), list(MARKS))).tolist()
    for series, function in ((FISHER, fisher_power), (NEWCOMBE, newcombe_power)):
        parts.append(curve(coarse, [function(count, FIRST, SECOND, LEVEL) for count in coarse], "a", series))
    shares = np.unique(np.append(np.linspace(0.0, ONLY_FIRST[-1], 40), ONLY_FIRST))
    pairs = [Discordance(share, share + SECOND - FIRST) for share in shares.tolist()]
    needed = [float(pairs_needed(pair, POWER, LEVEL)) for pair in pairs]
    parts.append(curve([pair.total for pair in pairs], needed, "b", NEEDED).assign(only_first=shares))
    return pd.concat(parts, ignore_index=True)


def draw(frame: pd.DataFrame) -> MatplotlibFigure:
    """Power against the number of pairs, and the pairs needed against the share on which the models differ."""
    with style.sheet():
        figure = style.new_figure(style.PAGE_WIDTH, 2.7)
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
        _draw_power(left, frame[frame["panel"] == "a"])
        _draw_needed(right, frame[frame["panel"] == "b"])
        for axes, letter in ((left, "a"), (right, "b")):
            style.panel_letter(axes, letter)
        return figure


def _draw_power(axes: Axes, part: pd.DataFrame) -> None:
    shades = ("#003C5E", style.TASK, "#6DB3DC")
    labels = ("nested, 0 / 6 %", "between, 2 / 8 %", "independent, 6 / 12 %")
    axes.plot([], [], " ", label="same pairs, McNemar:")
    for share, shade, label in zip(ONLY_FIRST, shades, labels, strict=True):
        points = part[np.isclose(part["only_first"], share)]
        axes.plot(points["x"], 100 * points["y"], color=shade, label=label)
    axes.plot([], [], " ", label="pairs of their own:")
    for series, dashes in ((FISHER, (0, (4, 2))), (NEWCOMBE, (0, (1, 1.2)))):
        points = part[part["series"] == series]
        label = "Fisher's exact test" if series == FISHER else "Newcombe's interval"
        axes.plot(points["x"], 100 * points["y"], color=style.LATENT, ls=dashes, label=label)
    axes.axhline(100 * POWER, color=style.FAINT, lw=0.7, ls=(0, (1, 2)), zorder=1)
    for count, name in MARKS.items():
        axes.plot([count, count], [0, 100], color=style.FAINT, lw=0.7, ls=(0, (1, 2)), zorder=1)
        axes.annotate(f"{count} ({name})", (count, 100), (-3, 2), textcoords="offset points")
    axes.set_xlim(0, MOST)
    axes.set_ylim(0, 104)
    axes.set_xlabel("number of pairs $n$")
    axes.set_ylabel("chance to tell 87 % from 93 %\n(power in %, two-sided α = 0.05)")
    axes.legend(loc="lower right", borderaxespad=0.1, labelspacing=0.25, handlelength=1.6)


def _draw_needed(axes: Axes, part: pd.DataFrame) -> None:
    axes.plot(100 * part["x"], part["y"], color=style.TASK)
    for share, ha, shift in zip(ONLY_FIRST, ("left", "left", "right"), ((7, -3), (7, -5), (-7, 0)), strict=True):
        (point,) = part[np.isclose(part["only_first"], share)].to_dict("records")
        axes.plot(100 * point["x"], point["y"], "o", ms=4.2, mec="white", mew=0.6, color=style.TASK)
        axes.annotate(
            f"{point['y']:.0f}", (100 * point["x"], point["y"]), shift, textcoords="offset points", ha=ha, va="center"
        )
    for count, name in MARKS.items():
        axes.axhline(count, color=style.FAINT, lw=0.7, ls=(0, (1, 2)), zorder=1)
        axes.annotate(
            f"{count} ({name})", (1, count), (0, 2), ("axes fraction", "data"), textcoords="offset points", ha="right"
        )
    axes.set_ylim(0, 1.12 * part["y"].max())
    axes.set_xlabel("pairs that only one of the two solves (%)")
    axes.set_ylabel("pairs needed for 80 % power")


def read(results: Path) -> pd.DataFrame:
    """:func:`data`; nothing is measured here."""
    return data()


FIGURE = Figure(
    name="fig_power",
    caption="How many pairs tell a success rate of 87 % from one of 93 %. (a) Exact power of McNemar's test on the "
    "same pairs, by the shares that only the worse and only the better model solves, and of unpaired comparisons. "
    "(b) Pairs that give 80 % power. Fifty pairs are too few whatever the two models have in common.",
    needs=(),
    read=read,
    draw=draw,
)

if __name__ == "__main__":
    FIGURE.render()
