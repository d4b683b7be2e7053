"""The factorial's figure: planted effects are found, only models that differ in one setting are joined."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from figures import catalog, fig_settings, visual_rows
from theory.runs import open_run

#: What each factor's upper level adds to the agreement; the last one is an interaction of κ and D.
PLANTED = {"kappa": 0.04, "target_lr_multiplier": 0.01, "regularizer_weight": -0.02, "latent_dim": 0.03}
INTERACTION = 0.05
PAIRS = 6


def model(kappa: float, rate: float, weight: float, dim: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Rows of a diagnosis whose agreement is a sum of effects and a pair's own level, and its training's settings."""
    preset = f"laptop-latent_dim{dim}-regularizer_weight{weight}-target_lr_multiplier{rate}"
    high = {"kappa": kappa > 1, "target_lr_multiplier": kappa > 1 and rate > 1}
    high |= {"regularizer_weight": weight > 0.1, "latent_dim": dim > 16}
    value = 0.6 + sum(PLANTED[name] for name, value in high.items() if value)
    value += INTERACTION * (high["kappa"] and high["latent_dim"])
    rows = pd.DataFrame(
        {
            "origin": "synthetic",
            "task": "tworoom",
            "kappa": kappa,
            "training_seed": 3072,
            "preset": preset,
            "pair": np.arange(PAIRS),
            "episode": np.arange(PAIRS) // 2,
            "agreement_pred": value + 0.01 * np.arange(PAIRS),
            "agreement_enc": 0.5,
            "run": f"visual/tworoom/k{kappa:g}-s3072-{preset}/diagnose",
        }
    )
    settings = {"name": preset, "latent_dim": dim, "regularizer_weight": weight, "target_lr_multiplier": rate}
    return rows, {"preset": settings | {"steps": 2000, "learning_rate": 2e-3}}


@pytest.fixture
def runs() -> tuple[pd.DataFrame, dict[str, Any]]:
    rows, settings = [], {}
    for kappa, rate, weight, dim in itertools.product((1.0, 4.0), (1, 10), (0.03, 0.27), (16, 32)):
        if kappa == 1 and rate == 10:
            continue
        part, setting = model(kappa, rate, weight, dim)
        rows.append(part)
        settings[part["run"].iloc[0].replace("/diagnose", "/train")] = setting
    return pd.concat(rows, ignore_index=True), settings


def test_planted_effects(runs: tuple[pd.DataFrame, dict[str, Any]]) -> None:
    """Mutations: compare all pairs of levels, or count κ = 1 at both rates twice."""
    frame = fig_settings.data(*runs)
    effects = frame[(frame["kind"] == "effect") & (frame["cost"] == "pred")].set_index("factor")
    rate = PLANTED["target_lr_multiplier"]
    # Half of the models of κ > 1 have the higher rate, half of all cells the larger D.
    expected = {
        "kappa": (PLANTED["kappa"] + rate / 2 + INTERACTION / 2, 8),
        "target_lr_multiplier": (rate, 4),
        "regularizer_weight": (PLANTED["regularizer_weight"], 6),
        "latent_dim": (PLANTED["latent_dim"] + INTERACTION * 4 / 6, 6),
    }
    assert list(effects.index) == list(expected)
    for factor, (value, cells) in expected.items():
        assert effects.loc[factor, "value"] == pytest.approx(value)
        # Pairs have levels of their own, which cancel.
        assert effects.loc[factor, ["low", "high"]].tolist() == pytest.approx([value, value])
        assert effects.loc[factor, ["cells", "same_sign"]].tolist() == [cells, cells]
    assert (frame.loc[(frame["kind"] == "effect") & (frame["cost"] == "enc"), "value"] == 0).all()
    levels = frame[frame["kind"] == "level"]
    assert levels["value"].min() > 0
    assert set(levels.groupby(["factor", "cost", "cell"])["x"].nunique()) == {2}
    assert set(levels["preset"]) == {"laptop"}


def test_seeds_that_only_some_cells_have_do_not_count(runs: tuple[pd.DataFrame, dict[str, Any]]) -> None:
    """Nor do many models that form no cell. Mutation: take every seed, or that of the most models."""
    rows, settings = runs
    more = rows[rows["preset"].str.contains("latent_dim16-regularizer_weight0.27")]
    more = more.assign(training_seed=9999, agreement_pred=0.9, run=more["run"].str.replace("s3072", "s9999"))
    settings |= {run.replace("s3072", "s9999"): value for run, value in settings.items()}
    pd.testing.assert_frame_equal(
        fig_settings.data(pd.concat([rows, more]), settings), fig_settings.data(rows, settings)
    )


def test_kappa_one_under_two_rates_is_one_model(runs: tuple[pd.DataFrame, dict[str, Any]]) -> None:
    """It has no target that a rate could move. Mutation: keep every run in ``data``."""
    rows, settings = runs
    again, setting = model(1.0, 10, 0.27, 16)
    more = settings | {again["run"].iloc[0].replace("/diagnose", "/train"): setting}
    pd.testing.assert_frame_equal(fig_settings.data(pd.concat([rows, again]), more), fig_settings.data(rows, settings))


def test_a_variant_without_its_training_is_refused(runs: tuple[pd.DataFrame, dict[str, Any]]) -> None:
    rows, settings = runs
    settings.pop(next(iter(settings)))
    with pytest.raises(ValueError, match="has no finished training run beside it"):
        fig_settings.data(rows, settings)


def test_only_variants_are_rows_of_it(tmp_path: Path) -> None:
    """Mutation: take every diagnosis."""
    for model in ("k4-s3072-laptop", "k4-s3072-laptop-latent_dim16"):
        with open_run(tmp_path / f"visual/tworoom/{model}/diagnose", {}) as run:
            run.write_rows(pd.DataFrame({"value": [1]}))
    with catalog.only_results():
        paths = [source.path for source in fig_settings.RUNS.sources(tmp_path)]
        others = [source.path for source in visual_rows.DIAGNOSE.sources(tmp_path)]
        assert set(paths) < set(catalog.runs(tmp_path)), "variants can be published too"
    assert paths == ["visual/tworoom/k4-s3072-laptop-latent_dim16/diagnose"]
    # However many variants there are, the comparison's figures show none.
    assert others == ["visual/tworoom/k4-s3072-laptop/diagnose"]


def test_drawn_with_and_without_runs(runs: tuple[pd.DataFrame, dict[str, Any]], tmp_path: Path) -> None:
    """Eight panels; the effect stands above each."""
    figure = fig_settings.draw(fig_settings.data(*runs))
    titles = [axes.get_title("left") for axes in figure.axes]
    assert len(titles) == 8
    assert titles[1].startswith("+1.0 [+1.0, +1.0]\n4 of 4")
    assert titles[2].startswith("−2.0")
    plt.close(figure)
    with catalog.only_results():
        empty = fig_settings.read(tmp_path)
    assert empty.empty
    figure = fig_settings.draw(empty)
    assert all(axes.texts[0].get_text() == "not run" for axes in figure.axes)
    plt.close(figure)
