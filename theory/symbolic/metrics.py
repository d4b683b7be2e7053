"""T1, T2 and T4, symbolically: the metric that a target induces, and the target that prediction chooses."""

from __future__ import annotations

from functools import cache

import sympy as sp

from theory.symbolic.statement import Statement, prove, prove_nonnegative, rotation, symmetric

_N = sp.Symbol("n", integer=True, positive=True)
_Q = sp.Symbol("q", positive=True)
_I = sp.Identity(_N)
# An encoder, the state covariance and a root of it (Σ = AAᵀ), a symmetric root of the target (Λ = K²), a rotation.
_W, _S, _A, _K, _R = (sp.MatrixSymbol(name, _N, _N) for name in ("W", r"\Sigma", "A", "K", "R"))
#: SymPy cancels inverses but knows no orthogonal or symmetric symbol: these are the definitions.
_ORTHOGONAL = {_R.T: _R.I}
_SYMMETRIC = {_K.T: _K}


def _plane() -> tuple[tuple[sp.Symbol, sp.Symbol, sp.Symbol], sp.Matrix, sp.Matrix]:
    """Any covariance of the plane: standard deviations and the angle of its axes, Σ, and the symmetric Σ^{-1/2}."""
    first, second = sp.symbols("s_1 s_2", positive=True)
    angle = sp.Symbol("phi", real=True)
    axes = rotation(angle)
    state_cov = axes * sp.diag(first**2, second**2) * axes.T
    return (first, second, angle), state_cov, axes * sp.diag(1 / first, 1 / second) * axes.T


@cache
def isotropic_metric() -> Statement:
    """T1: an encoder whose features have covariance qI induces M = qΣ⁻¹, in any dimension."""
    # The hypothesis, solved for Σ; and the encoder that T1 builds for a given Σ.
    matched = {_S: _Q * _W.I * _W.T.I}
    built = {_W: sp.sqrt(_Q) * _R * _A.I, _S: _A * _A.T, **_ORTHOGONAL}
    plane, explicit_cov, whitener = _plane()
    turn = sp.Symbol("theta", real=True)
    encoder = sp.sqrt(_Q) * rotation(turn) * whitener
    state_cov, entries = symmetric("s")
    return Statement(
        label="T1",
        statement="Every affine encoder with W Σ Wᵀ = q I induces the metric WᵀW = q Σ⁻¹, whatever its rotation.",
        assumptions=("D = n", "W invertible", "Σ positive definite", "q > 0"),
        steps=(
            prove("the hypothesis says Σ = q W⁻¹W⁻ᵀ", _W * _S * _W.T, _Q * _I, matched),
            prove("whose inverse is the metric, up to q", _W.T * _W, _Q * _S.I, matched),
            prove("conversely W = √q R A⁻¹ matches for each orthogonal R", _W * _S * _W.T, _Q * _I, built),
            prove("and R drops out of its metric", _W.T * _W, _Q * _S.I, built),
            prove("in the plane, written out", sp.MatMul(explicit_cov, whitener, whitener), sp.eye(2)),
            prove("for every rotation", sp.MatMul(encoder.T, encoder), _Q * whitener * whitener),
        ),
        latex=r"W \Sigma W^\top = q I \;\Longrightarrow\; M = W^\top W = q\, \Sigma^{-1}",
        expressions={"metric": _Q * state_cov.inv(), "encoder": encoder, "state_cov": explicit_cov},
        arguments={"metric": (*entries, _Q), "encoder": (*plane, turn, _Q), "state_cov": plane},
    )


@cache
def anisotropic_metric() -> Statement:
    """T2: an encoder whose features have covariance qΛ induces M = q Σ^{-1/2} L Σ^{-1/2}, L = RᵀΛR."""
    matched = {_S: _Q * _W.I * _K * _K * _W.T.I, **_SYMMETRIC}
    # R as the proof defines it, and the encoder that this definition, solved for W, describes.
    whitened = {_R: _K.I * _W * _A / sp.sqrt(_Q)}
    built = {_W: sp.sqrt(_Q) * _K * _R * _A.I, _S: _A * _A.T, **_ORTHOGONAL, **_SYMMETRIC}
    mean, half_gap, angle = (sp.Symbol(name, real=True) for name in ("m", "delta", "theta"))
    seen = sp.MatMul(rotation(angle).T, sp.diag(mean + half_gap, mean - half_gap), rotation(angle))
    polar = sp.Matrix(
        [
            [mean + half_gap * sp.cos(2 * angle), -half_gap * sp.sin(2 * angle)],
            [-half_gap * sp.sin(2 * angle), mean - half_gap * sp.cos(2 * angle)],
        ]
    )
    plane, _, whitener = _plane()
    target, entries = symmetric("l")
    return Statement(
        label="T2",
        statement=(
            "Every affine encoder with W Σ Wᵀ = q Λ induces M = q Σ^{-1/2} L Σ^{-1/2} with L = RᵀΛR, R orthogonal; "
            "each L with Λ's eigenvalues is reached, so that a diagonal Λ loses nothing."
        ),
        assumptions=(
            "D = n",
            "W invertible",
            "Σ = AAᵀ positive definite, in the statement with A = Σ^{1/2}",
            "Λ = K² with K symmetric positive definite",
        ),
        steps=(
            prove("the hypothesis says Σ = q W⁻¹ΛW⁻ᵀ", _W * _S * _W.T, _Q * _K * _K, matched),
            prove(
                "R = q^{-1/2} K⁻¹WA is then orthogonal, as AAᵀ = Σ",
                _K.I * _W * _S * _W.T * _K.T.I / _Q,
                _I,
                matched,
            ),
            prove("and gives the encoder back", sp.sqrt(_Q) * _K * _R * _A.I, _W, whitened),
            prove("W = √q KRA⁻¹ matches, conversely, for each orthogonal R", _W * _S * _W.T, _Q * _K * _K, built),
            prove("its metric", _W.T * _W, _Q * _A.T.I * _R.T * _K * _K * _R * _A.I, built),
            prove("in the plane, RᵀΛR: polar coordinates of (l₁₁ − l₂₂)/2 and l₁₂, so any symmetric L", seen, polar),
            prove("it has the trace of Λ", polar.trace(), 2 * mean),
            prove("and its determinant, hence its eigenvalues m ± δ", polar.det(), mean**2 - half_gap**2),
        ),
        latex=(
            r"W \Sigma W^\top = q \Lambda \;\Longrightarrow\; M = q\, \Sigma^{-1/2} L\, \Sigma^{-1/2}, \quad"
            r" L = R^\top \Lambda R"
        ),
        expressions={"metric": _Q * whitener * target * whitener, "target": polar},
        arguments={"metric": (*plane, *entries, _Q), "target": (mean, half_gap, angle)},
    )


@cache
def optimal_target() -> Statement:
    """T4 in two dimensions: prediction puts the variance 2κ/(κ+1) on the direction of less relative noise."""
    least, gap, excess = sp.symbols("nu_1 g k", nonnegative=True)
    kappa, greatest = 1 + excess, least + gap
    share, slack = sp.symbols("tau u", nonnegative=True)
    angle = sp.Symbol("theta", real=True)
    widest = (kappa - 1) / (kappa + 1)
    half_gap = share * widest
    target = sp.MatMul(rotation(angle), sp.diag(1 + half_gap, 1 - half_gap), rotation(angle).T)
    loss = 2 * least + gap - gap * half_gap * sp.cos(2 * angle)
    high, low = 2 * kappa / (kappa + 1), 2 / (kappa + 1)
    value = high * least + low * greatest
    # The same in the symbols of the statement, for evaluation.
    bound = sp.Symbol("kappa", positive=True)
    levels = sp.symbols("nu_1 nu_2", nonnegative=True)
    variances = (2 * bound / (bound + 1), 2 / (bound + 1))
    axes = sp.Symbol("phi", real=True)
    return Statement(
        label="T4",
        statement=(
            "Among the targets with trace 2 and condition number at most κ, tr(NL) is least where L has N's "
            "eigenvectors, 2κ/(κ+1) on the smaller relative noise and 2/(κ+1) on the larger: the only optimum if these "
            "differ and κ > 1."
        ),
        assumptions=(
            "D = n = 2",
            "0 ≤ ν₁ ≤ ν₂ = ν₁ + g, in N's eigenbasis",
            "κ = 1 + k ≥ 1",
            "L has eigenvalues 1 ± τ(κ−1)/(κ+1), 0 ≤ τ = 1 − u ≤ 1, the larger at the angle θ from ν₁'s eigenvector",
        ),
        steps=(
            prove("eigenvalues 1 ± δ have ratio κ exactly at δ = (κ−1)/(κ+1)", (1 + widest) / (1 - widest), kappa),
            prove_nonnegative(
                "and at most κ up to there",
                kappa * (1 - half_gap) - (1 + half_gap),
                excess * slack,
                {slack: 1 - share},
            ),
            prove("the loss tr(NL) of such an L", sp.Trace(sp.MatMul(sp.diag(least, greatest), target)), loss),
            prove_nonnegative(
                "exceeds V* = 2(κν₁ + ν₂)/(κ + 1) by what the slack in τ and the angle cost",
                loss - value,
                gap * excess / (excess + 2) * (slack + 2 * share * sp.sin(angle) ** 2),
                {slack: 1 - share},
            ),
            prove("which is zero at τ = 1, θ = 0", sp.Subs(loss, (share, angle), (1, 0)), value),
            prove_nonnegative(
                "L = I, the other two-level target, costs no less",
                least + greatest - value,
                gap * excess / (excess + 2),
            ),
            prove_nonnegative("ν₁ ≤ V*/2, so that it is high", value / 2 - least, gap / (excess + 2)),
            prove_nonnegative("ν₂ ≥ V*/2, so that it is low", greatest - value / 2, gap * kappa / (excess + 2)),
        ),
        latex=(
            r"\min_{L \in \mathcal{T}_{2,\kappa}} \operatorname{tr}(N L) = \frac{2 (\kappa \nu_1 + \nu_2)}{\kappa + 1},"
            r" \quad L^\star = \frac{2}{\kappa + 1} \operatorname{diag}(\kappa, 1), \quad \nu_1 \le \nu_2"
        ),
        expressions={
            "value": variances[0] * levels[0] + variances[1] * levels[1],
            "matrix": rotation(axes) * sp.diag(*variances) * rotation(axes).T,
            "noise": rotation(axes) * sp.diag(*levels) * rotation(axes).T,
        },
        arguments={"value": (*levels, bound), "matrix": (bound, axes), "noise": (*levels, axes)},
    )
