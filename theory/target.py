"""The covariances that ΛReg's constraint allows, and the one that prediction chooses (docs/theory.md, T3, T4 and T12).

The regulariser pins the feature covariance to qΛ with tr Λ = D and max v ≤ κ min v. Prediction then has a say: among
the allowed targets it prefers those that put large variance on directions with small relative noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from theory.spd import (
    Array,
    check_count,
    check_kappa,
    check_psd,
    check_result,
    check_scale,
    check_spd,
    check_symmetric,
    inv_sqrt_spd,
    sqrt_spd,
    symmetrize,
)

#: Relative noises this close (relative to the larger) are equal, and a κ this close to a κ_k (see
#: :func:`optimal_target`), relative to it, is a tie: the optimum is then not unique.
TIE_TOLERANCE = 1e-9


def relative_noise(state_cov: ArrayLike, noise_cov: ArrayLike) -> Array:
    """Process noise in whitened coordinates: N = Σ^{-1/2} Σ_w Σ^{-1/2}.

    An encoder that matches the target qΛ pays at least tr(WΣ_wWᵀ) = q tr(NL) of latent prediction error, however good
    the predictor is. Only ratios within N matter to the choice of L.

    Parameters
    ----------
    state_cov
        State covariance Σ, SPD (n, n).
    noise_cov
        Process-noise covariance Σ_w, positive semidefinite (n, n), in the units of Σ; directions may be noiseless.

    Returns
    -------
    Array
        N, symmetric positive semidefinite (n, n), dimensionless.

    Raises
    ------
    ValueError
        If Σ is not SPD, Σ_w is not positive semidefinite, or the shapes differ.

    References
    ----------
    docs/theory.md, T4 (derived there).
    """
    state_cov = check_spd(state_cov, "state_cov")
    noise_cov = check_psd(noise_cov, "noise_cov", state_cov.shape[0])
    # A Gram matrix keeps noiseless directions at zero to rounding of N itself; the three-factor product would leave
    # negative eigenvalues of the size of rounding times the condition number of Σ.
    factor = sqrt_spd(noise_cov) @ inv_sqrt_spd(state_cov)
    with np.errstate(over="ignore", invalid="ignore"):
        return check_result(symmetrize(factor.T @ factor), "state_cov or noise_cov")


@dataclass(frozen=True)
class TargetSet:
    """The constraint set T_{n,κ} = {L ≻ 0 : tr L = n, λmax(L) ≤ κ λmin(L)}, convex and invariant under rotation.

    Attributes
    ----------
    dim
        Dimension n of the target.
    kappa
        Bound κ ≥ 1 on the condition number; κ = 1 leaves only L = I.

    Raises
    ------
    ValueError
        If ``dim`` is not a whole number ≥ 1, or κ is below 1 or not finite.

    References
    ----------
    AnisoWM (arXiv 2609.37441), Section 4.2; docs/theory.md, T3.
    """

    dim: int
    kappa: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", check_count(self.dim, "dim"))
        object.__setattr__(self, "kappa", check_kappa(self.kappa))

    @property
    def variance_bounds(self) -> tuple[float, float]:
        """Least and greatest eigenvalue of any member: n/(1 + (n−1)κ) and nκ/(κ + n−1), both attained.

        The first belongs to n−1 high variances and one low, the second to one high and n−1 low.
        """
        others = self.dim - 1
        return self.dim / (1 + others * self.kappa), self.dim / (1 + others / self.kappa)

    def contains(self, target: ArrayLike, tol: float = 1e-10) -> bool:
        """Whether L lies in the set, up to moving its eigenvalues by ``tol`` relative to the largest.

        True iff λmin > 0, |tr L − n| ≤ tol·n and λmax/κ ≤ λmin + tol·λmax. Eigenvalues are known only to rounding
        relative to the *largest*, so that a tolerance relative to λmin would mean nothing at large κ.

        Parameters
        ----------
        target
            L, symmetric (n, n).
        tol
            Relative tolerance, ≥ 0.

        Raises
        ------
        ValueError
            If L is not a finite symmetric matrix of the set's dimension, or ``tol`` is negative.
        """
        target = check_symmetric(target, "target", self.dim)
        tol = 0.0 if tol == 0 else check_scale(tol, "tol")
        eigenvalues = np.linalg.eigvalsh(target)
        smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
        trace_fits = abs(float(eigenvalues.sum()) - self.dim) <= tol * self.dim
        return smallest > 0 and trace_fits and largest / self.kappa <= smallest + tol * largest

    def project(self, target: ArrayLike) -> Array:
        """Nearest member in Frobenius norm: P = argmin ‖X − A‖_F over X in T_{n,κ}.

        The set is invariant under rotation, so that P has A's eigenvectors, and its eigenvalues are the nearest vector
        to A's among those with sum n and max ≤ κ min: v_i = clip(λ_i + s, t, κt) for one shift s and one floor t. In
        units of λ the clipping interval [α, β] = [t − s, κt − s] balances what it adds below and removes above,
        Σ(α − λ_i)₊ = κ Σ(λ_i − β)₊, and the trace fixes the rest. Both conditions are piecewise linear, so that the
        solution is exact up to rounding.

        Parameters
        ----------
        target
            A, any symmetric matrix (n, n); it need not be definite.

        Returns
        -------
        Array
            P, SPD (n, n), a member of the set.

        Raises
        ------
        ValueError
            If A is not a finite symmetric matrix of the set's dimension.

        References
        ----------
        Derived here from the optimality conditions; docs/theory.md, T3.
        """
        target = check_symmetric(target, "target", self.dim)
        eigenvalues, eigenvectors = np.linalg.eigh(target)
        variances = _project_spectrum(eigenvalues, self.kappa)
        return symmetrize((eigenvectors * variances) @ eigenvectors.T)


def _project_spectrum(eigenvalues: Array, kappa: float) -> Array:
    """Nearest vector to ascending ``eigenvalues`` (n,) with sum n and max ≤ κ min (see :meth:`TargetSet.project`)."""
    dim = eigenvalues.size
    # A shift of all eigenvalues is absorbed by s, so that the mean is taken out before it costs digits; the second pass
    # removes what rounding of a large mean left.
    centred = eigenvalues - eigenvalues.mean()
    centred -= centred.mean()
    if (centred[-1] + 1) / kappa <= centred[0] + 1:
        return centred + 1
    if kappa == 1:
        return np.ones(dim)

    # Both clips are active. Parametrise the interval by c = Σ(α − λ)₊/κ = Σ(λ − β)₊, which grows as the interval
    # shrinks from [λmin, λmax]; α(c) and β(c) are linear between the values of c where an end passes an eigenvalue.
    gaps, counts = np.diff(centred), np.arange(1, dim)
    below = np.concatenate([[0.0], np.cumsum(counts * gaps)]) / kappa
    above = np.concatenate([[0.0], np.cumsum(counts * gaps[::-1])])
    knots = np.union1d(below, above)
    knots = knots[knots <= min(below[-1], above[-1])]
    lower, upper = np.interp(knots, below, centred), np.interp(knots, above, centred[::-1])
    # The trace minus n, with the floor t = (β − α)/(κ − 1) and the shift s = t − α that an interval implies; clipping
    # adds κc − c. It falls all along the path, is positive at c = 0 (else nothing were clipped) and −n where α = β.
    excess = (kappa - 1) * knots + dim * ((upper - lower) / (kappa - 1) - lower) - dim
    start, end = np.interp(0.0, -excess, lower), np.interp(0.0, -excess, upper)
    least, _ = TargetSet(dim, kappa).variance_bounds
    floor = min(max((end - start) / (kappa - 1), least), 1.0)
    variances = np.clip(centred + (floor - start), floor, kappa * floor)
    # Rounding leaves its mark in the trace; a common factor removes it and keeps every ratio.
    return variances * (dim / variances.sum())


@dataclass(frozen=True, eq=False)
class OptimalTarget:
    """The target that prediction chooses inside the constraint set (see :func:`optimal_target`).

    Attributes
    ----------
    matrix
        L as the whitened state sees it, SPD (n, n). Its trace is n if the latent has the state's dimension.
    variances
        All D latent variances, descending, sum D: the n of L and those of the D − n coordinates that carry no state.
    num_high
        How many of the D variances stand at the high level.
    value
        tr(NL), the latent prediction loss in units of the isotropic scale q.
    unique
        Whether L is the only optimum. If not, the one reported has the fewest high variances.
    """

    matrix: Array
    variances: Array
    num_high: int
    value: float
    unique: bool


def optimal_target(noise: ArrayLike, kappa: float, latent_dim: int | None = None) -> OptimalTarget:
    """Target of least prediction loss: L* = argmin tr(NL) over T_{D,κ}, two-level with large variance on small noise.

    With ν₁ ≤ … ≤ ν_D the eigenvalues of N, padded by D − n zeros, and S_k = ν₁ + … + ν_k,

        V* = min over k = 0..D−1 of m_k (κS_k + S_D − S_k),   m_k = D/(kκ + D − k),   k* = #{i : ν_i < V*/D};

    the k* directions of least noise get variance κm_{k*} and the others m_{k*}. Equivalently direction k is high iff

        κ Σ_j (ν_k − ν_j)₊ < Σ_j (ν_j − ν_k)₊,

    that is κ < κ_k. The optimum is unique iff κ = 1 or no ν_i equals V*/D. With N ∝ I every member of the set is
    optimal, and L = I is returned.

    A latent coordinate that carries no state has no prediction error, so that in an over-complete latent (D > n) the
    spare coordinates take the high variance first. L is the n × n block that is left for the state, tr L ≤ n, and it is
    unique exactly if the whole target is.

    Parameters
    ----------
    noise
        Relative noise N as :func:`relative_noise` returns it, positive semidefinite (n, n); its scale is free.
    kappa
        Bound κ ≥ 1 on max v / min v.
    latent_dim
        Latent dimension D ≥ n; ``None`` is D = n.

    Returns
    -------
    OptimalTarget
        ``matrix``, ``variances``, ``num_high``, ``value``, ``unique``.

    Raises
    ------
    ValueError
        If N is not positive semidefinite, κ < 1 or infinite, or D is not a whole number ≥ n: a latent smaller than the
        state has a singular metric, for which no planning regret is defined.

    Notes
    -----
    Ties are judged with the relative tolerance :data:`TIE_TOLERANCE` on the two sides of that inequality, and never by
    ν_i against V*/D: for large κ the mean V*/D comes as close as one likes to the noise of a direction that is high.

    References
    ----------
    docs/theory.md, T4 and T12 (both derived there).
    """
    noise = check_psd(noise, "noise")
    kappa = check_kappa(kappa)
    dim = noise.shape[0]
    latent_dim = dim if latent_dim is None else check_count(latent_dim, "latent_dim")
    if latent_dim < dim:
        raise ValueError(f"latent_dim must be at least the state dimension {dim}, but it is {latent_dim}.")

    eigenvalues, eigenvectors = np.linalg.eigh(noise)
    spare = latent_dim - dim
    # Rounding of a singular N may leave eigenvalues just below zero.
    levels = np.concatenate([np.zeros(spare), np.clip(eigenvalues, 0.0, None)])
    high_side, tied = _high_directions(levels, kappa)
    num_high = 0 if kappa == 1 else int(np.count_nonzero(high_side))

    # Written with 1/κ, so that no product overflows at extreme κ.
    high = latent_dim / (num_high + (latent_dim - num_high) / kappa)
    low = high / kappa if num_high else 1.0
    variances = np.where(np.arange(latent_dim) < num_high, high, low)
    on_state = variances[spare:]
    return OptimalTarget(
        matrix=symmetrize((eigenvectors * on_state) @ eigenvectors.T),
        variances=variances,
        num_high=num_high,
        value=float(levels[spare:] @ on_state),
        unique=bool(kappa == 1 or latent_dim == 1 or not tied.any()),
    )


def _high_directions(levels: Array, kappa: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which of ``levels`` (D,) take the high variance, and which are tied: either variance is as good for them."""
    largest = float(levels.max())
    gaps = (levels - levels[:, None]) / (largest if largest > 0 else 1.0)
    sizes = np.maximum(levels, levels[:, None]) / (largest if largest > 0 else 1.0)
    # Equal to the tolerance, or to the rounding of eigenvalues.
    rounding = levels.size * float(np.finfo(np.float64).eps)
    gaps[np.abs(gaps) <= np.maximum(TIE_TOLERANCE * sizes, rounding)] = 0.0
    gain, loss = np.maximum(gaps, 0.0).sum(axis=1), np.maximum(-gaps, 0.0).sum(axis=1)
    with np.errstate(over="ignore"):
        loss = np.minimum(kappa * loss, np.finfo(np.float64).max)
    tied = np.abs(gain - loss) <= TIE_TOLERANCE * np.maximum(gain, loss)
    return (gain > loss) & ~tied, tied
