"""Where did ΛReg put its variance, and is it where prediction wants it? (docs/theory.md, T4 and T9.)

Let z be the features, r the residual of one-step prediction, and u = Λ^{−1/2} z what the regulariser sees. Move Λ and
let z follow, so that u stays as it is: the statistic does not change, and the residual of u, ρ = Λ^{−1/2} r, neither,
since the best predictor takes the conditional mean coordinate by coordinate, whatever the coordinate's scale. Only

    Σ_i E[r_i²] = Σ_i d_i v_i,     d_i = E[ρ_i²] = E[r_i²]/v_i,

changes, linear in v. So at a joint optimum Λ = ``optimal_target(diag d)``: two levels, large variance where d_i lies
below the mean prediction error. This holds at any weight of the regulariser. Where the regulariser also holds every
Var(u_i) at one value q, d_i = q E[r_i²]/Var(z_i): the relative residual, the diagonal of T4's N. Features that do not
follow their target, as small models' do not, make a difference between the two; how far they are from it is reported.

The statistic does not see rotations of u either. An encoder that uses them has Λ with the eigenvalues of E[ρρᵀ] instead
of its diagonal; both are reported.

Agreement with d says that a target is at rest, not that it could be no other: coordinates of large variance have small
d for that reason alone, and a predictor of limited capacity spends more on them, so that several allocations can each
be at rest. The relative residual has no v in it and is the harder test. On a model of κ = 1 the prediction for κ > 1 is
a forecast without either circle. A checkpoint without a target is read as if its features' variances were the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from theory.ordering import rank_correlation
from theory.spd import check_array, check_kappa, check_vector
from theory.target import optimal_target

if TYPE_CHECKING:
    from stable_worldmodel.wm.lewm import LeWM

_OF_TARGET = (
    "target_high",
    "target_condition",
    "variance_low",
    "variance_high",
    "high_variance",
    "low_variance",
    "agreement",
    "agreement_relative",
    "captured",
    "rank_correlation",
    "two_level",
)
#: Variances are on two levels if each is this close to the smallest or the largest, as a share of their difference.
LEVEL_TOLERANCE = 0.05


@dataclass(frozen=True)
class Allocation:
    """Variances that a model's target gave its coordinates, and what its residuals ask for.

    Attributes
    ----------
    feature_variance, residual_variance
        Var(z_i) and E[r_i²], (D,).
    relative_residual
        Their ratio, (D,).
    target
        v, (D,), or ``None`` without a target.
    noise
        d, (D,).
    kappa
        Bound κ of the prediction.
    predicted
        v of ``optimal_target(diag d, κ)``, (D,).
    num_high, num_high_rotated
        Coordinates that the prediction puts on the high level; directions, if u may rotate.
    loss_isotropic, loss_predicted, loss_rotated
        Prediction error per coordinate, Σ d_i v_i/D, for equal variances, for the prediction, and if u may rotate.
    loss_target
        The same for the target, which is the measured prediction error; ``None`` without a target.
    """

    feature_variance: NDArray[np.float64]
    residual_variance: NDArray[np.float64]
    relative_residual: NDArray[np.float64]
    target: NDArray[np.float64] | None
    noise: NDArray[np.float64]
    kappa: float
    predicted: NDArray[np.float64]
    num_high: int
    num_high_rotated: int
    loss_isotropic: float
    loss_predicted: float
    loss_rotated: float
    loss_target: float | None

    def summary(self) -> dict[str, Any]:
        """The numbers as JSON values; those of the target are ``None`` without one.

        ``agreement``: share of coordinates on the same side of the mean variance as predicted; ``agreement_relative``:
        the same for the prediction from relative residuals. ``captured``: share of
        the possible fall of the loss, (isotropic − target)/(isotropic − predicted). ``rank_correlation``: Spearman's ρ
        of target variance and d. ``variance_low``, ``variance_high``: least and greatest Var(z_i)/v_i, one value if the
        features follow the target. ``high_variance``, ``low_variance``: mean Var(z_i) of coordinates whose target lies
        above the mean, and of the others. ``two_level``: share of coordinates on the lowest or highest level.
        """
        found: dict[str, Any] = {
            name: getattr(self, name)
            for name in (
                "kappa",
                "num_high",
                "num_high_rotated",
                "loss_isotropic",
                "loss_predicted",
                "loss_rotated",
                "loss_target",
            )
        }
        found["relative_residual_low"] = float(self.relative_residual.min())
        found["relative_residual_high"] = float(self.relative_residual.max())
        found |= dict.fromkeys(_OF_TARGET)
        if self.target is None:
            return found
        ratio = self.feature_variance / self.target
        found["variance_low"], found["variance_high"] = float(ratio.min()), float(ratio.max())
        found["target_condition"] = float(self.target.max() / self.target.min())
        high = self.target > 1
        if found["target_condition"] < 1 + 1e-6:
            return found | {"target_high": 0}
        gain = self.loss_isotropic - self.loss_predicted
        order = rank_correlation(self.noise, self.target)
        levels = (self.target - self.target.min()) / np.ptp(self.target)
        relative = np.diag(optimal_target(np.diag(self.relative_residual), self.kappa).matrix)
        return found | {
            "target_high": int(high.sum()),
            "agreement": float((high == (self.predicted > 1)).mean()),
            "agreement_relative": float((high == (relative > 1)).mean()),
            "captured": (self.loss_isotropic - (self.loss_target or 0.0)) / gain if gain > 0 else None,
            "rank_correlation": None if np.isnan(order) else order,
            "high_variance": float(self.feature_variance[high].mean()),
            "low_variance": float(self.feature_variance[~high].mean()),
            "two_level": float((np.minimum(levels, 1 - levels) <= LEVEL_TOLERANCE).mean()),
        }


def allocate(features: ArrayLike, residuals: ArrayLike, kappa: float, target: ArrayLike | None = None) -> Allocation:
    """Compare a target with the one that the residuals of one-step prediction ask for.

    Parameters
    ----------
    features
        z, (M, D), M ≥ 2.
    residuals
        r = ẑ − z, (K, D); their mean square counts, as in the loss, not their variance.
    kappa
        κ ≥ 1 of the prediction.
    target
        v, (D,) positive, or ``None``.

    Raises
    ------
    ValueError
        If shapes differ, a coordinate does not vary, or κ is below 1.
    """
    features, residuals = check_array(features, "features", ndim=2), check_array(residuals, "residuals", ndim=2)
    kappa, dim = check_kappa(kappa), features.shape[1]
    if residuals.shape[1] != dim or len(features) < 2 or len(residuals) < 1:
        raise ValueError(
            f"features and residuals must have the same columns, and at least two rows and one; their shapes are "
            f"{features.shape} and {residuals.shape}."
        )
    second = residuals.T @ residuals / len(residuals)
    variance, error = features.var(axis=0, ddof=1), np.diag(second).copy()
    if not (variance > 0).all():
        raise ValueError(f"features must vary in every coordinate, but coordinate {int(np.argmin(variance))} does not.")
    given = None if target is None else check_vector(target, "target", dim)
    if given is not None and not (given > 0).all():
        raise ValueError("target must hold positive variances.")
    # Without a target the features' own variances stand in, in units in which they sum to D.
    scale = variance * dim / variance.sum() if given is None else given
    whitened = second / np.sqrt(np.outer(scale, scale))
    noise = np.diag(whitened).copy()
    predicted = optimal_target(np.diag(noise), kappa)
    rotated = optimal_target(whitened, kappa)
    return Allocation(
        feature_variance=variance,
        residual_variance=error,
        relative_residual=error / variance,
        target=given,
        noise=noise,
        kappa=kappa,
        predicted=np.diag(predicted.matrix).copy(),
        num_high=predicted.num_high,
        num_high_rotated=rotated.num_high,
        loss_isotropic=float(noise.mean()),
        loss_predicted=predicted.value / dim,
        loss_rotated=rotated.value / dim,
        loss_target=None if given is None else float(noise @ given) / dim,
    )


@torch.no_grad()
def predict_clips(model: LeWM, pixels: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Features (B, T, D) of clips, and residuals ẑ_{t+1} − z_{t+1} (B, T − 1, D) with the context that training has.

    Parameters
    ----------
    model
        LeWM in evaluation mode.
    pixels, actions
        Normalised frames (B, T, 3, H, W) and standardised stacked actions (B, T, frameskip · A).
    """
    encoded = model.encode({"pixels": pixels, "action": actions})
    features = encoded["emb"]
    predicted = model.predict(features[:, :-1], encoded["act_emb"][:, :-1])
    return features, predicted - features[:, 1:]
