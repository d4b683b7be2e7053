"""Made-up rows of the toy, with the columns of its real ones: closed forms plus seeded noise, marked as synthetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

CONDITION = 3.0625
SIGMAS = (0.3, 0.1, 0.06, 0.03, 0.01)
KAPPAS = (1.0, 1.5, 1.75, 2.0, 3.0625, 5.36, 9.379)


def closed_form(kappa: float) -> float:
    return math.cosh(0.5 * math.log(kappa / CONDITION)) - 1


def row(
    experiment: str, seed: int, regret: float, rng: np.random.Generator, origin: str, **setting: Any
) -> dict[str, Any]:
    values = {"observation": "identity", "sigma": 0.5, "kappa": 1.0, "latent_dim": 2, "steps": 2000} | setting
    sigma, kappa, dim = values["sigma"], values["kappa"], values["latent_dim"]
    error = 0.0003 + 0.011 * sigma**2
    return {
        "experiment": experiment,
        **values,
        "seed": seed,
        "prediction_error": error * rng.lognormal(0, 0.05),
        "prediction_error_relative": error / 2,
        "regret_pred": regret,
        "regret_enc": regret * (1 if dim == 2 else 1.6),
        "regret_pred_median": regret * 0.8,
        "regret_enc_median": regret * 0.79,
        "metric_11": 0.33,
        "metric_12": 0.0,
        "metric_22": 1.0,
        "metric_ratio": 0.33,
        "metric_regret": regret,
        "metric_deviation": 0.02,
        "fold_share": 0.0,
        "folded": False,
        "nonlinear_share": 0.01 if values["observation"] == "identity" else 0.2,
        "target_variances": sorted(np.linspace(1, kappa, dim).tolist(), reverse=True),
        "target_condition": kappa,
        "action_tail_share": 0.001,
        "regularizer": 1.2,
        "collapsed": False,
        "origin": origin,
    }


def noise_rows(seeds: int = 10, sigmas: Sequence[float] = SIGMAS, origin: str = "synthetic") -> pd.DataFrame:
    rng = np.random.default_rng(11)
    settings = [("identity", sigma) for sigma in sigmas] + [("nonlinear", sigmas[1])]
    return pd.DataFrame(
        row(
            "noise-sweep", seed, 0.16 + 0.006 * rng.standard_normal(), rng, origin, sigma=sigma, observation=observation
        )
        for observation, sigma in settings
        for seed in range(seeds)
    )


def kappa_rows(seeds: int = 10, kappas: Sequence[float] = KAPPAS, origin: str = "synthetic") -> pd.DataFrame:
    rng = np.random.default_rng(12)
    return pd.DataFrame(
        row(
            "kappa-sweep",
            seed,
            abs(closed_form(kappa) + 0.006 + 0.008 * rng.standard_normal()),
            rng,
            origin,
            kappa=kappa,
        )
        for kappa in kappas
        for seed in range(seeds)
    )


def overcomplete_rows(seeds: int = 5, dims: Sequence[int] = (2, 3, 4, 8), origin: str = "synthetic") -> pd.DataFrame:
    rng = np.random.default_rng(13)
    level = {(1.0, 2): 0.16, (1.0, 3): 0.24, (1.0, 4): 0.39, (1.0, 8): 0.3, (CONDITION, 2): 0.01}
    return pd.DataFrame(
        row(
            "overcomplete",
            seed,
            abs(level.get((kappa, dim), 0.28) + 0.01 * rng.standard_normal()),
            rng,
            origin,
            kappa=kappa,
            latent_dim=dim,
        )
        for kappa in (1.0, CONDITION)
        for dim in dims
        for seed in range(seeds)
    )


def diagonal_rows(seeds: int = 5, origin: str = "synthetic") -> pd.DataFrame:
    rng = np.random.default_rng(14)
    shapes = {(1.0, 0.0): (0.33, 0.0, 1.0), (4.0, 45.0): (0.45, 0.16, 0.8)}
    cases = [
        (target, kappa, shape)
        for target in ("diagonal", "full")
        for kappa, shape in ((CONDITION, (1.0, 0.0)), (2.0, (4.0, 45.0)), (CONDITION, (4.0, 45.0)))
    ]
    rows = []
    for target, kappa, shape in cases:
        for seed in range(10, 10 + seeds):
            regret = abs(closed_form(kappa) + 0.004 + 0.003 * rng.standard_normal())
            entries = dict(zip(("metric_11", "metric_12", "metric_22"), shapes[shape], strict=True))
            made = row("diagonal", seed, regret, rng, origin, kappa=kappa) | entries
            made["metric_12"] += 0.01 * rng.standard_normal()
            rows.append(made | {"target": target, "noise_ratio": shape[0], "noise_angle": shape[1]})
    return pd.DataFrame(rows)


def example() -> dict[str, np.ndarray]:
    """Arrays of the toy's example.npz, for a metric M = diag(0.33, 1) bent a little by a cubic term."""
    state_cov, metric = np.diag([3.0625, 1.0]), np.array([[0.33, 0.012], [0.012, 0.98]])
    angle = math.radians(28.0)
    direction, normal = np.array([math.cos(angle), math.sin(angle)]), np.array([-math.sin(angle), math.cos(angle)])
    point = np.array([0.4, -0.2])
    goal = point + normal
    step = -(direction @ metric @ (point - goal)) / (direction @ metric @ direction)
    chosen = point + step * direction
    grid_x, grid_y = np.linspace(goal[0] - 3, goal[0] + 3, 121), np.linspace(goal[1] - 2.5, goal[1] + 2.5, 101)
    x, y = np.meshgrid(grid_x - goal[0], grid_y - goal[1])
    latent_cost = metric[0, 0] * x**2 + 2 * metric[0, 1] * x * y + metric[1, 1] * y**2
    return {
        "state_cov": state_cov,
        "metric": metric,
        "point": point,
        "direction": direction,
        "goal": goal,
        "chosen": chosen,
        "optimal": point,
        "grid_x": grid_x,
        "grid_y": grid_y,
        "latent_cost": latent_cost * (1 + 0.03 * np.sin(x) * y),
        "regret": np.array(step**2),
    }
