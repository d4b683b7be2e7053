"""Claims about the model, its presets and what is read off features.

1. Presets hold the published settings (paper) and the sizes that worked on a CPU (laptop); bad settings are refused in
   one sentence.
2. The model is stable-worldmodel's LeWM; its weights follow from the seed and leave the global random state alone.
3. Pixels are normalised by ImageNet's statistics from 8-bit and unit-range frames alike.
4. The loss sees no future: the prediction of frame t + 1 does not depend on later frames or actions.
5. Effective rank is D for equal and 1 for a single non-zero eigenvalue; a linear probe finds R² = 1 for linear states
   and at most 0 in expectation for unrelated ones.
6. Batch statistics leave no trace; re-estimated statistics make evaluation agree with the training distribution.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from visual_models import DiskClips, tiny_preset

from visual.features import (
    batch_statistics,
    effective_rank,
    feature_spectrum,
    linear_probe,
    reestimate_batchnorm,
)
from visual.model import (
    PIXEL_MEAN,
    PIXEL_STD,
    Preset,
    build_model,
    build_regularizer,
    count_parameters,
    load_preset,
    normalize_pixels,
    world_model_loss,
)


def test_the_paper_preset_is_the_published_one() -> None:
    """Claim 1. Mutation: change any number in paper.yaml."""
    preset = load_preset("paper")
    published = {
        "image_size": 224,
        "encoder_patch": 14,
        "encoder_dim": 192,
        "encoder_depth": 12,
        "encoder_heads": 3,
        "latent_dim": 192,
        "predictor_depth": 6,
        "predictor_heads": 16,
        "predictor_mlp": 2048,
        "predictor_dropout": 0.1,
        "history": 3,
        "frames": 4,
        "frameskip": 5,
        "batch_size": 128,
        "epochs": 15,
        "learning_rate": 5e-5,
        "weight_decay": 1e-3,
        "regularizer_weight": 0.09,
        "knots": 17,
        "num_slices": 1024,
        "clip_norm": 1.0,
        "target_lr_multiplier": 1.0,
        "precision": "bf16-mixed",
    }
    assert {name: getattr(preset, name) for name in published} == published
    assert preset.total_steps(num_clips=128 * 100 + 5) == 1500
    assert preset.total_steps(num_clips=128 * 100, world_size=4) == 15 * 25
    assert preset.warmup(total_steps=1500) == 15


def test_every_preset_is_valid_and_builds() -> None:
    """Claim 1. Mutation: give laptop's encoder a patch of 24."""
    assert load_preset("quick").to_mapping().items() >= {"image_size": 64, "latent_dim": 32}.items()
    laptop = load_preset("laptop")
    assert laptop.warmup(4000) == 500
    assert laptop.total_steps(10) == laptop.steps
    assert 2e5 < count_parameters(build_model(laptop, 2, seed=0)) < 5e5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_patch": 7}, "image_size = 16 is not a multiple of encoder_patch = 7"),
        ({"encoder_heads": 3}, "encoder_dim = 16 is not a multiple of encoder_heads = 3"),
        ({"history": 4}, "frames = 4 and preset.history = 4"),
        ({"epochs": 3}, "Exactly one of preset.epochs and preset.steps"),
        ({"warmup_steps": None}, "Exactly one of preset.warmup_steps and preset.warmup_fraction"),
        ({"batch_size": 1}, "at least 2"),
        ({"latent_dim": 0}, "latent_dim must be a positive integer"),
        ({"latent_dim": True}, "latent_dim must be a positive integer"),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number"),
        ({"learning_rate": "fast"}, "learning_rate must be a finite number"),
        ({"width": 3}, r"unknown settings \['width'\]"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    """Claim 1. Mutation: drop any check."""
    with pytest.raises(ValueError, match=message):
        tiny_preset(**changes)


def test_missing_settings_and_unknown_presets_are_refused() -> None:
    """Claim 1. Mutation: give fields defaults."""
    values = tiny_preset().to_mapping()
    del values["knots"]
    with pytest.raises(ValueError, match=r"lacks \['knots'\]"):
        Preset.from_mapping(values)
    with pytest.raises(ValueError, match="There is no preset 'desktop'; the presets are laptop, paper, quick"):
        load_preset("desktop")
    with pytest.raises(ValueError, match="5 clips, fewer than one batch of 8"):
        tiny_preset(steps=None, epochs=2).total_steps(5)


def test_weights_follow_from_the_seed() -> None:
    """Claim 2. Mutation: seed the global generator without fork_rng, or not at all."""
    from stable_worldmodel.wm.lewm import LeWM

    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    one, two, other = (build_model(tiny_preset(), 2, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    assert type(one) is LeWM
    states = one.state_dict(), two.state_dict(), other.state_dict()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert not all(torch.equal(value, states[2][name]) for name, value in states[0].items())
    with pytest.raises(ValueError, match="action_dim must be at least 1"):
        build_model(tiny_preset(), 0, seed=1)


def test_pixels_are_normalised_alike() -> None:
    """Claim 3. Mutation: divide by 256."""
    frames = torch.randint(0, 256, (2, 3, 3, 4, 4), dtype=torch.uint8)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (PIXEL_MEAN, PIXEL_STD))
    expected = (frames.double() / 255 - mean) / std
    torch.testing.assert_close(normalize_pixels(frames).double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(normalize_pixels(frames.double() / 255), expected, atol=1e-6, rtol=1e-6)


def test_the_prediction_sees_no_future() -> None:
    """Claim 4. Mutation: compare with features[:, :-1]; LeWM itself is causal."""
    model = build_model(tiny_preset(predictor_dropout=0.0), 2, seed=0)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.predictor.parameters():
        # Conditioning starts at zero; without this the predictor would be the identity.
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    pixels, actions = DiskClips().sample(0, 0, 8)
    pixels = normalize_pixels(pixels)

    def parts(pixels: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        with batch_statistics(model):
            encoded = model.encode({"pixels": pixels, "action": actions})
            hidden: torch.Tensor = model.predictor(encoded["emb"][:, :-1], encoded["act_emb"][:, :-1])
            return hidden

    base = parts(pixels, actions)
    late = actions.clone()
    late[:, 2:] += 1.0
    changed = parts(pixels, late)
    torch.testing.assert_close(base[:, :2], changed[:, :2])
    assert not torch.allclose(base[:, 2], changed[:, 2])
    unused = actions.clone()
    unused[:, 3] = 100.0
    regularizer = build_regularizer(tiny_preset(), 2.0)
    totals = [
        world_model_loss(model.eval(), regularizer, 0.09, pixels, chosen, torch.Generator().manual_seed(0)).total
        for chosen in (actions, unused)
    ]
    assert torch.equal(totals[0], totals[1])


@given(st.integers(1, 20), st.floats(1e-6, 1e6))
def test_effective_rank_counts_equal_directions(count: int, scale: float) -> None:
    """Claim 5. Mutation: use the participation ratio's numerator only."""
    spectrum = torch.zeros(20, dtype=torch.float64)
    spectrum[:count] = scale
    assert effective_rank(spectrum) == pytest.approx(count)


def test_spectrum_is_that_of_the_covariance() -> None:
    """Claim 5. Mutation: do not centre."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(5000, 3, generator=generator, dtype=torch.float64) * torch.tensor([3.0, 2.0, 1.0]) + 10
    np.testing.assert_allclose(
        feature_spectrum(features), np.linalg.eigvalsh(np.cov(features.numpy().T))[::-1], rtol=1e-10
    )
    assert effective_rank(torch.zeros(4)) == 0.0
    with pytest.raises(ValueError, match="at least two samples"):
        feature_spectrum(torch.zeros(1, 3))


def test_linear_probe() -> None:
    """Claim 5. Mutation: judge on the training set, or forget the offset."""
    generator = np.random.default_rng(0)
    features, test_features = generator.normal(size=(400, 6)) + 3, generator.normal(size=(300, 6)) + 3
    weight = generator.normal(size=(6, 2))
    fitted = linear_probe(features, features @ weight + 5, test_features, test_features @ weight + 5)
    np.testing.assert_allclose(fitted, 1.0, atol=1e-8)
    unrelated = linear_probe(features, generator.normal(size=(400, 1)), test_features, generator.normal(size=(300, 1)))
    assert -0.2 < unrelated[0] < 0.02
    constant = linear_probe(features, np.ones((400, 1)), test_features, np.ones((300, 1)))
    assert np.isnan(constant[0])
    with pytest.raises(ValueError, match="more training samples than features"):
        linear_probe(features[:6], features[:6], test_features, test_features)
    with pytest.raises(ValueError, match="one row per sample"):
        linear_probe(features, features[:5], test_features, test_features)


def test_batch_statistics_leave_no_trace() -> None:
    """Claim 6. Mutation: leave track_running_stats on."""
    model = build_model(tiny_preset(), 2, seed=0).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pixels, _ = DiskClips().sample(0, 0, 16)
    with batch_statistics(model):
        assert not model.predictor.training
        features = model.encode({"pixels": normalize_pixels(pixels)})["emb"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert features.grad_fn is None
    assert float(feature_spectrum(features).mean()) > 1e-3


def test_reestimated_statistics_are_those_of_the_data() -> None:
    """Claim 6. Mutation: keep the momentum, or do not reset."""
    model = build_model(tiny_preset(), 2, seed=0).train()
    norm = model.projector.net[1]
    model.encode({"pixels": normalize_pixels(DiskClips().sample(0, 99, 16)[0])})
    norm.running_mean += 100.0
    batches = [normalize_pixels(DiskClips().sample(0, step, 16)[0]) for step in range(5)]
    assert reestimate_batchnorm(model, batches, lambda batch: model.encode({"pixels": batch})) == 5
    assert not model.training
    assert norm.momentum == 0.1
    with torch.no_grad():
        hidden = [
            model.projector.net[0](model.encoder(batch.flatten(0, 1)).last_hidden_state[:, 0]) for batch in batches
        ]
    torch.testing.assert_close(norm.running_mean, torch.cat(hidden).mean(dim=0), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        norm.running_var, torch.stack([part.var(dim=0) for part in hidden]).mean(dim=0), atol=1e-6, rtol=1e-4
    )
    with pytest.raises(ValueError, match="no batches"):
        reestimate_batchnorm(model, [], lambda batch: None)
