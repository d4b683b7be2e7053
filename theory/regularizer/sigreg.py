"""SIGReg: distance of features from an isotropic Gaussian, by random one-dimensional sketches."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from theory.regularizer.kernel import SketchedEppsPulley

Reduction = Literal["mean", "none"]


def draw_slices(dim: int, num_slices: int, *, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
    """Unit columns (D, S), uniform on the sphere, on the generator's device."""
    slices = torch.randn(dim, num_slices, generator=generator, device=generator.device, dtype=dtype)
    return slices.div_(slices.norm(dim=0))


class SIGReg(nn.Module):
    """Sketched isotropic Gaussian regulariser, LeWM's statistic.

        R = mean over slices u of  N Σ_k w_k |(1/N) Σ_n e^{i t_k uᵀz_n} − e^{−t_k²/2}|²,

    t_k = k t_max/(K−1), k = 0 … K−1, and w the trapezoid weights of [−t_max, t_max] times e^{−t²/2}.

    Parameters
    ----------
    num_slices
        Random directions per call.
    knots
        K, number of equally spaced knots.
    t_max
        Largest knot.
    seed
        Slices of a call without ``slices`` and ``generator`` follow from this number and a step counter.

    References
    ----------
    LeWorldModel (SIGReg); LeJEPA (arXiv 2511.08544); docs/theory.md, T8.
    """

    window: Tensor
    weights: Tensor

    def __init__(self, num_slices: int = 1024, knots: int = 17, t_max: float = 3.0, *, seed: int = 0) -> None:
        super().__init__()
        self.num_slices = num_slices
        self.knots = knots
        self.t_max = t_max
        self.seed = seed
        self.step = 0
        positions = torch.linspace(0.0, t_max, knots, dtype=torch.float64)
        spacing = t_max / (knots - 1)
        weights = torch.full((knots,), 2 * spacing, dtype=torch.float64)
        weights[[0, -1]] = spacing
        self.spacing = spacing
        self.register_buffer("window", torch.exp(-positions.square() / 2), persistent=False)
        self.register_buffer("weights", weights * torch.exp(-positions.square() / 2), persistent=False)

    def forward(
        self,
        z: Tensor,
        *,
        slices: Tensor | None = None,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """Statistic of features z ``(..., N, D)``, samples on the second-last axis.

        ``reduction="none"`` keeps one value per leading index, ``"mean"`` averages them.
        """
        dtype = torch.promote_types(z.dtype, torch.float32)
        features = z.to(dtype)
        if slices is None:
            if generator is None:
                generator = torch.Generator(z.device).manual_seed(self.seed * 1_000_003 + self.step)
                self.step += 1
            slices = draw_slices(z.shape[-1], self.num_slices, generator=generator, dtype=dtype)
        slices = slices.to(features)
        lead = features.shape[:-2]
        flat = features.reshape(-1, *features.shape[-2:])
        if slices.ndim > 2:
            between = len(lead) - (slices.ndim - 2)
            slices = slices.reshape(*slices.shape[:-2], *(1,) * between, *slices.shape[-2:])
            slices = slices.expand(*lead, *slices.shape[-2:]).reshape(-1, *slices.shape[-2:])
        statistic = SketchedEppsPulley.apply(
            flat, slices.detach(), self.spacing, self.window.to(dtype), self.weights.to(dtype)
        )
        return statistic.mean() if reduction == "mean" else statistic.reshape(lead)
