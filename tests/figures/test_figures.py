"""Figures.

1. The table behind each figure holds every seed, the mean, the 95 % t interval and the theory's lines.
2. Axes carry labels with units; synthetic rows are stamped; everything lies inside the picture and no text overlaps.
3. The same rows give the same bytes, in this process and in another.
4. Rows that cannot be drawn are refused in one sentence.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from scipy import stats
from toy_rows import CONDITION, closed_form, example, kappa_rows, noise_rows, overcomplete_rows

from figures import catalog, fig01_separation, fig_overcomplete, fig_regret_vs_kappa, style

FRAMES = {
    "fig01_separation": lambda origin: fig01_separation.data(noise_rows(origin=origin), example()),
    "fig_overcomplete": lambda origin: fig_overcomplete.data(overcomplete_rows(origin=origin)),
    "fig_regret_vs_kappa": lambda origin: fig_regret_vs_kappa.data(kappa_rows(origin=origin)),
}


def test_constants_of_the_finite_weight_line_are_the_toys() -> None:
    from toy2d.training import TrainSettings

    settings = TrainSettings()
    assert (settings.weight, 2 * settings.batch_size) == (fig_regret_vs_kappa.WEIGHT, fig_regret_vs_kappa.BATCH_SIZE)


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    return {name: make("synthetic") for name, make in FRAMES.items()}


@pytest.fixture(scope="module")
def pictures(frames: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    return {name: catalog.get(name).draw(frame) for name, frame in frames.items()}


def means_by_hand(rows: pd.DataFrame, by: str, column: str) -> dict[float, tuple[float, float, float, int]]:
    table = {}
    for value in rows[by].unique():
        sample = rows.loc[rows[by] == value, column].to_numpy()
        interval = stats.t.interval(0.95, len(sample) - 1, loc=sample.mean(), scale=stats.sem(sample))
        table[float(value)] = (float(sample.mean()), *map(float, interval), len(sample))
    return table


def assert_curve(frame: pd.DataFrame, rows: pd.DataFrame, by: str, column: str) -> None:
    seeds, means = frame[frame["kind"] == "seed"], frame[frame["kind"] == "mean"]
    assert sorted(seeds["y"]) == sorted(rows[column])
    expected = means_by_hand(rows, by, column)
    assert sorted(means["x"]) == sorted(expected)
    for _, point in means.iterrows():
        np.testing.assert_allclose(point[["y", "low", "high", "count"]].astype(float), expected[point["x"]], rtol=1e-9)


def test_every_script_is_in_the_catalog() -> None:
    assert set(FRAMES) <= set(catalog.names())
    for name in catalog.names():
        assert catalog.get(name).name == name


# 1. Tables


def test_kappa_table(frames: dict[str, pd.DataFrame]) -> None:
    """Mutation: the curve uses ln κ − c, or the mean leaves out a seed."""
    frame = frames["fig_regret_vs_kappa"]
    assert_curve(frame, kappa_rows(), "kappa", "regret_pred")
    closed = frame[frame["series"] == "closed form"]
    np.testing.assert_allclose(closed["y"], [closed_form(kappa) for kappa in closed["x"]], atol=1e-12)
    finite = frame[frame["series"] == "finite-weight theory"]
    # T9's numbers at σ = 0.5: close to the closed form, below it at κ = 1, and zero at κ = c.
    assert finite.loc[finite["x"] == 1.0, "y"].item() == pytest.approx(0.152122, abs=2e-5)
    assert finite.loc[finite["x"] == CONDITION, "y"].item() == pytest.approx(0.0, abs=1e-6)


def test_separation_table(frames: dict[str, pd.DataFrame]) -> None:
    frame = frames["fig01_separation"]
    plain = noise_rows().query("observation == 'identity'")
    sweep = frame[frame["panel"] == "b"]
    assert_curve(sweep[sweep["series"] == "regret"], plain, "sigma", "regret_pred")
    assert_curve(sweep[sweep["series"] == "prediction error"], plain, "sigma", "prediction_error")
    panel = frame[frame["panel"] == "a"]
    arrays = example()
    for name in ("goal", "chosen", "optimal"):
        np.testing.assert_array_equal(panel.loc[panel["series"] == name, ["x", "y"]].to_numpy()[0], arrays[name])
    for series, metric in (("learned metric", arrays["metric"]), ("Σ⁻¹", np.linalg.inv(arrays["state_cov"]))):
        points = panel.loc[panel["series"] == series, ["x", "y"]].to_numpy()
        levels = np.einsum("ki,ij,kj->k", points, metric, points)
        np.testing.assert_allclose(levels, levels[0], rtol=1e-10)
        x, y = points.T
        area = 0.5 * abs(np.dot(x[:-1], y[1:]) - np.dot(x[1:], y[:-1]))
        assert area == pytest.approx(np.pi, rel=1e-3)
    grid = panel[panel["series"] == "latent cost"]
    cost = pd.DataFrame(arrays["latent_cost"], index=arrays["grid_y"], columns=arrays["grid_x"])
    for _, cell in grid.iloc[::97].iterrows():
        assert cell["value"] == cost.loc[cell["y"], cell["x"]]
    assert len(grid) <= 81 * 81


def test_overcomplete_table(frames: dict[str, pd.DataFrame]) -> None:
    frame, rows = frames["fig_overcomplete"], overcomplete_rows()
    for kappa in (1.0, CONDITION):
        part, group = frame[frame["panel"] == f"κ = {kappa:g}"], rows[rows["kappa"] == kappa]
        assert_curve(part[part["series"] == "predicted latent"], group, "latent_dim", "regret_pred")
        assert_curve(part[part["series"] == "encoded outcome"], group, "latent_dim", "regret_enc")
        linear = part[part["series"] == "linear theory"].set_index("x")["y"]
        expected = {2.0: 9 / 56 if kappa == 1 else 0.0, 3.0: 9 / 56, 4.0: 9 / 56, 8.0: 9 / 56}
        np.testing.assert_allclose(linear[list(expected)], list(expected.values()), atol=1e-9)


def test_one_seed_has_no_interval() -> None:
    frame = fig_regret_vs_kappa.data(kappa_rows(seeds=1))
    means = frame[frame["kind"] == "mean"]
    assert (means["low"] == means["y"]).all()
    assert (means["count"] == 1).all()


# 2. Pictures


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        (
            "fig01_separation",
            ["in standard deviations", "same unit", "relative to optimum", "mean square", "in standard deviations"],
        ),
        ("fig_overcomplete", ["latent dimension", "relative to the task optimum"]),
        ("fig_regret_vs_kappa", ["ratio of variances", "relative to the task optimum"]),
    ],
)
def test_axes_say_what_they_measure_and_in_which_unit(
    pictures: dict[str, Figure], name: str, labels: list[str]
) -> None:
    found = [label for axes in pictures[name].get_axes() for label in (axes.get_xlabel(), axes.get_ylabel()) if label]
    for label in labels:
        assert any(label in text for text in found), (label, found)


def visible_texts(figure: Figure) -> list[Text]:
    texts: list[Text] = []
    for axes in _all_axes(figure):
        legend = axes.get_legend()
        texts += [*axes.texts, axes.xaxis.label, axes.yaxis.label, axes.title]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = axis.get_major_ticks()
            texts += [tick.label1 for tick in ticks if low <= tick.get_loc() <= high and tick.label1.get_visible()]
        texts += legend.get_texts() if legend is not None else []
    return [text for text in texts if text.get_visible() and text.get_text().strip()]


def _all_axes(figure: Figure) -> list[Axes]:
    return [inner for axes in figure.get_axes() for inner in (axes, *axes.child_axes)]


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_no_text_leaves_the_picture_or_overlaps_another(pictures: dict[str, Figure], name: str) -> None:
    """Mutation: a legend placed over an axis label."""
    figure = pictures[name]
    with style.sheet():
        figure.canvas.draw()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = []
    for text in visible_texts(figure):
        box = (
            Text.get_window_extent(text, renderer) if isinstance(text, Annotation) else text.get_window_extent(renderer)
        )
        corners = box.get_points() / figure.dpi
        assert (corners > -0.01).all(), text.get_text()
        assert (corners < figure.get_size_inches() + 0.01).all(), text.get_text()
        boxes.append((text.get_text(), box))
    for index, (first, box) in enumerate(boxes):
        for second, other in boxes[:index]:
            assert not box.padded(-0.5).overlaps(other.padded(-0.5)), (first, second)


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_synthetic_rows_are_stamped(name: str) -> None:
    """Mutation: ``stamp`` is not called by one figure."""
    for origin, stamped in (("synthetic", True), ("measured", False)):
        figure = catalog.get(name).draw(FRAMES[name](origin))
        assert any(text.get_text() == "synthetic" for text in figure.texts) is stamped


def test_reference_line_and_marks(pictures: dict[str, Figure]) -> None:
    regret = pictures["fig01_separation"].get_axes()[1]
    reference = [line for line in regret.get_lines() if line.get_label() == "Σ⁻¹ reference 9/56"]
    np.testing.assert_allclose(np.asarray(reference[0].get_ydata(), dtype=float), 9 / 56)
    (axes,) = pictures["fig_regret_vs_kappa"].get_axes()
    assert axes.get_xscale() == "log"
    marks = {text.get_text(): text.xy[0] for text in axes.texts if isinstance(text, Annotation)}
    assert marks == {"$κ = c$": CONDITION, "$κ = c^2$": CONDITION**2}


def test_fonts_are_legible_at_column_width(pictures: dict[str, Figure]) -> None:
    for name, figure in pictures.items():
        assert figure.get_figwidth() <= style.PAGE_WIDTH
        assert min(text.get_fontsize() for text in visible_texts(figure)) >= 6.5, name


# 3. Bytes


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_files(results: Path, tmp_path: Path, name: str) -> None:
    paths = catalog.get(name).render(results, tmp_path / "out")
    assert [path.name for path in paths] == [f"{name}.pdf", f"{name}.png", f"{name}.csv"]
    assert paths[0].read_bytes().startswith(b"%PDF")
    assert b"CreationDate" not in paths[0].read_bytes()
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(paths[2])
    assert len(table) == len(catalog.get(name).read(results))


def test_same_rows_same_bytes_in_another_process_and_at_another_time(results: Path, tmp_path: Path) -> None:
    """Mutation: drop the PDF's metadata argument in ``style.save``."""
    names = sorted(FRAMES)
    command = [sys.executable, "-m", "figures", *names, "--results", str(results), "--out", str(tmp_path / "other")]
    environment = os.environ | {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    for name in names:
        catalog.get(name).render(results, tmp_path / "here")
    assert len(digests(tmp_path / "here")) == 3 * len(names)
    assert digests(tmp_path / "here") == digests(tmp_path / "other")


def test_a_users_own_style_changes_nothing(frames: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    """Mutation: ``sheet`` without "default"."""
    import matplotlib as mpl

    figure = catalog.get("fig_regret_vs_kappa")
    frame = frames["fig_regret_vs_kappa"]
    style.save(figure.draw(frame), frame, figure.name, tmp_path / "plain")
    with mpl.rc_context({"font.size": 20, "axes.grid": True, "lines.linewidth": 9, "axes.facecolor": "red"}):
        style.save(figure.draw(frame), frame, figure.name, tmp_path / "loud")
    assert digests(tmp_path / "plain") == digests(tmp_path / "loud")


# 4. Refusals


def test_rows_that_cannot_be_drawn_are_refused() -> None:
    rows = kappa_rows()
    cases = {
        "are empty": rows.head(0),
        "lack the column regret_pred": rows.drop(columns="regret_pred"),
        "must be finite, but regret_pred is not": rows.assign(regret_pred=np.nan),
        "must share one sigma": rows.assign(sigma=np.arange(len(rows)) + 1.0),
    }
    for message, bad in cases.items():
        with pytest.raises(ValueError, match=message):
            fig_regret_vs_kappa.data(bad)
    with pytest.raises(ValueError, match="lack the columns latent_dim, regret_pred"):
        fig_overcomplete.data(overcomplete_rows().drop(columns=["latent_dim", "regret_pred"]))
    with pytest.raises(ValueError, match="hold none with observation 'identity'"):
        fig01_separation.data(noise_rows().assign(observation="nonlinear"), example())


def test_examples_that_cannot_be_drawn_are_refused() -> None:
    arrays = example()
    without = {name: value for name, value in arrays.items() if name != "latent_cost"}
    with pytest.raises(ValueError, match=r"example\.npz lacks latent_cost"):
        fig01_separation.data(noise_rows(), without)
    with pytest.raises(ValueError, match="latent_cost must have shape"):
        fig01_separation.data(noise_rows(), arrays | {"latent_cost": arrays["latent_cost"].T})
    with pytest.raises(ValueError, match="metric must be positive definite"):
        fig01_separation.data(noise_rows(), arrays | {"metric": np.diag([1.0, 0.0])})
