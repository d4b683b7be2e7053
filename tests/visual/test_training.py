"""Claims about training.

1. A run that was killed and goes on ends with the same weights, target and log rows as one that was not.
2. What step s sees (clips, slices, dropout) is a function of seed and step; data-parallel devices see different clips
   and the same slices.
3. The schedule rises linearly, peaks at 1 and falls as a cosine to 0; the target's logits follow it at their own rate,
   without weight decay, and stay within their bound after each update.
4. κ = 1 is LeWM: the loss equals the one written with stable-worldmodel's own parts and statistic; the target stays.
5. A non-finite loss and a collapse end training with one sentence; a collapse in the opening phase does not.
6. Callbacks that other packages add to every trainer are taken out.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from visual_models import DiskClips, tiny_preset

from theory.regularizer import draw_slices
from visual.model import Losses, build_model, build_regularizer, normalize_pixels, world_model_loss
from visual.monitor import Monitor, TrainingFailed
from visual.training import LeWMTraining, StepDataset, StepSampler, fit, schedule_factor, step_seed


class Killed(BaseException):
    """What a kill looks like from inside."""


class KillingClips(DiskClips):
    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def sample(self, seed: int, step: int, batch_size: int) -> tuple[Tensor, Tensor]:
        if step == self.step:
            raise Killed
        return super().sample(seed, step, batch_size)


def run(
    folder: Path, source: DiskClips | None = None, kappa: float = 2.0, **changes: Any
) -> tuple[LeWMTraining, Monitor]:
    source = source or DiskClips()
    preset = tiny_preset(**changes)
    module = LeWMTraining(
        preset, kappa, 3072, source, source.action_mean, source.action_std, preset.total_steps(len(source))
    )
    monitor = Monitor()
    fit(module, monitor, folder, accelerator="cpu", progress=False)
    return module, monitor


def test_resume_after_a_kill_gives_the_same_weights(tmp_path: Path) -> None:
    """Claim 1. Mutation: let StepSampler start at 0, or seed dropout without the step."""
    whole, whole_monitor = run(tmp_path / "whole")
    with pytest.raises(Killed):
        run(tmp_path / "killed", KillingClips(10))
    assert (tmp_path / "killed/resume/last.ckpt").is_file()
    resumed, monitor = run(tmp_path / "killed")
    for (name, expected), value in zip(whole.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(expected, value), name
    timeless = [{k: v for k, v in row.items() if k not in ("seconds", "wait_share")} for row in monitor.rows]
    assert timeless == [
        {k: v for k, v in row.items() if k not in ("seconds", "wait_share")} for row in whole_monitor.rows
    ]
    log = (tmp_path / "killed/log/metrics.csv").read_text(encoding="utf-8").splitlines()
    assert len(log) == 1 + len(whole_monitor.rows) == 7


def test_steps_are_a_function_of_seed_and_step() -> None:
    """Claim 2. Mutation: leave the rank out of StepDataset."""
    source = DiskClips()
    first, second = (StepDataset(source, 1, 4, rank, 2) for rank in (0, 1))
    assert torch.equal(first[3][0], StepDataset(source, 1, 4, 0, 2)[3][0])
    assert not torch.equal(first[3][1], second[3][1])
    assert not torch.equal(second[3][1], first[4][1])
    assert list(StepSampler(3, 6)) == [3, 4, 5]
    assert len({step_seed(a, b, c) for a in range(3) for b in range(3) for c in range(3)}) == 27


def test_schedule_rises_peaks_and_falls() -> None:
    """Claim 3. Mutation: use step instead of step + 1 in the warm-up."""
    factors = [schedule_factor(step, 50, 4000) for step in range(4001)]
    assert factors[0] == pytest.approx(1 / 50)
    assert factors[49] == factors[50] == 1.0
    assert all(a >= b for a, b in itertools.pairwise(factors[50:]))
    assert factors[2025] == pytest.approx(0.5)
    assert factors[4000] == pytest.approx(0.0, abs=1e-12)


def test_the_target_has_its_own_group(tmp_path: Path) -> None:
    """Claim 3. Mutation: leave the multiplier out of attach_target's call."""
    module, _ = run(tmp_path, kappa=4.0, target_lr_multiplier=1e4, steps=4)
    model_group, target_group = module.optimizers().param_groups  # type: ignore[union-attr]
    logits = module.regularizer.target.logits.detach()
    parameter = module.regularizer.target.logits
    assert len(target_group["params"]) == 1
    assert target_group["params"][0] is parameter
    assert all(other is not parameter for other in model_group["params"])
    assert target_group["weight_decay"] == 0.0
    assert model_group["weight_decay"] == module.preset.weight_decay > 0
    assert target_group["lr"] == pytest.approx(1e4 * model_group["lr"])
    # The rate is absurd on purpose: only the clipping after the last update keeps the logits inside.
    assert float(logits.abs().max()) == pytest.approx(0.5 * math.log(4.0))


def test_kappa_one_is_lewm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim 4. Mutation: predict from emb[:, 1:] or regularise over the wrong axis."""
    from stable_worldmodel.wm.loss import SIGReg

    preset = tiny_preset(predictor_dropout=0.0, num_slices=64)
    model = build_model(preset, 2, seed=0)
    pixels, actions = DiskClips().sample(0, 0, 8)
    losses = world_model_loss(
        model, build_regularizer(preset, 1.0), 0.09, normalize_pixels(pixels), actions, torch.Generator().manual_seed(5)
    )
    encoded = model.encode({"pixels": normalize_pixels(pixels), "action": actions})
    predicted = model.predict(encoded["emb"][:, :3], encoded["act_emb"][:, :3])
    prediction = (predicted - encoded["emb"][:, 1:]).pow(2).mean()
    # The shipped statistic draws its own slices; it gets the same ones here.
    slices = draw_slices(8, 64, torch.Generator().manual_seed(5))
    monkeypatch.setattr(torch, "randn", lambda *shape, **options: slices.clone())
    statistic = SIGReg(knots=17, num_proj=64)(encoded["emb"].transpose(0, 1)).detach()
    prediction = prediction.detach()
    losses = Losses(*(part.detach() for part in vars(losses).values()))
    assert float(losses.prediction) == pytest.approx(float(prediction), rel=1e-5)
    assert float(losses.statistic) == pytest.approx(float(statistic), rel=1e-4)
    assert float(losses.total) == pytest.approx(float(prediction + 0.09 * statistic), rel=1e-4)


def test_the_target_of_lewm_stays(tmp_path: Path) -> None:
    """Claim 4. Mutation: give the target a gradient at κ = 1."""
    module, monitor = run(tmp_path, kappa=1.0, steps=4)
    assert torch.equal(module.regularizer.target.variances(), torch.ones(8))
    assert [row["target_condition"] for row in monitor.rows] == [1.0, 1.0]


class BrokenClips(DiskClips):
    def sample(self, seed: int, step: int, batch_size: int) -> tuple[Tensor, Tensor]:
        pixels, actions = super().sample(seed, step, batch_size)
        return pixels, torch.full_like(actions, math.inf if step == 3 else 0.0)


def test_a_non_finite_loss_is_named(tmp_path: Path) -> None:
    """Claim 5. Mutation: check at log steps only."""
    with pytest.raises(TrainingFailed, match=r"not finite at step 4: prediction (nan|inf)"):
        run(tmp_path, BrokenClips(), log_every=100)


def test_collapse_is_named_after_the_opening_phase(tmp_path: Path) -> None:
    """Claim 5. Mutation: ignore opening_steps."""
    weak = {"regularizer_weight": 0.0, "learning_rate": 0.05, "steps": 60, "log_every": 10, "warmup_steps": 1}
    with pytest.raises(TrainingFailed, match=r"collapsed: at step (3|4|5|6)0 "):
        run(tmp_path / "a", **weak, opening_steps=30)
    _, monitor = run(tmp_path / "b", **weak, opening_steps=100)
    assert monitor.rows[-1]["feature_variance"] < 0.05


def test_foreign_callbacks_are_taken_out(tmp_path: Path) -> None:
    """Claim 6. Mutation: leave the filter out of fit."""
    module, _ = run(tmp_path, steps=2)
    packages = {type(callback).__module__.split(".")[0] for callback in module.trainer.callbacks}  # type: ignore[attr-defined]
    assert packages <= {"lightning", "visual"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log"]
