"""Settings of training (paper, Table 3), beside those of the finished runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from figures import published, visual_rows
from figures.catalog import Table

#: Ours, as the code fixes them for every preset.
_FIXED = {"optimizer": "AdamW", "target_weight_decay": "0"}


def data(settings: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Each setting as published and as the runs of each preset have it.

    Parameters
    ----------
    settings
        Settings of finished trainings by run (``run.json``).

    Raises
    ------
    ValueError
        If a run holds no settings of a training.
    """
    table = published.read("table3_settings")
    parts = [table.assign(have="published", origin="published")]
    presets: dict[str, list[Mapping[str, Any]]] = {}
    for run, setting in settings.items():
        try:
            presets.setdefault(setting["preset"]["name"], []).append(setting)
        except (KeyError, TypeError):
            raise ValueError(f"The settings of {run} are not those of a training.") from None
    for name in sorted(presets, key=_rank):
        have = f"{name} preset, {len(presets[name])} runs"
        values = [_value(key, presets[name]) for key in table["key"]]
        parts.append(table[["key", "setting"]].assign(value=values, have=have, origin="settings of runs", source=have))
    if not presets:
        parts.append(
            table[["key", "setting"]].assign(value=visual_rows.NOT_RUN, have="here", source=visual_rows.NOT_RUN)
        )
    return pd.concat(parts, ignore_index=True)


def _rank(name: str) -> tuple[int, str]:
    return (-visual_rows.PRESETS.index(name) if name in visual_rows.PRESETS else 1), name


def _value(key: str, settings: list[Mapping[str, Any]]) -> str:
    if key in _FIXED:
        return _FIXED[key]
    if key == "seeds":
        return ", ".join(str(seed) for seed in sorted({setting["seed"] for setting in settings}))
    if key == "epochs":
        lengths = {(setting["preset"].get("epochs"), setting["preset"].get("steps")) for setting in settings}
        return " or ".join(sorted(f"{epochs}" if epochs is not None else f"{steps} steps" for epochs, steps in lengths))
    values = {setting["preset"].get(key) for setting in settings}
    return " or ".join(sorted(f"{value:g}" if isinstance(value, float | int) else str(value) for value in values))


def layout(frame: pd.DataFrame) -> pd.DataFrame:
    """One line per setting, one column per source."""
    lines = []
    for setting, group in frame.groupby("setting", sort=False):
        cells = {head: str(value) for head, value in zip(group["have"], group["value"], strict=True)}
        lines.append({"setting": setting, **cells})
    return pd.DataFrame(lines)


def read(results: Path) -> pd.DataFrame:
    """:func:`data` of the runs under ``results``."""
    return data(visual_rows.TRAIN.settings(results))


TABLE = Table(
    name="table3_settings",
    caption="Settings of training, as published and as the finished runs here have them.",
    needs=(visual_rows.TRAIN,),
    read=read,
    layout=layout,
)

if __name__ == "__main__":
    TABLE.render()
