"""The sketched Epps–Pulley statistic and its gradient in one pass, without a tensor that carries the knots.

Per leading index (time step, network) and slice u, with θ_n = t₁ uᵀz_n and t₁ the knot spacing,

    R = N Σ_k w_k [ (C_k − φ_k)² + S_k² ],   C_k = (1/N) Σ_n cos kθ_n,   S_k = (1/N) Σ_n sin kθ_n,

    ∂R/∂θ_n = 2 Σ_k k w_k [ S_k cos kθ_n − (C_k − φ_k) sin kθ_n ].

Everything is a power of e^{iθ}, so a projected value costs one cosine, one sine and a few complex products instead of a
cosine and a sine per knot, and nothing per knot is kept for the backward pass: the gradient is formed right after the
sums, while the block of slices is still in cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from theory.regularizer.harmonics import DirectBlock, PowerBlock
from theory.regularizer.quadrature import Quadrature

#: Projected values per block on one CPU thread: about 100 bytes of workspace each, so a few MiB, near the core.
CPU_BLOCK = 1 << 15
#: Projected values per block elsewhere: enough to fill a GPU, about 20 MiB of workspace.
DEVICE_BLOCK = 1 << 18

#: Adds the moments (…, 2) and the sample count over processes in place; returns the total count and the process count.
Reduce = Callable[[Tensor, int], tuple[Tensor | int, int]]


def block_shape(lead: int, samples: int, slices: int, device: torch.device) -> tuple[int, int]:
    """Leading indices and slices per block. Several leading indices only if one of them takes all slices."""
    size = DEVICE_BLOCK
    if device.type == "cpu":
        # Threads meet after every operation, so several of them want larger blocks than one.
        threads = min(torch.get_num_threads(), 4)
        size = CPU_BLOCK if threads == 1 else 2 * CPU_BLOCK * threads
    width = min(slices, max(8, size // max(samples, 1)))
    rows = max(1, size // max(samples * slices, 1)) if width == slices else 1
    return min(lead, rows), width


def sketched_statistic(
    features: Tensor, slices: Tensor, rule: Quadrature, *, gradient: bool, reduce: Reduce | None = None
) -> tuple[Tensor, Tensor | None]:
    """Statistic R averaged over slices, (L,), and its gradient ∂R_l/∂z_l, (L, N, D).

    Parameters
    ----------
    features
        z, (L, N, D).
    slices
        Unit columns, (D, S), or (L, D, S) for slices of their own per leading index.
    rule
        Knots, window and weights.
    gradient
        Whether to form the gradient.
    reduce
        Adds the moments over processes. The statistic is then that of the global batch, and the gradient is the local
        rows of its gradient times the number of processes, so that averaging over processes sums it.
    """
    # LeWM passes a transposed view; products into a gradient of that layout would be several times slower.
    features = features.contiguous()
    lead, samples, _ = features.shape
    count = slices.shape[-1]
    rows, width = block_shape(lead, samples, count, features.device)
    block: PowerBlock | DirectBlock
    if rule.spacing is not None and features.device.type in ("cpu", "cuda"):
        scale = rule.spacing
        block = PowerBlock(rows * width, samples, len(rule.orders), features)
    else:
        scale = 1.0 if rule.spacing is None else rule.spacing
        block = DirectBlock(rows * width, samples, rule.orders, features)
    window, slope, weights = rule.interleaved(block.orders, features.dtype, features.device)
    directions = (slices.mT * scale).expand(lead, count, -1)
    columns = [
        (slice(left, min(left + width, count)), directions[:, left : left + width]) for left in range(0, count, width)
    ]
    moments = features.new_empty(lead, count, block.orders, 2)
    angles = features.new_empty(rows * width, samples)
    result = torch.zeros_like(features) if gradient else None

    def sweep() -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None]]:
        """Load one block after the other; yields its angles, directions, place for moments and rows of the gradient."""
        for first in range(0, lead, rows):
            some = slice(first, min(first + rows, lead))
            transposed, own, part = features[some].mT, moments[some], None if result is None else result[some]
            for column, every in columns:
                chosen = every[some]
                shape = chosen.shape[:2]
                angle = angles[: shape[0] * shape[1]].view(*shape, samples)
                torch.bmm(chosen, transposed, out=angle)
                block.load(angle.view(-1, samples))
                yield angle, chosen, own[:, column], part

    def differentiate(errors: Tensor, factor: Tensor, angle: Tensor, chosen: Tensor, part: Tensor | None) -> None:
        """Add the block's share of the gradient, from N (C_k − φ_k) and N S_k."""
        if part is not None:
            torch.mul(errors, factor, out=block.coefficients)
            block.series(angle.view(-1, samples))
            part.baddbmm_(angle.mT, chosen)

    total: Tensor | int = samples
    if reduce is None:
        expected, factor = window * samples, slope / (samples * count)
        for angle, chosen, place, part in sweep():
            errors = block.sum().sub_(expected)
            place.copy_(errors.view_as(place))
            differentiate(errors, factor, angle, chosen, part)
    else:
        for _, _, place, _ in sweep():
            place.copy_(block.sum().view_as(place))
        total, processes = reduce(moments, samples)
        moments.sub_(window * total)
        factor = slope * (processes / (total * count))
        for angle, chosen, place, part in sweep():
            differentiate(place.reshape(-1, block.orders, 2), factor, angle, chosen, part)
    statistic = (moments.square_().sum(1).flatten(1) @ weights) / (total * count)
    return statistic, result
