"""What an outcome is, and over which horizon costs are compared (paper, Table 5), beside what the code uses."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from figures import published, visual_rows
from figures.catalog import Table
from figures.tables import BLANK
from visual.tasks import TASKS

PUBLISHED = "published"


def data(sequences: pd.DataFrame) -> pd.DataFrame:
    """Outcome, threshold, horizon and cases by task, published and as the tasks here are specified and were run.

    Parameters
    ----------
    sequences
        Rows of the executed candidates: ``task, pair, already_solved, preset, origin``.
    """
    tables = [published.read("table5_outcomes").assign(have=PUBLISHED, origin="published")]
    for name in visual_rows.TASKS:
        task, group = TASKS[name], sequences[sequences["task"] == name]
        row: dict[str, object] = {"task": name, "outcome": task.outcome_text, "horizon": task.horizon}
        if group.empty:
            row |= {"have": f"here: {visual_rows.NOT_RUN}", "source": "visual.tasks"}
        else:
            pairs = group.drop_duplicates("pair")
            row |= {"cases": len(pairs), "solved_at_start": int(pairs["already_solved"].sum())}
            row |= {"sequences": len(group) / len(pairs), "origin": group["origin"].iloc[0]}
            row |= {
                "have": f"here ({group['preset'].iloc[0]} preset)",
                "source": "visual.tasks and the executed sequences",
            }
        tables.append(pd.DataFrame([row]))
    columns = ["task", "outcome", "threshold", "horizon", "cases", "pairs", "solved_at_start", "sequences"]
    return pd.concat(tables, ignore_index=True).reindex(columns=[*columns, "have", "origin", "source"])


def layout(frame: pd.DataFrame) -> pd.DataFrame:
    """One line per task and source."""
    lines = []
    for task in visual_rows.TASKS:
        for row in frame[frame["task"] == task].to_dict("records"):
            outcome = str(row["outcome"])
            if isinstance(row["threshold"], str) and row["threshold"] != "1":
                outcome += f" / {row['threshold']}"
            lines.append(
                {
                    "Task": visual_rows.TITLES[task],
                    "source": row["have"],
                    "outcome (1 is the boundary of success)": outcome,
                    "horizon (steps)": f"{row['horizon']:.0f}",
                    "cases": _count(row["cases"]),
                    "solved at the start": _count(row["solved_at_start"]),
                    "sequences per case": _count(row["sequences"]),
                }
            )
    return pd.DataFrame(lines)


def _count(value: float) -> str:
    return BLANK if value != value else f"{value:.0f}"


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the runs under ``results``."""
    return data(visual_rows.one_setting(visual_rows.CANDIDATES.rows(results)))


TABLE = Table(
    name="table5_outcomes",
    caption="Outcomes, in units of the success threshold, and diagnostic horizons. Published cases are counted out of "
    "50 initial–goal pairs; here none is left out, and those solved at the start are counted.",
    needs=(visual_rows.CANDIDATES,),
    read=read,
    layout=layout,
)

if __name__ == "__main__":
    TABLE.render()
