"""LeWM from stable-worldmodel's own modules, its presets, and the loss that κ = 1 and κ > 1 share.

The loss of a clip of T frames with features z_t and stacked actions a_t is

    ‖ẑ_{t+1} − z_{t+1}‖²/D averaged over clips and t  +  λ R(Λ^{−1/2} z),

ẑ_{t+1} = predictor(z_{≤t}, a_{≤t}), without a stop-gradient; R is taken per frame index over the clips of the batch and
averaged over frame indices, so its sample count N is the batch size. κ = 1 pins Λ to the identity: LeWorldModel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib import resources
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from theory.regularizer import LambdaReg
from visual.checkpoint import instantiate

if TYPE_CHECKING:
    from stable_worldmodel.wm.lewm import LeWM

#: ImageNet's channel statistics, which LeWorldModel's training and planning both subtract and divide by.
PIXEL_MEAN = (0.485, 0.456, 0.406)
PIXEL_STD = (0.229, 0.224, 0.225)
_LEWM = "stable_worldmodel.wm.lewm"


@dataclass(frozen=True)
class Preset:
    """Sizes and optimisation settings of one named configuration (``visual/conf/preset/<name>.yaml``).

    Attributes
    ----------
    name
        Preset name, part of the run folder's.
    image_size, frameskip, frames, history
        Pixels per side; environment steps per frame; frames per training clip; context length of the predictor.
    latent_dim
        D.
    encoder_patch, encoder_dim, encoder_depth, encoder_heads
        Vision transformer.
    predictor_dim, predictor_depth, predictor_heads, predictor_head_dim, predictor_mlp, predictor_dropout
        Predictor transformer.
    projector_hidden
        Hidden width of both projectors, which use batch normalisation.
    regularizer_weight, num_slices, knots
        λ and the statistic's sketch.
    batch_size
        Clips per step and device; also N, the statistic's factor, on one device.
    epochs, steps
        Length of training; exactly one is set.
    learning_rate, weight_decay, target_lr_multiplier
        AdamW's peak rate and decay; the target logits' rate as a multiple of the peak rate.
    warmup_steps, warmup_fraction
        Length of the linear warm-up; exactly one is set. A cosine to zero follows.
    clip_norm
        Bound on the gradient's norm.
    precision
        Lightning's precision string.
    opening_steps
        Features look collapsed at first; before this step collapse is not an error.
    log_every, probe_every, save_every
        Steps between log rows, held-out probes and resume states.
    """

    name: str
    image_size: int
    frameskip: int
    frames: int
    history: int
    latent_dim: int
    encoder_patch: int
    encoder_dim: int
    encoder_depth: int
    encoder_heads: int
    predictor_dim: int
    predictor_depth: int
    predictor_heads: int
    predictor_head_dim: int
    predictor_mlp: int
    predictor_dropout: float
    projector_hidden: int
    regularizer_weight: float
    num_slices: int
    knots: int
    batch_size: int
    epochs: int | None
    steps: int | None
    learning_rate: float
    weight_decay: float
    target_lr_multiplier: float
    warmup_steps: int | None
    warmup_fraction: float | None
    clip_norm: float
    precision: str
    opening_steps: int
    log_every: int
    probe_every: int
    save_every: int

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Preset:
        """Build a preset from a configuration and check it.

        Raises
        ------
        ValueError
            If a setting is missing, unknown, or contradicts another.
        """
        names = {item.name for item in fields(cls)}
        missing, unknown = sorted(names - set(values)), sorted(set(values) - names)
        if missing or unknown:
            raise ValueError(f"The preset lacks {missing or 'nothing'} and has unknown settings {unknown or 'none'}.")
        preset = cls(**{str(key): value for key, value in values.items()})
        preset._check()
        return preset

    def _check(self) -> None:
        integers = (
            "image_size frameskip frames history latent_dim encoder_patch encoder_dim encoder_depth encoder_heads "
            "predictor_dim predictor_depth predictor_heads predictor_head_dim predictor_mlp projector_hidden "
            "num_slices knots batch_size log_every probe_every save_every"
        )
        for name in integers.split():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"preset.{name} must be a positive integer, but it is {value!r}.")
        for name in ("regularizer_weight", "learning_rate", "weight_decay", "target_lr_multiplier", "clip_norm"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
                raise ValueError(f"preset.{name} must be a finite number of at least 0, but it is {value!r}.")
        for one, other in (("epochs", "steps"), ("warmup_steps", "warmup_fraction")):
            if (getattr(self, one) is None) == (getattr(self, other) is None):
                raise ValueError(f"Exactly one of preset.{one} and preset.{other} must be set.")
        if self.image_size % self.encoder_patch:
            raise ValueError(
                f"preset.image_size = {self.image_size} is not a multiple of encoder_patch = {self.encoder_patch}."
            )
        if self.encoder_dim % self.encoder_heads:
            raise ValueError(
                f"preset.encoder_dim = {self.encoder_dim} is not a multiple of encoder_heads = {self.encoder_heads}."
            )
        if self.frames != self.history + 1:
            raise ValueError(
                f"A clip has history + 1 frames, but preset.frames = {self.frames} and preset.history = {self.history}."
            )
        if self.batch_size < 2:
            raise ValueError("preset.batch_size must be at least 2, since the statistic is one of a sample.")

    def to_mapping(self) -> dict[str, Any]:
        """All settings as a dictionary."""
        return asdict(self)

    def total_steps(self, num_clips: int, world_size: int = 1) -> int:
        """Optimiser steps for a training set of ``num_clips`` clips on ``world_size`` devices."""
        if self.steps is not None:
            return self.steps
        per_epoch = num_clips // (self.batch_size * world_size)
        if per_epoch == 0:
            raise ValueError(
                f"The training set has {num_clips} clips, fewer than one batch of {self.batch_size * world_size}."
            )
        return int(self.epochs or 0) * per_epoch

    def warmup(self, total_steps: int) -> int:
        """Warm-up steps."""
        if self.warmup_steps is not None:
            return self.warmup_steps
        return max(1, round(float(self.warmup_fraction or 0.0) * total_steps))


def load_preset(name: str, /, **changes: Any) -> Preset:
    """Read a preset by name, with some settings changed.

    Raises
    ------
    ValueError
        If there is no such preset or a change is not valid.
    """
    from omegaconf import OmegaConf

    folder = resources.files("visual") / "conf" / "preset"
    source = folder / f"{name}.yaml"
    if not source.is_file():
        known = ", ".join(sorted(item.name.removesuffix(".yaml") for item in folder.iterdir()))
        raise ValueError(f"There is no preset {name!r}; the presets are {known}.")
    values = OmegaConf.to_container(OmegaConf.create(source.read_text(encoding="utf-8")), resolve=True)
    assert isinstance(values, dict)
    return Preset.from_mapping({**{str(key): value for key, value in values.items()}, **changes})


def model_config(preset: Preset, action_dim: int) -> dict[str, Any]:
    """Configuration that Hydra's ``instantiate`` turns into LeWM: names (``_target_``) and sizes only.

    Parameters
    ----------
    preset
        Sizes.
    action_dim
        Components of one environment action; a frame's action stacks ``frameskip`` of them.

    References
    ----------
    LeWorldModel, released ``config/train/model/lewm.yaml``; the encoder is written with transformers' own class, so
    that reading a checkpoint needs no further package.
    """
    if action_dim < 1:
        raise ValueError(f"action_dim must be at least 1, but it is {action_dim}.")

    def projector(width: int) -> dict[str, Any]:
        return {
            "_target_": f"{_LEWM}.module.MLP",
            "input_dim": width,
            "hidden_dim": preset.projector_hidden,
            "output_dim": preset.latent_dim,
            "norm_fn": {"_target_": "torch.nn.BatchNorm1d", "_partial_": True},
        }

    return {
        "_target_": f"{_LEWM}.LeWM",
        "encoder": {
            "_target_": "transformers.ViTModel",
            "add_pooling_layer": False,
            "config": {
                "_target_": "transformers.ViTConfig",
                "image_size": preset.image_size,
                "patch_size": preset.encoder_patch,
                "hidden_size": preset.encoder_dim,
                "num_hidden_layers": preset.encoder_depth,
                "num_attention_heads": preset.encoder_heads,
                "intermediate_size": 4 * preset.encoder_dim,
            },
        },
        "predictor": {
            "_target_": f"{_LEWM}.module.Predictor",
            "num_frames": preset.history,
            "input_dim": preset.latent_dim,
            "hidden_dim": preset.predictor_dim,
            "output_dim": preset.latent_dim,
            "depth": preset.predictor_depth,
            "heads": preset.predictor_heads,
            "dim_head": preset.predictor_head_dim,
            "mlp_dim": preset.predictor_mlp,
            "dropout": preset.predictor_dropout,
        },
        "action_encoder": {
            "_target_": f"{_LEWM}.module.Embedder",
            "input_dim": preset.frameskip * action_dim,
            "emb_dim": preset.latent_dim,
        },
        "projector": projector(preset.encoder_dim),
        "pred_proj": projector(preset.latent_dim),
    }


def build_model(preset: Preset, action_dim: int, seed: int) -> LeWM:
    """LeWM with weights that follow from ``seed`` alone; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return instantiate(model_config(preset, action_dim))


def build_regularizer(preset: Preset, kappa: float) -> LambdaReg:
    """ΛReg with the preset's sketch; κ = 1 is SIGReg."""
    return LambdaReg(preset.latent_dim, kappa, num_slices=preset.num_slices, knots=preset.knots)


def normalize_pixels(pixels: Tensor) -> Tensor:
    """Pixels (…, 3, H, W), 8-bit or in [0, 1], as the encoder's input: (p − mean)/std per channel.

    References
    ----------
    LeWorldModel's preprocessing (ImageNet statistics).
    """
    mean = torch.tensor(PIXEL_MEAN, device=pixels.device).view(3, 1, 1)
    std = torch.tensor(PIXEL_STD, device=pixels.device).view(3, 1, 1)
    if pixels.dtype == torch.uint8:
        return pixels.float().mul_(1 / (255 * std)).sub_(mean / std)
    return (pixels - mean.to(pixels.dtype)) / std.to(pixels.dtype)


@dataclass(frozen=True)
class Losses:
    """Loss of one batch.

    Attributes
    ----------
    total
        prediction + λ · statistic.
    prediction
        Mean squared error per latent coordinate.
    statistic
        R, which contains the factor N (the batch size).
    features
        z, (B, T, D).
    """

    total: Tensor
    prediction: Tensor
    statistic: Tensor
    features: Tensor


def world_model_loss(
    model: LeWM,
    regularizer: LambdaReg,
    weight: float,
    pixels: Tensor,
    actions: Tensor,
    generator: torch.Generator | None = None,
) -> Losses:
    """Prediction error plus λ times the statistic.

    Parameters
    ----------
    model, regularizer, weight
        LeWM, ΛReg and λ.
    pixels
        Clips (B, T, 3, H, W), as :func:`normalize_pixels` returns them.
    actions
        Standardised stacked actions (B, T, frameskip · A); entry t leads from frame t to t + 1, the last is unused.
    generator
        Source of the statistic's slices.

    References
    ----------
    LeWorldModel, equation of the training objective; AnisoWM (arXiv 2609.37441), Section 4.2.
    """
    encoded = model.encode({"pixels": pixels, "action": actions})
    features, embedded = encoded["emb"], encoded["act_emb"]
    predicted = model.predict(features[:, :-1], embedded[:, :-1])
    prediction = (predicted - features[:, 1:]).square().mean()
    # Half precision would round the angles t·uᵀz of the statistic, not only its value.
    with torch.autocast(pixels.device.type, enabled=False):
        statistic = regularizer(features.transpose(0, 1).float(), generator=generator)
    return Losses(prediction + weight * statistic, prediction, statistic, features)


def count_parameters(module: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
