"""The sketched Epps–Pulley statistic and its gradient in one pass, without a tensor that carries the knots.

Per leading index (time step, network) and slice u with projections θ_n = t₁ uᵀz_n, t₁ the knot spacing,

    R = N Σ_k w_k [ (C_k − φ_k)² + S_k² ],   C_k = (1/N) Σ_n cos kθ_n,   S_k = (1/N) Σ_n sin kθ_n,

    ∂R/∂θ_n = 2 Σ_k k w_k [ S_k cos kθ_n − (C_k − φ_k) sin kθ_n ].

Both sums run over harmonics of one angle, so they need one cosine and one sine per projected value and then only
products: the harmonics follow from the rotation e^{i(k+1)θ} = e^{ikθ} e^{iθ} and the gradient from Horner's rule in
e^{iθ}. Slices are processed in blocks small enough for the second-level cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Projected values per block: four buffers of this many float32 values fit into a second-level cache of 1 MiB.
BLOCK = 1 << 15


def block_sizes(lead: int, samples: int, slices: int) -> tuple[int, int]:
    """Leading indices and slices per block, so that a block holds about :data:`BLOCK` projected values."""
    width = min(slices, max(16, BLOCK // max(samples, 1)))
    return max(1, min(lead, BLOCK // max(samples * width, 1))), width


def uniform_statistic(
    features: Tensor, slices: Tensor, spacing: float, window: Tensor, weights: Tensor, need_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Statistic (L,) averaged over slices, and its gradient (L, N, D), for equally spaced knots 0, t₁, 2t₁, …

    Parameters
    ----------
    features
        z, (L, N, D).
    slices
        Unit columns, (D, S) or (L, D, S).
    spacing
        t₁.
    window, weights
        φ_k = e^{−t_k²/2} and w_k, (K,).
    """
    lead, samples, _ = features.shape
    count = slices.shape[-1]
    harmonics = window.shape[0] - 1
    statistic = features.new_zeros(lead)
    gradient = torch.zeros_like(features) if need_gradient else None
    lead_block, width = block_sizes(lead, samples, count)
    orders = torch.arange(harmonics + 1, dtype=features.dtype, device=features.device)
    for first in range(0, lead, lead_block):
        rows = slice(first, first + lead_block)
        block = features[rows]
        for left in range(0, count, width):
            columns = slices[..., left : left + width]
            if columns.ndim == 3:
                columns = columns[rows]
            angle = torch.matmul(block, columns).mul_(spacing)
            cosine, sine = angle.cos(), angle.sin()
            real, imag, spare = cosine.clone(), sine.clone(), torch.empty_like(angle)
            means = angle.new_empty(2, harmonics, block.shape[0], columns.shape[-1])
            for k in range(harmonics):
                torch.mean(real, dim=1, out=means[0, k])
                torch.mean(imag, dim=1, out=means[1, k])
                if k + 1 < harmonics:
                    torch.mul(real, sine, out=spare)
                    real.mul_(cosine).addcmul_(imag, sine, value=-1.0)
                    imag.mul_(cosine).add_(spare)
            means[0].sub_(window[1:, None, None])
            per_slice = torch.einsum("k,cklw->l", weights[1:], means.square())
            statistic[rows] += per_slice * (samples / count)
            if gradient is None:
                continue
            # Σ_k k w_k (S_k + i (C_k − φ_k)) e^{ikθ}: its real part is half of ∂R/∂θ.
            scale = (weights * orders)[1:, None, None] * (2.0 * spacing / count)
            means.mul_(scale)
            real.copy_(means[1, -1].unsqueeze(1).expand_as(real))
            imag.copy_(means[0, -1].unsqueeze(1).expand_as(imag))
            for k in range(harmonics - 2, -1, -1):
                torch.mul(real, sine, out=spare)
                real.mul_(cosine).addcmul_(imag, sine, value=-1.0).add_(means[1, k].unsqueeze(1))
                imag.mul_(cosine).add_(spare).add_(means[0, k].unsqueeze(1))
            real.mul_(cosine).addcmul_(imag, sine, value=-1.0)
            gradient[rows].add_(torch.matmul(real, columns.mT))
    return statistic, gradient


class SketchedEppsPulley(torch.autograd.Function):
    """Statistic per leading index, (L,), with the gradient formed in the forward pass."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, slices: Tensor, spacing: float, window: Tensor, weights: Tensor) -> Tensor:
        """Statistic (L,) of features (L, N, D)."""
        statistic, gradient = uniform_statistic(
            features, slices, spacing, window, weights, need_gradient=ctx.needs_input_grad[0]
        )
        ctx.save_for_backward(*(() if gradient is None else (gradient,)))
        return statistic

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the stored gradient."""
        if not ctx.saved_tensors:
            return None, None, None, None, None
        (gradient,) = ctx.saved_tensors
        return gradient * grad_outputs[0][:, None, None], None, None, None, None
