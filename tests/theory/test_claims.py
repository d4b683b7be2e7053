"""The claims table.

1. A claim passes exactly when its own comparison holds; nan never passes.
2. Exact claims: every closed form agrees with its brute force, and a wrong closed form is seen.
3. Measured claims judge the rows' means over all seeds, against the plateau, T7 and T9.
4. Rows that cannot carry a claim (missing, doubled, non-finite, synthetic, too few) are refused in one sentence.
5. ``mean_interval`` is the 95 % t interval.
"""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from types import ModuleType
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_rows import closed_form, kappa_rows, noise_rows, overcomplete_rows

from theory import _exact_claims, _regret_claims, _sketch_claims, _symbolic_claims, claims
from theory.claims import Claim, claims_frame, exact_claims, mean_interval, measured_claims
from theory.symbolic import UnprovedStepError


def make(expected: float, measured: float, tolerance: float, relation: str = "=") -> Claim:
    return Claim("label", "statement", "checked against brute force", expected, measured, tolerance, "here", relation)


def measured(**changes: pd.DataFrame) -> list[Claim]:
    rows = {
        "noise_rows": noise_rows(origin="measured"),
        "kappa_rows": kappa_rows(origin="measured"),
        "overcomplete_rows": overcomplete_rows(origin="measured"),
    }
    return measured_claims(**(rows | changes))


def by_label(table: list[Claim], part: str) -> list[Claim]:
    found = [claim for claim in table if part in claim.label]
    assert found, part
    return found


# 1. One claim


@given(st.floats(-10, 10), st.floats(-10, 10), st.floats(0, 5), st.sampled_from(["=", "≤", "≥"]))
def test_claim_passes_exactly_when_its_relation_holds(
    expected: float, value: float, tolerance: float, relation: str
) -> None:
    """Mutation: "≥" compares as "≤"."""
    gap = value - expected
    holds = {"=": -tolerance <= gap <= tolerance, "≤": gap <= tolerance, "≥": -gap <= tolerance}[relation]
    assert make(expected, value, tolerance, relation).passed is holds


@pytest.mark.parametrize("relation", ["=", "≤", "≥"])
def test_nan_never_passes(relation: str) -> None:
    """Mutation: compare with ``not gap > tolerance``."""
    assert make(0.0, math.nan, 1.0, relation).passed is False


def test_claim_cannot_be_edited_or_malformed() -> None:
    with pytest.raises(FrozenInstanceError):
        make(0.0, 1.0, 0.5).passed = True  # type: ignore[misc]
    with pytest.raises(ValueError, match="status must be one of"):
        Claim("a", "b", "believed", 0.0, 0.0, 0.0, "c")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="relation must be one of"):
        make(0.0, 0.0, 0.0, "<")
    for tolerance in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="finite tolerance"):
            make(0.0, 0.0, tolerance)


def test_frame_has_one_row_for_each_claim() -> None:
    frame = claims_frame([make(0.0, 1.0, 0.5), make(0.0, 0.0, 0.0)])
    assert frame["passed"].tolist() == [False, True]
    assert claims_frame([]).columns.tolist() == frame.columns.tolist()


# 2. Exact claims


@pytest.fixture(scope="module")
def exact() -> list[Claim]:
    return exact_claims()


def test_exact_claims_hold(exact: list[Claim]) -> None:
    assert [claim.label for claim in exact if not claim.passed] == []
    assert {claim.status for claim in exact} <= set(get_args(claims.Status)) - {"seen in the trained toy"}
    assert len({claim.label for claim in exact}) == len(exact)


def test_exact_claims_cover_the_statements(exact: list[Claim]) -> None:
    assert {f"T{number}" for number in range(1, 13)} - {"T10"} == {
        claim.label.split()[0].rstrip(",") for claim in exact
    }


def test_the_papers_number_is_not_said_to_be_identified(exact: list[Claim]) -> None:
    (claim,) = by_label(exact, "the paper's number")
    assert claim.expected == 0.1607
    assert "consistent with, not identified by" in claim.statement


@pytest.mark.parametrize(
    ("module", "group", "name", "wrong", "label"),
    [
        (_exact_claims, "_metrics", "isotropic_metric", lambda cov, scale: scale * cov, "T1 isotropic target"),
        (_regret_claims, "_means", "mean_line_regret", lambda metric, task=None: 0.16, "T6 mean, task metrics"),
        (_regret_claims, "_worst", "worst_regret", lambda metric, task=None: 0.3, "T6 worst case, lines"),
        (_exact_claims, "_ordering", "pairwise_agreement", lambda costs, outcomes: 0.5, "T11 pairwise agreement"),
        (_sketch_claims, "_statistic", "isotropic_scale", lambda samples: 1.0, "T8 isotropic scale"),
        (_sketch_claims, "_statistic", "expected_statistic", lambda cov, samples: 1.6, "T8 expected statistic"),
    ],
)
def test_a_wrong_closed_form_fails_its_claim(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, group: str, name: str, wrong: object, label: str
) -> None:
    """Mutation: a claim compares a brute force with itself."""
    monkeypatch.setattr(module, name, wrong)
    (claim,) = by_label(getattr(module, group)(), label)
    assert not claim.passed


def test_an_unproved_step_fails_its_claim_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: ``UnprovedStepError`` is swallowed as proved."""

    def unproved() -> None:
        raise UnprovedStepError("The sides differ by x.")

    monkeypatch.setattr(_symbolic_claims, "_STATEMENTS", {**_symbolic_claims._STATEMENTS, "T5": unproved})
    table = {claim.label: claim for claim in _symbolic_claims.evaluate()}
    assert [label for label, claim in table.items() if not claim.passed] == ["T5, symbolic"]
    assert table["T5, symbolic"].note == "The sides differ by x."
    assert {claim.status for claim in table.values()} == {"proved symbolically"}


# 3. Measured claims


def test_rows_near_the_theory_pass() -> None:
    table = measured()
    assert [claim.label for claim in table if not claim.passed] == []
    assert {claim.status for claim in table} == {"seen in the trained toy"}
    assert len({claim.label for claim in table}) == len(table)


def test_each_setting_is_judged_by_its_own_mean() -> None:
    rows, table = noise_rows(origin="measured"), measured()
    for sigma in rows["sigma"].unique():
        (claim,) = by_label(table, f"Noise sweep, regret at σ = {sigma:g}")
        group = rows[(rows["sigma"] == sigma) & (rows["observation"] == "identity")]
        assert claim.measured == pytest.approx(group["regret_pred"].sum() / 10, rel=1e-12)
        assert (claim.expected - claim.tolerance, claim.expected + claim.tolerance) == pytest.approx((0.15, 0.17))
    for claim in by_label(table, "κ sweep, regret at"):
        assert claim.expected == pytest.approx(closed_form(float(claim.label.split("=")[1])), abs=1e-12)
        assert claim.tolerance == 0.03


@pytest.mark.parametrize(
    ("sweep", "choose", "column", "value", "label"),
    [
        ("noise_rows", {"sigma": 0.03}, "regret_pred", 0.18, "Noise sweep, regret at σ = 0.03"),
        ("noise_rows", {"sigma": 0.3}, "prediction_error", 0.0005, "Noise sweep, prediction error"),
        ("kappa_rows", {"kappa": 2.0}, "regret_pred", 0.06, "κ sweep, regret at κ = 2"),
        ("kappa_rows", {"kappa": 3.0625}, "regret_pred", 0.026, "κ sweep, minimum"),
        ("kappa_rows", {"kappa": 9.379}, "regret_pred", 0.09, "κ sweep, return at κ = c²"),
        ("overcomplete_rows", {"latent_dim": 3}, "regret_pred", 0.02, "Over-complete, D = 3"),
        ("overcomplete_rows", {"latent_dim": 2}, "regret_pred", 0.05, "Over-complete, D = 2"),
    ],
)
def test_rows_off_the_theory_fail(sweep: str, choose: dict[str, float], column: str, value: float, label: str) -> None:
    """Mutation: any one of these claims is given ``passed=True``."""
    rows = {"noise_rows": noise_rows, "kappa_rows": kappa_rows, "overcomplete_rows": overcomplete_rows}[sweep](
        origin="measured"
    )
    (name, setting), *_ = choose.items()
    if label == "κ sweep, minimum":
        rows.loc[rows["kappa"] == 2.0, column] = 0.01
    rows.loc[rows[name] == setting, column] = value
    (claim,) = by_label(measured(**{sweep: rows}), label)
    assert not claim.passed


def test_folded_seeds_are_counted_and_kept() -> None:
    """Mutation: means over ``rows[~rows.folded]``."""
    rows = kappa_rows(origin="measured")
    chosen = (rows["kappa"] == 3.0625) & (rows["seed"] < 2)
    rows.loc[chosen, ["folded", "regret_pred"]] = [True, 1.0]
    table = measured(kappa_rows=rows)
    (claim,) = by_label(table, "κ sweep, regret at κ = 3.0625")
    assert claim.measured > 0.2
    assert not claim.passed
    assert "2 folded" in claim.note
    (count,) = by_label(table, "κ sweep, every run counted")
    assert (count.expected, count.measured) == (70.0, 70.0)
    assert count.note.startswith("2 folded")


def test_finite_weight_theory_is_tighter_where_the_target_reached_its_bound() -> None:
    rows = kappa_rows(origin="measured")
    rows.loc[(rows["kappa"] == 2.0) & (rows["seed"] == 0), "target_condition"] = 1.7
    table = measured(kappa_rows=rows)
    (loose,) = by_label(table, "T9 finite weight, κ sweep, σ = 0.5, κ = 2")
    (tight,) = by_label(table, "T9 finite weight, κ sweep, σ = 0.5, κ = 1.75")
    assert (loose.tolerance, tight.tolerance) == (0.025, 0.015)
    assert "90 % of the seeds" in loose.note


# 4. Rows that cannot carry a claim


def _drop_column(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.drop(columns=["regret_pred", "folded"])


def _make_nan(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(regret_pred=np.where(rows["seed"] == 3, np.nan, rows["regret_pred"]))


def _make_text(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(regret_pred="low")


@pytest.mark.parametrize("sweep", ["noise_rows", "kappa_rows", "overcomplete_rows"])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_drop_column, "lack the columns regret_pred, folded"),
        (lambda rows: rows.head(0), "are empty"),
        (_make_nan, "must be finite, but regret_pred is not at .*, seed 3"),
        (_make_text, "must hold numbers in regret_pred"),
        (lambda rows: rows[rows["seed"] < 4], "must hold at least 5 seeds, but there are 4"),
        (lambda rows: rows.iloc[1:], "lack seed 0 at identity, sigma = .*: every seed"),
        (lambda rows: pd.concat([rows, rows.tail(1)]), "hold seed . twice at"),
        (lambda rows: rows.assign(origin="synthetic"), "must be measured, but some have the origin 'synthetic'"),
    ],
)
def test_unusable_rows_are_refused(sweep: str, spoil: object, message: str) -> None:
    rows = {"noise_rows": noise_rows, "kappa_rows": kappa_rows, "overcomplete_rows": overcomplete_rows}[sweep](
        origin="measured"
    )
    with pytest.raises(ValueError, match=f"^{sweep} {message}") as refusal:
        measured(**{sweep: spoil(rows)})  # type: ignore[operator]
    assert str(refusal.value).count(". ") == 0


def test_sweeps_without_their_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"kappa_rows must hold kappa = c² = 9\.379"):
        measured(kappa_rows=kappa_rows(kappas=(1.0, 2.0, 3.0625), origin="measured"))
    with pytest.raises(ValueError, match="noise_rows must hold at least two values of sigma"):
        measured(noise_rows=noise_rows(sigmas=(0.1, 0.1), origin="measured").drop_duplicates(["observation", "seed"]))
    with pytest.raises(ValueError, match="noise_rows must have kappa = 1"):
        measured(noise_rows=noise_rows(origin="measured").assign(kappa=2.0))
    with pytest.raises(ValueError, match="overcomplete_rows must hold kappa = c"):
        measured(overcomplete_rows=overcomplete_rows(dims=(2,), origin="measured"))
    with pytest.raises(ValueError, match="min_seeds must be at least 2"):
        measured_claims(noise_rows(origin="measured"), kappa_rows(origin="measured"), min_seeds=1)


# 5. Intervals


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=20))
def test_mean_interval_is_the_t_interval(values: list[float]) -> None:
    """Mutation: ``ddof=0``."""
    from scipy import stats

    mean, low, high = mean_interval(values)
    spread = float(np.sqrt(sum((value - np.mean(values)) ** 2 for value in values) / (len(values) - 1) / len(values)))
    quantile = float(stats.t.ppf(0.975, len(values) - 1))
    np.testing.assert_allclose([mean, low, high], np.mean(values) + quantile * spread * np.array([0, -1, 1]), atol=1e-9)


def test_mean_interval_covers_the_mean() -> None:
    """Mutation: a normal quantile in place of Student's (coverage 0.81 at three values)."""
    rng = np.random.default_rng(0)
    hits = 0
    for sample in rng.standard_normal((4000, 3)):
        _, low, high = mean_interval(sample)
        hits += low <= 0 <= high
    assert abs(hits / 4000 - 0.95) < 5 * math.sqrt(0.95 * 0.05 / 4000)


@pytest.mark.parametrize(
    ("values", "level", "message"),
    [
        ([1.0], 0.95, "values must hold at least two"),
        ([1.0, math.nan], 0.95, "values must be finite"),
        ([1.0, 2.0], 1.0, "level must lie strictly between"),
    ],
)
def test_mean_interval_refuses(values: list[float], level: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mean_interval(values, level)
