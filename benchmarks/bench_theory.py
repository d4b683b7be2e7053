"""Side by side: the theory's batched and closed forms against what a user would write instead.

Run ``python benchmarks/bench_theory.py``: processor time on one core, median over repeats, fastest and slowest.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from theory.reachable import AffineSet
from theory.regret import affine_regrets, best_kappa, mean_line_regret, mean_subspace_regret, planning_regret

Array = NDArray[np.float64]

CASES = 200_000


def random_spd(rng: np.random.Generator, dim: int, condition: float) -> Array:
    eigenvalues = np.geomspace(1, condition, dim)
    rotation = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    return (rotation * eigenvalues) @ rotation.T


def seconds(function: Callable[[], object], repeats: int = 5) -> tuple[float, float, float]:
    """Median, least and largest processor time of a call, after one call to warm up."""
    function()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return statistics.median(times), min(times), max(times)


def loop_with_solve(points: Array, directions: Array, goals: Array, metric: Array, task: Array) -> Array:
    """The formula of T5 typed in: two solves a case, in a Python loop."""
    regrets = np.empty(len(points))
    for i, (point, columns, goal) in enumerate(zip(points, directions, goals, strict=True)):
        costs = []
        for weight in (metric, task):
            image = columns.T @ weight
            miss = point + columns @ np.linalg.solve(image @ columns, image @ (goal - point)) - goal
            costs.append(miss @ task @ miss)
        regrets[i] = costs[0] / costs[1] - 1
    return regrets


def sampled_mean(metric: Array, rng: np.random.Generator, count: int) -> tuple[float, float]:
    """Mean regret over random lines by Monte Carlo, with its standard error."""
    line = rng.standard_normal((count, len(metric)))
    line /= np.linalg.norm(line, axis=1, keepdims=True)
    image = line @ metric
    height = np.einsum("mi,mi->m", line, image)
    # The offset is averaged exactly, as a careful user would.
    regrets = (np.einsum("mi,mi->m", image, image) / height**2 - 1) / (len(metric) - 1)
    return float(regrets.mean()), float(regrets.std() / np.sqrt(count))


def bench_affine(rng: np.random.Generator) -> None:
    print(f"Affine cases, {CASES:,} at once against one by one (cases a second: median, slowest to fastest run)")
    for dim, k in ((2, 1), (4, 1), (4, 2), (8, 3), (16, 4)):
        metric, task = random_spd(rng, dim, 100.0), random_spd(rng, dim, 10.0)
        points, goals = rng.standard_normal((2, CASES, dim))
        directions = rng.standard_normal((CASES, dim, k))
        batched = seconds(lambda: affine_regrets(points, directions, goals, metric, task))  # noqa: B023
        few = slice(0, 2_000)
        looped = seconds(lambda: loop_with_solve(points[few], directions[few], goals[few], metric, task))  # noqa: B023
        singles = seconds(
            lambda: [planning_regret(AffineSet(points[i], directions[i]), goals[i], metric, task) for i in range(200)]  # noqa: B023
        )
        expected = loop_with_solve(points[few], directions[few], goals[few], metric, task)
        gap = np.abs(affine_regrets(points[few], directions[few], goals[few], metric, task).normalized - expected).max()
        rate = [CASES / value for value in batched]
        print(
            f"  n = {dim:2d}, k = {k}: batched {rate[0]:12,.0f} ({rate[2]:,.0f} to {rate[1]:,.0f})"
            f"   numpy.linalg.solve in a loop {2_000 / looped[0]:9,.0f}   planning_regret {200 / singles[0]:8,.0f}"
            f"   largest difference {gap:.1e}"
        )


def bench_means(rng: np.random.Generator) -> None:
    print("Mean over random lines (milliseconds: median, fastest to slowest run)")
    for dim in (3, 16, 64, 192):
        metric, task = random_spd(rng, dim, 1e6), random_spd(rng, dim, 10.0)
        for label, arguments in (("Q = I", (metric,)), ("any Q", (metric, task))):
            middle, least, most = (1e3 * value for value in seconds(lambda: mean_line_regret(*arguments), 20))  # noqa: B023
            print(f"  n = {dim:3d}, {label}: {middle:7.2f} ({least:.2f} to {most:.2f})")
        start = time.process_time()
        mean, error = sampled_mean(metric, rng, 50_000)
        print(
            f"           50,000 sampled lines: {1e3 * (time.process_time() - start):7.2f}, "
            f"off by {abs(mean / mean_line_regret(metric) - 1):.1e}, standard error {error / mean:.1e}"
        )


def bench_rest(rng: np.random.Generator) -> None:
    print("Others (milliseconds: median, fastest to slowest run)")
    metric = random_spd(rng, 8, 100.0)
    calls: dict[str, Callable[[], object]] = {
        "mean over planes, n = 8 (quadrature)": lambda: mean_subspace_regret(metric, 2),
        "mean over 3-dimensional subspaces, n = 8 (sampled to 0.5 %)": lambda: mean_subspace_regret(metric, 3),
        "best_kappa, n = 2": lambda: best_kappa(random_spd(rng, 2, 10.0), np.eye(2)),
        "best_kappa, n = 8": lambda: best_kappa(metric, np.eye(8)),
    }
    for label, call in calls.items():
        middle, least, most = (1e3 * value for value in seconds(call))
        print(f"  {label}: {middle:.1f} ({least:.1f} to {most:.1f})")


def main() -> None:
    rng = np.random.default_rng(0)
    bench_affine(rng)
    bench_means(rng)
    bench_rest(rng)


if __name__ == "__main__":
    main()
