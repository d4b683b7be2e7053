"""A model small enough to train in a second, and clips that need no simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from theory.runs import open_run
from visual.checkpoint import save_checkpoint
from visual.model import Preset, build_model, load_preset, model_config

TINY: dict[str, Any] = {
    "name": "tiny",
    "image_size": 16,
    "latent_dim": 8,
    "encoder_patch": 8,
    "encoder_dim": 16,
    "encoder_depth": 1,
    "encoder_heads": 2,
    "predictor_dim": 8,
    "predictor_depth": 1,
    "predictor_heads": 2,
    "predictor_head_dim": 4,
    "predictor_mlp": 16,
    "predictor_dropout": 0.1,
    "projector_hidden": 16,
    "num_slices": 16,
    "batch_size": 8,
    "steps": 12,
    "warmup_steps": 2,
    "opening_steps": 1000,
    "log_every": 2,
    "probe_every": 100,
    "save_every": 4,
}


def tiny_preset(**changes: Any) -> Preset:
    """The laptop preset with sizes for tests."""
    return load_preset("laptop", **{**TINY, **changes})


def save_trained(folder: Path, preset: Preset, seed: int) -> None:
    """What a finished training of an untrained model with two actions leaves, except its rows."""
    with open_run(folder, {"seed": seed}, force=True):
        save_checkpoint(folder, build_model(preset, 2, seed=seed), model_config(preset, 2))


class DiskClips:
    """Clips of a bright square that moves by its actions; a function of (seed, step)."""

    def __init__(self, size: int = 16, frameskip: int = 5, frames: int = 4) -> None:
        self.size, self.frameskip, self.frames = size, frameskip, frames
        self.action_mean, self.action_std = torch.zeros(2), torch.ones(2)

    def __len__(self) -> int:
        return 1000

    def sample(self, seed: int, step: int, batch_size: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed * 7919 + step)
        actions = torch.randn(batch_size, self.frames, 2 * self.frameskip, generator=generator)
        start = torch.rand(batch_size, 1, 2, generator=generator) * self.size
        moves = actions.reshape(batch_size, self.frames, self.frameskip, 2).sum(dim=2)
        position = torch.cat([start, start + moves[:, :-1].cumsum(dim=1)], dim=1) % self.size
        grid = torch.arange(self.size, dtype=torch.float32)
        column = (grid - position[..., :1, None]).abs() < 3
        row = (grid - position[..., 1:, None]).abs() < 3
        image = (row.transpose(-1, -2) & column).to(torch.uint8) * 255
        return image.reshape(batch_size, self.frames, 1, self.size, self.size).repeat(1, 1, 3, 1, 1), actions
