"""Planning success of each training seed (paper, Table 4), with LeWM's, and ours beside them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from figures import published, visual_rows
from figures.catalog import Table
from figures.tables import BLANK, trim

SEEDS = (3072, 1234, 42)
KAPPAS = (1.0, 2.0)
PUBLISHED = "published (n = 50)"


def data(episodes: pd.DataFrame) -> pd.DataFrame:
    """Success in percent by task, κ and seed ("mean" for the mean over seeds), published and measured.

    Parameters
    ----------
    episodes
        Rows of :func:`figures.visual_rows.planned`.
    """
    printed = published.read("table4_seeds").assign(have=PUBLISHED, origin="published", pairs=50)
    lewm = (
        published.read("fig02_success")
        .query("method == 'LeWM'")
        .assign(have=PUBLISHED, origin="published", seed="mean")
    )
    table = [printed, lewm.drop(columns=["method", "seeds"])]
    for task in visual_rows.TASKS:
        for kappa in KAPPAS:
            group = episodes[(episodes["task"] == task) & (episodes["kappa"] == kappa)]
            have = visual_rows.describe(group)
            cells = {"task": task, "kappa": kappa, "have": have, "source": have}
            if group.empty:
                table.append(pd.DataFrame([{**cells, "seed": "mean"}]))
                continue
            cells |= {"origin": group["origin"].iloc[0], "pairs": group["pair"].nunique()}
            each = 100 * group.groupby("training_seed")["success"].mean()
            rate = visual_rows.pooled_interval(group)
            table.append(
                pd.DataFrame([{**cells, "seed": str(seed), "success_percent": each[seed]} for seed in each.index])
            )
            mean = {"success_percent": each.mean(), "low": 100 * rate.low, "high": 100 * rate.high}
            table.append(pd.DataFrame([{**cells, "seed": "mean", **mean}]))
    columns = ["task", "kappa", "seed", "success_percent", "low", "high", "pairs", "have", "origin", "source"]
    return pd.concat(table, ignore_index=True).reindex(columns=columns)


def layout(frame: pd.DataFrame) -> pd.DataFrame:
    """One line per task, κ and source; one column per seed, other seeds counted in the mean alone."""
    lines = []
    for task in visual_rows.TASKS:
        for kappa in KAPPAS:
            for have, group in frame[(frame["task"] == task) & (frame["kappa"] == kappa)].groupby("have", sort=False):
                cells = group.set_index(group["seed"].astype(str))
                mean = {name: float(cells[name]["mean"]) for name in ("success_percent", "low", "high")}
                text = trim(mean["success_percent"])
                if mean["low"] == mean["low"]:
                    text += f" [{mean['low']:.0f}, {mean['high']:.0f}]"
                lines.append(
                    {
                        "Task": visual_rows.TITLES[task],
                        "κ": f"{kappa:g}",
                        "source": have,
                        **{
                            f"seed {seed}": trim(cells["success_percent"].get(str(seed), float("nan")))
                            for seed in SEEDS
                        },
                        "mean": text,
                    }
                )
    return pd.DataFrame(lines).fillna(BLANK)


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the runs under ``results``."""
    return data(visual_rows.planned(results))


TABLE = Table(
    name="table4_seeds",
    caption="Planning success (%) by training seed, κ = 2, and κ = 1 (LeWM) for comparison. Brackets: 95 % Wilson "
    "interval of the mean over seeds on n pairs.",
    needs=(visual_rows.PLAN,),
    read=read,
    layout=layout,
)

if __name__ == "__main__":
    TABLE.render()
