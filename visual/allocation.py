"""Where did ΛReg put its variance, and is it where prediction wants it? (docs/theory.md, T4.)

Let z = Λ^{1/2} u with the whitened features u as they are, and let r be the residual of one-step prediction. Prediction
pays Σ_i E[r_i²], and r_i = v_i^{1/2} ρ_i with ρ the residual of u, which no diagonal Λ changes as long as the predictor
is the best one: the conditional mean is taken coordinate by coordinate, whatever the coordinate's scale. So

    Σ_i E[r_i²] = Σ_i v_i E[ρ_i²] = q Σ_i N_ii v_i,     N_ii = E[ρ_i²]/q = E[r_i²]/Var(z_i),

where the regulariser pins Var(u_i) = q. The relative residual of a coordinate is thus the diagonal of T4's N in u's
coordinates, free of the allocation, and the best diagonal Λ for these u is ``optimal_target(diag N)``: two-level, with
large variance on the coordinates of small relative residual.

Two things it does not say. A predictor of limited capacity spends more on coordinates of large variance, so that an
allocation lowers the residuals it was chosen for; on a model of κ = 1 the prediction for κ > 1 is a *forecast* without
that circle. And the encoder may rotate u: then N's eigenvalues decide instead of its diagonal. They are reported too,
from the whole covariances, N = C^{−1/2} E[rrᵀ] C^{−1/2} with C the features' covariance.
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
from theory.target import optimal_target, relative_noise

if TYPE_CHECKING:
    from stable_worldmodel.wm.lewm import LeWM

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
        N_ii, their ratio, (D,).
    target
        v, (D,), or ``None`` without a target.
    kappa
        Bound κ of the prediction.
    predicted
        v of ``optimal_target(diag N, κ)``, (D,).
    num_high, num_high_rotated
        Coordinates that the prediction puts on the high level; directions, if the encoder rotates as it likes
        (``None`` if the features do not span their space).
    loss_isotropic, loss_predicted
        Σ N_ii v_i / D for v = 1 and for the prediction: prediction error per coordinate in units of q.
    loss_target
        The same for the target's v, or ``None``.
    """

    feature_variance: NDArray[np.float64]
    residual_variance: NDArray[np.float64]
    relative_residual: NDArray[np.float64]
    target: NDArray[np.float64] | None
    kappa: float
    predicted: NDArray[np.float64]
    num_high: int
    num_high_rotated: int | None
    loss_isotropic: float
    loss_predicted: float
    loss_target: float | None

    def summary(self) -> dict[str, Any]:
        """The numbers as JSON values; those of the target are ``None`` without one.

        ``agreement``: share of coordinates on the same side of the mean variance as predicted. ``captured``: share of
        the possible fall of the loss, (isotropic − target)/(isotropic − predicted). ``rank_correlation``: Spearman's ρ
        of target variance and relative residual, −1 if the order is the theory's. ``target_met``: largest relative
        deviation of Var(z_i)/v_i from its mean. ``two_level``: share of coordinates on the lowest or highest level.
        """
        found: dict[str, Any] = {
            "kappa": self.kappa,
            "num_high": self.num_high,
            "num_high_rotated": self.num_high_rotated,
            "loss_isotropic": self.loss_isotropic,
            "loss_predicted": self.loss_predicted,
            "loss_target": self.loss_target,
            "relative_residual_low": float(self.relative_residual.min()),
            "relative_residual_high": float(self.relative_residual.max()),
        }
        names = (
            "target_high",
            "target_condition",
            "agreement",
            "captured",
            "rank_correlation",
            "target_met",
            "two_level",
        )
        found |= dict.fromkeys(names)
        if self.target is None:
            return found
        ratio = self.feature_variance / self.target
        found["target_met"] = float(np.abs(ratio / ratio.mean() - 1).max())
        found["target_condition"] = float(self.target.max() / self.target.min())
        if found["target_condition"] < 1 + 1e-6:
            return found | {"target_high": 0}
        gain = self.loss_isotropic - self.loss_predicted
        order = rank_correlation(self.relative_residual, self.target)
        levels = (self.target - self.target.min()) / np.ptp(self.target)
        return found | {
            "target_high": int((self.target > 1).sum()),
            "agreement": float(((self.target > 1) == (self.predicted > 1)).mean()),
            "captured": (self.loss_isotropic - (self.loss_target or 0.0)) / gain if gain > 0 else None,
            "rank_correlation": None if np.isnan(order) else order,
            "two_level": float((np.minimum(levels, 1 - levels) <= LEVEL_TOLERANCE).mean()),
        }


def allocate(features: ArrayLike, residuals: ArrayLike, kappa: float, target: ArrayLike | None = None) -> Allocation:
    """Compare a target with the one that the residuals of one-step prediction ask for.

    Parameters
    ----------
    features
        z, (M, D), M > D.
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
    if residuals.shape[1] != dim or len(features) <= dim or len(residuals) < 1:
        raise ValueError(
            f"features and residuals must have the same columns, and more feature rows than those; their shapes are "
            f"{features.shape} and {residuals.shape}."
        )
    covariance = np.atleast_2d(np.cov(features.T))
    second = residuals.T @ residuals / len(residuals)
    variance, error = np.diag(covariance).copy(), np.diag(second).copy()
    if not (variance > 0).all():
        raise ValueError(f"features must vary in every coordinate, but coordinate {int(np.argmin(variance))} does not.")
    relative = error / variance
    predicted = optimal_target(np.diag(relative), kappa)
    given = None if target is None else check_vector(target, "target", dim)
    if given is not None and not (given > 0).all():
        raise ValueError("target must hold positive variances.")
    try:
        rotated: int | None = optimal_target(relative_noise(covariance, second), kappa).num_high
    except ValueError:
        # Features that do not span their space have no whitened coordinates.
        rotated = None
    return Allocation(
        feature_variance=variance,
        residual_variance=error,
        relative_residual=relative,
        target=given,
        kappa=kappa,
        predicted=np.diag(predicted.matrix).copy(),
        num_high=predicted.num_high,
        num_high_rotated=rotated,
        loss_isotropic=float(relative.mean()),
        loss_predicted=predicted.value / dim,
        loss_target=None if given is None else float(relative @ given) / dim,
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
