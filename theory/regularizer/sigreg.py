"""SIGReg: distance of features from an isotropic Gaussian, by random one-dimensional sketches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from theory.regularizer.distributed import current_group, moment_reduction, share_slices
from theory.regularizer.function import SketchedEppsPulley
from theory.regularizer.quadrature import Quadrature
from theory.spd import check_count

Reduction = Literal["mean", "none"]

#: Keeps the streams of nearby seeds apart: torch's CPU generator uses 32 bits of its seed.
SEED_STRIDE = 0x9E3779B1
#: Given slices may differ this much from length 1: half precision rounds by 5e-4.
UNIT_TOLERANCE = 5e-3


def draw_slices(dim: int, num_slices: int, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
    """Unit columns u ~ U(S^{D−1}), (D, S), on the generator's device."""
    # Drawn as rows: a norm along contiguous memory is many times faster, and so are the products that follow.
    rows = torch.randn(num_slices, dim, generator=generator, device=generator.device, dtype=dtype)
    # With several threads in pieces too small for PyTorch to start them: that would take longer than the arithmetic.
    alone = rows.device.type != "cpu" or torch.get_num_threads() == 1
    for part in (rows,) if alone else rows.split(max(1, (1 << 15) // dim)):
        part.div_(part.norm(dim=1, keepdim=True))
    return rows.mT


def effective_weight(weight: float, num_samples: int) -> float:
    """λN, the weight of the population discrepancy in λR.

    R = N · mean over slices of Σ_k w_k |φ̂_N(t_k) − φ(t_k)|²: twice the batch pulls twice as hard at the same λ. Compare
    runs at equal λN, with N the samples per leading index summed over processes, or the micro-batch if gradients are
    accumulated.

    Raises
    ------
    ValueError
        If the weight is negative or the number of samples is not positive.

    References
    ----------
    docs/theory.md, T8.
    """
    if not weight >= 0:
        raise ValueError(f"weight must not be negative, but it is {weight}.")
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, but it is {num_samples}.")
    return weight * num_samples


def _check_unit(slices: Tensor) -> None:
    """Given slices are directions: with longer ones the target would be another covariance than was asked for."""
    if not slices.is_floating_point():
        raise ValueError(f"slices must be real floating-point, but their dtype is {slices.dtype}.")
    lengths = slices.detach().float().norm(dim=-2)
    # A nan compares false.
    if not bool(((lengths - 1).abs() < UNIT_TOLERANCE).all()):
        raise ValueError(
            f"slices must have columns of length 1, but theirs lie between {float(lengths.min()):.4g} and "
            f"{float(lengths.max()):.4g}."
        )


class SIGReg(nn.Module):
    """Sketched isotropic Gaussian regulariser, LeWM's statistic.

        R = mean over slices u of  N Σ_k w_k |(1/N) Σ_n e^{i t_k uᵀz_n} − e^{−t_k²/2}|²,

    t_k = k t_max/(K−1), k = 0 … K−1, and w the trapezoid weights of [−t_max, t_max] times e^{−t²/2}.

    Parameters
    ----------
    num_slices
        Random directions per call.
    knots
        K, number of equally spaced knots; or the knots t_k ≥ 0 themselves, increasing (slower, any spacing).
    t_max
        Largest knot, if ``knots`` is a number.
    seed
        A call without ``slices`` and ``generator`` draws its slices from this number and :attr:`step`.
    distributed
        Under ``torch.distributed``, take the statistic of the global batch with the first process's slices. The loss
        weight must be the same on all processes, and all of them must make the call.
    process_group
        Group to reduce over, by default the default group at call time.

    Attributes
    ----------
    step
        Draws made so far in training mode; in the state dict, so that a resumed run draws what the uninterrupted one
        would have. Calls in evaluation mode do not advance it.

    References
    ----------
    LeWorldModel (SIGReg); LeJEPA (arXiv 2511.08544); docs/theory.md, T8.
    """

    def __init__(
        self,
        num_slices: int = 1024,
        knots: int | Sequence[float] | Tensor = 17,
        t_max: float = 3.0,
        *,
        seed: int = 0,
        distributed: bool = True,
        process_group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        num_slices = check_count(num_slices, "num_slices")
        self.quadrature = Quadrature.build(knots, t_max)
        self.num_slices = num_slices
        self.seed = seed
        self.distributed = distributed
        self.process_group = process_group
        # A Python number: reading a counter on an accelerator would wait for the device at every step.
        self.step = 0

    # The step counter and the generator live in Python, so compilation stops here; the kernel gains nothing from it.
    @torch.compiler.disable
    def forward(
        self,
        z: Tensor,
        *,
        slices: Tensor | None = None,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """Statistic of features z.

        Parameters
        ----------
        z
            Features ``(..., N, D)``, samples on the second-last axis. Lower precision than float32 is computed in
            float32.
        slices
            Unit columns ``(D, num_slices)``, or ``(*batch_shape, D, num_slices)`` with leading axes that match the
            first axes of z. Gradients do not flow into them.
        generator
            Source of the slices if they are not given.
        reduction
            ``"mean"`` averages over the leading indices, ``"none"`` returns one value for each.

        Raises
        ------
        ValueError
            For features that are not real floating-point with N, D ≥ 1, and for slices of another shape or length.
        """
        self._check_features(z)
        if reduction not in ("mean", "none"):
            raise ValueError(f"reduction must be 'mean' or 'none', but it is {reduction!r}.")
        with torch.autocast(z.device.type, enabled=False):
            features = self._standardize(z.to(torch.promote_types(z.dtype, torch.float32)))
            statistic = self._statistic(features, slices, generator)
        return statistic.mean() if reduction == "mean" else statistic

    def _check_features(self, z: Tensor) -> None:
        if not z.is_floating_point():
            raise ValueError(f"z must be real floating-point, but its dtype is {z.dtype}.")
        if z.ndim < 2 or 0 in z.shape:
            raise ValueError(f"z must have shape (..., N, D) without empty axes, but its shape is {tuple(z.shape)}.")

    def _standardize(self, features: Tensor) -> Tensor:
        return features

    def _group(self) -> dist.ProcessGroup | None:
        return current_group(self.process_group) if self.distributed else None

    def _statistic(self, features: Tensor, slices: Tensor | None, generator: torch.Generator | None) -> Tensor:
        *lead, samples, dim = features.shape
        if slices is None:
            slices = draw_slices(dim, self.num_slices, generator or self._next_generator(features), features.dtype)
        elif slices.ndim < 2 or slices.shape[-2] != dim or slices.shape[:-2] != features.shape[: slices.ndim - 2]:
            raise ValueError(
                f"slices must have shape ({dim}, num_slices), or that after leading axes of z, but their shape is "
                f"{tuple(slices.shape)}."
            )
        else:
            _check_unit(slices)
        slices = slices.detach().to(features)
        group = self._group()
        if group is not None:
            slices = share_slices(slices, group)
        if slices.ndim > 2:
            between = (1,) * (features.ndim - slices.ndim)
            slices = slices.reshape(*slices.shape[:-2], *between, *slices.shape[-2:])
            slices = slices.expand(*lead, -1, -1).reshape(-1, *slices.shape[-2:])
        reduce = None if group is None else moment_reduction(group)
        statistic = SketchedEppsPulley.apply(features.reshape(-1, samples, dim), slices, self.quadrature, reduce)
        return statistic.reshape(lead)

    def _next_generator(self, features: Tensor) -> torch.Generator:
        generator = torch.Generator(features.device).manual_seed((self.seed * SEED_STRIDE + self.step) % 2**63)
        self.step += self.training
        return generator

    def get_extra_state(self) -> Tensor:
        """The step counter, for the state dict."""
        return torch.tensor(self.step)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the step counter."""
        self.step = int(state)

    def extra_repr(self) -> str:
        """Configuration."""
        knots = self.quadrature.knots
        return f"num_slices={self.num_slices}, knots={len(knots)}, t_max={knots[-1]:g}, seed={self.seed}"
