"""T5, T6 and T7, symbolically: one line's regret, the mean and the worst over lines of the plane, regret against κ."""

from __future__ import annotations

from functools import cache
from typing import Any

import sympy as sp

from theory.symbolic.statement import Statement, prove, prove_nonnegative, symmetric

_T = sp.Symbol("t", real=True)
_RHO = sp.Symbol("rho", positive=True)
# √ρ: the closed forms are rational in it.
_R = sp.Symbol("r", positive=True)
_C, _KAPPA = sp.symbols("c kappa", positive=True)

#: Regret of the line along (1, t) in the metric's eigenbasis, the goal at unit distance, with μ = (1/r, r).
_LINE = _T**2 * (_R**2 - 1) ** 2 / (1 + _R**2 * _T**2) ** 2
_LINE_CLAIM = "regret (vᵀMe/vᵀMv)² of the line along v = (1, t)/√(1+t²), with e ⊥ v and M = diag(1/r, r), r = √ρ"
_SQUARED_GAP = (_RHO - 1) ** 2 / (4 * _RHO)
_MEAN = (sp.sqrt(_RHO) - 1) ** 2 / (2 * sp.sqrt(_RHO))


def _line_regret() -> Any:
    """(vᵀMe/vᵀMv)² from its definition."""
    metric = sp.diag(1 / _R, _R)
    along, across = sp.Matrix([1, _T]) / sp.sqrt(1 + _T**2), sp.Matrix([-_T, 1]) / sp.sqrt(1 + _T**2)
    return ((along.T * metric * across)[0] / (along.T * metric * along)[0]) ** 2


@cache
def line_regret() -> Statement:
    """T5 for a line p + va: what is chosen, and what it costs beyond the optimum, in any dimension."""
    a = sp.Symbol("a", real=True)
    m_vv, q_vv = sp.symbols("m_vv q_vv", positive=True)
    m_vd, m_dd, q_vd, q_dd, m_ve = sp.symbols("m_vd m_dd q_vd q_dd m_ve", real=True)
    distance = sp.Symbol("h", positive=True)
    latent, task = (
        square * a**2 + 2 * mixed * a + constant for square, mixed, constant in ((m_vv, m_vd, m_dd), (q_vv, q_vd, q_dd))
    )
    chosen, best = -m_vd / m_vv, -q_vd / q_vv
    regret = q_vv * (chosen - best) ** 2
    optimal = q_dd - q_vd**2 / q_vv

    metric, metric_entries = symmetric("m")
    task_metric, task_entries = symmetric("q")
    point, direction, goal = (sp.Matrix(sp.symbols(f"{name}_1 {name}_2", real=True)) for name in ("p", "v", "g"))
    offset = point - goal
    in_plane = {
        m_vv: (direction.T * metric * direction)[0],
        m_vd: (direction.T * metric * offset)[0],
        m_dd: (offset.T * metric * offset)[0],
        q_vv: (direction.T * task_metric * direction)[0],
        q_vd: (direction.T * task_metric * offset)[0],
        q_dd: (offset.T * task_metric * offset)[0],
    }
    state = point + direction * a - goal
    arguments = (*point, *direction, *goal, *metric_entries, *task_entries)
    return Statement(
        label="T5",
        statement=(
            "On the line p + va the metric M chooses a = −vᵀM(p−g)/vᵀMv, and regrets vᵀQv times the squared distance "
            "in a from what the task metric Q would choose."
        ),
        assumptions=(
            "M, Q positive definite, v ≠ 0; any dimension",
            "d = p − g, and m_vv = vᵀMv, m_vd = vᵀMd, m_dd = dᵀMd, q likewise",
        ),
        steps=(
            prove(
                "the cost along the line, in the plane", sp.Trace(sp.MatMul(state.T, metric, state)), latent, in_plane
            ),
            prove("its slope vanishes at the choice", sp.Subs(sp.Derivative(latent, a), a, chosen), 0),
            prove("and its curvature is 2vᵀMv > 0", sp.Derivative(latent, (a, 2)), 2 * m_vv),
            prove("the task's least cost", sp.Subs(task, a, best), optimal),
            prove_nonnegative(
                "what the choice costs beyond it", sp.Subs(task, a, chosen) - sp.Subs(task, a, best), regret
            ),
            prove("nothing if M ∝ Q", regret, 0, {m_vv: _R * q_vv, m_vd: _R * q_vd}),
            prove(
                "the normalised regret, if d = he with v, e orthonormal in Q: h drops out",
                regret / optimal,
                (m_ve / m_vv) ** 2,
                {m_vd: distance * m_ve, q_vd: 0, q_dd: distance**2, q_vv: 1},
            ),
        ),
        latex=(
            r"J(x_M) - J(x^\star) = v^\top Q v \left(\frac{v^\top M (p - g)}{v^\top M v}"
            r" - \frac{v^\top Q (p - g)}{v^\top Q v}\right)^2"
        ),
        expressions={
            "excess": regret.subs(in_plane),
            "normalized": (regret / optimal).subs(in_plane),
            "chosen": point + direction * chosen.subs(in_plane),
        },
        arguments=dict.fromkeys(("excess", "normalized", "chosen"), arguments),
    )


@cache
def mean_line_regret() -> Statement:
    """T6, the mean over random lines of the plane: cosh(½ ln ρ) − 1, the integral carried out."""
    density = _LINE / (sp.pi * (1 + _T**2))
    # In parts, and the slope checked below: SymPy 1.14's antiderivative of the whole has another slope.
    parts = sp.apart(density, _T)
    antiderivative = sum(sp.integrate(part, _T) for part in sp.Add.make_args(parts))
    mean = (_R - 1) ** 2 / (2 * _R)
    low, high = sp.symbols("mu_1 mu_2", positive=True)
    metric, metric_entries = symmetric("m")
    task_metric, task_entries = symmetric("q")
    relative = task_metric.inv() * metric
    return Statement(
        label="T6 mean",
        statement=(
            "Over lines of the plane with uniform direction the mean normalised regret is cosh(½ ln ρ) − 1, with ρ the "
            "condition number of M relative to Q."
        ),
        assumptions=(
            "n = 2, in Q^{1/2}x coordinates, where the task metric is the identity",
            "the offset is the only direction orthogonal to the line; its length and sign drop out",
            "μ has geometric mean 1: the scale of M changes no choice",
        ),
        steps=(
            prove(_LINE_CLAIM, _line_regret(), _LINE),
            prove("a uniform angle in t = tan θ", sp.Derivative(sp.atan(_T) / sp.pi, _T), 1 / (sp.pi * (1 + _T**2))),
            prove("partial fractions", density, parts),
            prove("an antiderivative, checked by its slope", sp.Derivative(antiderivative, _T), density),
            prove(
                "its growth over the whole line is the mean",
                sp.Limit(antiderivative, _T, sp.oo) - sp.Limit(antiderivative, _T, -sp.oo),
                mean,
            ),
            prove("which is cosh(½ ln ρ) − 1", mean, sp.cosh(sp.log(_RHO) / 2) - 1, {_R: sp.sqrt(_RHO)}),
            prove(
                "and follows from trace and determinant of Q⁻¹M",
                (low + high) / (2 * sp.sqrt(low * high)) - 1,
                _MEAN,
                {_RHO: high / low},
            ),
        ),
        latex=r"\mathbb{E}\,\text{regret} = \cosh(\tfrac12 \ln\rho) - 1 = \frac{(\sqrt\rho - 1)^2}{2\sqrt\rho}",
        expressions={
            "mean": _MEAN,
            "mean_of_metric": relative.trace() / (2 * sp.sqrt(relative.det())) - 1,
            "regret_at_slope": _LINE.subs(_R, sp.sqrt(_RHO)),
        },
        arguments={
            "mean": (_RHO,),
            "mean_of_metric": (*metric_entries, *task_entries),
            "regret_at_slope": (_T, _RHO),
        },
    )


@cache
def worst_regret() -> Statement:
    """T6, the worst line of the plane: sinh²(½ ln ρ), attained along (√λmax, √λmin)."""
    bound = (_R**2 - 1) ** 2 / (4 * _R**2)
    mean = (_R - 1) ** 2 / (2 * _R)
    low, high = sp.symbols("mu_1 mu_2", positive=True)
    metric, metric_entries = symmetric("m")
    task_metric, task_entries = symmetric("q")
    relative = task_metric.inv() * metric
    return Statement(
        label="T6 worst",
        statement=(
            "No line of the plane has normalised regret above sinh²(½ ln ρ) = (ρ−1)²/(4ρ); the line along "
            "(√λmax, √λmin) in the eigenvectors (e_min, e_max) attains it."
        ),
        assumptions=("n = 2, in Q^{1/2}x coordinates; in n dimensions the line and its offset span a plane",),
        steps=(
            prove(_LINE_CLAIM, _line_regret(), _LINE),
            prove_nonnegative(
                "what the bound leaves",
                bound - _LINE,
                (_R**2 - 1) ** 2 * (1 - _R**2 * _T**2) ** 2 / (4 * _R**2 * (1 + _R**2 * _T**2) ** 2),
            ),
            prove("is nothing at t = 1/r, the line along (√λmax, √λmin)", sp.Subs(_LINE, _T, 1 / _R), bound),
            prove(
                "the bound is sinh²(½ ln ρ)",
                bound,
                sp.sinh(sp.log(_RHO) / 2) ** 2,
                {_R: sp.sqrt(_RHO)},
            ),
            prove("and follows from the mean", bound, mean * (mean + 2)),
            prove(
                "or from trace and determinant",
                ((low + high) ** 2 - 4 * low * high) / (4 * low * high),
                _SQUARED_GAP,
                {_RHO: high / low},
            ),
        ),
        latex=r"\max \text{regret} = \sinh^2(\tfrac12 \ln\rho) = \frac{(\rho - 1)^2}{4\rho}",
        expressions={
            "worst": _SQUARED_GAP,
            "worst_of_metric": (relative.trace() ** 2 - 4 * relative.det()) / (4 * relative.det()),
        },
        arguments={"worst": (_RHO,), "worst_of_metric": (*metric_entries, *task_entries)},
    )


@cache
def regret_against_kappa() -> Statement:
    """T7: with isotropic noise in the plane, the mean regret is cosh(½ ln(κ/c)) − 1, zero at κ = c alone."""
    first, second = sp.symbols("q_1 q_2", positive=True)
    variance = sp.Symbol("sigma", positive=True) ** 2
    slack = sp.Symbol("u", nonnegative=True)
    whitener = sp.diag(1 / sp.sqrt(_C), 1)
    target = 2 / (_KAPPA + 1) * sp.diag(_KAPPA, 1)
    flipped = 2 / (_KAPPA + 1) * sp.diag(1, _KAPPA)
    metric, flipped_metric = sp.MatMul(whitener, target, whitener), sp.MatMul(whitener, flipped, whitener)
    curve = _MEAN.subs(_RHO, _KAPPA / _C)
    task_curve = _MEAN.subs(_RHO, _KAPPA * second / (_C * first))
    rising = _MEAN.subs(_RHO, _KAPPA * _C)
    contrast = sp.Rational(49, 16)
    return Statement(
        label="T7",
        statement=(
            "For Σ ∝ diag(c, 1), c > 1, and isotropic process noise, ΛReg's metric has condition number κ/c or c/κ, "
            "and the mean regret is cosh(½ ln(κ/c)) − 1: the isotropic target's at κ = 1 and κ = c², zero at κ = c."
        ),
        assumptions=(
            "D = n = 2, Σ = diag(c, 1) with c > 1, Σ_w = σ²I, Q = I",
            "T4: the smaller relative noise gets 2κ/(κ+1)",
            "T6: the mean regret of a metric diag(μ₁, μ₂) is that of ρ = μ₁/μ₂",
            "where the allocation flips: u = cκ − 1 ≥ 0",
        ),
        steps=(
            prove(
                "relative noise is least on the axis of large variance",
                sp.MatMul(whitener, variance * sp.eye(2), whitener),
                variance * sp.diag(1 / _C, 1),
            ),
            prove("so the metric's ratio is κ/c", metric, 2 / (_KAPPA + 1) * sp.diag(_KAPPA / _C, 1)),
            prove("and the mean depends on it and its inverse alike", _MEAN, sp.Subs(_MEAN, _RHO, 1 / _RHO)),
            prove("κ = 1 is the isotropic target", sp.Subs(curve, _KAPPA, 1), sp.Subs(_MEAN, _RHO, _C)),
            prove("κ = c² is as bad", sp.Subs(curve, _KAPPA, _C**2), sp.Subs(_MEAN, _RHO, _C)),
            prove("κ = c has none", sp.Subs(curve, _KAPPA, _C), 0),
            prove(
                "it falls before and rises after",
                sp.Derivative(curve, _KAPPA),
                (_KAPPA - _C) / (4 * _KAPPA * sp.sqrt(_KAPPA * _C)),
            ),
            prove("standard deviations 7:4 give 9/56", sp.Subs(curve, (_KAPPA, _C), (1, contrast)), sp.Rational(9, 56)),
            prove(
                "a task metric diag(q₁, q₂) moves the zero to κ = cq₁/q₂",
                sp.Subs(task_curve, _KAPPA, _C * first / second),
                0,
            ),
            prove(
                "if the noise contrast exceeds c, the allocation flips: ratio cκ",
                flipped_metric,
                2 / (_KAPPA + 1) / _C * sp.diag(1, _C * _KAPPA),
            ),
            prove_nonnegative(
                "and regret rises from κ = 1 on: ΛReg hurts",
                sp.Derivative(rising, _KAPPA),
                slack / (4 * _KAPPA * sp.sqrt(_KAPPA * _C)),
                {slack: _KAPPA * _C - 1},
            ),
        ),
        latex=r"\mathbb{E}\,\text{regret}(\kappa) = \cosh\left(\tfrac12 \ln \tfrac{\kappa}{c}\right) - 1",
        expressions={"mean": curve, "mean_of_task": task_curve, "mean_if_flipped": rising},
        arguments={
            "mean": (_KAPPA, _C),
            "mean_of_task": (_KAPPA, _C, first, second),
            "mean_if_flipped": (_KAPPA, _C),
        },
    )
