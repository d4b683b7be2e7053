"""The 2-D linear–Gaussian system of the toy, and what the encoder sees of its state (docs/theory.md, T10).

x' = 0.6 x + B a + σ ε,  a ~ N(0, I),  ε ~ N(0, I),  B diagonal with B² = (1 − 0.6²) Σ − σ² I,

so that x and x' both have covariance Σ = diag(1.75², 1), the standard deviations 7:4 scaled to a small one of 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from theory.spd import check_scale, check_vector

Observation = Literal["identity", "nonlinear"]
OBSERVATIONS: tuple[Observation, ...] = ("identity", "nonlinear")

#: Standard deviations of the stationary state, 7:4. Their squared ratio is c = 3.0625.
STATE_STD = (1.75, 1.0)

#: Condition number c of the state covariance: ΛReg with κ = c makes the metric isotropic (docs/theory.md, T7).
STATE_CONDITION = (STATE_STD[0] / STATE_STD[1]) ** 2

#: Skew a of the warp that ``observation="nonlinear"`` applies; its slopes lie in (1 − a, 1 + a).
WARP_SKEW = 0.5


@dataclass(frozen=True)
class ToySystem:
    """x' = d x + B a + σ ε with B² = (1 − d²) Σ − σ² I, so that the state covariance Σ is stationary.

    Parameters
    ----------
    noise_std
        σ, the standard deviation of the isotropic process noise, in state units.
    state_std
        Standard deviations (2,) of the state; Σ = diag(state_std²).
    decay
        d, in (−1, 1).
    observation
        ``"identity"``: the encoder sees o = x. ``"nonlinear"``: it sees an invertible smooth warp of each coordinate
        (:meth:`observe`), so that an encoder that is linear in o cannot be linear in x.

    Raises
    ------
    ValueError
        If σ is negative or so large that no real B exists (σ ≥ 0.8 for the default system), |d| ≥ 1, a standard
        deviation is not positive, or the observation is unknown.

    References
    ----------
    System and sizes derived here (docs/theory.md, T10); the ratio 7:4 is consistent with, not identified by, the
    0.1607 of AnisoWM (arXiv 2609.37441), Figure 1b.
    """

    noise_std: float
    state_std: tuple[float, float] = STATE_STD
    decay: float = 0.6
    observation: Observation = "identity"

    def __post_init__(self) -> None:
        std = check_vector(self.state_std, "state_std", 2)
        for value in std:
            check_scale(value, "state_std")
        noise = check_vector([self.noise_std], "noise_std")[0]
        if noise < 0:
            raise ValueError(f"noise_std must not be negative, but it is {noise:.6g}.")
        if not abs(check_vector([self.decay], "decay")[0]) < 1:
            raise ValueError(f"decay must lie strictly between -1 and 1, but it is {self.decay:.6g}.")
        limit = math.sqrt(1 - self.decay**2) * float(std.min())
        # B must be invertible, since the planner inverts it: σ = limit is refused too.
        if noise >= limit:
            raise ValueError(
                f"noise_std must be below {limit:.6g}, but it is {noise:.6g}: "
                "no action gain then keeps the state covariance stationary."
            )
        if self.observation not in OBSERVATIONS:
            raise ValueError(f"observation must be one of {', '.join(OBSERVATIONS)}, but it is {self.observation!r}.")

    @property
    def state_cov(self) -> NDArray[np.float64]:
        """Σ (2, 2)."""
        return np.diag(np.square(np.asarray(self.state_std, dtype=np.float64)))

    @property
    def noise_cov(self) -> NDArray[np.float64]:
        """Σ_w = σ² I (2, 2)."""
        return self.noise_std**2 * np.eye(2)

    @property
    def action_gain(self) -> NDArray[np.float64]:
        """Diagonal (2,) of B = ((1 − d²) Σ − σ² I)^{1/2}."""
        return np.sqrt((1 - self.decay**2) * np.square(self.state_std) - self.noise_std**2)

    def conditional_mean(self, state: Tensor, action: Tensor) -> Tensor:
        """E[x' | x, a] = d x + B a, for states and actions (..., 2)."""
        return self.decay * state + action * _like(self.action_gain, state)

    def action_for(self, state: Tensor, mean: Tensor) -> Tensor:
        """Action B⁻¹ (y − d x) whose conditional-mean outcome is y (..., 2)."""
        return (mean - self.decay * state) / _like(self.action_gain, state)

    def observe(self, state: Tensor) -> Tensor:
        """What the encoder sees of states (..., 2): o = x, or the warp of each coordinate in units of its deviation,

        o_i = s_i (u + a (√(1 + u²) − 1)),  u = x_i / s_i,  a = :data:`WARP_SKEW`.

        The warp is smooth, increasing and skewed: its slope runs from 1 − a on the left to 1 + a on the right.
        """
        if self.observation == "identity":
            return state
        std = _like(np.asarray(self.state_std), state)
        unit = state / std
        return std * (unit + WARP_SKEW * ((1 + unit.square()).sqrt() - 1))

    def unobserve(self, observed: Tensor) -> Tensor:
        """The state (..., 2) that is seen as ``observed``: the inverse of :meth:`observe`."""
        if self.observation == "identity":
            return observed
        std = _like(np.asarray(self.state_std), observed)
        shifted = observed / std + WARP_SKEW
        rest = 1 - WARP_SKEW**2
        return std * (shifted - WARP_SKEW * (shifted.square() + rest).sqrt()) / rest


def _like(values: NDArray[np.float64], reference: Tensor) -> Tensor:
    return torch.as_tensor(values, dtype=reference.dtype, device=reference.device)
