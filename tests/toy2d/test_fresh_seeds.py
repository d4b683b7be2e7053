"""The toy's published numbers do not hang on the seeds on which its settings were chosen (docs/theory.md, T10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from theory.runs import read_rows

MEASURED = Path("figures/measured/toy2d")


@pytest.mark.parametrize(
    ("sweep", "sigma", "kappa"), [("noise-sweep", 0.01, 1.0), ("kappa-sweep", 0.5, 1.0), ("kappa-sweep", 0.5, 3.0625)]
)
def test_fresh_seeds_agree_with_the_reported_ones(sweep: str, sigma: float, kappa: float) -> None:
    """No seed in common, and means of the planner's regret within three standard errors of each other."""
    rows = {name: read_rows(MEASURED / name) for name in ("fresh-seeds", sweep)}
    chosen = {
        name: part[(part["sigma"] == sigma) & (part["kappa"] == kappa) & (part["observation"] == "identity")]
        for name, part in rows.items()
    }
    fresh, reported = chosen["fresh-seeds"], chosen[sweep]
    assert set(fresh["seed"]).isdisjoint(reported["seed"])
    assert len(fresh) >= 5
    errors = [part["regret_pred"].std() / len(part) ** 0.5 for part in (fresh, reported)]
    difference = abs(fresh["regret_pred"].mean() - reported["regret_pred"].mean())
    assert difference < 3 * (errors[0] ** 2 + errors[1] ** 2) ** 0.5
