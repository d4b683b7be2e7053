"""The sketched Epps–Pulley statistic and its gradient in one pass, without a tensor that carries the knots.

Per leading index (time step, network) and slice u, with θ_n = t₁ uᵀz_n and t₁ the knot spacing,

    R = N Σ_k w_k [ (C_k − φ_k)² + S_k² ],   C_k = (1/N) Σ_n cos kθ_n,   S_k = (1/N) Σ_n sin kθ_n,

    ∂R/∂θ_n = 2 Σ_k k w_k [ S_k cos kθ_n − (C_k − φ_k) sin kθ_n ].

Everything is a power of e^{iθ}, so a projected value costs one cosine, one sine and a few complex products instead of a
cosine and a sine per knot, and nothing per knot is kept for the backward pass: the gradient is formed right after the
sums, while the block of slices is still in cache.

**Which recurrence.** Powers are formed by multiplication, e^{i(j+m)θ} = e^{ijθ} e^{imθ} with j ≤ m (doubling). Its
error in e^{ikθ} grows like kε whatever θ is, no faster than the rounding of kθ itself. The cheaper three-term rule
cos (k+1)θ = 2 cos θ cos kθ − cos (k−1)θ does not have that property: rounding cos θ moves θ by ε/|sin θ|, and features
of small scale put every θ near zero, where the relative error is ε/θ².

**Baby steps, giant steps.** With kept powers z¹ … z^G and giant steps z^{G}, z^{2G}, …, the sums Σ_n z^{mG+j} are small
matrix products over n, and the gradient Σ_m z^{mG} (Σ_j c_{mG+j} z^j) is another (Paterson and Stockmeyer 1973). Passes
over a block and the powers it stores then grow like G + K/G.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from theory.regularizer.quadrature import Quadrature

#: Projected values per block and thread on a CPU. About 100 bytes of workspace each: a few MiB, near the core.
CPU_BLOCK = 1 << 16
#: Projected values per block elsewhere: enough to fill a GPU, about 20 MiB of workspace.
DEVICE_BLOCK = 1 << 18
#: Powers kept per block (G above).
BABY_STEPS = 8
#: Longest sum left to one matrix product.
SUM_LENGTH = 512

#: Adds the moments (…, 2) and the sample count over processes in place; returns the total count and the process count.
Reduce = Callable[[Tensor, int], tuple[Tensor | int, int]]


class Block(Protocol):
    """Harmonics of one block of projected values, ``rows`` slices by N samples."""

    def load(self, angle: Tensor) -> None:
        """Take the angles (rows, N); they may be overwritten."""

    def sums(self, out: Tensor) -> None:
        """Write Σ_n cos, Σ_n sin for each slice and order into ``out`` (rows, orders, 2)."""

    def series(self, coefficients: Tensor, out: Tensor) -> None:
        """Write Im Σ_k g_k e^{ikθ} of each angle into ``out`` (rows, N), from g as (Re, Im), (rows, orders, 2)."""


class PowerBlock:
    """Integer orders 1 … K: powers of e^{iθ} by doubling."""

    def __init__(self, rows: int, samples: int, orders: int, like: Tensor) -> None:
        self.baby = min(BABY_STEPS, orders)
        self.giant = -(-orders // self.baby)
        dtype = like.dtype.to_complex()
        self._powers = like.new_empty(self.baby, rows, samples, dtype=dtype)
        self._strides = like.new_empty(self.giant - 1, rows, samples, dtype=dtype)
        self._partial = like.new_empty(rows, self.giant, samples, dtype=dtype)
        self._cosine = like.new_empty(rows, samples)
        self.rows = rows

    @property
    def padded_orders(self) -> int:
        """Orders that :meth:`sums` writes; those beyond K carry zero weight."""
        return self.baby * self.giant

    def load(self, angle: Tensor) -> None:
        """Powers z¹ … z^G and strides z^G, z^{2G}, … of z = e^{iθ}."""
        self.rows = rows = angle.shape[0]
        powers, strides, cosine = self._powers[:, :rows], self._strides[:, :rows], self._cosine[:rows]
        if self.giant > 2:
            # From the angle itself (Gθ is exact): rounding then grows with G + K/G instead of K.
            far = angle * self.baby
            torch.complex(torch.cos(far, out=cosine), far.sin_(), out=strides[0])
        torch.cos(angle, out=cosine)
        torch.sin(angle, out=angle)
        torch.complex(cosine, angle, out=powers[0])
        known = 1
        while known < self.baby:
            step = min(known, self.baby - known)
            torch.mul(powers[:step], powers[known - 1], out=powers[known : known + step])
            known += step
        if self.giant == 2:
            torch.sub(powers[-1], 1.0, out=strides[0])
        if self.giant > 2:
            for index in range(1, self.giant - 1):
                torch.mul(strides[index - 1], strides[0], out=strides[index])
            strides.sub_(1.0)

    def sums(self, out: Tensor) -> None:
        """Σ_n z^{mG+j} = Σ_n z^j + Σ_n (z^{mG} − 1) z^j, the second sum a matrix product over n.

        A matrix product adds its terms one after the other: what a power near one lacks would be lost against a sum of
        128, and a long sum loses digits, so it is cut in pieces.
        """
        powers, strides = self._powers[:, : self.rows], self._strides[:, : self.rows]
        table = torch.view_as_complex(out).view(self.rows, self.giant, self.baby)
        table[:, 0] = powers.sum(-1).T
        if self.giant > 1:
            table[:, 1:] = table[:, :1]
            for start in range(0, powers.shape[-1], SUM_LENGTH):
                part = slice(start, start + SUM_LENGTH)
                table[:, 1:] += torch.bmm(strides[..., part].transpose(0, 1), powers[..., part].permute(1, 2, 0))

    def series(self, coefficients: Tensor, out: Tensor) -> None:
        """Im Σ_m z^{mG} (Σ_j g_{mG+j} z^j) = Im [ Σ_m p_m + Σ_m (z^{mG} − 1) p_m ], p_m the inner polynomials."""
        powers, strides, partial = self._powers[:, : self.rows], self._strides, self._partial[: self.rows]
        table = torch.view_as_complex(coefficients).view(self.rows, self.giant, self.baby)
        table[:, 0] = table.sum(1)
        torch.bmm(table, powers.transpose(0, 1), out=partial)
        total = partial[:, 0]
        for index in range(1, self.giant):
            total.addcmul_(partial[:, index], strides[index - 1, : self.rows])
        out.copy_(total.imag)


class DirectBlock:
    """Any orders, real arithmetic only: one cosine and sine per order and pass."""

    def __init__(self, rows: int, samples: int, orders: tuple[float, ...], like: Tensor) -> None:
        self.orders = orders
        self.padded_orders = len(orders)
        self._angle = like.new_empty(0)

    def load(self, angle: Tensor) -> None:
        """Keep the angles."""
        self._angle = angle

    def sums(self, out: Tensor) -> None:
        """Σ_n cos t_kθ_n and Σ_n sin t_kθ_n, order by order."""
        for index, order in enumerate(self.orders):
            phase = self._angle * order
            out[:, index, 0] = phase.cos().sum(-1)
            out[:, index, 1] = phase.sin_().sum(-1)

    def series(self, coefficients: Tensor, out: Tensor) -> None:
        """Σ_k (Re g_k sin t_kθ + Im g_k cos t_kθ), order by order."""
        out.zero_()
        for index, order in enumerate(self.orders):
            phase = self._angle * order
            real, imag = coefficients[:, index, :, None].unbind(1)
            out.addcmul_(phase.cos(), imag).addcmul_(phase.sin_(), real)


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
