"""The exact claims about planning regret (T5 to T7), against costs evaluated on points and quadrature over lines."""

from __future__ import annotations

import math

import numpy as np

from theory import _brute_force as brute
from theory.claims import INVERSE_COVARIANCE_REGRET, TOY_CONDITION, TOY_STATE_COV, Claim, Status
from theory.metric import isotropic_metric
from theory.reachable import AffineSet, FiniteSet
from theory.regret import best_kappa, mean_line_regret, planning_regret, regret_curve, worst_case, worst_regret
from theory.spd import Array, condition_number, inv_sqrt_spd

_PAPER = "AnisoWM (arXiv 2609.37441)"
_BRUTE: Status = "checked against brute force"


def evaluate() -> list[Claim]:
    """T5 to T7, in order."""
    return [*_cases(), *_means(), *_worst(), *_against_kappa()]


def _cases() -> list[Claim]:
    """T5: single planning cases against three-point parabolas through the cost."""
    rng = np.random.default_rng(3)
    gap = 0.0
    for dim in (2, 3, 6) * 20:
        metric, task = brute.random_spd(rng, dim), brute.random_spd(rng, dim)
        point, direction, goal = rng.standard_normal((3, dim))
        expected = float(brute.line_regret(point, direction, goal, metric, task))
        regret = planning_regret(AffineSet(point, direction[:, None]), goal, metric, task)
        gap = max(gap, abs(regret.normalized - expected) / (1 + expected))
    return [
        Claim(
            "T5 regret of one line",
            "The latent planner's choice on a reachable line, and what it costs the task, without any prediction error "
            "(worst relative gap).",
            _BRUTE,
            0.0,
            gap,
            1e-9,
            f"{_PAPER}, normalised planning regret",
            note="60 random lines, goals and metrics, dimension 2, 3 and 6.",
        )
    ]


def _means() -> list[Claim]:
    """T6: mean regret over random lines by quadrature over their angles."""
    metric = isotropic_metric(TOY_STATE_COV)
    mean = mean_line_regret(metric)
    rng = np.random.default_rng(4)
    gap = 0.0
    for _ in range(20):
        first, second = brute.random_spd(rng, 2), brute.random_spd(rng, 2, 10.0)
        gap = max(gap, abs(mean_line_regret(first, second) / brute.mean_line_regret_2d(first, second) - 1))
    spatial = np.diag([1.0, 2.0, 5.0])
    return [
        Claim(
            "T6 mean, 2-D",
            "M ∝ Σ⁻¹ with standard deviations 7:4 has mean regret 9/56 over random lines (quadrature over angles).",
            _BRUTE,
            INVERSE_COVARIANCE_REGRET,
            brute.mean_line_regret_2d(metric),
            1e-9,
            "derived here: (√ρ − 1)²/(2√ρ)",
            note=f"mean_line_regret gives {mean:.9f}.",
        ),
        Claim(
            "T6 mean, the paper's number",
            "That mean is consistent with, not identified by, the paper's plateau of 0.1607: we do not have its toy's "
            "parameters, and other definitions give the same digits at 7:4.",
            _BRUTE,
            0.1607,
            mean,
            5e-5,
            f"{_PAPER}, Figure 1 and its text",
        ),
        Claim(
            "T6 mean, task metrics",
            "The mean depends on M and Q through ρ(M, Q) alone in two dimensions (worst relative gap to quadrature).",
            _BRUTE,
            0.0,
            gap,
            1e-9,
            "derived here",
            note="20 random pairs (M, Q).",
        ),
        Claim(
            "T6 mean, 3-D",
            "The one-dimensional integral gives the mean in n dimensions, M = diag(1, 2, 5) (quadrature over lines).",
            _BRUTE,
            brute.mean_line_regret_3d(spatial),
            mean_line_regret(spatial),
            1e-8,
            "derived here",
        ),
    ]


def _worst() -> list[Claim]:
    """T6: worst cases of lines, convex polygons and finite sets."""
    rng = np.random.default_rng(5)
    grid_gap = attained_gap = 0.0
    for _ in range(10):
        metric, task = brute.random_spd(rng, 2), brute.random_spd(rng, 2, 10.0)
        bound = worst_regret(metric, task)
        grid_gap = max(grid_gap, abs(brute.worst_line_regret_2d(metric, task) / bound - 1))
        case = worst_case(metric, task)
        attained = brute.line_regret(case.offset, case.direction, np.zeros(2), metric, task)
        attained_gap = max(attained_gap, abs(float(attained) / bound - 1))
    polygons = max(_polygon_share(rng) for _ in range(2000))
    ratio = condition_number(isotropic_metric(TOY_STATE_COV))
    finite_metric, finite = np.diag([ratio, 1.0]), 0.0
    for margin in (1e-2, 1e-4, 1e-6):
        candidates = FiniteSet(np.array([[1.0, 0.0], [0.0, math.sqrt(ratio) * (1 - margin)]]))
        finite = max(finite, planning_regret(candidates, np.zeros(2), finite_metric).normalized)
    return [
        Claim(
            "T6 worst case, lines",
            "The worst line costs sinh²(½ ln ρ) (worst relative gap to a dense grid of angles).",
            _BRUTE,
            0.0,
            grid_gap,
            1e-5,
            "Kantorovich's inequality; derived here for regret",
        ),
        Claim(
            "T6 worst case, attained",
            "worst_case returns a line and a goal that cost exactly that (worst relative gap).",
            _BRUTE,
            0.0,
            attained_gap,
            1e-9,
            "derived here",
        ),
        Claim(
            "T6 worst case, convex sets",
            "No convex reachable set costs more than the worst line (largest share of the bound).",
            _BRUTE,
            1.0,
            polygons,
            1e-9,
            "derived here",
            relation="≤",
            note="2,000 random polygons, exact geometry.",
        ),
        Claim(
            "T6 worst case, finite sets",
            "Two candidate points can cost up to ρ − 1, more than any convex set: "
            f"sinh²(½ ln ρ) is {worst_regret(finite_metric):.4f} here.",
            _BRUTE,
            ratio - 1,
            finite,
            1e-4,
            "derived here",
        ),
    ]


def _polygon_share(rng: np.random.Generator) -> float:
    """Regret of one random polygon as a share of the bound; every second one holds the worst line's direction."""
    metric = np.diag([10.0 ** rng.uniform(0.1, 2), 1.0])
    case = worst_case(metric)
    corners = rng.standard_normal((rng.integers(3, 7), 2)) * 10.0 ** rng.uniform(-1, 1, 2)
    if rng.random() < 0.5:
        # A sliver along the worst line, behind it as the goal sees it.
        depth = 10.0 ** rng.uniform(-4, 0)
        corners = np.stack(
            [case.offset + s * case.direction + d * case.offset for s, d in [(-50, 0), (50, 0), (0, depth)]]
        )
        goal = np.zeros(2)
    else:
        corners = corners[np.argsort(np.arctan2(*(corners - corners.mean(axis=0)).T))]
        corners = _convex_hull(corners)
        angle = rng.uniform(0, 2 * np.pi)
        reach = 2 * np.abs(corners - corners.mean(axis=0)).max()
        goal = corners.mean(axis=0) + 10.0 ** rng.uniform(0.2, 2) * reach * np.array([np.cos(angle), np.sin(angle)])
    chosen = brute.nearest_in_polygon(corners, goal, metric)
    optimal = brute.nearest_in_polygon(corners, goal, np.eye(2))
    regret = brute.quadratic_cost(chosen, goal, np.eye(2)) / brute.quadratic_cost(optimal, goal, np.eye(2)) - 1
    return float(regret / worst_regret(metric))


def _convex_hull(points: Array) -> Array:
    from scipy.spatial import ConvexHull

    return np.asarray(points[ConvexHull(points).vertices])


def _against_kappa() -> list[Claim]:
    """T7: the κ curve, its zero, its return, and where ΛReg hurts."""
    kappas = [1.0, 1.75, 2.0, TOY_CONDITION, 5.36, TOY_CONDITION**2]
    curve = regret_curve(TOY_STATE_COV, np.eye(2), kappas)
    mean = dict(zip(kappas, (float(value) for value in curve["mean_regret"]), strict=True))
    gap = max(abs(mean[kappa] - _brute_regret(TOY_STATE_COV, np.eye(2), kappa)) for kappa in kappas)
    best = best_kappa(TOY_STATE_COV, np.eye(2))
    against = np.diag([10.0, 1.0])
    hurt = [_brute_regret(TOY_STATE_COV, against, kappa) for kappa in (1.0, 1.5, 2.0, 4.0)]
    source = f"{_PAPER}, closed-form case; the formula cosh(½ ln(κ/c)) − 1 is derived here"
    return [
        Claim(
            "T7 regret against κ",
            "Mean regret is cosh(½ ln(κ/c)) − 1 for isotropic noise (worst gap to linear program and quadrature).",
            _BRUTE,
            0.0,
            gap,
            1e-9,
            source,
            note="κ = " + ", ".join(f"{kappa:g}" for kappa in kappas) + ".",
        ),
        Claim(
            "T7 zero at κ = c", "At κ = c = 49/16 the regret is gone.", _BRUTE, 0.0, mean[TOY_CONDITION], 1e-12, source
        ),
        Claim(
            "T7 return at κ = c²",
            "At κ = c² the regret is back at 9/56: too much anisotropy costs as much as none.",
            _BRUTE,
            INVERSE_COVARIANCE_REGRET,
            mean[TOY_CONDITION**2],
            1e-9,
            source,
        ),
        Claim("T7 best κ", "best_kappa finds κ = c.", _BRUTE, TOY_CONDITION, best.kappa, 1e-4, source),
        Claim(
            "T7 where ΛReg hurts",
            "With noise more anisotropic than the state, Σ_w = diag(10, 1), any κ > 1 costs more: the best κ is 1.",
            _BRUTE,
            1.0,
            best_kappa(TOY_STATE_COV, against).kappa,
            1e-9,
            "derived here",
            note="Brute force at κ = 1, 1.5, 2, 4: " + ", ".join(f"{value:.4f}" for value in hurt) + ".",
        ),
    ]


def _brute_regret(state_cov: Array, noise_cov: Array, kappa: float) -> float:
    """Mean regret at κ: the allocation by linear program in the noise's eigenvectors, then quadrature."""
    root = inv_sqrt_spd(state_cov)
    noise_variances, axes = np.linalg.eigh(root @ noise_cov @ root)
    _, variances = brute.cheapest_variances(noise_variances, kappa)
    return brute.mean_line_regret_2d(root @ (axes * variances) @ axes.T @ root)
