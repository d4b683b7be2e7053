"""SIGReg.

1. The value is T8's formula, written out here in float64, and stable-worldmodel's class on the same slices.
2. The gradient is that of the formula (float64, gradcheck and against autograd through the formula).
"""

from __future__ import annotations

import torch

from theory.regularizer import LambdaReg, SIGReg


def reference(z: torch.Tensor, slices: torch.Tensor, knots: int = 17, t_max: float = 3.0) -> torch.Tensor:
    """T8 written out: one value per leading index."""
    t = torch.linspace(0, t_max, knots, dtype=z.dtype)
    dt = t_max / (knots - 1)
    weights = torch.full((knots,), 2 * dt, dtype=z.dtype)
    weights[0] = weights[-1] = dt
    window = torch.exp(-t * t / 2)
    angles = (z @ slices)[..., None] * t
    error = (angles.cos().mean(-3) - window) ** 2 + angles.sin().mean(-3) ** 2
    return (z.shape[-2] * (error * window * weights).sum(-1)).mean(-1)


def unit_columns(dim: int, count: int, seed: int = 0) -> torch.Tensor:
    slices = torch.randn(dim, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return slices / slices.norm(dim=0)


def test_value_and_gradient_are_those_of_the_formula() -> None:
    z = torch.randn(3, 40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    slices = unit_columns(6, 50)
    want = reference(z, slices)
    got = SIGReg(50)(z, slices=slices, reduction="none")
    torch.testing.assert_close(got, want, rtol=1e-12, atol=0)
    (want_gradient,) = torch.autograd.grad(want.mean(), z)
    (gradient,) = torch.autograd.grad(SIGReg(50)(z, slices=slices), z)
    torch.testing.assert_close(gradient, want_gradient, rtol=1e-11, atol=1e-14)


def test_kappa_one_is_sigreg() -> None:
    z = torch.randn(2, 30, 49, generator=torch.Generator().manual_seed(1))
    assert torch.equal(LambdaReg(49, 1.0, 64)(z), SIGReg(64)(z))
