"""Sums over samples, and series, of the harmonics of an angle: one block of projected values at a time.

**Which recurrence.** Powers are formed by multiplication, e^{i(j+m)θ} = e^{ijθ} e^{imθ} with j ≤ m (doubling). Its
error in e^{ikθ} grows like kε whatever θ is, no faster than the rounding of kθ itself. The cheaper three-term rule
cos (k+1)θ = 2 cos θ cos kθ − cos (k−1)θ does not have that property: rounding cos θ moves θ by ε/|sin θ|, so where
features of small scale put every θ near zero, sin kθ carries a relative error of order min(k, 1/θ)² ε.

**Baby steps, giant steps.** With kept powers z¹ … z^G and giant steps z^{G}, z^{2G}, …, the sums Σ_n z^{mG+j} are small
matrix products over n, and the gradient Σ_m z^{mG} (Σ_j c_{mG+j} z^j) is another (Paterson and Stockmeyer 1973). Passes
over a block and the powers it stores then grow like G + K/G.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Powers kept per block (G above).
BABY_STEPS = 8
#: Longest sum left to one matrix product.
SUM_LENGTH = 512


class PowerBlock:
    """Integer orders 1 … K: powers of e^{iθ} by doubling.

    ``sums`` and ``coefficients`` are of shape (rows, orders, 2): cosine and sine sums, and the real and imaginary parts
    of the series' coefficients, which the caller writes. Orders beyond K carry zero weight.
    """

    def __init__(self, rows: int, samples: int, orders: int, like: Tensor) -> None:
        self.baby = min(BABY_STEPS, orders)
        self.giant = -(-orders // self.baby)
        dtype = like.dtype.to_complex()
        self._buffers = (
            like.new_empty(self.baby, rows, samples, dtype=dtype),
            like.new_empty(self.giant - 1, rows, samples, dtype=dtype),
            like.new_empty(rows, self.giant, samples, dtype=dtype),
            like.new_empty(2, rows, self.giant, self.baby, dtype=dtype),
            like.new_empty(rows * self.baby, dtype=dtype),
            like.new_empty(rows * (self.giant - 1) * self.baby, dtype=dtype),
            like.new_empty(rows, samples),
        )
        self._bind(rows)

    @property
    def orders(self) -> int:
        """Length of the second axis of ``sums`` and ``coefficients``."""
        return self.baby * self.giant

    def _bind(self, rows: int) -> None:
        """Make all views for this many rows: made anew for every block, they would cost as much as the arithmetic."""
        powers, strides, partial, tables, plain, cross, cosine = self._buffers
        self._rows = rows
        self._powers, self._strides, self._partial = powers[:, :rows], strides[:, :rows], partial[:rows]
        self._cosine, self._first, self._last = cosine[:rows], powers[0, :rows], powers[-1, :rows]
        self._doubling = []
        known = 1
        while known < self.baby:
            step = min(known, self.baby - known)
            self._doubling.append((self._powers[:step], self._powers[known - 1], self._powers[known : known + step]))
            known += step
        self._stride = list(self._strides)
        self._by_row = self._powers.transpose(0, 1)
        table, self._table = tables[0, :rows], tables[1, :rows]
        self.sums, self.coefficients = (
            torch.view_as_real(part).view(rows, self.orders, 2) for part in (table, self._table)
        )
        # Matrix products and sums into contiguous memory, then copies: several times faster than into the table itself.
        self._plain = plain[: rows * self.baby].view(self.baby, rows)
        self._cross = cross[: rows * (self.giant - 1) * self.baby].view(rows, self.giant - 1, self.baby)
        self._plain_by_row, self._head, self._tail = self._plain.T.unsqueeze(1), table[:, :1], table[:, 1:]
        self._pieces = [
            (
                self._strides[..., start : start + SUM_LENGTH].transpose(0, 1),
                self._powers[..., start : start + SUM_LENGTH].permute(1, 2, 0),
            )
            for start in range(0, powers.shape[-1], SUM_LENGTH)
        ]
        self._total = self._partial[:, 0]
        self._imag = self._total.imag
        self._terms = [(self._partial[:, index], self._stride[index - 1]) for index in range(1, self.giant)]
        self._inner = [self._table[:, index] for index in range(self.giant)]

    def load(self, angle: Tensor) -> None:
        """Powers z¹ … z^G and strides z^G − 1, z^{2G} − 1, … of z = e^{iθ}; the angles (rows, N) are overwritten."""
        if angle.shape[0] != self._rows:
            self._bind(angle.shape[0])
        if self.giant > 2:
            # From the angle itself (Gθ is exact): rounding then grows with G + K/G instead of K.
            far = angle * self.baby
            torch.complex(torch.cos(far, out=self._cosine), far.sin_(), out=self._stride[0])
        torch.cos(angle, out=self._cosine)
        torch.sin(angle, out=angle)
        torch.complex(self._cosine, angle, out=self._first)
        for left, right, out in self._doubling:
            torch.mul(left, right, out=out)
        if self.giant == 2:
            torch.sub(self._last, 1.0, out=self._stride[0])
        if self.giant > 2:
            for index in range(1, self.giant - 1):
                torch.mul(self._stride[index - 1], self._stride[0], out=self._stride[index])
            self._strides.sub_(1.0)

    def sum(self) -> Tensor:
        """Fill and return ``sums``: Σ_n z^{mG+j} = Σ_n z^j + Σ_n (z^{mG} − 1) z^j, the second a matrix product over n.

        A matrix product adds its terms one after the other: what a power near one lacks would be lost against a sum of
        128, and a long sum loses digits, so it is cut in pieces.
        """
        torch.sum(self._powers, dim=-1, out=self._plain)
        self._head.copy_(self._plain_by_row)
        if self.giant > 1:
            self._cross.copy_(self._plain_by_row)
            for strides, powers in self._pieces:
                self._cross.baddbmm_(strides, powers)
            self._tail.copy_(self._cross)
        return self.sums

    def series(self, out: Tensor) -> None:
        """Write Im Σ_k g_k e^{ikθ} into ``out`` (rows, N), g the ``coefficients``, which are overwritten.

        Σ_m z^{mG} p_m = Σ_m p_m + Σ_m (z^{mG} − 1) p_m with p_m = Σ_j g_{mG+j} z^j, and Σ_m p_m is one polynomial.
        """
        for row in self._inner[1:]:
            self._inner[0].add_(row)
        torch.bmm(self._table, self._by_row, out=self._partial)
        for polynomial, stride in self._terms:
            self._total.addcmul_(polynomial, stride)
        out.copy_(self._imag)


class DirectBlock:
    """Any orders, real arithmetic only: one cosine and sine per order and pass. Same interface as PowerBlock."""

    def __init__(self, rows: int, samples: int, orders: tuple[float, ...], like: Tensor) -> None:
        self._orders = orders
        self._tables = like.new_empty(2, rows, len(orders), 2)
        self._angle = like.new_empty(rows, samples)
        self.sums, self.coefficients = self._tables

    @property
    def orders(self) -> int:
        """Length of the second axis of ``sums`` and ``coefficients``."""
        return len(self._orders)

    def load(self, angle: Tensor) -> None:
        """Keep the angles (rows, N)."""
        self._angle = angle.clone()
        self.sums, self.coefficients = self._tables[:, : angle.shape[0]]

    def sum(self) -> Tensor:
        """Fill and return ``sums``: Σ_n cos t_kθ_n and Σ_n sin t_kθ_n, order by order."""
        for index, order in enumerate(self._orders):
            phase = self._angle * order
            self.sums[:, index, 0] = phase.cos().sum(-1)
            self.sums[:, index, 1] = phase.sin_().sum(-1)
        return self.sums

    def series(self, out: Tensor) -> None:
        """Write Σ_k (Re g_k sin t_kθ + Im g_k cos t_kθ) into ``out`` (rows, N), g the ``coefficients``."""
        out.zero_()
        for index, order in enumerate(self._orders):
            phase = self._angle * order
            real, imag = self.coefficients[:, index, :, None].unbind(1)
            out.addcmul_(phase.cos(), imag).addcmul_(phase.sin_(), real)
