"""What bench_regularizer.py compares: this project's SIGReg and what a user would pick instead, under one call.

Every contender takes features (T, N, D) and returns a scalar, drawing new slices. The classes that know no time axis
are called once per time step, as their users would.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from theory.regularizer import LambdaReg, SIGReg

KNOTS = 17


class PublishedFormula(nn.Module):
    """LeJEPA's statistic as its paper prints it: complex exponentials at 17 knots on [−5, 5], trapezoid rule."""

    def __init__(self, num_slices: int) -> None:
        super().__init__()
        self.num_slices = num_slices

    def forward(self, x: Tensor) -> Tensor:
        slices = torch.randn(x.shape[-1], self.num_slices, device=x.device)
        slices = slices / slices.norm(p=2, dim=0)
        t = torch.linspace(-5, 5, KNOTS, device=x.device)
        window = torch.exp(-0.5 * t**2)
        empirical = (1j * ((x @ slices).unsqueeze(2) * t)).exp().mean(0)
        error = (empirical - window).abs().square() * window
        return (torch.trapezoid(error, t, dim=1) * x.shape[0]).mean()


class PerStep(nn.Module):
    """A statistic of (N, D), averaged over the time axis of (T, N, D)."""

    def __init__(self, statistic: nn.Module) -> None:
        super().__init__()
        self.statistic = statistic

    def forward(self, z: Tensor) -> Tensor:
        return torch.stack([self.statistic(step) for step in z]).mean()


def stable_worldmodel(dim: int, num_slices: int) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from stable_worldmodel.wm.loss import SIGReg as Peer
    return Peer(KNOTS, num_slices)


def stable_pretraining(dim: int, num_slices: int) -> nn.Module:
    from stable_pretraining.methods.lejepa import SlicedEppsPulley

    return PerStep(SlicedEppsPulley(num_slices, n_points=KNOTS))


@dataclass(frozen=True)
class Cell:
    """One size: time steps T, samples N, latent dimension D, slices S."""

    steps: int
    samples: int
    dim: int
    slices: int

    @cached_property
    def projections(self) -> int:
        """Projected values T · N · S."""
        return self.steps * self.samples * self.slices

    def features(self, device: torch.device) -> Tensor:
        """Standard normal features that want a gradient."""
        generator = torch.Generator().manual_seed(0)
        z = torch.randn(self.steps, self.samples, self.dim, generator=generator)
        return z.to(device).requires_grad_()

    def __str__(self) -> str:
        return f"({self.steps}, {self.samples}, {self.dim}), {self.slices}"


@dataclass(frozen=True)
class Contender:
    """A named regulariser.

    ``kept`` and ``passing`` are the bytes it needs per sample, slice and knot for all time steps and for one. They
    decide which cells are too large to run, and nothing else.
    """

    name: str
    build: Callable[[int, int], nn.Module]
    kept: float = 0.0
    passing: float = 0.0

    def gibibytes(self, cell: Cell) -> float:
        """Estimated peak memory of forward plus backward."""
        return (self.kept + self.passing / cell.steps) * cell.projections * KNOTS / 2**30


OURS = Contender("anisowm SIGReg", lambda dim, num_slices: SIGReg(num_slices, KNOTS))
LAMBDA = Contender("anisowm ΛReg, κ = 2", lambda dim, num_slices: LambdaReg(dim, 2.0, num_slices, KNOTS))
WORLDMODEL = Contender("stable-worldmodel SIGReg", stable_worldmodel, kept=24.0)
PRETRAINING = Contender("stable-pretraining SlicedEppsPulley", stable_pretraining, kept=4.4, passing=20.0)
PUBLISHED = Contender(
    "LeJEPA's formula, written out",
    lambda dim, num_slices: PerStep(PublishedFormula(num_slices)),
    kept=8.4,
    passing=24.0,
)
PEERS = (WORLDMODEL, PRETRAINING, PUBLISHED)
CONTENDERS = (OURS, LAMBDA, *PEERS)
