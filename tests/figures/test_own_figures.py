"""The project's own figures beyond the toy's sweeps, and the documentation's page of all figures.

1. The tables behind them are the closed forms, computed here another way, and the rows, summarised by hand.
2. Axes carry labels with units, no text leaves the picture or lies on another, synthetic rows are stamped; without rows
   the allocation says "not run".
3. The same rows give the same bytes.
4. The documentation shows every figure and table with its caption and command; each picture is that of today's rows.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from scipy import stats
from toy_rows import CONDITION, diagonal_rows

from figures import catalog, fig_allocation, fig_diagonal, fig_power, fig_regret_maps, gallery, style
from theory.target import optimal_target

DOCS = Path(__file__).resolve().parents[2] / "docs"


def coordinate_rows(kappas: tuple[float, ...] = (1.0, 2.0), origin: str = "synthetic") -> pd.DataFrame:
    """Eight coordinates of two seeds for each κ; large variance on the four that predict best."""
    residual = np.geomspace(0.004, 0.3, 8)
    parts = []
    for kappa in kappas:
        for seed in (3072, 1234):
            high, low = 2 * kappa / (kappa + 1), 2 / (kappa + 1)
            variances = np.where(np.arange(8) < 4, high, low)
            labels = {"task": "tworoom", "kappa": kappa, "training_seed": seed, "preset": "laptop", "origin": origin}
            frame = pd.DataFrame({"coordinate": np.arange(8), "target_variance": variances})
            frame = frame.assign(relative_residual=residual * (1 + 0.1 * (seed == 1234)), predicted_variance=variances)
            parts.append(frame.assign(run=f"visual/tworoom/k{kappa:g}-s{seed}-laptop/diagnose", **labels))
    return pd.concat(parts, ignore_index=True)


FRAMES = {
    "fig_allocation": lambda origin: fig_allocation.data(coordinate_rows(origin=origin)),
    "fig_diagonal": lambda origin: fig_diagonal.data(diagonal_rows(origin=origin)),
    "fig_power": lambda origin: fig_power.data(),
    "fig_regret_maps": lambda origin: fig_regret_maps.data(),
}


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    return {name: make("synthetic") for name, make in FRAMES.items()}


@pytest.fixture(scope="module")
def pictures(frames: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    return {name: catalog.get(name).draw(frame) for name, frame in frames.items()}  # type: ignore[union-attr]


# 1. Tables


def test_regret_curves(frames: dict[str, pd.DataFrame]) -> None:
    """Two dimensions and the worst case in closed form; three by averaging over drawn lines.

    Mutation: the worst case of another dimension's spectrum, or a spectrum in equal steps.
    """
    panel = frames["fig_regret_maps"].query("panel == 'a'")
    two, worst = panel[panel["series"] == "n = 2"], panel[panel["series"] == "worst"]
    np.testing.assert_allclose(two["y"], np.cosh(0.5 * np.log(two["x"])) - 1, rtol=1e-9)
    np.testing.assert_allclose(worst["y"], (worst["x"] - 1) ** 2 / (4 * worst["x"]), rtol=1e-9)
    generator = np.random.default_rng(0)
    direction, offset = generator.standard_normal((2, 200_000, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    offset -= (offset * direction).sum(1, keepdims=True) * direction
    offset /= np.linalg.norm(offset, axis=1, keepdims=True)
    three = panel[panel["series"] == "n = 3"].iloc[30]
    metric = np.array([1.0, math.sqrt(three["x"]), three["x"]])
    regret = ((direction * metric * offset).sum(1) / (direction**2 * metric).sum(1)) ** 2
    assert three["y"] == pytest.approx(regret.mean(), abs=4 * regret.std() / math.sqrt(len(regret)))


def test_regret_arrow_and_path(frames: dict[str, pd.DataFrame]) -> None:
    """ΛReg divides the toy's condition number by κ; in three dimensions it jumps at κ₂ and never reaches (1, 1).

    Mutation: a jump in the wrong place.
    """
    frame = frames["fig_regret_maps"]
    arrow = frame[(frame["panel"] == "a") & (frame["kind"] == "point")]
    assert arrow["x"].tolist() == [CONDITION, CONDITION / 2]
    np.testing.assert_allclose(arrow["y"], np.cosh(0.5 * np.log(arrow["x"])) - 1, rtol=1e-12)
    path = frame[frame["kind"] == "path"]
    noise = np.diag(1 / np.diag(fig_regret_maps.EXAMPLE_COV))
    for point in path.itertuples():
        target = optimal_target(noise, point.kappa)
        assert target.num_high == (0 if point.kappa == 1 else 2 if point.series == "before" else 1)
        spectrum = np.sort(np.diag(target.matrix) * np.diag(noise))
        assert (point.x, point.y) == pytest.approx((spectrum[1] / spectrum[0], spectrum[2] / spectrum[1]))
    assert (path["value"] > 0.04).all()
    best = frame[frame["kind"] == "best"].iloc[0]
    assert best["value"] <= path["value"].min()


def test_regret_maps_agree_where_they_meet(frames: dict[str, pd.DataFrame]) -> None:
    """In three dimensions panels a and b agree; in eight, k = 1 is panel a's curve and k = 7 its dual."""
    frame = frames["fig_regret_maps"]
    eight, grid = frame[frame["series"] == "n = 8"], frame[(frame["panel"] == "c") & (frame["kind"] == "grid")]
    lines = grid[grid["y"] == 1]
    expected = np.exp(np.interp(np.log(lines["x"]), np.log(eight["x"]), np.log(eight["y"])))
    np.testing.assert_allclose(lines["value"], expected, rtol=2e-3)
    # (n − k)·mean_k(M) = k·mean_{n−k}(M⁻¹), and equal ratios have the spectrum of their inverse.
    duals = grid[grid["y"] == 7]
    np.testing.assert_allclose(duals["value"].to_numpy(), 7 * lines["value"].to_numpy(), rtol=1e-6)
    triples = frame[(frame["panel"] == "b") & (frame["kind"] == "grid")]
    same = triples[np.isclose(triples["x"], triples["y"])].iloc[1:]
    three = frame[frame["series"] == "n = 3"]
    expected = np.exp(np.interp(np.log(same["x"] ** 2), np.log(three["x"]), np.log(three["y"])))
    # Nearer to 1 the curve is too bent to be interpolated.
    inside = (same["x"] ** 2).between(2, 100)
    np.testing.assert_allclose(same.loc[inside, "value"], expected[inside], rtol=0.02)


def test_allocation_table(frames: dict[str, pd.DataFrame]) -> None:
    """Two levels, κ apart, high below the threshold; the level pattern is the best of all patterns; the rows unchanged.

    Mutation: the threshold without 1/n, or rows of κ = 1 among the measured ones.
    """
    frame = frames["fig_allocation"]
    for kappa in fig_allocation.KAPPAS:
        part = frame[(frame["panel"] == "a") & (frame["kappa"] == kappa)]
        target = part[part["series"] == fig_allocation.LIMIT].sort_values("x")
        (threshold,) = part.loc[part["series"] == fig_allocation.THRESHOLD, "x"]
        assert target["y"].sum() == pytest.approx(6)
        assert ((target["x"] < threshold) == (target["y"] > 1)).all()
        losses = []
        for count in range(6):
            levels = np.where(np.arange(6) < count, kappa, 1.0)
            losses.append(float(levels / levels.sum() * 6 @ target["x"]))
        assert float((target["x"] * target["y"]).sum()) == pytest.approx(min(losses))
        assert threshold == pytest.approx(min(losses) / 6)
        shrunk = part[part["series"] == fig_allocation.FINITE].sort_values("x")
        # What a coordinate pays is v ν, and the more it pays the more of its variance it gives up.
        kept, paid = shrunk["y"].to_numpy() / target["y"].to_numpy(), (target["x"] * target["y"]).to_numpy()
        assert (np.diff(kept[np.argsort(paid)]) < 1e-6).all()
        assert kept.min() < 0.98 < 1 < kept.max()
    measured, rows = frame[frame["panel"] == "b"], coordinate_rows().query("kappa == 2")
    for series, column in (
        (fig_allocation.LEARNED, "target_variance"),
        (fig_allocation.PREDICTED, "predicted_variance"),
    ):
        part = measured[measured["series"] == series]
        np.testing.assert_array_equal(part[["x", "y"]], rows[["relative_residual", column]])


def test_diagonal_table(frames: dict[str, pd.DataFrame]) -> None:
    """Every seed, means with t intervals, the distance of trace-one metrics, and the theory's regrets.

    Mutation: distances without the trace, or both targets in one series.
    """
    frame, rows = frames["fig_diagonal"], diagonal_rows()
    regret = frame[(frame["panel"] == "a") & (frame["kind"] == "mean")]
    assert len(regret) == 6
    for point in regret.itertuples():
        same = (rows["target"] == point.series) & (rows["kappa"] == point.kappa)
        sample = rows.loc[same & (rows["noise_ratio"] == point.noise_ratio), "regret_pred"].to_numpy()
        interval = stats.t.interval(0.95, len(sample) - 1, loc=sample.mean(), scale=stats.sem(sample))
        assert (point.y, point.low, point.high) == pytest.approx((sample.mean(), *interval), rel=1e-9)
    lines = frame[frame["kind"] == "line"]
    isotropic = lines[lines["noise_ratio"] == 1]
    np.testing.assert_allclose(isotropic["y"], 0.0, atol=1e-6)
    # Independent of theory.target: N's axes by hand, then the mean over lines in two dimensions.
    half, turn = np.diag([1 / 1.75, 1.0]), np.array([[1.0, -1.0], [1.0, 1.0]]) / math.sqrt(2)
    noise = half @ turn @ np.diag([2.0, 0.5]) @ turn.T @ half
    _, axes = np.linalg.eigh(noise)
    for kappa in (2.0, CONDITION):
        metric = half @ axes @ np.diag([kappa, 1.0]) @ axes.T @ half
        low, high = np.linalg.eigvalsh(metric)
        closed = lines[
            (lines["series"] == fig_diagonal.LIMIT) & (lines["kappa"] == kappa) & (lines["noise_ratio"] == 4)
        ]
        assert closed["y"].item() == pytest.approx(math.cosh(0.5 * math.log(high / low)) - 1, rel=1e-9)
    distance = frame[(frame["panel"] == "b") & (frame["kind"] == "seed") & (frame["noise_ratio"] == 1)]
    # M = diag(0.33, 1 + …) against the identity: ‖diag(a, b)/(a + b) − I/2‖ / ‖I/2‖.
    first = rows[(rows["noise_ratio"] == 1) & (rows["target"] == "diagonal")].iloc[0]
    learned = np.array([[first["metric_11"], first["metric_12"]], [first["metric_12"], first["metric_22"]]])
    by_hand = np.linalg.norm(learned / np.trace(learned) - np.eye(2) / 2) / np.linalg.norm(np.eye(2) / 2)
    assert distance["y"].iloc[0] == pytest.approx(by_hand, abs=1e-3)


def test_power_table(frames: dict[str, pd.DataFrame]) -> None:
    """The marked numbers: at 50 pairs no comparison reaches 15 %; 131, 231 and 419 pairs give 80 %.

    Mutation: p₁₀ and p₀₁ with another difference than 6 %.
    """
    frame = frames["fig_power"]
    fifty = frame[(frame["panel"] == "a") & (frame["x"] == 50)]
    assert len(fifty) == 5
    assert fifty["y"].between(0.07, 0.15).all()
    # Nested models: McNemar rejects from six discordant pairs on, all of one kind.
    nested = frame[(frame["series"] == "McNemar") & (frame["only_first"] == 0)]
    np.testing.assert_allclose(nested["y"], stats.binom.sf(5, nested["x"], 0.06), rtol=1e-9, atol=1e-14)
    needed = frame[frame["panel"] == "b"].set_index("only_first")
    marked = [needed.loc[share] for share in fig_power.ONLY_FIRST]
    assert [round(row["y"]) for row in marked] == [131, 231, 419]
    assert [row["x"] for row in marked] == pytest.approx([0.06, 0.10, 0.1818])


# 2. Pictures


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("fig_allocation", ["noise variance / state variance", "mean of the target = 1", "residual variance"]),
        ("fig_diagonal", ["relative to the task optimum", "(relative)"]),
        ("fig_power", ["number of pairs", "power in %", "(%)", "pairs needed for 80 % power"]),
        ("fig_regret_maps", ["condition number", "relative to the task optimum", "ratio", "relative to optimum"]),
    ],
)
def test_axes_say_what_they_measure_and_in_which_unit(
    pictures: dict[str, Figure], name: str, labels: list[str]
) -> None:
    found = [label for axes in pictures[name].get_axes() for label in (axes.get_xlabel(), axes.get_ylabel()) if label]
    assert all(axes.get_xlabel() or axes.get_label() == "<colorbar>" for axes in pictures[name].get_axes())
    for label in labels:
        assert any(label in text for text in found), (label, found)


def visible_texts(figure: Figure) -> list[Text]:
    texts: list[Text] = []
    for axes in figure.get_axes():
        legend = axes.get_legend()
        texts += [*axes.texts, axes.xaxis.label, axes.yaxis.label, axes.title]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            texts += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
        texts += legend.get_texts() if legend is not None else []
    return [text for text in texts if text.get_visible() and text.get_text().strip()]


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_no_text_leaves_the_picture_or_overlaps_another(pictures: dict[str, Figure], name: str) -> None:
    """Mutation: a legend placed over an axis label."""
    figure = pictures[name]
    with style.sheet():
        figure.canvas.draw()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    assert figure.get_figwidth() <= style.PAGE_WIDTH
    boxes = []
    for text in visible_texts(figure):
        assert text.get_fontsize() >= 6.5
        annotated = isinstance(text, Annotation)
        box = Text.get_window_extent(text, renderer) if annotated else text.get_window_extent(renderer)
        corners = box.get_points() / figure.dpi
        assert (corners > -0.01).all(), text.get_text()
        assert (corners < figure.get_size_inches() + 0.01).all(), text.get_text()
        boxes.append((text.get_text(), box))
    for index, (first, box) in enumerate(boxes):
        for second, other in boxes[:index]:
            assert not box.padded(-0.5).overlaps(other.padded(-0.5)), (first, second)


@pytest.mark.parametrize("name", ["fig_allocation", "fig_diagonal"])
def test_synthetic_rows_are_stamped(pictures: dict[str, Figure], name: str) -> None:
    """Mutation: ``stamp`` is not called by one figure."""
    measured = catalog.get(name).draw(FRAMES[name]("measured"))  # type: ignore[union-attr]
    for figure, stamped in ((pictures[name], True), (measured, False)):
        assert any(text.get_text() == "synthetic" for text in figure.texts) is stamped


def test_no_rows_of_a_model_are_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: draw an empty panel."""
    monkeypatch.setattr(catalog, "MEASURED", tmp_path)
    frame = fig_allocation.read(tmp_path / "none")
    assert (frame["panel"] == "a").all()
    texts = [text.get_text() for text in fig_allocation.draw(frame).get_axes()[1].texts]
    assert "measured here: not run" in texts


def test_rows_that_cannot_be_drawn_are_refused() -> None:
    rows = diagonal_rows()
    for message, bad in {
        "are empty": rows.head(0),
        "lack the columns target, noise_ratio": rows.drop(columns=["target", "noise_ratio"]),
        "must be finite, but metric_12 is not": rows.assign(metric_12=np.nan),
    }.items():
        with pytest.raises(ValueError, match=message):
            fig_diagonal.data(bad)


# 3. Bytes


def test_same_rows_same_bytes(frames: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    """Mutation: a random number without a seed, or a set's order, in a table or a picture."""
    digests = []
    for folder in ("one", "two"):
        for name, make in FRAMES.items():
            frame = frames[name] if folder == "one" else make("synthetic")
            figure = catalog.get(name).draw(frame)  # type: ignore[union-attr]
            style.save(figure, frame, name, tmp_path / folder)
        files = sorted((tmp_path / folder).iterdir())
        digests.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files})
    assert len(digests[0]) == 3 * len(FRAMES)
    assert digests[0] == digests[1]


# 4. Documentation


def test_the_page_shows_every_figure_and_table() -> None:
    """Mutation: leave a name out of the page."""
    text = (DOCS / gallery.PAGE).read_text(encoding="utf-8")
    assert text == gallery.page(), "docs/figures.md is old: write it with `python -m figures docs`"
    for name in catalog.names():
        assert f"{{#{name}}}" in text
        assert catalog.get(name).caption in text
        assert f"`python -m figures {name}`" in text
        for need in catalog.get(name).needs:
            assert need.command in text


@pytest.mark.parametrize("name", [name for name in catalog.names() if name.startswith("fig")])
def test_pictures_of_the_documentation_are_those_of_the_published_rows(name: str) -> None:
    """Mutation: change a row, and draw nothing again."""
    stored = gallery.stored_summary(DOCS / gallery.IMAGES / f"{name}.png")
    fresh = gallery.summary(catalog.get(name).read(catalog.MEASURED))
    assert stored["rows"] == fresh["rows"], "write the pictures with `python -m figures docs`"
    assert stored["columns"].keys() == fresh["columns"].keys()
    for column, values in fresh["columns"].items():
        assert stored["columns"][column] == pytest.approx(values, rel=1e-4, abs=1e-6), column


def test_pictures_are_small_and_repeat(frames: dict[str, pd.DataFrame]) -> None:
    frame = frames["fig_power"]
    first, second = (gallery.picture(fig_power.draw(frame), frame) for _ in range(2))
    assert first == second
    assert len(first) < 100_000
    assert gallery.summary(frame)["rows"] == len(frame)


def test_a_picture_without_a_summary_is_refused(tmp_path: Path, pictures: dict[str, Figure]) -> None:
    pictures["fig_power"].savefig(tmp_path / "plain.png", dpi=40)
    with pytest.raises(ValueError, match="says nothing of its rows; draw it with"):
        gallery.stored_summary(tmp_path / "plain.png")
