"""The kernel as a differentiable function."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from theory.regularizer.kernel import Reduce, sketched_statistic
from theory.regularizer.quadrature import Quadrature


def plain_statistic(features: Tensor, slices: Tensor, rule: Quadrature) -> Tensor:
    """The same statistic (L,) term by term, differentiable any number of times; keeps N × S × K values."""
    scale = 1.0 if rule.spacing is None else rule.spacing
    orders, window, weights = rule.tensors(features.dtype, features.device)
    phase = (features @ slices).unsqueeze(-1) * (scale * orders)
    error = (phase.cos().mean(-3) - window).square() + phase.sin().mean(-3).square()
    return (error @ weights).mean(-1) * features.shape[-2]


class SketchedEppsPulley(torch.autograd.Function):
    """Statistic (L,) of features (L, N, D); the gradient is formed in the forward pass and scaled in the backward."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, slices: Tensor, rule: Quadrature, reduce: Reduce | None) -> Tensor:
        """Statistic per leading index."""
        wanted = ctx.needs_input_grad[0]
        statistic, gradient = sketched_statistic(features, slices, rule, gradient=wanted, reduce=reduce)
        ctx.rule, ctx.local = rule, reduce is None
        if gradient is not None:
            ctx.save_for_backward(features, slices, gradient)
        return statistic

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None, None]:
        """Vector–Jacobian product; with ``create_graph`` it is taken through the plain formula instead."""
        features, slices, gradient = ctx.saved_tensors
        (outer,) = grad_outputs
        if not torch.is_grad_enabled():
            return gradient * outer[:, None, None], None, None, None
        if not ctx.local:
            raise RuntimeError("The regulariser has no second derivative over several processes.")
        (gradient,) = torch.autograd.grad(
            plain_statistic(features, slices, ctx.rule), features, outer, create_graph=True
        )
        return gradient, None, None, None
