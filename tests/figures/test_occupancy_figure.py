"""The figure of spare dimensions: its table from known coordinates and summaries, and what it draws without runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from figures import catalog, fig_occupancy

DIM = 4
FILLED = np.array([0.2, 0.3, 1.0, 0.9])
TARGET = np.array([1.3, 1.3, 0.7, 0.7])
FEATURES = np.array([0.4, 0.5, 1.0, 0.9])


def coordinates(task: str, kappa: float, seed: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "origin": "synthetic",
            "task": task,
            "kappa": kappa,
            "training_seed": seed,
            "preset": "laptop",
            "coordinate": np.arange(DIM),
            "filled": FILLED,
            "target_variance": TARGET if kappa > 1 else 1.0,
            "feature_variance": FEATURES,
            "run": f"visual/{task}/k{kappa:g}-s{seed}-laptop/diagnose",
        }
    )


def summary(high: int, predicted: int) -> dict[str, Any]:
    found = {"dim": DIM, "num_high": high, "predicted_high": predicted}
    return {"occupancy": {**found, "anisotropy_asked": 1.3 / 0.7, "anisotropy_kept": 0.45 / 0.95}}


@pytest.fixture
def frame() -> pd.DataFrame:
    models = [("tworoom", 1.0, 1), ("tworoom", 2.0, 1), ("cube", 2.0, 1), ("cube", 4.0, 2)]
    rows = pd.concat([coordinates(*model) for model in models], ignore_index=True)
    runs = {run: summary(2, 3 if "cube" in run else 2) for run in rows["run"].unique()}
    return fig_occupancy.data(rows, runs)


def test_each_coordinate_of_the_first_panel_and_each_model_of_the_others(frame: pd.DataFrame) -> None:
    """κ = 1 asks for nothing and is left out; panel a is TwoRoom at κ = 2."""
    first = frame[frame["panel"] == "a"]
    np.testing.assert_array_equal(first.loc[first["series"] == "target", "y"], TARGET)
    np.testing.assert_array_equal(first.loc[first["series"] == "features", "y"], FEATURES)
    np.testing.assert_array_equal(first.loc[first["series"] == "features", "x"], FILLED)
    counts = frame[frame["panel"] == "b"]
    assert counts[["task", "kappa", "x", "y"]].values.tolist() == [
        ["cube", 2.0, 3.0, 2.0],
        ["cube", 4.0, 3.0, 2.0],
        ["tworoom", 2.0, 2.0, 2.0],
    ]
    ratios = frame[frame["panel"] == "c"]
    assert (ratios["y"] < 1).all()
    assert (ratios["x"] == 1.3 / 0.7).all()


def test_axes_name_their_quantities_and_synthetic_rows_are_stamped(frame: pd.DataFrame) -> None:
    figure = fig_occupancy.draw(frame)
    labels = " ".join(f"{axes.get_xlabel()} {axes.get_ylabel()}" for axes in figure.axes)
    for words in ("variance (mean of the target = 1)", "high coordinates, learned", "kept by the features (ratio)"):
        assert words in labels
    assert "synthetic" in [text.get_text() for text in figure.texts]
    # The diagonal, the models of each task, and in panel c the line of no anisotropy.
    assert len(figure.axes[1].lines) == 1 + 2
    assert len(figure.axes[2].lines) == 2 + 2


def test_without_runs_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MEASURED", tmp_path / "measured")
    figure = fig_occupancy.draw(fig_occupancy.read(tmp_path))
    assert [text.get_text() for axes in figure.axes for text in axes.texts].count("not run") == 3


def test_an_older_diagnosis_names_the_way_out() -> None:
    rows = coordinates("cube", 2.0, 1)
    with pytest.raises(ValueError, match="diagnose again with force=true"):
        fig_occupancy.data(rows, {rows["run"].iloc[0]: {}})
    with pytest.raises(ValueError, match="lack the column filled"):
        fig_occupancy.data(rows.drop(columns="filled"), {})
