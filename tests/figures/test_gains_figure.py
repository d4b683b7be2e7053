"""The figure of what κ > 1 has over κ = 1: every pair of models once, and their mean."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import synthetic_visual as synthetic
from matplotlib import pyplot as plt
from scipy import stats

from figures import catalog, fig_gains


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("results"), tasks=("tworoom", "cube"))


@pytest.fixture(autouse=True)
def nothing_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MEASURED", tmp_path / "measured")


def test_gains_and_their_mean(results: Path) -> None:
    """Mutation: pair another seed, pool pairs instead of models, or take the normal quantile."""
    frame = fig_gains.read(results)
    rows = frame.set_index(["measure", "task", "kappa", "training_seed"])["points"]
    found = []
    for task in ("tworoom", "cube"):
        for seed in synthetic.SEEDS:
            first, second = (synthetic.agreement(task, kappa, seed)[1] for kappa in (1.0, 2.0))
            found.append(100 * np.nanmean(second - first))
            assert rows["J_pred", task, 2.0, seed] == pytest.approx(found[-1])
            rates = [100 * synthetic.success(task, kappa, seed).mean() for kappa in (1.0, 4.0)]
            assert rows["success", task, 4.0, seed] == pytest.approx(rates[1] - rates[0])
    (mean,) = frame.query("measure == 'J_pred' and task == 'all' and kappa == 2").to_dict("records")
    low, high = stats.ttest_1samp(found, 0).confidence_interval()
    assert [mean["points"], mean["low"], mean["high"]] == pytest.approx([np.mean(found), low, high])
    assert mean["models"] == 4


def test_a_sweep_is_left_out(results: Path, tmp_path: Path) -> None:
    """Mutation: take every κ."""
    root = tmp_path / "results"
    shutil.copytree(results, root)
    before = fig_gains.read(root)
    model = root / "visual/tworoom/k8-s42-laptop"
    synthetic._plan(model / "plan-laptop", "tworoom", 8.0, 42, "laptop", "synthetic")
    assert fig_gains.read(root).equals(before)


def test_drawn_with_and_without_runs(results: Path, tmp_path: Path) -> None:
    figure = fig_gains.draw(fig_gains.read(results))
    for axes in figure.axes:
        # Two tasks, two seeds and two κ (of the diagnoses one), and the line at zero.
        assert len(axes.lines) >= 2 * 2 + 1
        assert axes.get_ylabel() == "points over $κ = 1$"
    plt.close(figure)
    frame = fig_gains.read(tmp_path / "nothing")
    assert frame.empty
    figure = fig_gains.draw(frame)
    assert [axes.texts[0].get_text() for axes in figure.axes] == ["not run"] * 3
    plt.close(figure)
