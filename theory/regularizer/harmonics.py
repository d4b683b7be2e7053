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

from typing import Protocol

import torch
from torch import Tensor

#: Powers kept per block (G above).
BABY_STEPS = 8
#: Longest sum left to one matrix product.
SUM_LENGTH = 512


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
