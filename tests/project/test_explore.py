"""The page to play with, docs/explore.html, in headless Chromium.

1. Its formulas are the Python package's: noise, target, metric, regrets and best κ on a table of cases, and bad input.
2. Dragging, keyboard, touch and number fields change the case, and every output follows.
3. Bad input shows one sentence and changes nothing; the address holds the case.
4. It asks no server for anything and logs nothing.
5. At phone and desktop width, light and dark, nothing overlaps, is clipped, scrolls sideways, is too small to tap or too
   faint to read.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright
from strategies import random_spd

from theory.metric import anisotropic_metric
from theory.reachable import AffineSet
from theory.regret import best_kappa, mean_line_regret, planning_regret, regret_curve, worst_regret
from theory.spd import condition_number
from theory.target import optimal_target, relative_noise

Array = NDArray[np.float64]
Case = dict[str, Any]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explore.html"
ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
DESKTOP, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=844)
EPS = float(np.finfo(np.float64).eps)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path, "Chromium must be installed: the page is tested in a browser"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


class Watched:
    """A page, every address it asked for and everything it logged."""

    def __init__(self, browser: Browser, fragment: str = "", **settings: Any) -> None:
        self.context = browser.new_context(**settings)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.messages: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.goto(PAGE.as_uri() + fragment)
        self.page.wait_for_function("window.explore.results() !== null && document.querySelector('#rows tr')")


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """The page at desktop width; afterwards it must have logged nothing and asked for itself alone."""
    watched = Watched(browser, viewport=DESKTOP)
    yield watched.page
    watched.context.close()
    assert watched.messages == []
    assert watched.requests == [PAGE.as_uri()]


# ------------------------------------------------------------------------------------------------ the formulas


def direction(degrees: float) -> list[float]:
    return [math.cos(math.radians(degrees)), math.sin(math.radians(degrees))]


def table() -> list[Case]:
    """Cases of controlled conditioning, and the edges: ties, κ = 1, reachable goals, singular noise, axes, scales."""
    rng = np.random.default_rng(20)
    cases: list[Case] = []
    for index in range(180):
        most = 6.0 if index % 3 == 0 else 2.0
        conditions = 10.0 ** rng.uniform(0.0, most, 3)
        scales = 10.0 ** rng.uniform(-3, 3, 3) if index % 2 else np.ones(3)
        state_cov, noise_cov, task = (
            random_spd(rng, 2, float(c), float(s)) for c, s in zip(conditions, scales, strict=True)
        )
        cases.append(
            {
                "state_cov": state_cov,
                "noise_cov": noise_cov,
                "task_metric": task,
                "kappa": float(10.0 ** rng.uniform(0.0, 3.0)),
                "point": rng.standard_normal(2),
                "direction": rng.standard_normal(2),
                "goal": rng.standard_normal(2),
            }
        )
    plain = {"task_metric": np.eye(2), "point": [1.3, 0.2], "direction": direction(30.0), "goal": [-0.25, 0.43]}
    toy = np.diag([49 / 16, 1.0])
    turned = random_spd(rng, 2, 9.0)
    for kappa in (1.0, 1.0 + 1e-12, 2.0, 49 / 16, (49 / 16) ** 2, 1e6):
        edges: list[Case] = [
            {"state_cov": toy, "noise_cov": np.eye(2)},
            {"state_cov": toy, "noise_cov": 0.3 * toy},
            {"state_cov": turned, "noise_cov": 7.0 * turned},
            {"state_cov": toy, "noise_cov": np.diag([6.0, 1.0])},
            {"state_cov": toy, "noise_cov": np.diag([0.0, 1.0])},
            {"state_cov": toy, "noise_cov": np.zeros((2, 2))},
            {"state_cov": np.eye(2), "noise_cov": np.eye(2)},
            {"state_cov": turned, "noise_cov": np.eye(2), "task_metric": random_spd(rng, 2, 5.0)},
            {"state_cov": turned, "noise_cov": np.eye(2), "goal": np.array([1.3, 0.2]) + 0.7 * np.array(direction(30))},
            {"state_cov": turned, "noise_cov": np.eye(2), "goal": [1.3, 0.2]},
            {"state_cov": turned, "noise_cov": np.eye(2), "direction": [1.0, 0.0]},
            {"state_cov": turned, "noise_cov": np.eye(2), "direction": [0.0, -2.0]},
            {"state_cov": turned, "noise_cov": np.eye(2), "point": [1e6, -1e6], "goal": [1e6, 1e6]},
        ]
        cases += [{**plain, **edge, "kappa": kappa} for edge in edges]
    return cases


CASES = table()
KAPPAS = [1.0, 1.5, 7.0, 300.0]


def plain(case: Case) -> Case:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in case.items()}


@pytest.fixture(scope="module")
def answers(browser: Browser) -> list[Any]:
    watched = Watched(browser)
    found: list[Any] = watched.page.evaluate(
        "cases => cases.map((one) => window.explore.compute(one))", [{**plain(case), "kappas": KAPPAS} for case in CASES]
    )
    watched.context.close()
    return found


def close(got: Any, wanted: Any, rtol: float, scale: float = 0.0) -> None:
    np.testing.assert_allclose(np.array(got, dtype=float), np.array(wanted, dtype=float), rtol=rtol, atol=rtol * scale)


def precision(*matrices: Array) -> float:
    """1e-9, or what rounding of M leaves of √ρ where conditioning demands more: 64 ε times the condition numbers."""
    return max(1e-9, 64 * EPS * math.prod(condition_number(matrix) for matrix in matrices))


def test_table_is_large_and_hard() -> None:
    assert len(CASES) >= 200
    assert max(condition_number(case["state_cov"]) for case in CASES) > 1e5


@pytest.mark.parametrize("which", ["isotropic", "chosen"])
def test_target_and_metric(answers: list[Any], which: str) -> None:
    """Claim 1. Mutation: give the larger variance to the direction of larger noise, or skip the tie."""
    for case, answer in zip(CASES, answers, strict=True):
        kappa = case["kappa"] if which == "chosen" else 1.0
        noise = relative_noise(case["state_cov"], case["noise_cov"])
        size, rtol = float(np.abs(noise).max()), precision(case["state_cov"])
        close(answer["noise"], noise, rtol, size)
        wanted, got = optimal_target(noise, kappa), answer[which]["target"]
        levels = np.linalg.eigvalsh(noise)
        # Eigenvectors of N are known to rounding over the relative gap of its eigenvalues.
        gap = (levels[1] - levels[0]) / levels[1] if wanted.num_high else 1.0
        assert (got["num_high"], got["unique"]) == (wanted.num_high, wanted.unique)
        close(got["variances"], wanted.variances, 1e-13)
        close(got["matrix"], wanted.matrix, rtol / gap, 2.0)
        close(got["value"], wanted.value, rtol, size)
        metric = anisotropic_metric(case["state_cov"], wanted.matrix)
        close(answer[which]["metric"], metric, rtol / gap, float(np.abs(metric).max()))


@pytest.mark.parametrize("which", ["isotropic", "chosen"])
def test_regrets(answers: list[Any], which: str) -> None:
    """Claim 1: one case, mean, worst and ρ. Mutation: drop Q from the choice or from the spread of M."""
    num_reachable = 0
    for case, answer in zip(CASES, answers, strict=True):
        got, metric, task = answer[which], np.array(answer[which]["metric"]), np.array(case["task_metric"])
        rtol = precision(metric) + precision(task)
        # √ρ is known to rounding; small regrets are differences of √ρ from 1.
        close(math.sqrt(got["mean_regret"]), math.sqrt(mean_line_regret(metric, task)), rtol, 1.0)
        close(got["worst_regret"], worst_regret(metric, task), 4 * rtol, 1.0)
        close(got["condition_number"], condition_number(metric, task), 4 * rtol)

        line = AffineSet(case["point"], np.reshape(case["direction"], (2, 1)))
        wanted, regret = planning_regret(line, case["goal"], metric, task), got["regret"]
        size = float(max(np.abs(wanted.chosen).max(), np.abs(case["goal"]).max(), np.abs(case["point"]).max()))
        root = math.sqrt(np.linalg.norm(task, 2))
        rtol = max(1e-9, 64 * EPS * math.sqrt(condition_number(metric) * condition_number(task)))
        close(regret["optimal"], wanted.optimal, rtol, size)
        close(regret["chosen"], wanted.chosen, rtol, size)
        close(math.sqrt(regret["excess"]), math.sqrt(wanted.excess), rtol, root * size)
        assert math.isnan(regret["normalized"]) == math.isnan(wanted.normalized)
        if math.isnan(wanted.normalized):
            num_reachable += 1
            assert regret["excess"] == 0
        else:
            miss = math.sqrt((wanted.optimal - case["goal"]) @ task @ (wanted.optimal - case["goal"]))
            close(math.sqrt(regret["normalized"]), math.sqrt(wanted.normalized), rtol, root * size / miss)
    assert num_reachable == 12


def test_curve_and_best_kappa(answers: list[Any]) -> None:
    """Claim 1: the best κ in closed form is the one that Python searches. Mutation: exchange b₁ and b₂."""
    inside = 0
    for case, answer in zip(CASES, answers, strict=True):
        state_cov, noise_cov, task = case["state_cov"], case["noise_cov"], case["task_metric"]
        levels = np.linalg.eigvalsh(relative_noise(state_cov, noise_cov))
        gap = max((levels[1] - levels[0]) / levels[1], 1e-9) if levels[1] > 0 else 1.0
        tied = optimal_target(relative_noise(state_cov, noise_cov), 2.0).num_high == 0
        base = max(1e-9, 64 * EPS * condition_number(state_cov) * condition_number(task) / (1.0 if tied else gap))
        curve = regret_curve(state_cov, noise_cov, KAPPAS, task)
        for row, (_, wanted) in zip(answer["curve"], curve.iterrows(), strict=True):
            rtol = base * math.sqrt(row["kappa"])
            assert (row["kappa"], row["num_high"]) == (wanted["kappa"], wanted["num_high"])
            close(math.sqrt(row["mean_regret"]), math.sqrt(wanted["mean_regret"]), rtol, 1.0)
            close(row["worst_regret"], wanted["worst_regret"], 4 * rtol, 1.0)
            close(row["condition_number"], wanted["condition_number"], 4 * rtol)
        best = best_kappa(state_cov, noise_cov, task)
        # The search stops where the curve is flat to rounding: √ε of ln κ.
        close(answer["best"]["kappa"], best.kappa, max(1e-6, base))
        close(math.sqrt(answer["best"]["mean_regret"]), math.sqrt(best.mean_regret), max(1e-7, base), 1.0)
        assert answer["best"]["mean_regret"] <= min(curve["mean_regret"]) * (1 + 8 * base) + base**2
        inside += best.kappa > 1.0
    assert 60 < inside < len(CASES)


def test_paper_example(page: Page) -> None:
    """Claim 1, on numbers known in advance: 9/56 at κ = 1 and κ = c², zero at κ = c, which is the best."""
    case = plain({**CASES[180], "kappas": [1.0, 49 / 16, (49 / 16) ** 2]})
    answer = page.evaluate("one => window.explore.compute(one)", case)
    close([row["mean_regret"] for row in answer["curve"]], [9 / 56, 0.0, 9 / 56], 1e-14, 1.0)
    close(answer["best"]["kappa"], 49 / 16, 1e-14)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"state_cov": [[1.0, 2.0], [2.0, 1.0]]}, "Σ must be positive definite, but its smallest eigenvalue is −1."),
        ({"state_cov": [[1.0, 1.0], [1.0, 1.0]]}, "Σ must be positive definite, but it is singular."),
        ({"state_cov": [[1.0, math.nan], [math.nan, 1.0]]}, "Σ must be finite"),
        ({"state_cov": [[1.0, 0.5], [0.2, 1.0]]}, "Σ must be symmetric"),
        ({"noise_cov": [[1.0, 0.0], [0.0, -0.5]]}, "Σ_w must be positive semidefinite"),
        ({"task_metric": [[0.0, 0.0], [0.0, 1.0]]}, "Q must be positive definite, but it is singular."),
        ({"kappa": 0.5}, "κ must be at least 1, but it is 0.5."),
        ({"kappa": math.nan}, "κ must be a finite number."),
        ({"kappa": math.inf}, "κ must be a finite number."),
        ({"goal": [1.0, math.inf]}, "The goal must be finite"),
        ({"direction": [0.0, 0.0]}, "The direction of the line must not be zero."),
    ],
)
def test_bad_input_is_one_sentence(page: Page, change: Case, sentence: str) -> None:
    case = plain({**CASES[180], **change})
    message = page.evaluate(
        "one => { try { window.explore.compute(one); return null; } catch (error) { return error.message; } }", case
    )
    assert message.startswith(sentence)
    assert message.endswith(".")
