"""Which coordinates do the features fill, and which does the target make large? (docs/theory.md, T12.)

An encoder of few states cannot fill D dimensions evenly: u = Λ^{−1/2}z has a covariance of rank r < D, up to a small
rest. With P the projector on its r leading directions, P_ii in [0, 1] says how much of coordinate i the features fill,
Σ P_ii = r. T12: D − r spare dimensions cost no prediction error, so they take the high variance first, and only then
the directions of least relative noise. So the coordinates of large target variance are the ones that the features leave
empty, and the features' own metric has little of the anisotropy that was asked for.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.spd import check_array, check_kappa, check_vector
from theory.target import optimal_target

#: Directions with less than this share of the mean variance of u count as empty.
EMPTY = 0.1


@dataclass(frozen=True, eq=False)
class Occupancy:
    """How the features fill their space, beside the target.

    Attributes
    ----------
    dim, rank, spare
        D; directions of u with more than :data:`EMPTY` times its mean variance; D − rank.
    num_high
        Coordinates whose target variance lies above the mean; 0 for κ = 1, ``None`` without a target.
    predicted_high
        T12's number for the features' relative noise, padded by ``spare`` zeros.
    predicted_high_filled
        How many of those are directions that the features fill.
    filled
        P_ii of each coordinate, (D,).
    filled_high, filled_low
        Mean P_ii over coordinates of large and of small target variance; ``None`` if there is one kind only.
    anisotropy_asked, anisotropy_kept
        Ratio of mean target variance, and of mean feature variance, of the high coordinates to the low ones.
    """

    dim: int
    rank: int
    spare: int
    num_high: int | None
    predicted_high: int
    predicted_high_filled: int
    filled: NDArray[np.float64]
    filled_high: float | None
    filled_low: float | None
    anisotropy_asked: float | None
    anisotropy_kept: float | None

    def summary(self) -> dict[str, Any]:
        """The numbers as JSON values, without those of single coordinates."""
        return {name: value for name, value in asdict(self).items() if name != "filled"}


def occupancy(features: ArrayLike, residuals: ArrayLike, kappa: float, target: ArrayLike | None = None) -> Occupancy:
    """Compare the directions that features fill with the coordinates that the target makes large.

    Parameters
    ----------
    features, residuals
        z, (M, D), M > D, and ẑ − z, (K, D).
    kappa
        κ ≥ 1 of the prediction.
    target
        v, (D,) positive; ``None`` is v = 1.

    Raises
    ------
    ValueError
        If shapes disagree, there are no more features than coordinates, none varies, or κ is below 1.

    References
    ----------
    Derived here (docs/theory.md, T12).
    """
    features, residuals = check_array(features, "features", ndim=2), check_array(residuals, "residuals", ndim=2)
    kappa, dim = check_kappa(kappa), features.shape[1]
    if len(features) <= dim or residuals.shape[1] != dim:
        raise ValueError(
            f"features must have more rows than columns, and residuals the same columns; their shapes are "
            f"{features.shape} and {residuals.shape}."
        )
    given = None if target is None else check_vector(target, "target", dim)
    if given is not None and not (given > 0).all():
        raise ValueError("target must hold positive variances.")
    scale = np.ones(dim) if given is None else np.sqrt(given)
    seen, missed = features / scale, residuals / scale
    values, vectors = np.linalg.eigh(np.cov(seen.T))
    if not values[-1] > 0:
        raise ValueError("features must vary, but every row is the same: the encoder has collapsed.")
    filled = values > EMPTY * values.mean()
    rank = int(filled.sum())
    # The residual of the filled directions, in units of their own variance: T4's N.
    whitening = vectors[:, filled] / np.sqrt(values[filled])
    noise = whitening.T @ (missed.T @ missed / len(missed)) @ whitening
    predicted = optimal_target(noise, kappa, latent_dim=dim)
    found: dict[str, Any] = dict.fromkeys(("filled_high", "filled_low", "anisotropy_asked", "anisotropy_kept"))
    num_high = None
    leverage = np.square(vectors[:, filled]).sum(axis=1)
    if given is not None:
        high = given > given.mean() * (1 + 1e-6)
        num_high = int(high.sum())
        if 0 < num_high < dim:
            variance = features.var(axis=0, ddof=1)
            found = {
                "filled_high": float(leverage[high].mean()),
                "filled_low": float(leverage[~high].mean()),
                "anisotropy_asked": float(given[high].mean() / given[~high].mean()),
                "anisotropy_kept": float(variance[high].mean() / variance[~high].mean()),
            }
    return Occupancy(
        dim=dim,
        rank=rank,
        spare=dim - rank,
        num_high=num_high,
        predicted_high=predicted.num_high,
        predicted_high_filled=max(0, predicted.num_high - (dim - rank)),
        filled=leverage,
        **found,
    )


def describe(found: dict[str, Any], kappa: float) -> str:
    """One or two sentences on spare dimensions."""
    start = (
        f"The features fill {found['rank']} of {found['dim']} dimensions (more than {100 * EMPTY:.0f} % of the mean "
        f"variance). With {found['spare']} spare, the theory of over-complete latents puts {found['predicted_high']} "
        f"coordinates on the high level at κ = {kappa:g}, {found['predicted_high_filled']} of them filled"
    )
    if found["filled_high"] is None:
        return f"{start}."
    return (
        f"{start}; the target has {found['num_high']}. Features fill {100 * found['filled_high']:.0f} % of a high "
        f"coordinate and {100 * found['filled_low']:.0f} % of a low one, and where the target asks for variances in "
        f"the ratio {found['anisotropy_asked']:.2f} they have {found['anisotropy_kept']:.2f}."
    )
