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

#: Projected values per block and thread on a CPU: about 100 bytes of workspace each, so a few MiB, near the core.
CPU_BLOCK = 1 << 16
#: Projected values per block elsewhere: enough to fill a GPU, about 20 MiB of workspace.
DEVICE_BLOCK = 1 << 18

#: Adds the moments (…, 2) and the sample count over processes in place; returns the total count and the process count.
Reduce = Callable[[Tensor, int], tuple[Tensor | int, int]]


def block_shape(lead: int, samples: int, slices: int, device: torch.device) -> tuple[int, int]:
    """Leading indices and slices per block. Several leading indices only if one of them takes all slices."""
    size = CPU_BLOCK * min(torch.get_num_threads(), 4) if device.type == "cpu" else DEVICE_BLOCK
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
    window, slope, weights = rule.interleaved(block.padded_orders, features.dtype, features.device)
    directions = (slices.mT * scale).expand(lead, count, -1)
    moments = features.new_empty(lead, count, block.padded_orders, 2)
    angles = features.new_empty(rows * width, samples)

    def sweep() -> Iterator[tuple[slice, slice, Tensor]]:
        """Load one block after the other; yields its place and its moments as (block rows, orders, 2)."""
        for first in range(0, lead, rows):
            some = slice(first, min(first + rows, lead))
            for left in range(0, count, width):
                columns = slice(left, min(left + width, count))
                shape = (some.stop - some.start, columns.stop - columns.start)
                angle = angles[: shape[0] * shape[1]]
                torch.bmm(directions[some, columns], features[some].mT, out=angle.view(*shape, samples))
                block.load(angle)
                yield some, columns, moments[some, columns].view(-1, block.padded_orders, 2)

    total: Tensor | int = samples
    processes = 1
    result = torch.zeros_like(features) if gradient else None
    # The angles are no longer needed once they are loaded, except by DirectBlock.
    spare = angles if isinstance(block, PowerBlock) else torch.empty_like(angles)

    def finish(some: slice, columns: slice, part: Tensor) -> None:
        """From sums to N (C_k − φ_k) and N S_k, and the block's share of the gradient."""
        part.sub_(window * total)
        if result is None:
            return
        out = spare[: part.shape[0]]
        block.series(part * (slope * (processes / (total * count))), out)
        result[some].baddbmm_(out.view(some.stop - some.start, -1, samples).mT, directions[some, columns])

    if reduce is None:
        for some, columns, part in sweep():
            block.sums(part)
            finish(some, columns, part)
    else:
        for _, _, part in sweep():
            block.sums(part)
        total, processes = reduce(moments, samples)
        for some, columns, part in sweep():
            finish(some, columns, part)
    statistic = (moments.square_().sum(1).flatten(1) @ weights) / (total * count)
    return statistic, result
