"""The sketched Epps–Pulley statistic and its gradient in one pass, without a tensor that carries the knots.

Per leading index (time step, network) and slice u, with θ_n = t₁ uᵀz_n and t₁ the knot spacing,

    R = N Σ_k w_k [ (C_k − φ_k)² + S_k² ],   C_k = (1/N) Σ_n cos kθ_n,   S_k = (1/N) Σ_n sin kθ_n,

    ∂R/∂θ_n = 2 Σ_k k w_k [ S_k cos kθ_n − (C_k − φ_k) sin kθ_n ].

Everything is a power of e^{iθ}, so a projected value costs one cosine, one sine and a few complex products instead of a
cosine and a sine per knot, and nothing per knot is kept for the backward pass: the gradient is formed right after the
sums, while the block of slices is still in cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from theory.regularizer.harmonics import DirectBlock, PowerBlock
from theory.regularizer.parallel import map_threads
from theory.regularizer.quadrature import Quadrature

#: Projected values per block on one CPU thread: about 100 bytes of workspace each, so a few MiB, near the core.
CPU_BLOCK = 1 << 15
#: Projected values per block elsewhere: enough to fill a GPU, about 20 MiB of workspace.
DEVICE_BLOCK = 1 << 18

#: Adds the moments (…, 2) and the sample count over processes in place; returns the total count and the process count.
Reduce = Callable[[Tensor, int], tuple[Tensor | int, int]]


def block_shape(lead: int, samples: int, slices: int, device: torch.device) -> tuple[int, int]:
    """Leading indices and slices per block. Several leading indices only if one of them takes all slices."""
    size = CPU_BLOCK if device.type == "cpu" else DEVICE_BLOCK
    # Not too few slices even for large batches: products with the features would be slow.
    width = min(slices, max(32, size // samples))
    rows = max(1, size // (samples * slices)) if width == slices else 1
    return min(lead, rows), width


def split(lead: int, samples: int, slices: int, device: torch.device) -> list[tuple[slice, slice]]:
    """Shares of the work, one per thread: ranges of leading indices and of slices. They differ in one of the two.

    PyTorch's own threads meet after each of some twenty operations per block; where something else keeps a core busy,
    all of them wait every time. Threads that each work through blocks of their own meet once.
    """
    threads = torch.get_num_threads() if device.type == "cpu" else 1
    threads = max(1, min(threads, lead * samples * slices // CPU_BLOCK))
    along_lead = lead % threads == 0 or lead >= 4 * threads
    length = lead if along_lead else slices
    cuts = [length * part // threads for part in range(threads + 1)]
    pieces = [slice(left, right) for left, right in itertools.pairwise(cuts)]
    return [(piece, slice(0, slices)) if along_lead else (slice(0, lead), piece) for piece in pieces]


@dataclass(frozen=True)
class Call:
    """What all shares of one evaluation have in common.

    Attributes
    ----------
    features, slices
        (L, N, D) and (D, S) or (L, D, S).
    rule
        Knots, window and weights.
    gradient
        Uninitialised memory for the gradient (copies, L, N, D), one copy for each share of the same leading indices;
        ``None`` if no gradient is wanted.
    """

    features: Tensor
    slices: Tensor
    rule: Quadrature
    gradient: Tensor | None

    @property
    def powers(self) -> bool:
        """Whether the fast kernel applies: equally spaced knots, and a device with complex matrix products."""
        return self.rule.spacing is not None and self.features.device.type in ("cpu", "cuda")


class Share:
    """What one thread computes: some leading indices and slices, block by block, in a workspace of its own.

    Even what is done once per call is done here: operations in the calling thread would start PyTorch's own threads.
    """

    def __init__(self, call: Call, some: slice, columns: slice, copy: int) -> None:
        self.call, self.some, self.columns = call, some, columns
        self.gradient = None if call.gradient is None else call.gradient[copy, some]

    def prepare(self) -> None:
        """Copy inputs into the layout the products want, and make the workspace."""
        rule, slices = self.call.rule, self.call.slices
        # LeWM passes a transposed view; products into a gradient of that layout would be several times slower.
        features = self.call.features[self.some].contiguous()
        lead, self.samples, _ = features.shape
        chosen = slices[..., self.columns] if slices.ndim == 2 else slices[self.some, :, self.columns]
        directions = (chosen.mT * (1.0 if rule.spacing is None else rule.spacing)).expand(lead, -1, -1)
        count = directions.shape[1]
        self.rows, self.width = block_shape(lead, self.samples, count, features.device)
        shape = (self.rows * self.width, self.samples)
        self.block: PowerBlock | DirectBlock
        if self.call.powers:
            self.block = PowerBlock(*shape, len(rule.orders), features)
        else:
            self.block = DirectBlock(*shape, rule.orders, features)
        self.window, self.slope, self.weights = rule.interleaved(self.block.orders, features.dtype, features.device)
        self.transposed, self.angles = features.mT, features.new_empty(shape)
        self.pieces = [
            (slice(left, left + self.width), directions[:, left : left + self.width])
            for left in range(0, count, self.width)
        ]
        self.moments = features.new_empty(lead, count, self.block.orders, 2)
        if self.gradient is not None:
            self.gradient.zero_()

    def sweep(self) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None]]:
        """Load one block after the other; yields its angles, directions, place for moments and rows of the gradient."""
        for first in range(0, self.moments.shape[0], self.rows):
            some = slice(first, first + self.rows)
            transposed, moments = self.transposed[some], self.moments[some]
            gradient = None if self.gradient is None else self.gradient[some]
            for columns, directions in self.pieces:
                chosen = directions[some]
                shape = chosen.shape[:2]
                angle = self.angles[: shape[0] * shape[1]].view(*shape, self.samples)
                torch.bmm(chosen, transposed, out=angle)
                self.block.load(angle.view(-1, self.samples))
                yield angle, chosen, moments[:, columns], gradient

    def sum(self) -> None:
        """Moments of all blocks."""
        self.prepare()
        for _, _, place, _ in self.sweep():
            place.copy_(self.block.sum().view_as(place))

    def differentiate(self, factor: float | Tensor) -> None:
        """The gradient, from moments that have become N (C_k − φ_k) and N S_k."""
        if self.gradient is not None:
            slope = self.slope * factor
            for angle, chosen, place, gradient in self.sweep():
                self._add_gradient(place.reshape(-1, *place.shape[2:]), slope, angle, chosen, gradient)
        self._finish()

    def sum_and_differentiate(self, factor: float) -> None:
        """Both, while a block is in cache."""
        self.prepare()
        expected, slope = self.window * self.samples, self.slope * factor
        for angle, chosen, place, gradient in self.sweep():
            errors = self.block.sum().sub_(expected)
            place.copy_(errors.view_as(place))
            self._add_gradient(errors, slope, angle, chosen, gradient)
        self._finish()

    def _add_gradient(
        self, errors: Tensor, slope: Tensor, angle: Tensor, chosen: Tensor, gradient: Tensor | None
    ) -> None:
        if gradient is not None:
            torch.mul(errors, slope, out=self.block.coefficients)
            self.block.series(angle.view(-1, self.samples))
            gradient.baddbmm_(angle.mT, chosen)

    def _finish(self) -> None:
        """Σ over slices and orders of w_k |N error|², (leading indices,)."""
        self.value = self.moments.square_().sum(1).flatten(1) @ self.weights


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
    lead, samples, dim = features.shape
    count = slices.shape[-1]
    places = split(lead, samples, count, features.device)
    copies = len(places) if places[-1][0].start == 0 else 1
    gradients = features.new_empty(copies, lead, samples, dim) if gradient else None
    call = Call(features, slices, rule, gradients)
    shares = [Share(call, *place, index % copies) for index, place in enumerate(places)]
    total: Tensor | int = samples
    if reduce is None:
        factor = 1 / (samples * count)
        map_threads(lambda share: share.sum_and_differentiate(factor), shares)
    else:
        map_threads(Share.sum, shares)
        moments = features.new_empty(lead, count, *shares[0].moments.shape[2:])
        for share in shares:
            moments[share.some, share.columns] = share.moments
        total, processes = reduce(moments, samples)
        moments.sub_(shares[0].window * total)
        for share in shares:
            share.moments.copy_(moments[share.some, share.columns])
        common = processes / (total * count)
        map_threads(lambda share: share.differentiate(common), shares)

    statistic = features.new_zeros(lead)
    for share in shares:
        statistic[share.some] += share.value
    result = None if gradients is None else gradients[0] if copies == 1 else gradients.sum(0)
    return statistic / (total * count), result
