"""What logged states say about κ: covariances, best κ, what it gains, and where ΛReg would hurt."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from theory._logs import TransitionLog
from theory.estimate import CovarianceEstimate, estimate_covariances
from theory.regret import best_kappa, regret_curve
from theory.spd import Array, check_count, check_spd, check_vector, relative_eigh
from theory.target import relative_noise

if TYPE_CHECKING:
    import pandas as pd

#: Relative noise below this is the rounding of a regression that fits exactly.
_NO_NOISE = 1e-12
#: Mean regret must exceed that of κ = 1 by this share to count as hurting.
_MARGIN = 1e-6


@dataclass(frozen=True, eq=False)
class Advice:
    """Numbers and words.

    Attributes
    ----------
    estimate
        Covariances with intervals.
    relative_levels
        Eigenvalues of N = Σ^{-1/2}Σ_wΣ^{-1/2}, ascending.
    kappa, regret, regret_at_one
        κ of least mean regret, the mean regret there and at κ = 1.
    kappa_interval, regret_interval, regret_at_one_interval
        Their bootstrap intervals, or ``None`` if no draws were asked for.
    noise_differs
        Whether the directions of least and most relative noise differ in it beyond the interval of their difference.
    share_above_one
        Share of draws whose best κ exceeds 1, or ``None``.
    hurts
        Ranges of κ > 1 with more mean regret than κ = 1; the last may end at infinity.
    curve
        Mean and worst regret at a few κ.
    sentences
        What it comes to.
    """

    estimate: CovarianceEstimate
    relative_levels: Array
    kappa: float
    regret: float
    regret_at_one: float
    kappa_interval: tuple[float, float] | None
    regret_interval: tuple[float, float] | None
    regret_at_one_interval: tuple[float, float] | None
    noise_differs: bool
    share_above_one: float | None
    hurts: list[tuple[float, float]]
    curve: pd.DataFrame
    sentences: list[str]


def advise(
    log: TransitionLog,
    task_weights: ArrayLike | None = None,
    kappas: tuple[float, ...] = (),
    level: float = 0.95,
    draws: int = 100,
    seed: int = 0,
) -> Advice:
    """Estimate Σ and Σ_w, and what each κ would cost.

    Parameters
    ----------
    log
        Transitions.
    task_weights
        Diagonal of Q, (n,); ``None`` is Q = I.
    kappas
        κ to show besides 1, 2, 4, 8, 16 and the best.
    level, draws, seed
        Coverage of the intervals; how many bootstrap draws carry them to κ and regret (0: none), and their seed.

    Raises
    ------
    ValueError
        As :func:`theory.estimate.estimate_covariances`, and if there is no process noise at all or the state has one
        dimension only.
    """
    dim = log.states.shape[1]
    if dim < 2:
        raise ValueError("states must have at least two columns: in one dimension every metric ranks alike.")
    task_metric = None
    if task_weights is not None:
        task_metric = check_spd(np.diag(check_vector(task_weights, "task_weights", dim)), "task_weights", dim)
    check_count(draws, "draws", 0)
    estimate = estimate_covariances(
        log.states,
        log.next_states,
        log.actions,
        episodes=log.episodes,
        level=level,
        resamples=max(500, draws),
        seed=seed,
    )
    noise = relative_noise(estimate.state_cov, estimate.noise_cov)
    levels = np.asarray(np.linalg.eigvalsh(noise), dtype=np.float64)
    if levels[-1] < _NO_NOISE:
        raise ValueError(
            "next_states must be noisy, but they are an exact linear function of states and actions: "
            "without process noise prediction does not choose between targets."
        )

    def regret(kappa: float) -> float:
        return float(regret_curve(estimate.state_cov, estimate.noise_cov, [kappa], task_metric)["mean_regret"].iloc[0])

    best = best_kappa(estimate.state_cov, estimate.noise_cov, task_metric)
    at_one = regret(1.0)
    hurts = _worse_ranges(regret, at_one, max(100.0, 100 * best.kappa))
    shown = sorted({1.0, 2.0, 4.0, 8.0, 16.0, *kappas, best.kappa})
    found = _draw(estimate, task_metric, draws)
    advice = Advice(
        estimate=estimate,
        relative_levels=levels,
        kappa=best.kappa,
        regret=best.mean_regret,
        regret_at_one=at_one,
        kappa_interval=_interval(found[:, 0], level),
        regret_interval=_interval(found[:, 1], level),
        regret_at_one_interval=_interval(found[:, 2], level),
        noise_differs=_noise_differs(estimate, level),
        share_above_one=float((found[:, 0] > 1).mean()) if draws else None,
        hurts=hurts,
        curve=regret_curve(estimate.state_cov, estimate.noise_cov, shown, task_metric),
        sentences=[],
    )
    advice.sentences.extend(_sentences(advice, draws))
    return advice


def _noise_differs(estimate: CovarianceEstimate, level: float) -> bool:
    """Whether eᵀΣ_we/eᵀΣe differs between the estimate's extreme directions e, held fixed over the draws.

    The draws' own eigenvalues would not do: the lowest and the highest of several equal ones always differ.
    """
    _, vectors = relative_eigh(estimate.noise_cov, estimate.state_cov)
    ratios = [
        np.einsum("i,rij,j->r", vector, estimate.noise_cov_draws, vector)
        / np.einsum("i,rij,j->r", vector, estimate.state_cov_draws, vector)
        for vector in (vectors[:, 0], vectors[:, -1])
    ]
    return float(np.quantile(ratios[1] - ratios[0], (1 - level) / 2)) > 0


def _draw(estimate: CovarianceEstimate, task_metric: Array | None, draws: int) -> Array:
    """Best κ, its regret and the regret at κ = 1 for each bootstrap draw, (draws, 3)."""
    rows = []
    for state_cov, noise_cov in zip(estimate.state_cov_draws[:draws], estimate.noise_cov_draws[:draws], strict=True):
        best = best_kappa(state_cov, noise_cov, task_metric)
        at_one = float(regret_curve(state_cov, noise_cov, [1.0], task_metric)["mean_regret"].iloc[0])
        rows.append((best.kappa, best.mean_regret, at_one))
    return np.array(rows).reshape(-1, 3)


def _interval(values: Array, level: float) -> tuple[float, float] | None:
    if values.size == 0:
        return None
    lower, upper = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(lower), float(upper)


def _worse_ranges(regret: Callable[[float], float], at_one: float, largest: float) -> list[tuple[float, float]]:
    """Ranges of κ in (1, largest] with more regret than κ = 1, from a logarithmic grid with bisected ends."""
    bar = at_one * (1 + _MARGIN) + 1e-12
    grid = np.exp(np.linspace(0.0, math.log(largest), 200))
    worse = [regret(float(kappa)) > bar for kappa in grid]

    def edge(low: float, high: float, state: bool) -> float:
        for _ in range(30):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if (regret(middle) > bar) == state else (low, middle)
        return high

    ranges: list[tuple[float, float]] = []
    start: float | None = None
    for index in range(1, grid.size):
        if worse[index] and start is None:
            start = edge(float(grid[index - 1]), float(grid[index]), False)
        elif not worse[index] and start is not None:
            ranges.append((start, edge(float(grid[index - 1]), float(grid[index]), True)))
            start = None
    if start is not None:
        ranges.append((start, math.inf))
    return ranges


def _sentences(advice: Advice, draws: int) -> list[str]:
    levels = advice.relative_levels
    sentences = []
    if advice.regret_at_one < 1e-6:
        sentences.append("κ = 1 is right already: Σ is proportional to the inverse of the task metric.")
    elif advice.kappa > 1:
        sentences.append(
            f"ΛReg helps: mean regret falls from {advice.regret_at_one:.4g} at κ = 1 to {advice.regret:.4g} at "
            f"κ = {advice.kappa:.3g}."
        )
    else:
        sentences.append(f"κ = 1 is best, with mean regret {advice.regret_at_one:.4g}: no κ > 1 lowers it.")
    for low, high in advice.hurts:
        place = f"above {low:.3g}" if math.isinf(high) else f"between {low:.3g} and {high:.3g}"
        if low <= 1.001 and math.isinf(high):
            place = "at every κ > 1"
        sentences.append(
            f"ΛReg hurts {'for κ ' * (not place.startswith('at'))}{place}: more mean regret than κ = 1 has."
        )
    if not advice.hurts:
        sentences.append("No κ that was tried hurts.")
    if advice.share_above_one is not None and 0.05 < advice.share_above_one < 0.95:
        count = round(advice.share_above_one * draws)
        sentences.append(f"The data do not settle whether κ > 1 helps: it does in {count} of {draws} bootstrap draws.")
    if not advice.noise_differs:
        sentences.append(
            f"Relative noise ({levels[0]:.3g} to {levels[-1]:.3g}) may be the same in all directions: which of them "
            "prediction favours, and so the best κ, is uncertain."
        )
    return sentences
