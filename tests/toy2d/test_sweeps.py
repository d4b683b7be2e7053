"""The sweeps.

Claims:
1. Their settings are those of docs/theory.md, T10 and T12: ten seeds, noise falling 30-fold, κ from 1 over c to c².
2. Rows: one for each seed and setting, with every column of the contract; the same seed, the same rows, bit for bit;
   and to rounding whatever the number of workers and the other settings in the sweep.
3. A regulariser that ignores κ is found out: the κ curve is then flat, where a sound one falls to the minimum at c.
4. With the nonlinear observation a linear encoder is not enough; with too small a weight the encoder collapses.
5. A finished run is never lost: an interrupted or failing recomputation leaves it whole.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from theory.runs import finished_run, read_rows
from toy2d import sweeps, training
from toy2d.measure import measure_stack
from toy2d.sweeps import Sweep, kappa_plan, noise_plan, overcomplete_plan, run_sweep, write_sweep
from toy2d.system import STATE_CONDITION
from toy2d.training import Case, TrainSettings, train

COLUMNS = {
    *("experiment", "observation", "sigma", "kappa", "latent_dim", "seed", "steps", "origin"),
    *("prediction_error", "prediction_error_relative"),
    *("regret_pred", "regret_enc", "regret_pred_median", "regret_enc_median", "action_tail_share"),
    *("metric_11", "metric_12", "metric_22", "metric_ratio", "metric_regret", "metric_deviation"),
    *("fold_share", "folded", "nonlinear_share", "collapsed"),
    *("target_variances", "target_condition", "regularizer"),
}


def tiny(steps: int = 3) -> Sweep:
    return noise_plan(2, steps, sigmas=(0.3, 0.05), lines=10)


def test_plans() -> None:
    """Claim 1.

    Mutation: give the noise sweep another κ than 1, or leave c² out of ``KAPPAS``.
    """
    noise, kappa, wide = noise_plan(), kappa_plan(), overcomplete_plan()
    ((settings, cases),) = noise.stacks
    assert settings == TrainSettings(steps=2000)
    assert (settings.weight, 2 * settings.batch_size, settings.num_slices, settings.learning_rate) == (
        0.09,
        512,
        32,
        2e-3,
    )
    assert {case.kappa for case in cases} == {1.0}
    plain = sorted({case.sigma for case in cases if case.observation == "identity"})
    assert len(plain) >= 5
    assert plain[-1] / plain[0] == pytest.approx(30)
    assert {case.seed for case in cases if case.observation == "nonlinear"} == set(range(10))
    ((settings, cases),) = kappa.stacks
    assert settings.steps == 4000
    assert {case.sigma for case in cases} == {0.5}
    assert sorted({case.kappa for case in cases}) == [1, 1.5, 1.75, 2, 3.0625, 5.36, 9.37890625]
    assert [settings.latent_dim for settings, _ in wide.stacks] == [2, 3, 4, 8]
    assert all(
        len(cases) == 10 and {case.kappa for case in cases} == {1.0, STATE_CONDITION} for _, cases in wide.stacks
    )
    for sweep, seeds in ((noise, 10), (kappa, 10)):
        assert len(sweep.stacks[0][1]) == 7 * seeds
        assert sweep.settings()["seeds"] == list(range(seeds))
        assert json.loads(json.dumps(sweep.settings())) == sweep.settings() | {
            "stacks": json.loads(json.dumps(sweep.settings()["stacks"]))
        }


def test_rows_and_progress() -> None:
    """Claim 2: complete, counted, and told about.

    Mutation: drop the last part of a stack (``range(parts)`` for the bounds in ``deal``).
    """
    calls: list[tuple[int, int]] = []
    rows = run_sweep(tiny(), threads=2, progress=lambda done, total: calls.append((done, total))).rows
    assert set(rows.columns) == COLUMNS
    assert len(rows) == 6
    assert not rows.duplicated(["observation", "sigma", "seed"]).any()
    assert (rows["experiment"] == "noise-sweep").all()
    assert (rows["origin"] == "measured").all()
    assert not rows.drop(columns=["target_variances"]).isna().any().any()
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1] == (18, 18)


def test_rows_are_reproducible() -> None:
    """Claim 2: bit for bit at one number of workers, to rounding at another and in other company.

    Mutation: seed the test lines by the place in the stack (``seeded_generator(position, TEST_STREAM)``).
    """
    first, second, single = (run_sweep(tiny(), threads=threads).rows for threads in (2, 2, 1))
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    pd.testing.assert_frame_equal(first, single, rtol=1e-3, atol=2e-3)
    alone = run_sweep(noise_plan(1, 3, sigmas=(0.05,), nonlinear_sigma=None, lines=10)).rows
    match = single[(single["sigma"] == 0.05) & (single["seed"] == 0)].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone, match, rtol=1e-3, atol=2e-3)


def test_overcomplete_rows() -> None:
    """Claim 2 for several stacks: D = 2, 3, 4, 8 in one table, with as many target variances each.

    Mutation: train all stacks with the first one's settings (``sweep.stacks[0][0]`` for ``settings`` in ``run_sweep``).
    """
    rows = sweeps.overcomplete(1, 2, lines=4, threads=1)
    assert rows["latent_dim"].tolist() == [2, 2, 3, 3, 4, 4, 8, 8]
    assert [len(variances) for variances in rows["target_variances"]] == [2, 2, 3, 3, 4, 4, 8, 8]
    assert np.isfinite(rows["regret_pred"]).all()


def small_curve() -> dict[float, float]:
    """Mean encoded regret at κ = 1 and c of a small network each: linear encoder, narrow predictor, 700 steps."""
    cases = [Case(0, 0.5, kappa) for kappa in (1.0, STATE_CONDITION)]
    options = TrainSettings(steps=700, num_slices=16, hidden=4, linear_encoder=True)
    rows = pd.DataFrame(measure_stack(train(cases, options), lines=500))
    return {float(kappa): float(part.mean()) for kappa, part in rows.groupby("kappa")["regret_enc"]}  # type: ignore[arg-type]


def curve_holds(curve: dict[float, float]) -> bool:
    """The claim in small: regret near the closed form at κ = 1, and within 0.03 of zero at κ = c."""
    return abs(curve[1.0] - 9 / 56) < 0.03 and curve[STATE_CONDITION] < 0.03


def test_kappa_curve_and_a_broken_regulariser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim 3.

    Mutation: pass κ = 1 to the regulariser in ``train``; the second half of this test is that mutation.
    """
    assert curve_holds(small_curve())
    sound = training.LambdaReg

    def broken(dim: int, kappa: torch.Tensor, **options: Any) -> torch.nn.Module:
        return sound(dim, kappa=torch.ones_like(kappa), **options)

    monkeypatch.setattr(training, "LambdaReg", broken)
    curve = small_curve()
    assert not curve_holds(curve)
    assert curve[STATE_CONDITION] == pytest.approx(curve[1.0], abs=1e-3)


def test_linear_encoder_is_not_enough_for_the_warp() -> None:
    """Claim 4: on the same data the nonlinear encoder undoes most of the warp, the linear one cannot.

    Mutation: make the warp affine (``WARP_SKEW = 0``).
    """
    rows = {}
    for linear in (False, True):
        options = TrainSettings(steps=800, num_slices=16, linear_encoder=linear)
        (rows[linear],) = measure_stack(train([Case(0, 0.1, observation="nonlinear")], options), lines=500)
    assert rows[True]["nonlinear_share"] > 0.03
    assert rows[False]["nonlinear_share"] < rows[True]["nonlinear_share"] / 2
    assert rows[True]["regret_enc"] > 0.22
    assert abs(rows[False]["regret_enc"] - 9 / 56) < 0.04


def test_small_weight_collapses() -> None:
    """Claim 4: λ = 3e-4 at σ = 0.5 collapses (T9), and the row says so; λ = 0.09 does not.

    Mutation: leave ``settings.weight`` out of the loss.
    """
    rows = {}
    for weight in (3e-4, 0.09):
        options = TrainSettings(steps=600, weight=weight, num_slices=8, hidden=4, linear_encoder=True)
        (rows[weight],) = measure_stack(train([Case(0, 0.5)], options), lines=20)
    assert rows[3e-4]["collapsed"]
    assert not rows[0.09]["collapsed"]


def test_run_is_written_with_its_example(tmp_path: Path) -> None:
    """Claim 5: rows come back as they were, beside the example of the smallest noise.

    Mutation: keep one row of each worker (``part[:1]`` in ``run_sweep``).
    """
    record = write_sweep(tiny(), tmp_path / "run", threads=1)
    assert set(record.files) == {"rows.parquet", "example.npz"}
    assert record.settings["seeds"] == [0, 1]
    rows = read_rows(tmp_path / "run")
    assert len(rows) == 6
    expected = run_sweep(tiny(), threads=1)
    variances = [list(value) for value in rows.pop("target_variances")]
    assert variances == expected.rows.pop("target_variances").tolist()
    pd.testing.assert_frame_equal(rows, expected.rows, check_exact=True)
    assert expected.example is not None
    with np.load(tmp_path / "run" / "example.npz") as archive:
        np.testing.assert_array_equal(archive["latent_cost"], expected.example.latent_cost)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError])
def test_interrupted_recomputation_loses_nothing(tmp_path: Path, failure: type[BaseException]) -> None:
    """Claim 5: the earlier run stays whole, workers stop, and no temporary file is left.

    Mutation: do not stop the workers (``meter.stop()`` dropped): they then train to the end.
    """
    folder = tmp_path / "run"
    write_sweep(tiny(), folder, threads=1)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    calls = 0

    def interrupt(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise failure("no space left on device")

    with pytest.raises((KeyboardInterrupt, ValueError)):
        write_sweep(tiny(steps=50), folder, threads=2, progress=interrupt, force=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert finished_run(folder) is not None
    assert calls < 20


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: noise_plan(0), "seeds must be at least 1"),
        (lambda: noise_plan(1, 0), "steps must be at least 1"),
        (lambda: noise_plan(1, sigmas=(0.3, -0.1)), "noise_std must not be negative"),
        (lambda: noise_plan(1, sigmas=(0.8,)), "noise_std must be below 0.8"),
        (lambda: noise_plan(1, sigmas=(), nonlinear_sigma=None), "sigmas must not be empty"),
        (lambda: kappa_plan(1, kappas=(0.9,)), "kappa must be at least 1"),
        (lambda: kappa_plan(1, kappas=(math.inf,)), "kappa must be finite"),
        (lambda: kappa_plan(1, kappas=()), "kappas must not be empty"),
        (lambda: kappa_plan(1, lines=0), "lines must be at least 1"),
        (lambda: overcomplete_plan(1, latent_dims=(1,)), "latent_dim must be at least 2"),
        (lambda: overcomplete_plan(1, latent_dims=()), "latent_dims must not be empty"),
        (lambda: run_sweep(tiny(), threads=0), "threads must be at least 1"),
    ],
)
def test_bad_settings_are_refused(make: Any, sentence: str) -> None:
    """Claim 1: at the door, before anything is trained."""
    with pytest.raises(ValueError, match=sentence):
        make()
