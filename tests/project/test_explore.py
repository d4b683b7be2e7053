"""The page to play with, docs/explore.html, in headless Chromium.

1. Its formulas are the Python package's: noise, target, metric, regrets and best κ on a table of cases, and bad input.
2. Dragging, keyboard, touch and number fields change the case, and every output follows.
3. Bad input shows one sentence and changes nothing; the address holds the case.
4. It asks no server for anything and logs nothing.
5. At phone, tablet and desktop width, light and dark, nothing overlaps, is clipped, scrolls sideways, is too small to
   tap or too faint to read.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

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
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=844)
TABLET = ViewportSize(width=820, height=1180)
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


@pytest.fixture(scope="module")
def desktop(browser: Browser) -> Iterator[Watched]:
    watched = Watched(browser, viewport=DESKTOP)
    yield watched
    watched.context.close()


@pytest.fixture(scope="module")
def phone(browser: Browser) -> Iterator[Watched]:
    watched = Watched(browser, viewport=PHONE, has_touch=True, is_mobile=True)
    yield watched
    watched.context.close()


@pytest.fixture
def page(desktop: Watched) -> Iterator[Page]:
    """The page at desktop width and its opening case; it must log nothing and ask for itself alone (claim 4)."""
    desktop.page.click("#reset")
    yield desktop.page
    assert desktop.messages == []
    assert desktop.requests == [PAGE.as_uri()]


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
def answers(desktop: Watched) -> list[Any]:
    found: list[Any] = desktop.page.evaluate(
        "cases => cases.map((one) => window.explore.compute(one))",
        [{**plain(case), "kappas": KAPPAS} for case in CASES],
    )
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
    # The edges repeat their matrices for each κ: once is enough here.
    chosen = [index for index in range(len(CASES)) if (index < 180 and index % 6 == 1) or 180 <= index < 193]
    for case, answer in ((CASES[index], answers[index]) for index in chosen):
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
    assert 10 < inside < len(chosen)


def test_paper_example(page: Page) -> None:
    """Claim 1, on numbers known in advance: 9/56 at κ = 1 and κ = c², zero at κ = c, which is the best."""
    case = plain({**CASES[180], "kappas": [1.0, 49 / 16, (49 / 16) ** 2]})
    answer = page.evaluate("one => window.explore.compute(one)", case)
    close([row["mean_regret"] for row in answer["curve"]], [9 / 56, 0.0, 9 / 56], 1e-14, 1.0)
    close(answer["best"]["kappa"], 49 / 16, 1e-14)


def test_no_kappa_where_the_states_fit_the_task(page: Page) -> None:
    """Claim 1: with Q ∝ Σ⁻¹ the best κ is 1 to the last bit. Mutation: leave a ratio of 1 to how it rounds."""
    cases = []
    for index in range(40):
        case = CASES[index]
        cases.append(plain({**case, "task_metric": (1 + index) * np.linalg.inv(case["state_cov"]), "kappas": []}))
    answers = page.evaluate("cases => cases.map((one) => window.explore.compute(one).best.kappa)", cases)
    assert answers == [1] * len(cases)


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


# ------------------------------------------------------------------------------------------------ playing with it

HANDLES = {
    "handle-S1": "S",
    "handle-S2": "S",
    "handle-W1": "W",
    "handle-W2": "W",
    "handle-Q1": "Q",
    "handle-Q2": "Q",
    "handle-goal": "g",
    "handle-point": "p",
    "handle-turn": "v",
}


def current(page: Page) -> Case:
    state: Case = page.evaluate("window.explore.current()")
    return state


def full(entries: list[float]) -> Array:
    return np.array([[entries[0], entries[1]], [entries[1], entries[2]]])


def number(shown: str) -> float:
    """A number as the page writes it: −0.25, 5.3·10⁻⁵, or – for none."""
    plain_text = shown.replace("−", "-").replace("–", "nan")
    found = re.fullmatch(r"([-\d.]*?|nan)·?(?:10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?", plain_text)
    assert found, shown
    mantissa, power = found.groups()
    return float(f"{mantissa or 1}e{(power or '⁰').translate(str.maketrans('⁻⁰¹²³⁴⁵⁶⁷⁸⁹', '-0123456789'))}")


def check_shown(page: Page) -> None:
    """Everything in sight belongs to the case that is set: table, sentence, fields, slider and picture."""
    state = current(page)
    state_cov, noise_cov, task = (full(state[key]) for key in "SWQ")
    curve = regret_curve(state_cov, noise_cov, [1.0, state["k"]], task)
    target = optimal_target(relative_noise(state_cov, noise_cov), state["k"])
    line = AffineSet(state["p"], np.reshape(direction(state["v"]), (2, 1)))
    metric = anisotropic_metric(state_cov, target.matrix)
    regret = planning_regret(line, state["g"], metric, task)
    rows = {
        cells[0]: cells[1:]
        for cells in page.evaluate(
            "[...document.querySelectorAll('#rows tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
        )
    }

    def close_to(shown: str, wanted: float) -> None:
        assert number(shown) == pytest.approx(wanted, rel=2e-3, abs=6e-5)

    for column, (_, row) in enumerate(curve.iterrows(), start=1):
        close_to(rows["mean"][column], row["mean_regret"])
        close_to(rows["worst"][column], row["worst_regret"])
        close_to(rows["ρ(M, Q)"][column], row["condition_number"])
    close_to(rows["regret"][2], regret.excess)
    close_to(rows["regret / J(x⋆)"][2], regret.normalized)
    for shown, wanted in ((rows["choice"][0], regret.optimal), (rows["choice"][2], regret.chosen)):
        assert [number(part) for part in re.split(r",\s", shown)] == pytest.approx(wanted, abs=6e-3)
    assert float(page.input_value("#kappa")) == state["k"]
    assert [float(page.input_value(f"#S{i}")) for i in (1, 2, 3)] == state["S"]
    assert float(page.input_value("#v1")) == state["v"]
    check_picture(page)


def check_picture(page: Page) -> None:
    """Each contour passes through its own choice and has the line on one side: it touches it there."""
    contours = page.evaluate(
        """() => ["task", "latent", "second"].map((name) => {
          const ellipse = document.querySelector(`#plane .cost.${name}`);
          const circle = document.querySelector(`#plane .choice.${name}`);
          const box = document.querySelector("#plane").getBoundingClientRect(), screen = ellipse.getScreenCTM();
          const length = ellipse.getTotalLength();
          const points = Array.from({ length: 400 }, (_, i) => {
            const point = ellipse.getPointAtLength(length * i / 400).matrixTransform(screen);
            return [point.x - box.left, point.y - box.top];
          });
          const line = document.querySelector("#plane line.line");
          const ends = ["x1", "y1", "x2", "y2"].map((end) => Number(line.getAttribute(end)));
          return { points, ends, choice: [Number(circle.getAttribute("cx")), Number(circle.getAttribute("cy"))] };
        })"""
    )
    for contour in contours:
        points, choice = np.array(contour["points"]), np.array(contour["choice"])
        start, end = np.array(contour["ends"]).reshape(2, 2)
        normal = np.array([start[1] - end[1], end[0] - start[0]]) / np.linalg.norm(end - start)
        sides = (points - choice) @ normal
        spacing = float(np.linalg.norm(np.diff(points, axis=0), axis=1).max())
        assert np.linalg.norm(points - choice, axis=1).min() < spacing + 0.5
        assert abs((choice - start) @ normal) < 0.05
        assert min(-sides.min(), sides.max()) < 0.3


def test_opening_case(page: Page) -> None:
    """Claim 2."""
    assert page.get_attribute("[data-preset='0']", "aria-pressed") == "true"
    check_shown(page)
    assert "pays 34.7\u00a0% more" in page.inner_text("#verdict")
    assert "9/56" in page.inner_text("#note")


@pytest.mark.parametrize("handle", HANDLES)
def test_drag_with_the_mouse(page: Page, handle: str) -> None:
    """Claim 2. The handle follows the pointer, its own quantity changes and no other.

    Mutation: forget to release the pointer, or set another matrix.
    """
    before = current(page)
    page.locator(f"#{handle}").scroll_into_view_if_needed()
    box = page.locator(f"#{handle} .knob").bounding_box()
    assert box
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 4, y + 7)
    page.mouse.move(x - 9, y + 17)
    under = page.locator(f"#{handle} .knob").bounding_box()
    during = current(page)
    page.mouse.up()
    page.mouse.move(x + 60, y + 60)
    after = current(page)
    assert under
    # The ring that turns the line keeps its distance from the point.
    reach = 25.0 if handle == "handle-turn" else 3.0
    assert math.hypot(under["x"] + 0.5 * under["width"] - x + 9, under["y"] + 0.5 * under["height"] - y - 17) < reach
    assert during == after
    assert {key for key in "SWQgpvk" if before[key] != after[key]} == {HANDLES[handle]}
    check_shown(page)


@pytest.mark.parametrize("handle", HANDLES)
def test_move_with_the_keyboard(page: Page, handle: str) -> None:
    """Claim 2. Arrow keys move each handle, both ways in both senses, and it says where it is."""
    key = HANDLES[handle]
    element = page.locator(f"#{handle}")
    element.focus()
    assert element.get_attribute("role") == "slider"
    said, values = [element.get_attribute("aria-valuetext")], [current(page)]
    for press in ("ArrowUp", "ArrowRight", "Shift+ArrowUp", "Shift+ArrowRight", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(press)
        said.append(element.get_attribute("aria-valuetext"))
        values.append(current(page))
    up, right = values[1], values[2]
    if key in "SWQ":
        which = int(handle[-1]) - 1
        lengths = [value["axes"][key]["lengths"][which] for value in values]
        assert lengths[1] == pytest.approx(1.05 * lengths[0], rel=1e-3)
        assert lengths[2] == pytest.approx(lengths[1], rel=1e-3)
        assert lengths[3] == pytest.approx(1.25 * lengths[2], rel=1e-3)
        assert right["axes"][key]["angle"] == pytest.approx(up["axes"][key]["angle"] - 1, abs=0.01)
        assert values[4]["axes"][key]["angle"] == pytest.approx(up["axes"][key]["angle"] - 16, abs=0.01)
    elif key in "gp":
        assert (up[key][0], right[key][1]) == (values[0][key][0], up[key][1])
        assert 0 < up[key][1] - values[0][key][1] < 0.2
        assert 0 < right[key][0] - up[key][0] < 0.2
    else:
        assert (up["v"], right["v"], values[3]["v"]) == (31, 30, 40)
    assert all(said)
    assert len(set(said)) >= 4
    check_shown(page)


def test_every_control_is_reached_by_tab(page: Page) -> None:
    """Claim 2."""
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    page.locator("h1").click()
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    fields = {f"{key}{i}" for key in "SWQ" for i in (1, 2, 3)} | {"g1", "g2", "p1", "p2", "v1"}
    assert set(HANDLES) | fields | {"kappa", "kappa-range", "to-one", "to-best", "reset"} <= set(reached)


def test_kappa_by_slider_curve_and_buttons(page: Page) -> None:
    """Claim 2. Mutation: leave the curve's range or the slider's position behind."""
    page.click("#to-best")
    assert current(page)["k"] == 3.0625
    check_shown(page)
    page.focus("#kappa-range")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert 3.0625 < current(page)["k"] < 3.3
    check_shown(page)
    box = page.locator("#chart").bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 100)
    page.mouse.up()
    assert 4.0 < current(page)["k"] < 7.5
    check_shown(page)
    page.click("#to-one")
    assert current(page)["k"] == 1
    # The dots stand on the curve: at κ = 1 that is its first point.
    start = page.evaluate("document.querySelector('#chart .curve:not(.worst)').getAttribute('d').match(/[\\d.]+/g)")
    dot = page.locator("#chart .dot").nth(1)
    assert float(dot.get_attribute("cx") or "nan") == pytest.approx(float(start[0]), abs=0.1)
    assert float(dot.get_attribute("cy") or "nan") == pytest.approx(float(start[1]), abs=0.1)


PRESET_FACTS = {
    "κ = 1": (9 / 56, 9 / 56, 0.0),
    "κ = c": (9 / 56, 0.0, 0.0),
    "κ beyond c": (9 / 56, 9 / 56, 0.0),
    "Task turned": (None, None, None),
    "Noise reversed": (9 / 56, None, 9 / 56),
    "Noise like the states": (9 / 56, 9 / 56, 9 / 56),
    "Round states": (0.0, 0.25, 0.0),
}


@pytest.mark.parametrize("name", PRESET_FACTS)
def test_presets_show_what_they_say(page: Page, name: str) -> None:
    """Claim 2: mean regret at κ = 1, at the preset's κ and at the best κ."""
    page.get_by_role("button", name=name, exact=True).first.click()
    assert page.locator("[aria-pressed='true']").inner_text() == name
    results = page.evaluate("window.explore.results()")
    found = (results["isotropic"]["mean_regret"], results["chosen"]["mean_regret"], results["best"]["mean_regret"])
    for value, wanted in zip(found, PRESET_FACTS[name], strict=True):
        assert wanted is None or value == pytest.approx(wanted, abs=1e-12)
    if name == "Task turned":
        assert 0.1 < found[2] <= found[1] < found[0]
    if name == "Noise reversed":
        assert results["best"]["kappa"] == 1
        assert found[1] > found[0]
    check_shown(page)


def test_fields_set_the_case(page: Page) -> None:
    """Claim 2: each quantity is a number field too."""
    wanted = {"S": [2.5, 0.5, 1.5], "W": [1.0, -0.25, 2.0], "Q": [1.5, 0.25, 0.75], "g": [-1, 0.5], "p": [1, -1.25]}
    for key, values in wanted.items():
        for index, value in enumerate(values, start=1):
            page.fill(f"#{key}{index}", str(value))
    page.fill("#v1", "-75")
    page.fill("#kappa", "1.8")
    state = current(page)
    assert {key: state[key] for key in wanted} == wanted
    assert (state["v"], state["k"]) == (-75, 1.8)
    check_shown(page)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("S2", "2", r"^Σ must be positive definite, but its smallest eigenvalue is −0\.218967\.$"),
        ("Q1", "0", r"^Q must be positive definite, but it is singular\.$"),
        ("W3", "-1", r"^Σ_w must be positive semidefinite, but its smallest eigenvalue is −1\.$"),
        ("kappa", "0.5", r"^κ must be at least 1, but it is 0\.5\.$"),
        ("kappa", "", r"^κ must be a finite number\.$"),
        ("kappa", "1e60", r"^κ must leave a metric that is positive definite to working precision, but κ = 1e\+60 "),
        ("g1", "", r"^The goal must be finite, [^.]*\.$"),
        ("v1", "", r"^The angle of the line must be a finite number\.$"),
    ],
)
def test_bad_input_changes_nothing(page: Page, field: str, value: str, sentence: str) -> None:
    """Claim 3. Mutation: set the case before computing it."""
    before, shown = current(page), page.inner_text("main")
    page.fill(f"#{field}", value)
    assert page.locator("#error").is_visible()
    assert re.search(sentence, page.inner_text("#error"))
    assert page.get_attribute(f"#{field}", "aria-invalid") == "true"
    assert (current(page), page.inner_text("main")) == (before, shown)
    page.click("#to-best")
    assert page.locator("#error").is_hidden()
    assert page.get_attribute(f"#{field}", "aria-invalid") is None
    check_shown(page)


EXTREMES = (
    "S=1e6,0,1&W=1,0,1&k=1",
    "S=1,0.999999,1&W=1,0,2&k=1000",
    "S=1e-8,0,1e-9&Q=1e8,0,3e8&g=1e-4,0&p=0,0&k=2",
    "W=0,0,1&k=1e6",
    "g=0,1&p=0,0&v=90&k=2",
    "S=1,0,1&Q=1,0,1e6&k=1e9",
)


def go_to(page: Page, fragment: str) -> None:
    """Set the address and wait for its case."""
    page.evaluate(
        """fragment => new Promise((done) => {
          addEventListener("hashchange", done, { once: true });
          location.hash = fragment;
        })""",
        fragment,
    )
    assert current(page)["k"] == float(fragment.rpartition("k=")[2])


def test_extreme_cases_are_drawn(page: Page) -> None:
    """Claims 2 and 4: conditions up to 1e6, far choices and a goal on the line leave no error behind."""
    for fragment in EXTREMES:
        go_to(page, fragment)
        assert page.locator("#error").is_hidden()
        assert not page.evaluate("/NaN|Infinity|undefined/.test(document.querySelector('.stage').innerHTML)"), fragment


def test_address_holds_the_case(browser: Browser, page: Page) -> None:
    """Claim 3: copied elsewhere, the address shows the same case. Mutation: leave one quantity out of it."""
    page.get_by_role("button", name="Task turned").click()
    page.locator("#handle-goal").focus()
    page.keyboard.press("ArrowUp")
    page.fill("#v1", "-12.5")
    page.fill("#W2", "0.125")
    page.wait_for_function("location.hash.includes('v=-12.5') && location.hash.includes('W=1,0.125,1')")
    fragment = page.evaluate("location.hash")
    other = Watched(browser, fragment, viewport=DESKTOP)
    first, second = current(page), current(other.page)
    assert {key: first[key] for key in "SWQgpvk"} == {key: second[key] for key in "SWQgpvk"}
    assert page.inner_text("table") == other.page.inner_text("table")
    other.context.close()


@pytest.mark.parametrize(
    ("fragment", "sentence"),
    [
        ("#S=1,2,1", "Σ must be positive definite"),
        ("#k=x", "κ must be a finite number."),
        ("#g=1", "The address gives"),
    ],
)
def test_bad_address_changes_nothing(page: Page, fragment: str, sentence: str) -> None:
    """Claim 3."""
    before = current(page)
    page.evaluate("fragment => { location.hash = fragment; }", fragment)
    page.wait_for_function("document.querySelector('#error').textContent !== ''")
    assert page.inner_text("#error").startswith(sentence)
    assert current(page) == before
    check_shown(page)


def test_bad_address_opens_the_first_case(browser: Browser) -> None:
    """Claim 3."""
    watched = Watched(browser, "#S=1,2,1", viewport=DESKTOP)
    assert watched.page.inner_text("#error").startswith("Σ must be positive definite")
    assert current(watched.page)["S"] == [3.0625, 0, 1]
    check_shown(watched.page)
    watched.context.close()


# ------------------------------------------------------------------------------------------------ how it looks

LAYOUT = r"""() => {
  const faults = [];
  const all = (selector, root = document) => [...root.querySelectorAll(selector)]
    .filter((element) => element.checkVisibility() && !element.closest(".hidden, script, style"));
  const name = (element) => `${element.tagName}#${element.id} "${(element.textContent ?? "").trim().slice(0, 30)}"`;
  const overlapping = (elements, depth, where) => {
    const boxes = elements.map((element) => element.getBoundingClientRect());
    elements.forEach((one, i) => elements.slice(i + 1).forEach((two, k) => {
      if (one.contains(two) || two.contains(one)) return;
      // Handles lie where the case puts them.
      if (one.matches(".knob") && two.matches(".knob")) return;
      const p = boxes[i], q = boxes[i + 1 + k];
      const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (across > 1 && down > depth) faults.push(`${name(one)} overlaps ${name(two)} ${where}`);
    }));
  };
  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) faults.push(`the page is ${width} wide`);
  overlapping(all("h1, h2, p, button, input, svg, figcaption, table, legend, label > span, dt, dd, math"), 1, "");
  for (const svg of all("svg")) overlapping(all("text, .handle .knob", svg), 3, "in a picture");

  // Text that is cut off, by its own box or its picture.
  for (const element of all("svg text")) {
    const box = element.getBoundingClientRect(), frame = element.ownerSVGElement.getBoundingClientRect();
    const across = Math.max(frame.left - box.left, box.right - frame.right);
    const beyond = Math.max(across, frame.top - box.top, box.bottom - frame.bottom);
    if (beyond > 1.5) faults.push(`${name(element)} leaves its picture by ${beyond}`);
  }
  for (const element of all("body *").filter((one) => one instanceof HTMLElement && one.clientWidth > 0)) {
    const inline = getComputedStyle(element).display === "inline";
    if (!inline && element.scrollWidth > element.clientWidth + 1) faults.push(`${name(element)} is cut off`);
  }
  for (const element of all("button, input, .handle .hit")) {
    const { width, height } = element.getBoundingClientRect();
    if (width < 24 || height < 24) faults.push(`${name(element)} is ${width} × ${height}`);
  }
  return faults;
}"""

#: The least contrast of any text with what is behind it, by the definition of WCAG 2.
CONTRAST = r"""() => {
  const parse = (color) => color.match(/[\d.]+/g).map(Number);
  const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const color = parse(getComputedStyle(one).backgroundColor);
      if ((color[3] ?? 1) === 1) return color;
    }
    return [255, 255, 255];
  };
  let least = 100, where = "", count = 0;
  for (const element of document.querySelectorAll("body *")) {
    const written = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!written && !element.matches("input[type=number]")) continue;
    if (!element.checkVisibility() || element.closest("script, style, .hidden")) continue;
    const style = getComputedStyle(element);
    const color = light(parse(element.closest("svg") ? style.fill : style.color)), back = light(behind(element));
    const ratio = (Math.max(color, back) + 0.05) / (Math.min(color, back) + 0.05);
    count += 1;
    if (ratio < least) { least = ratio; where = element.outerHTML.slice(0, 120); }
  }
  return { least, where, count, paper: light(behind(document.body)) };
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", ["desktop", "tablet", "phone"])
def test_layout_and_contrast(desktop: Watched, phone: Watched, width: str, scheme: Literal["light", "dark"]) -> None:
    """Claims 4 and 5, for every preset, with the sentence for bad input in sight at the end."""
    watched = phone if width == "phone" else desktop
    page = watched.page
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"desktop": DESKTOP, "tablet": TABLET, "phone": PHONE}[width])
    # The pictures are redrawn when their size has changed.
    page.wait_for_function(
        "() => [...document.querySelectorAll('svg')]"
        ".every((svg) => Math.abs(svg.viewBox.baseVal.width - svg.clientWidth) < 2)"
    )
    for preset in range(len(PRESET_FACTS)):
        page.evaluate("preset => document.querySelector(`[data-preset='${preset}']`).click()", preset)
        assert page.evaluate(LAYOUT) == [], preset
    for fragment in EXTREMES:
        go_to(page, fragment)
        assert page.evaluate(LAYOUT) == [], fragment
    page.fill("#kappa", "0.5")
    contrast = page.evaluate(CONTRAST)
    assert contrast["least"] >= 4.5, contrast
    assert contrast["count"] > 100
    assert contrast["paper"] > 0.9 if scheme == "light" else contrast["paper"] < 0.05
    page.set_viewport_size(PHONE if width == "phone" else DESKTOP)
    assert watched.messages == []
    assert watched.requests == [PAGE.as_uri()]


def test_drag_with_a_finger(phone: Watched) -> None:
    """Claim 2 at phone width: a finger on the goal moves it and does not scroll the page; beside it, it scrolls."""
    page, session = phone.page, phone.context.new_cdp_session(phone.page)
    page.click("#reset")

    def swipe(x: float, y: float, dx: float, dy: float) -> None:
        session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
        for part in (0.25, 0.5, 0.75, 1.0):
            points = [{"x": x + part * dx, "y": y + part * dy}]
            session.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": points})
        session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    page.locator("#plane").scroll_into_view_if_needed()
    before, top = current(page), page.evaluate("scrollY")
    box = page.locator("#handle-goal .knob").bounding_box()
    assert box
    swipe(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, 40.0, -30.0)
    page.wait_for_function("was => window.explore.current().g[0] !== was", arg=before["g"][0])
    after = current(page)
    assert after["g"][0] > before["g"][0] + 0.3
    assert after["g"][1] > before["g"][1] + 0.2
    assert page.evaluate("scrollY") == top
    check_shown(page)
    frame = page.locator("#plane").bounding_box()
    assert frame
    swipe(frame["x"] + 0.15 * frame["width"], frame["y"] + 0.25 * frame["height"], 0.0, -150.0)
    page.wait_for_function("was => scrollY > was + 60", arg=top)
    assert {key: current(page)[key] for key in "SWQgpvk"} == {key: after[key] for key in "SWQgpvk"}
    assert phone.messages == []
