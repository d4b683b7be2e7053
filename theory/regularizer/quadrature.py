"""Knots, Gaussian window and trapezoid weights of the Epps–Pulley integral."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Quadrature:
    """Trapezoid rule for ∫ |φ̂(t) − φ(t)|² e^{−t²/2} dt over [−t_max, t_max], φ(t) = e^{−t²/2}.

    The integrand is even in t, so only knots t ≥ 0 are kept and every weight counts both signs.

    Attributes
    ----------
    knots
        Increasing knots t_k ≥ 0.
    spacing
        t₁ if t_k = k t₁ for all k, else ``None``. Equally spaced knots use the fast kernel.
    """

    knots: tuple[float, ...]
    spacing: float | None

    @classmethod
    def build(cls, knots: int | Sequence[float] | Tensor, t_max: float) -> Quadrature:
        """Equally spaced knots k t_max/(K−1) from their number K, or the knots themselves.

        Raises
        ------
        ValueError
            If there are fewer than two knots, or they are not finite, non-negative and increasing.
        """
        if isinstance(knots, bool) or not isinstance(knots, int | Sequence | Tensor):
            raise ValueError(f"knots must be a number of knots or a sequence of them, but it is {knots!r}.")
        if isinstance(knots, int):
            if knots < 2:
                raise ValueError(f"knots must be at least 2, but it is {knots}.")
            if not (math.isfinite(t_max) and t_max > 0):
                raise ValueError(f"t_max must be finite and positive, but it is {t_max}.")
            positions = [k * t_max / (knots - 1) for k in range(knots)]
        else:
            positions = [float(knot) for knot in knots]
            if len(positions) < 2:
                raise ValueError(f"knots must hold at least 2 values, but it has {len(positions)}.")
            increasing = all(left < right for left, right in itertools.pairwise(positions))
            if not (increasing and positions[0] >= 0 and math.isfinite(positions[-1])):
                raise ValueError("knots must be finite, non-negative and increasing.")
        first = positions[1]
        uniform = all(abs(knot - k * first) <= 1e-12 * positions[-1] for k, knot in enumerate(positions))
        return cls(tuple(positions), first if uniform else None)

    @property
    def orders(self) -> tuple[float, ...]:
        """Multiples of the projected value whose cosine and sine the kernel needs.

        For equally spaced knots the integers 1 … K−1 (of the spacing; at t = 0 the error is identically zero), else the
        knots themselves.
        """
        if self.spacing is None:
            return self.knots
        return tuple(float(k) for k in range(1, len(self.knots)))

    def tensors(self, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Orders, window φ_k and weights w_k, each (number of orders,)."""
        return _tensors(self, dtype, device)

    def interleaved(self, length: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """What the kernel needs beside its moments (…, length, 2), whose last axis holds cosine and sine.

        Returns
        -------
        window
            (φ_k, 0), (length, 2): what the moments are compared with.
        slope
            2 (−k w_k, k w_k), (length, 2): the derivative of a squared error turns cos into −sin and sin into cos.
        weights
            w_k twice in turn, (2 · length,). Orders beyond the rule's own have weight zero.
        """
        return _interleaved(self, length, dtype, device)


# Inference tensors must not be cached: autograd would refuse them later. So both leave inference mode.


@lru_cache(maxsize=64)
@torch.inference_mode(False)
def _tensors(rule: Quadrature, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    knots = rule.knots
    window = [math.exp(-0.5 * knot * knot) for knot in knots]
    left, right = (knots[0], *knots[:-1]), (*knots[1:], knots[-1])
    weights = [(after - before) * phi for before, after, phi in zip(left, right, window, strict=True)]
    skip = len(knots) - len(rule.orders)
    return (
        torch.tensor(rule.orders, dtype=dtype, device=device),
        torch.tensor(window[skip:], dtype=dtype, device=device),
        torch.tensor(weights[skip:], dtype=dtype, device=device),
    )


@lru_cache(maxsize=64)
@torch.inference_mode(False)
def _interleaved(
    rule: Quadrature, length: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    padding = (0, length - len(rule.orders))
    orders, window, weights = (nn.functional.pad(row, padding) for row in rule.tensors(dtype, device))
    slope = 2 * orders * weights
    return (
        torch.stack([window, torch.zeros_like(window)], dim=-1),
        torch.stack([-slope, slope], dim=-1),
        weights.repeat_interleave(2),
    )
