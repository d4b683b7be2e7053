"""Claims about the diagnosis of a model.

1. J_pred is the distance after stable-worldmodel's own rollout, J_enc that of the reached frame's features; a cost that
   is the outcome has agreement and rank correlation 1.
2. Planted residuals on two levels are recovered: the predicted allocation is the best of all two-level ones by brute
   force, and a target that holds it captures everything.
3. A rotated noise is seen in the eigenvalues, not in the diagonal.
4. Residuals on held-out clips are those of the loss: their mean square is the held-out prediction error.
5. A run leaves the rows of every schema, findings in words, and compares with κ = 1 on the same sequences; equal
   settings are left alone; a checkpoint from elsewhere without a target is diagnosed too.
6. A paired difference is exact for a constant shift, leaves out pairs without a number, and draws episodes whole.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from visual_models import save_trained, tiny_preset

from theory.regularizer import LambdaTarget
from theory.runs import finished_run, read_rows
from visual import diagnosis, ordering
from visual.allocation import allocate, predict_clips
from visual.candidates import Budget, make_candidates
from visual.checkpoint import TARGET_FILE, describe_model, save_checkpoint, save_target
from visual.data import open_recording
from visual.diagnosis import diagnose, read_target
from visual.manifest import Manifest
from visual.model import build_model, model_config, normalize_pixels
from visual.ordering import latent_costs, ordering_rows, paired_difference
from visual.tasks import TASKS, Task

Recorded = Callable[[str], tuple[Task, Manifest]]
PRESET = tiny_preset(image_size=64, encoder_patch=32)
BUDGET = Budget(random=2, samples=4, elites=2, task_samples={}, task_elites={}, after=(1, 2), kept=2, goals=1, grid=3)


def moving_model() -> Any:
    """LeWM in which actions matter: its modulations start at zero."""
    model: Any = build_model(PRESET, 2, seed=0).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.predictor.parameters():
        parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


def test_costs_of_stored_sequences(short_recording: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim 1. Mutation: score against the start frame, or leave actions unscaled."""
    task, manifest = short_recording("tworoom")
    recording = open_recording(manifest)
    found = make_candidates(tmp_path, task, recording, "quick", cases=2, budget=dataclasses.replace(BUDGET, goals=0))
    mean, std = torch.tensor([0.2, -0.1]), torch.tensor([0.5, 0.7])
    model = dataclasses.replace(describe_model(moving_model()), action_mean=mean, action_std=std)
    encoded, predicted = latent_costs(model, task, recording, found)

    starts, goals = recording.rows_of(manifest.pairs)
    for pair in range(2):
        frames = recording.read("pixels", np.array([starts[pair], goals[pair]]))
        shown = torch.from_numpy(np.concatenate([frames, found.frames[pair]])).movedim(-1, -3)
        latents = model.model.encode({"pixels": normalize_pixels(shown)[:, None]})["emb"][:, 0]
        reached = (latents[2:] - latents[1]).square().sum(dim=-1)
        np.testing.assert_allclose(encoded[pair], reached.numpy(), rtol=1e-4)
        plans = (torch.from_numpy(found.actions[pair]) - mean) / std
        count = len(found.sources)
        info = {"pixels": torch.zeros(1, count, 1, 1), "emb": latents[0].expand(1, count, 1, -1)}
        ends = model.model.rollout(info, plans.reshape(1, count, 4, 10))["predicted_emb"][0, :, -1]
        np.testing.assert_allclose(predicted[pair], (ends - latents[1]).square().sum(dim=-1).numpy(), rtol=1e-4)
    assert np.ptp(predicted, axis=1).min() > 0

    monkeypatch.setattr(ordering, "latent_costs", lambda *_: (found.outcomes, -found.outcomes))
    rows = ordering_rows(model, task, recording, found)
    assert rows["pair"].tolist() == [0, 1]
    assert rows["sequences"].tolist() == [7, 7]
    assert (rows[["agreement_enc", "correlation_enc"]] == 1.0).all(axis=None)
    assert (rows["agreement_pred"] == 0.0).all()
    assert rows["correlation_pred"].to_numpy() == pytest.approx([-1.0, -1.0])


def planted(relative: np.ndarray, variances: np.ndarray, count: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Features with exact variances, and residuals with exact relative mean squares, both uncorrelated."""
    generator = np.random.default_rng(0)
    dim = len(relative)
    white = generator.normal(size=(count, dim))
    white, _ = np.linalg.qr(white - white.mean(axis=0))
    noise, _ = np.linalg.qr(generator.normal(size=(count, dim)))
    scale = np.sqrt(variances)
    return white * scale * np.sqrt(count - 1), noise * scale * np.sqrt(relative * count)


@given(
    relative=st.lists(st.floats(0.01, 1.0), min_size=2, max_size=6),
    kappa=st.floats(1.05, 20.0),
    scale=st.floats(0.3, 3.0),
)
def test_planted_allocations(relative: list[float], kappa: float, scale: float) -> None:
    """Claim 2. Mutation: predict from residuals that are not relative to the variances."""
    noise = np.array(relative)
    dim = len(noise)
    best = min(
        dim * (noise @ weights) / weights.sum()
        for chosen in itertools.product((1.0, kappa), repeat=dim)
        for weights in [np.array(chosen)]
    )
    given = np.exp(np.linspace(-0.5, 0.5, dim) * np.log(kappa))
    given *= dim / given.sum()
    features, residuals = planted(noise, scale * given, 60)
    found = allocate(features, residuals, kappa, given)
    np.testing.assert_allclose(found.relative_residual, noise, rtol=1e-8)
    np.testing.assert_allclose(found.noise, scale * noise, rtol=1e-8)
    best *= scale
    assert found.loss_predicted == pytest.approx(best / dim, rel=1e-8)
    assert found.loss_rotated == pytest.approx(best / dim, rel=1e-6)
    assert found.predicted.sum() == pytest.approx(dim)
    assert found.predicted.max() <= kappa * found.predicted.min() * (1 + 1e-9)
    assert found.loss_target == pytest.approx(np.square(residuals).mean(), rel=1e-8)
    assert found.loss_predicted <= found.loss_target + 1e-12
    again = allocate(*planted(noise, scale * found.predicted, 60), kappa, found.predicted).summary()
    assert again["captured"] is None or again["captured"] == pytest.approx(1.0)
    assert found.summary()["variance_low"] == pytest.approx(scale)
    assert found.summary()["variance_high"] == pytest.approx(scale)


def test_two_levels_are_found() -> None:
    """Claim 2. Mutation: count the low side, or predict from absolute residuals."""
    noise = np.array([0.05] * 5 + [0.4] * 3)
    low = 8 / (5 * 2 + 3)
    target = np.array([2 * low] * 5 + [low] * 3)
    found = allocate(*planted(noise, target), 2.0, target)
    np.testing.assert_allclose(found.predicted, target)
    assert (found.num_high, found.num_high_rotated) == (5, 5)
    summary = found.summary()
    assert (summary["target_high"], summary["agreement"], summary["two_level"]) == (5, 1.0, 1.0)
    assert summary["target_condition"] == pytest.approx(2.0)
    assert summary["rank_correlation"] < -0.8
    assert (summary["high_variance"], summary["low_variance"]) == pytest.approx((2 * low, low))
    wrong = allocate(*planted(noise, target[::-1]), 2.0, target[::-1]).summary()
    assert wrong["captured"] < 0
    assert wrong["agreement"] == pytest.approx(2 / 8)
    assert wrong["rank_correlation"] > 0
    identity = allocate(*planted(noise, np.ones(8)), 2.0, np.ones(8)).summary()
    assert (identity["target_high"], identity["agreement"], identity["num_high"]) == (0, None, 5)
    # Features of equal variance under this target: u is noisier where the target is low.
    unmet = allocate(*planted(noise, np.ones(8)), 2.0, target)
    np.testing.assert_allclose(unmet.noise, noise / target)
    np.testing.assert_allclose(unmet.relative_residual, noise)
    assert unmet.summary()["variance_high"] == pytest.approx(1 / low)
    # Equal relative residuals: large variance alone makes d small, so every allocation is at rest.
    rest = allocate(*planted(np.full(8, 0.1), np.ones(8)), 2.0, target).summary()
    assert rest["agreement"] == 1.0
    assert rest["agreement_relative"] < 1.0


def test_a_rotated_noise_shows_in_eigenvalues() -> None:
    """Claim 3. Mutation: take the diagonal of N for its eigenvalues."""
    features, residuals = planted(np.array([0.01, 0.5]), np.ones(2))
    turn = np.array([[1.0, 1.0], [-1.0, 1.0]]) / np.sqrt(2)
    found = allocate(features @ turn, residuals @ turn, 2.0)
    np.testing.assert_allclose(found.relative_residual, 0.255, rtol=1e-8)
    assert found.num_high_rotated == 1
    assert found.num_high == 0
    assert found.loss_rotated == pytest.approx((2 * 0.01 + 0.5) / 3)
    assert found.loss_predicted == pytest.approx(0.255)
    for arguments, message in (
        ((features[:1], residuals, 2.0), "at least two rows"),
        ((features * [1.0, 0.0], residuals, 2.0), "coordinate 1 does not"),
        ((features, residuals, 0.5), "kappa"),
        ((features, residuals, 2.0, [1.0, -1.0]), "positive variances"),
    ):
        with pytest.raises(ValueError, match=message):
            allocate(*arguments)


def test_residuals_are_those_of_the_loss() -> None:
    """Claim 4. Mutation: compare with the last latent instead of the next."""
    model = moving_model()
    generator = torch.Generator().manual_seed(3)
    pixels = torch.randn(3, 4, 3, 64, 64, generator=generator)
    actions = torch.randn(3, 4, 10, generator=generator)
    features, residuals = predict_clips(model, pixels, actions)
    encoded = model.encode({"pixels": pixels, "action": actions})
    torch.testing.assert_close(features, encoded["emb"])
    for step in range(3):
        alone = model.predict(encoded["emb"][:, : step + 1], encoded["act_emb"][:, : step + 1])[:, -1]
        torch.testing.assert_close(residuals[:, step], alone - features[:, step + 1], atol=1e-4, rtol=1e-4)


def test_a_diagnosis_leaves_what_it_should(
    short_recording: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Claim 5. Mutation: leave the candidates' hash out of the settings, or ask for a target everywhere."""
    task, manifest = short_recording("tworoom")
    out = tmp_path / "out"
    for kappa in (1, 2):
        train = out / f"tworoom/k{kappa}-s1-quick/train"
        save_trained(train, PRESET, kappa)
        target = LambdaTarget(8, float(kappa))
        with torch.no_grad():
            target.logits += torch.linspace(-0.3, 0.3, 8) * (kappa - 1)
        save_target(train / TARGET_FILE, target)

    def run(kappa: float = 2.0, preset: str = "quick", **changes: Any) -> Path:
        options = {"budget": BUDGET, "cases": 2, "data": manifest.folder, "out": out, **changes}
        return diagnose(task, kappa, preset, 1, **options)

    run(kappa=1.0)
    assert "The target is the identity" in capsys.readouterr().out
    folder = run()
    printed = capsys.readouterr().out
    assert folder == out / "tworoom/k2-s1-quick/diagnose"
    assert "κ = 2 against κ = 1 on the same 2 pairs and sequences" in printed
    assert {path.name for path in folder.iterdir()} == {
        "rows.parquet", "run.json", "neighborhoods.parquet", "coordinates.parquet", "summary.json"
    }  # fmt: skip
    labels = {"origin": "measured", "task": "tworoom", "kappa": 2.0, "training_seed": 1, "preset": "quick"}
    tables = {
        "rows.parquet": (2, {"pair", "sequences", "agreement_enc", "agreement_pred", "correlation_enc"}),
        "neighborhoods.parquet": (9, {"pair", "row", "column", "first", "second", "task_cost", "latent_cost", "valid"}),
        "coordinates.parquet": (
            8,
            {"coordinate", "target_variance", "feature_variance", "residual_variance", "relative_residual"}
            | {"predicted_variance"},
        ),
    }
    for name, (count, columns) in tables.items():
        table = pd.read_parquet(folder / name)
        assert len(table) == count
        assert columns <= set(table.columns)
        assert {label: table[label].iloc[0] for label in labels} == labels
    coordinates = pd.read_parquet(folder / "coordinates.parquet")
    assert coordinates["target_variance"].is_monotonic_increasing
    np.testing.assert_allclose(coordinates["target_variance"], read_target(out / "tworoom/k2-s1-quick/train"))
    assert coordinates["target_variance"].sum() == pytest.approx(8)
    assert coordinates["filled"].between(0, 1 + 1e-9).all()
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["ordering"]["agreement_pred"] == pytest.approx(read_rows(folder)["agreement_pred"].mean())
    assert all(sentence in printed for sentence in summary["sentences"])
    assert len(summary["sentences"]) == 6
    assert summary["sentences"][-1].endswith("was not measured: It needs two held-out episodes.")
    assert summary["occupancy"]["dim"] == 8

    run()
    assert "is finished" in capsys.readouterr().out
    # A variant of the preset is judged on the recording's candidates.
    save_trained(out / "tworoom/k2-s1-quick-latent_dim8/train", PRESET, 2)
    variant = json.loads((run(preset="quick-latent_dim8") / "summary.json").read_text(encoding="utf-8"))
    assert variant["candidates_sha256"] == summary["candidates_sha256"]
    assert [path.name for path in (out / "tworoom").glob("candidates-*")] == ["candidates-quick"]
    capsys.readouterr()
    with pytest.raises(ValueError, match="holds a run with cases = 2, not 1"):
        run(cases=1)
    record = out / "tworoom/candidates-quick/run.json"
    content = record.read_text(encoding="utf-8")
    record.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"run\.json is damaged.* For candidates that is force_candidates=true"):
        run(force=True)
    record.write_text(content, encoding="utf-8")
    (out / "tworoom/k1-s1-quick/diagnose/rows.parquet").write_bytes(b"cut")
    assert run() == folder
    assert "Not compared with κ = 1: " in capsys.readouterr().out
    run(cases=1, force_candidates=True, force=True)
    assert "against" not in capsys.readouterr().out

    foreign = tmp_path / "released"
    save_checkpoint(foreign, build_model(PRESET, 2, seed=5), model_config(PRESET, 2))
    theirs = run(checkpoint=foreign, cases=1)
    assert theirs == out / "tworoom/released/diagnose"
    assert "has no target beside it" in capsys.readouterr().out
    assert pd.read_parquet(theirs / "coordinates.parquet")["target_variance"].isna().all()
    assert finished_run(theirs) is not None
    chosen = run(checkpoint=foreign, candidates_from=foreign, cases=1, force=True)
    assert chosen == theirs
    assert (out / "tworoom/candidates-quick-released/rows.parquet").is_file()


def test_paired_difference() -> None:
    """Claim 6. Mutation: draw pairs one by one, or average over episodes first."""
    first = np.array([0.5, 0.6, np.nan, 0.7])
    found = paired_difference(first, first + 0.25, [0, 0, 1, 2])
    assert (found.count, found.difference, found.low, found.high) == (3, *[pytest.approx(0.25)] * 3)
    change = np.array([1.0] * 9 + [0.0])
    spread = paired_difference(np.zeros(10), change, [0] * 9 + [1])
    assert spread.difference == pytest.approx(0.9)
    assert (spread.low, spread.high) == (0.0, 1.0)
    alone = paired_difference(np.zeros(10), change, np.arange(10))
    assert alone.low > 0.5
    with pytest.raises(ValueError, match="share at least one pair"):
        paired_difference([np.nan], [1.0], [0])
    with pytest.raises(ValueError, match="must be paired"):
        paired_difference([1.0], [1.0, 2.0], [0, 1])


def test_what_cannot_be_measured_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim 5: neither a collapsed encoder nor outcomes that are all alike end a diagnosis."""

    def collapsed(*_: Any, **__: Any) -> dict[str, Any]:
        raise ValueError("latents must vary.")

    monkeypatch.setattr(diagnosis, "held_out_frames", collapsed)
    recording: Any = SimpleNamespace(episodes_of=lambda _: (3, 4))
    found = diagnosis._geometry(describe_model(moving_model()), TASKS["tworoom"], recording, "cpu", None)
    assert found == {"geometry": None, "forecast": None, "geometry_missing": "latents must vary."}
    alike = pd.DataFrame(
        {"pair": [0, 1], "episode": [0, 1], "agreement_pred": [np.nan] * 2, "agreement_enc": [np.nan] * 2}
    )
    assert "No two outcomes differ on any of the 2 pairs" in diagnosis._describe_comparison(alike, alike, 2.0)
    known = alike.assign(agreement_pred=[0.5, np.nan], agreement_enc=[0.25, np.nan])
    better = known.assign(agreement_pred=[0.75, np.nan])
    assert "J_pred +25.0 points [+25.0, +25.0]" in diagnosis._describe_comparison(known, better, 2.0)
