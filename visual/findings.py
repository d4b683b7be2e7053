"""What a diagnosis found, in words: one sentence for each question, each number with what it was measured on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from visual import forecast, geometry, occupancy


def describe(summary: Mapping[str, Any]) -> list[str]:
    """Sentences for a summary of :func:`visual.diagnosis.diagnose`."""
    sentences = [_ordering(summary["ordering"])]
    if summary.get("neighborhoods") is not None:
        sentences.append(_neighborhoods(summary["neighborhoods"]))
    sentences += _allocation(summary["allocation"])
    sentences.append(occupancy.describe(summary["occupancy"], summary["allocation"]["kappa"]))
    if summary["geometry"] is not None:
        sentences.append(geometry.describe(summary["geometry"]))
        if summary.get("forecast") is not None:
            sentences.append(forecast.describe(summary["forecast"]))
    elif summary.get("geometry_missing") is not None:
        sentences.append(f"The metric that the planner gets was not measured: {summary['geometry_missing']}")
    return sentences


def _ordering(found: Mapping[str, Any]) -> str:
    if found["agreement_pred"] is None:
        return f"No two outcomes differ on any of the {found['pairs']} pairs, so no order of them is right or wrong."
    left_out = f", {found['undecided']} of them left out since no two outcomes differ" if found["undecided"] else ""
    better = (
        "the predictor loses {:.1f} points"
        if found["agreement_pred"] < found["agreement_enc"]
        else ("the predictor loses nothing ({:.1f} points)")
    )
    lost = better.format(100 * (found["agreement_enc"] - found["agreement_pred"]))
    return (
        f"J_pred orders {100 * found['agreement_pred']:.1f} % of outcome pairs as the outcomes do, J_enc "
        f"{100 * found['agreement_enc']:.1f} % (50 % is chance), so {lost}; mean over {found['pairs']} pairs of "
        f"{found['sequences']} sequences of {found['horizon']} steps, {found['already_solved']} pairs solved at the "
        f"start{left_out}."
    )


def _neighborhoods(found: Mapping[str, Any]) -> str:
    known = [value for value in found["rho"] if value is not None]
    (first, width, unit), (second, height, other) = found["axes"]
    rho = ", ".join("none" if value is None else f"{value:.2f}" for value in found["rho"])
    mean = f", mean {sum(known) / len(known):.2f}" if known else ""
    valid = 100 * sum(found["valid"]) / len(found["valid"])
    return (
        f"Around {len(found['rho'])} goals ({first} ± {width:g} {unit}, {second} ± {height:g} {other}; {valid:.0f} % "
        f"of {found['cells']} cells valid) latent and task cost have Spearman's ρ = {rho}{mean}."
    )


def _allocation(found: Mapping[str, Any]) -> list[str]:
    dim, kappa = found["dim"], found["kappa"]
    low, high = (100 * found[f"relative_residual_{end}"] for end in ("low", "high"))
    saved, rotated = (100 * (1 - found[f"loss_{name}"] / found["loss_isotropic"]) for name in ("predicted", "rotated"))
    asked = (
        f"one-step residuals ({low:.1f} to {high:.1f} % of a coordinate's variance) ask for {found['num_high']} of "
        f"{dim} high coordinates at κ = {kappa:g}, with a prediction error {saved:.1f} % below that of equal "
        f"variances ({found['num_high_rotated']} directions and {rotated:.1f} % if the encoder rotates)"
    )
    if found["target_condition"] is None:
        return [f"The checkpoint has no target beside it, so what concerns the target is left out: {asked}."]
    spread = f"{found['variance_low']:.2f} to {found['variance_high']:.2f} times their target"
    if found["agreement"] is None:
        return [f"The target is the identity; feature variances are {spread}. Forecast before any training: {asked}."]
    captured = "" if found["captured"] is None else f"; the target reaches {100 * found['captured']:.0f} % of that"
    follow = (
        ""
        if found["high_variance"] > found["low_variance"]
        else ", so the features do not follow the order of the target"
    )
    return [
        f"The target has condition number {found['target_condition']:.3f} at κ = {kappa:g} and {found['target_high']} "
        f"of {dim} variances above the mean, {100 * found['two_level']:.0f} % of all on one of two levels; feature "
        f"variances are {spread}: on average {found['high_variance']:.2f} where it is high and "
        f"{found['low_variance']:.2f} where it is low{follow}.",
        f"Theory: {asked}{captured}. {100 * found['agreement']:.0f} % of coordinates stand on the side that the "
        f"residuals ask for, {100 * found['agreement_relative']:.0f} % by relative residuals.",
    ]
