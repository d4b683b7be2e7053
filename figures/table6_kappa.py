"""Planning success against the anisotropy bound (paper, Table 6), ours beside it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from figures import published, visual_rows
from figures.catalog import Table
from figures.tables import trim

PUBLISHED = "published (n = 50, 1 seed)"
BASELINE = "published (n = 50, 3 seeds)"


def data(episodes: pd.DataFrame) -> pd.DataFrame:
    """Success in percent by task and κ, published and measured (``low`` and ``high``: Wilson's interval).

    Measured rows are of one training seed each, ``seed``; those with ``swept`` are of the seed that the task's sweep
    is shown with (:func:`figures.visual_rows.one_seed`).

    Parameters
    ----------
    episodes
        Rows of :func:`figures.visual_rows.planned`.
    """
    sweep = published.read("table6_kappa").assign(have=PUBLISHED, origin="published", swept=True)
    lewm = published.read("fig02_success").query("method == 'LeWM'").drop(columns="method")
    tables = [lewm.assign(have=BASELINE, origin="published", swept=True), sweep]
    own = visual_rows.one_seed(episodes)
    have = visual_rows.describe(own)
    for seed, rows in episodes.groupby("training_seed"):
        shown = set(own.loc[own["training_seed"] == seed, "task"])
        rates = visual_rows.success_rates(rows)
        tables.append(rates.assign(seed=seed, swept=rates["task"].isin(shown), have=have, source=have))
    names = ["task", "kappa", "seed", "swept", "success_percent", "low", "high", "pairs", "seeds", "have", "origin"]
    return pd.concat(tables, ignore_index=True).reindex(columns=[*names, "source"])


def layout(frame: pd.DataFrame) -> pd.DataFrame:
    """One line per κ and source, one column per task."""
    lines = []
    frame = frame[frame["swept"]]
    published_rows = frame["origin"] == "published"
    here = frame.loc[~published_rows, "have"]
    for kappa in sorted(frame["kappa"].unique()):
        at = frame["kappa"] == kappa
        for have, part in (
            (BASELINE if kappa == 1 else PUBLISHED, frame[at & published_rows]),
            (visual_rows.describe(frame[~published_rows]) if here.empty else here.iloc[0], frame[at & ~published_rows]),
        ):
            line = {"κ": f"{kappa:g}", "source": have}
            for task, title in visual_rows.TITLES.items():
                cell = part[part["task"] == task]
                line[title] = visual_rows.NOT_RUN if cell.empty else _cell(cell.iloc[0])
            lines.append(line)
    return pd.DataFrame(lines)


def _cell(row: pd.Series) -> str:
    interval = f" [{row['low']:.0f}, {row['high']:.0f}]" if row["low"] == row["low"] else ""
    return trim(row["success_percent"]) + interval


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the runs under ``results``."""
    return data(visual_rows.planned(results))


TABLE = Table(
    name="table6_kappa",
    caption="Planning success (%) across anisotropy bounds. Published: one run for each κ > 1 and the mean of three "
    "seeds at κ = 1, on 50 pairs. Here: one training seed, that of the most κ, with its 95 % Wilson interval on n "
    "pairs.",
    needs=(visual_rows.PLAN,),
    read=read,
    layout=layout,
)

if __name__ == "__main__":
    TABLE.render()
