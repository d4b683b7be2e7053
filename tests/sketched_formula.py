"""The sketched Epps–Pulley statistic written out (docs/theory.md, T8), and what tests of the regulariser share.

Nothing here calls the package: it is what the package is compared with.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor


def trapezoid(knots: Tensor) -> Tensor:
    """Weights of ∫_{−t_max}^{t_max} f(t) e^{−t²/2} dt for even f known at knots t ≥ 0 (doubled trapezoid rule)."""
    weights = torch.zeros_like(knots)
    gaps = knots[1:] - knots[:-1]
    weights[1:] += gaps
    weights[:-1] += gaps
    return weights * torch.exp(-(knots**2) / 2)


def written_out(z: Tensor, slices: Tensor, knots: int | Tensor = 17, t_max: float = 3.0) -> Tensor:
    """N Σ_k w_k |(1/N) Σ_n e^{i t_k uᵀz_n} − e^{−t_k²/2}|², averaged over slices: one value per leading index of z."""
    positions = torch.linspace(0, t_max, knots, dtype=torch.float64) if isinstance(knots, int) else knots
    weights, window = trapezoid(positions).to(z), torch.exp(-(positions**2) / 2).to(z)
    angles = (z @ slices)[..., None] * positions.to(z)
    error = (angles.cos().mean(-3) - window) ** 2 + angles.sin().mean(-3) ** 2
    return (z.shape[-2] * (error * weights).sum(-1)).mean(-1)


def written_out_with_gradient(z: Tensor, slices: Tensor, knots: int | Tensor = 17) -> tuple[Tensor, Tensor]:
    """Values, and the gradient of their sum by automatic differentiation through every knot."""
    z = z.detach().clone().requires_grad_()
    values = written_out(z, slices, knots)
    (gradient,) = torch.autograd.grad(values.sum(), z)
    return values.detach(), gradient


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaussian(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64).to(dtype)


def unit_columns(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random slices (..., D, S)."""
    slices = gaussian(*shape, seed=seed)
    return (slices / slices.norm(dim=-2, keepdim=True)).to(dtype)


def relative_error(got: Tensor, want: Tensor) -> float:
    """Frobenius norm of the difference, relative to what is wanted, in float64 on the CPU."""
    got, want = got.detach().double().cpu(), want.detach().double().cpu()
    return float((got - want).norm() / want.norm())


def available_devices() -> list[str]:
    return ["cpu"] + ["cuda"] * torch.cuda.is_available() + ["mps"] * torch.backends.mps.is_available()


every_device = pytest.mark.parametrize("device", available_devices())
