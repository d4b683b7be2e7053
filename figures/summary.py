"""From rows to the points of a picture: each setting's mean with its 95 % t interval, and every seed beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from theory.claims import mean_interval

if TYPE_CHECKING:
    import pandas as pd


def seeds_and_means(rows: pd.DataFrame, by: str, column: str, panel: str, series: str) -> pd.DataFrame:
    """Tidy points of one curve.

    Parameters
    ----------
    rows
        One row per seed × setting, with ``seed`` and ``origin``.
    by, column
        The setting on the horizontal axis and the measurement on the vertical one.
    panel, series
        Written into the columns of these names.

    Returns
    -------
    pandas.DataFrame
        Columns ``panel, series, kind, x, y, low, high, seed, count, origin``. ``kind`` is "seed" (one measurement) or
        "mean" (with ``low`` and ``high``, the 95 % t interval, and ``count``; both ends are the mean for one seed).
    """
    import pandas as pd

    points = pd.DataFrame(
        {
            "panel": panel,
            "series": series,
            "kind": "seed",
            "x": rows[by].astype(float),
            "y": rows[column].astype(float),
            "seed": rows["seed"],
            "origin": rows["origin"],
        }
    ).sort_values(["x", "seed"])
    means = []
    for x, group in points.groupby("x"):
        values = group["y"].to_numpy()
        mean, low, high = mean_interval(values) if len(values) > 1 else (float(values[0]),) * 3
        means.append(
            {
                "panel": panel,
                "series": series,
                "kind": "mean",
                "x": x,
                "y": mean,
                "low": low,
                "high": high,
                "count": len(values),
                "origin": group["origin"].iloc[0],
            }
        )
    table = pd.concat([points, pd.DataFrame(means)], ignore_index=True)
    return table.reindex(columns=["panel", "series", "kind", "x", "y", "low", "high", "seed", "count", "origin"])


def curve(x: list[float], y: list[float], panel: str, series: str, kind: str = "line") -> pd.DataFrame:
    """A line, or any other list of points without a spread, with the columns of :func:`seeds_and_means`."""
    import pandas as pd

    return pd.DataFrame({"panel": panel, "series": series, "kind": kind, "x": x, "y": y})
