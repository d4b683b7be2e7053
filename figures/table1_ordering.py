"""Does the cost order outcomes? (paper, Table 1; docs/theory.md, T11), ours beside it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from figures import published, visual_rows
from figures.catalog import Table
from figures.tables import number

COSTS = {"enc": "J_enc", "pred": "J_pred"}
PUBLISHED = "published (one seed)"


def data(pairs: pd.DataFrame) -> pd.DataFrame:
    """Agreement by task and cost of κ = 1 and κ = 2, published and measured.

    A measured entry is the mean over seeds and over the pairs that both models ordered; ``gap`` is the mean of the
    differences pair by pair.

    Parameters
    ----------
    pairs
        Rows of ``diagnose``: ``task, kappa, training_seed, pair, agreement_enc, agreement_pred``.
    """
    tables = [published.read("table1_ordering").assign(have=PUBLISHED, origin="published")]
    both = matched(pairs)
    for task in visual_rows.TASKS:
        group = both[both["task"] == task]
        have = describe(group)
        for cost in COSTS:
            row: dict[str, object] = {"task": task, "cost": cost, "have": have, "source": have}
            if not group.empty:
                first, second = group[f"agreement_{cost}_lewm"], group[f"agreement_{cost}_anisowm"]
                row |= {"lewm": first.mean(), "anisowm": second.mean(), "gap": (second - first).mean()}
                row |= {"pairs": group["pair"].nunique(), "seeds": group["training_seed"].nunique()}
                row["origin"] = group["origin"].iloc[0]
            tables.append(pd.DataFrame([row]))
    columns = ["task", "cost", "lewm", "anisowm", "gap", "pairs", "seeds", "have", "origin", "source"]
    return pd.concat(tables, ignore_index=True).reindex(columns=columns)


def matched(pairs: pd.DataFrame) -> pd.DataFrame:
    """κ = 1 and κ = 2 on the same pair and seed, one row each; pairs that a cost could not order are left out."""
    keys = ["task", "training_seed", "pair", "preset", "origin"]
    values = [f"agreement_{cost}" for cost in COSTS]
    parts = [
        pairs.loc[pairs["kappa"] == kappa, [*keys, *values]].rename(
            columns={name: f"{name}_{model}" for name in values}
        )
        for kappa, model in ((1.0, "lewm"), (2.0, "anisowm"))
    ]
    return parts[0].merge(parts[1], on=keys).dropna().reset_index(drop=True)


def describe(group: pd.DataFrame) -> str:
    """What is there of a task."""
    return (
        visual_rows.describe(group.assign(run="all", kappa=2.0), noun="pairs")
        if len(group)
        else visual_rows.describe(group)
    )


def layout(frame: pd.DataFrame) -> pd.DataFrame:
    """One line per task and source; for each cost κ = 1, κ = 2 and the gap."""
    lines = []
    for task in visual_rows.TASKS:
        for have, group in frame[frame["task"] == task].groupby("have", sort=False):
            line = {"Task": visual_rows.TITLES[task], "source": have}
            for cost, title in COSTS.items():
                (row,) = group[group["cost"] == cost].to_dict("records")
                for name, head, form in (("lewm", "κ = 1", ".3f"), ("anisowm", "κ = 2", ".3f"), ("gap", "gap", "+.3f")):
                    line[f"{title}, {head}"] = number(row[name], form)
            lines.append(line)
    return pd.DataFrame(lines)


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the runs under ``results``."""
    return data(visual_rows.one_setting(visual_rows.DIAGNOSE.rows(results)))


TABLE = Table(
    name="table1_ordering",
    caption="Share of pairs of action sequences that a cost orders as their outcomes are ordered. J_enc encodes the "
    "observation a sequence reached, J_pred is the planner's cost. κ = 1 is LeWM, κ = 2 AnisoWM, on the same "
    "sequences. Published gaps are those of unrounded entries: PushT's −0.005 would be −0.006 from the printed"
    " ones.",
    needs=(visual_rows.DIAGNOSE,),
    read=read,
    layout=layout,
)

if __name__ == "__main__":
    TABLE.render()
