"""T8, symbolically: the expectation of the sketched Epps–Pulley statistic for Gaussian features."""

from __future__ import annotations

from functools import cache

import sympy as sp

from theory.symbolic.statement import Statement, prove


@cache
def sketched_statistic() -> Statement:
    """T8: the expectation over samples for one slice, over the whole line, and the slice average in the plane."""
    t, x = sp.symbols("t x", real=True)
    deviation, count, number, first, second = sp.symbols("s N a c_1 c_2", positive=True)
    correlation = sp.Symbol("r", real=True)
    variance = deviation**2
    phi, psi = sp.exp(-variance * t**2 / 2), sp.exp(-(t**2) / 2)
    paired = sp.exp(-variance * t**2 * (1 - correlation))
    normal = sp.exp(-(x**2) / (2 * variance)) / (deviation * sp.sqrt(2 * sp.pi))
    line = (t, -sp.oo, sp.oo)

    def integral(integrand: sp.Expr) -> sp.Expr:
        return sp.Integral(sp.powsimp(sp.expand(psi * integrand)), line)

    s2 = sp.Symbol("s^2", nonnegative=True)
    fit = 1 / sp.sqrt(2 * s2 + 1) - 2 / sp.sqrt(s2 + 2) + 1 / sp.sqrt(3)
    noise = 1 - 1 / sp.sqrt(2 * s2 + 1)
    pairs = 1 / sp.sqrt(2 * s2 * (1 - correlation) + 1) - 1 / sp.sqrt(2 * s2 + 1)
    root = sp.sqrt(2 * sp.pi)

    angle, b = sp.Symbol("theta", real=True), sp.Symbol("b", real=True)
    slice_vector = sp.Matrix([sp.cos(angle), sp.sin(angle)])
    wave = sp.exp(b * sp.cos(angle))
    bessel = sp.besseli(0, b)
    return Statement(
        label="T8",
        statement=(
            "For one slice of variance s² the expected statistic of N samples, integrated over all t, is "
            "√(2π) {N[(2s²+1)^{-½} − 2(s²+2)^{-½} + 3^{-½}] + 1 − (2s²+1)^{-½}}; in the plane the average over slices "
            "is E exp(−a uᵀCu) = exp(−a tr C/2) I₀(a(c₁ − c₂)/2)."
        ),
        assumptions=(
            "z ~ N(0, C), samples independent and centred, s² = uᵀCu, φ = e^{−s²t²/2}, ψ = e^{−t²/2}",
            "pairs: N/2 pairs of correlation r = 1 − a, a > 0",
            "slices uniform on the circle",
        ),
        steps=(
            prove("the characteristic function", sp.Integral(sp.cos(t * x) * normal, (x, -sp.oo, sp.oo)), phi),
            prove(
                "N of the N² pairs of samples coincide: E|φ̂|² in E|φ̂ − ψ|²",
                (count + count * (count - 1) * phi**2) / count**2 - 2 * phi * psi + psi**2,
                (phi - psi) ** 2 + (1 - phi**2) / count,
            ),
            prove(
                "correlated partners, N more of them, differ by N(0, 2s²(1−r))",
                (count + count * paired + count * (count - 2) * phi**2) / count**2 - 2 * phi * psi + psi**2,
                (phi - psi) ** 2 + (1 - phi**2) / count + (paired - phi**2) / count,
            ),
            prove("the fit, over the whole line", integral((phi - psi) ** 2), root * fit, {s2: variance}),
            prove("the sampling noise", integral(1 - phi**2), root * noise, {s2: variance}),
            prove(
                "the pairs",
                integral(paired - phi**2),
                root * pairs,
                {correlation: 1 - number, s2: variance},
            ),
            prove(
                "the fit is least at s² = 1: its slope has the sign of s² − 1",
                sp.Derivative(fit, s2),
                (s2 + 2) ** sp.Rational(-3, 2) - (2 * s2 + 1) ** sp.Rational(-3, 2),
            ),
            prove("where it is zero", sp.Subs(fit, s2, 1), 0),
            prove(
                "slices of the plane",
                sp.Trace(sp.MatMul(slice_vector.T, sp.diag(first, second), slice_vector)),
                (first + second) / 2 + (first - second) / 2 * sp.cos(2 * angle),
            ),
            prove(
                "the circle's mean of e^{b cos θ} solves b y″ + y′ = b y: what remains has mean zero",
                b * sp.Derivative(wave, (b, 2)) + sp.Derivative(wave, b) - b * wave,
                sp.Derivative(sp.sin(angle) * wave, angle),
            ),
            prove(
                "as sin θ e^{b cos θ} returns to its value after a turn",
                sp.Subs(sp.sin(angle) * wave, angle, 2 * sp.pi),
                sp.Subs(sp.sin(angle) * wave, angle, 0),
            ),
            prove(
                "I₀ solves it too, with I₀′ = I₁ and I₀″ = (I₀ + I₂)/2",
                b * sp.diff(bessel, b, 2) + sp.diff(bessel, b) - b * bessel,
                0,
                {sp.besseli(2, b): sp.besseli(0, b) - 2 * sp.besseli(1, b) / b},
            ),
            prove("with the same value 1 at b = 0", sp.Subs(bessel, b, 0), sp.Subs(wave, b, 0)),
            prove(
                "and the same slope 0",
                sp.Subs(sp.Derivative(bessel, b), b, 0),
                sp.Integral(sp.cos(angle), (angle, 0, 2 * sp.pi)),
            ),
        ),
        latex=(
            r"\mathbb{E} \int N\,|\hat\varphi_N - \psi|^2 e^{-t^2/2}\,dt = \sqrt{2\pi}\left\{N\left[(2s^2+1)^{-1/2}"
            r" - 2(s^2+2)^{-1/2} + 3^{-1/2}\right] + 1 - (2s^2+1)^{-1/2}\right\}"
        ),
        expressions={
            "population": root * fit,
            "expected": root * (count * fit + noise),
            "expected_pairs": root * (count * fit + noise + pairs),
            "slice_average": sp.exp(-number * (first + second) / 2) * sp.besseli(0, number * (first - second) / 2),
        },
        arguments={
            "population": (s2,),
            "expected": (s2, count),
            "expected_pairs": (s2, count, correlation),
            "slice_average": (number, first, second),
        },
    )
