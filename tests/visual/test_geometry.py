"""The measured metric of an encoder, on encoders whose metric is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from theory.regret import mean_line_regret
from visual.checkpoint import WorldModel
from visual.data import open_recording
from visual.geometry import describe, measure_geometry
from visual.model import PIXEL_MEAN, PIXEL_STD

WEIGHT = np.array([[0.02, 0.0], [0.01, 0.05], [0.0, 0.03]])


def reading(encode: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A world model that reads two numbers in 0..255 off the first pixel's red and green, and encodes those."""

    def run(info: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        pixel = info["pixels"][..., :2, 0, 0].double()
        values = (pixel * torch.tensor(PIXEL_STD[:2]) + torch.tensor(PIXEL_MEAN[:2])) * 255
        return {"emb": encode(values)}

    return WorldModel(SimpleNamespace(encode=run), 8, 3, 3, 10)  # type: ignore[arg-type]


@pytest.fixture
def recording(write_file: Callable[..., Path]) -> Path:
    """Random walks on 0..255 whose frames show the state."""
    generator = np.random.default_rng(1)
    lengths = (60,) * 30
    states = generator.integers(0, 256, size=(sum(lengths), 2))
    pixels = np.zeros((len(states), 8, 8, 3), dtype=np.uint8)
    pixels[:, 0, 0, :2] = states
    return write_file(lengths, columns={"state": states.astype(float), "pixels": pixels})


def test_a_linear_encoder_has_its_own_metric(recording: Path) -> None:
    model = reading(lambda values: values @ torch.tensor(WEIGHT).T + 3.0)
    found = measure_geometry(model, "tworoom", open_recording(recording), draws=60)
    metric = 16**2 * WEIGHT.T @ WEIGHT
    np.testing.assert_allclose(found["metric"], metric, rtol=1e-4)
    assert found["r_squared"] == pytest.approx(1.0)
    assert found["mean_regret"] == pytest.approx(mean_line_regret(metric), rel=1e-3)
    assert found["local_condition_number"] == pytest.approx(found["condition_number"], rel=1e-3)
    assert found["local_spread"] == pytest.approx(0.0, abs=1e-3)
    assert found["local_singular"] == 0
    assert "explains 100 % of its variance" in describe(found)


def test_a_bent_encoder_is_seen_to_be_bent(recording: Path) -> None:
    """Half the latent variance is a wave: the linear map explains less, local maps more."""
    model = reading(lambda values: torch.stack([values[..., 0] / 74, torch.sin(values[..., 1] / 12) * 1.4], dim=-1))
    found = measure_geometry(model, "tworoom", open_recording(recording), split="train", draws=60, neighbors=12)
    assert found["r_squared"] < 0.75
    assert found["local_r_squared"] > 0.85 > found["r_squared"] + 0.1
    assert found["local_spread"] > 0.5
    assert found["r_squared_low"] <= found["r_squared"] <= found["r_squared_high"]


def test_angles_that_wrap_do_not_break_the_metric(write_file: Callable[..., Path]) -> None:
    """PushT's angle lies around zero and is recorded in one turn: the encoder follows the angle, not the number."""
    generator = np.random.default_rng(2)
    lengths = (60,) * 30
    shown = generator.integers(0, 256, size=sum(lengths))
    angle = (shown - 128) / 128 * 1.5
    states = generator.uniform(50, 450, size=(len(shown), 7))
    states[:, 4] = angle % (2 * np.pi)
    pixels = np.zeros((len(shown), 8, 8, 3), dtype=np.uint8)
    pixels[:, 0, 0, 0] = shown
    path = write_file(lengths, columns={"state": states, "pixels": pixels})
    model = reading(lambda values: values[..., :1] * torch.ones(3, dtype=torch.float64))
    found = measure_geometry(model, "pusht", open_recording(path), draws=60)
    assert found["r_squared"] > 0.999
    # One coordinate of five shows, so nothing definite can be said of the metric.
    assert found["mean_regret"] is None
    assert "its metric is singular" in describe(found)


def test_a_state_that_is_mostly_constant_leaves_the_whole_metric(write_file: Callable[..., Path]) -> None:
    """A cube lies on its table: one coordinate varies in a few frames only, and no local map sees it.

    Mutation: let the local fit's error end the measurement.
    """
    generator = np.random.default_rng(5)
    lengths = (60,) * 30
    states = generator.integers(0, 256, size=(sum(lengths), 2))
    states[:, 1] = np.where(np.arange(len(states)) % 60 < 2, states[:, 1], 100)
    pixels = np.zeros((len(states), 8, 8, 3), dtype=np.uint8)
    pixels[:, 0, 0, :2] = states
    path = write_file(lengths, columns={"state": states.astype(float), "pixels": pixels})
    model = reading(lambda values: values @ torch.tensor(WEIGHT).T)
    found = measure_geometry(model, "tworoom", open_recording(path), draws=60)
    np.testing.assert_allclose(found["metric"], 16**2 * WEIGHT.T @ WEIGHT, rtol=1e-3)
    assert found["local_r_squared"] is None
    assert "Local maps were not fitted" in describe(found)


def test_the_same_seed_gives_the_same_numbers_and_collapse_is_named(recording: Path) -> None:
    model = reading(lambda values: values @ torch.tensor(WEIGHT).T)
    opened = open_recording(recording)
    assert measure_geometry(model, "tworoom", opened, count=300, draws=60) == measure_geometry(
        model, "tworoom", opened, count=300, draws=60
    )
    with pytest.raises(ValueError, match="the encoder has collapsed"):
        measure_geometry(reading(lambda values: 0 * values + 1), "tworoom", opened, draws=60)
