"""The metric around single states: a nonlinear encoder has another one at every state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from theory.estimate.bootstrap import check_rows, standardize
from theory.estimate.metrics import (
    check_states_and_latents,
    fit_encoder,
    metric_in_units,
    relative_spectrum,
    spectrum_costs,
)
from theory.spd import Array, check_count, check_generator, check_spd, relative_eigh


@dataclass(frozen=True, eq=False)
class LocalMetrics:
    """Metrics of the linear maps that fit an encoder near m states.

    Attributes
    ----------
    centers
        The states, (m, n).
    metrics
        M_j = W_jᵀW_j, (m, n, n).
    mean_metric
        Their mean, (n, n), an estimate of E[JᵀJ] for centres drawn from the data.
    condition_numbers, mean_regrets, worst_regrets
        ρ(M_j, Q) and what planning near each centre with M_j costs, (m,); for a singular M_j infinite, nan, infinite.
    spread
        Distance of each M_j from the mean metric, whatever its scale and the state's units, (m,): standard deviation of
        ln μ over the eigenvalues μ of M_j relative to the mean metric; nan if either is singular. All are 0 for a
        linear encoder.
    mean_regret
        Mean of ``mean_regrets`` over the centres with a definite metric.
    num_singular
        Number of centres without one.
    r_squared
        Share of the latents' variance that each local map explains, (m,): near 1 if the neighbourhoods are small.
    radii
        Distance of the farthest neighbour, in standard deviations of the states (Mahalanobis), (m,).
    neighbors
        k.
    """

    centers: Array
    metrics: Array
    mean_metric: Array
    condition_numbers: Array
    mean_regrets: Array
    worst_regrets: Array
    spread: Array
    mean_regret: float
    num_singular: int
    r_squared: Array
    radii: Array
    neighbors: int


def estimate_local_metrics(
    states: ArrayLike,
    latents: ArrayLike,
    *,
    centers: ArrayLike | int = 32,
    neighbors: int | None = None,
    task_metric: ArrayLike | None = None,
    seed: int | np.random.Generator = 0,
) -> LocalMetrics:
    """M_j = W_jᵀW_j, W_j the least-squares map on the k states nearest to centre j, for each of m centres.

    Parameters
    ----------
    states, latents
        x, (T, n), and z, (T, D), row by row.
    centers
        Centres (m, n), or how many of the states to draw as centres.
    neighbors
        k, at least n + 2; max(10(n + 1), 30) or all states unless given. Fewer follow the encoder's bends more closely;
        noise in the latents, of covariance S, then adds about tr(S)/k to M_j in units of the neighbours' covariance.
    task_metric
        Q, SPD (n, n); ``None`` is Q = I.
    seed
        Seed or generator of the draw of centres.

    Returns
    -------
    LocalMetrics
        One metric a centre, their spread, and what they cost.

    Raises
    ------
    ValueError
        If shapes differ, entries are not finite, k or m is out of range, the states do not vary in some direction, or
        those of a neighbourhood do not (which happens on a grid: take more neighbours).
    """
    from scipy.spatial import cKDTree

    states, latents = check_states_and_latents(states, latents)
    count, dim = states.shape
    if task_metric is not None:
        task_metric = check_spd(task_metric, "task_metric", dim)
    neighbors = (
        min(count, max(10 * (dim + 1), 30)) if neighbors is None else check_count(neighbors, "neighbors", dim + 2)
    )
    if neighbors > count:
        raise ValueError(f"neighbors must be at most the number of states ({count}), but it is {neighbors}.")
    if isinstance(centers, int | np.integer):
        number = check_count(centers, "centers")
        if number > count:
            raise ValueError(f"centers must be at most the number of states ({count}), but it is {number}.")
        places = states[check_generator(seed, "seed").choice(count, number, replace=False)]
    else:
        places = check_rows(centers, "centers", columns=dim)
        if places.shape[0] == 0:
            raise ValueError("centers must not be empty.")

    standardized, mean, scale = standardize(states, "states")
    root = np.linalg.cholesky(np.atleast_2d(np.cov(standardized.T)))
    tree = cKDTree(np.linalg.solve(root, standardized.T).T)
    found = tree.query(np.linalg.solve(root, ((places - mean) / scale).T).T, k=neighbors)
    distances, indices = (np.asarray(part) for part in found)
    maps = [_local_fit(states[index], latents[index], center) for index, center in zip(indices, places, strict=True)]
    metrics = np.stack([metric for metric, _ in maps])
    costs = np.array([spectrum_costs(spectrum) for spectrum in relative_spectrum(metrics, task_metric)])
    mean_metric = metrics.mean(axis=0)
    definite = np.isfinite(costs[:, 0])
    known = costs[definite, 1]
    return LocalMetrics(
        centers=places,
        metrics=metrics,
        mean_metric=mean_metric,
        condition_numbers=costs[:, 0],
        mean_regrets=costs[:, 1],
        worst_regrets=costs[:, 2],
        spread=np.array([_distance(metric, mean_metric) for metric in metrics]),
        mean_regret=float(known.mean()) if known.size else float("nan"),
        num_singular=int((~definite).sum()),
        r_squared=np.array([share for _, share in maps]),
        radii=distances[:, -1],
        neighbors=neighbors,
    )


def _local_fit(states: Array, latents: Array, center: Array) -> tuple[Array, float]:
    name = "states near a center"
    whitened, _, scale = standardize(states, name)
    centered = latents - latents.mean(axis=0)
    if not centered.any():
        return np.zeros((scale.size, scale.size)), 1.0
    encoder, share = fit_encoder(whitened, centered)
    return metric_in_units(encoder, scale), share


def _distance(metric: Array, reference: Array) -> float:
    """Standard deviation of ln μ over the eigenvalues of ``metric`` relative to ``reference``."""
    if any(np.isinf(spectrum_costs(relative_spectrum(matrix, None))[0]) for matrix in (metric, reference)):
        return float("nan")
    return float(np.log(relative_eigh(metric, reference)[0]).std())
