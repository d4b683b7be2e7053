"""Figures of the visual runs, drawn from small synthetic rows.

1. The table behind each figure is what a count by hand gives, and holds the published numbers.
2. Axes carry labels with units; text lies inside the picture and does not overlap; synthetic rows are stamped.
3. Without runs every figure is drawn, with its published half and "not run".
4. The same rows give the same bytes.
5. Runs are found under ``results`` before the published ones; foreign, empty and damaged ones are one sentence.
6. Publishing leaves weights and frames behind and the published run is whole.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic_visual as synthetic
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from PIL import Image
from scipy import stats

from figures import catalog, fig02_success, film_frames, published, style, visual_rows
from figures.fig03_neighborhoods import blend
from figures.publish import publish
from theory.runs import open_run, read_rows, read_run

LABELS = {
    "fig02_success": ["success (%)"],
    "fig03_neighborhoods": ["agent x (px)", "block x (m)", "shoulder (rad)"],
    "fig04_target_spectra": ["target variance (mean 1)", "rank / latent dimension"],
    "fig05_success_vs_kappa": ["planning success (%)", "bound $κ$ (ratio)"],
    "fig06_environments": [],
    "fig07_ranking": ["agreement, $κ = 1$"],
    "fig08_more_neighborhoods": ["agent y (px)", "block y (m)"],
    "fig09_condition_number": ["training step", "(ratio of variances)"],
    "fig10_feature_spectra": ["index of the eigenvalue", "(relative to the mean)"],
    "fig11_loss_vs_success": ["(MSE, own latent)", "planning success (%)"],
    "fig12_rollouts": [],
    "fig13_rollouts": [],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def frames(results: Path) -> dict[str, pd.DataFrame]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "MEASURED", results / "none")
        return {name: catalog.get(name).read(results) for name in LABELS}


@pytest.fixture(scope="module")
def pictures(frames: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    drawn = {}
    for name, frame in frames.items():
        figure = catalog.get(name)
        assert isinstance(figure, catalog.Figure)
        drawn[name] = figure.draw(frame)
    return drawn


@pytest.fixture(autouse=True)
def _nothing_published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(catalog, "MEASURED", tmp_path / "measured")


# 1. Tables


def test_success(frames: dict[str, pd.DataFrame]) -> None:
    frame = frames["fig02_success"]
    here = frame[frame["origin"] == "synthetic"].set_index(["task", "method"])
    for task in synthetic.TASKS:
        for kappa, method in ((2.0, "AnisoWM"), (1.0, "LeWM")):
            rate = np.mean([synthetic.success(task, kappa, seed).mean() for seed in synthetic.SEEDS])
            assert here.loc[(task, method), "success_percent"] == pytest.approx(100 * rate)
        for method, rate in (("Random", 4 / 20), ("solved at start", 2 / 20), ("true cost", 19 / 20)):
            assert here.loc[(task, method), "success_percent"] == pytest.approx(100 * rate)
        assert (here.loc[task, "low"] <= here.loc[task, "success_percent"]).all()
        assert (here.loc[task, "high"] >= here.loc[task, "success_percent"]).all()
    assert len(frame[frame["origin"] == "published"]) == len(published.read("fig02_success"))


def test_success_says_how_many_seeds_and_pairs_its_bars_have(results: Path) -> None:
    """Of what it draws: other κ have fewer seeds, the ceiling fewer pairs.

    Mutation: describe all episodes in ``data``; or leave out the text beside the ceiling.
    """
    episodes, ceiling = visual_rows.planned(results), visual_rows.CEILING.rows(results)
    one = episodes[(episodes["kappa"] == 2) & (episodes["training_seed"] == synthetic.SEEDS[0])]
    more = pd.concat([episodes, one.assign(kappa=8.0, run="k8")], ignore_index=True)
    frame = fig02_success.data(more, ceiling[ceiling["pair"] < 5])
    models, top = "synthetic (laptop preset, n = 20, 2 seeds)", "synthetic (laptop preset, n = 5)"
    here = frame[frame["origin"] != "published"]
    assert set(here.loc[here["method"] != "true cost", "have"]) == {models}
    assert set(here.loc[here["method"] == "true cost", "have"]) == {top}
    other = fig02_success.data(episodes[episodes["kappa"] == 4], ceiling)
    assert not other["have"].str.contains("not run").any()
    labels = [text.get_text() for axes in fig02_success.draw(frame).axes for text in axes.texts]
    assert labels.count("n = 5") == len(synthetic.TASKS)


def test_spectra(frames: dict[str, pd.DataFrame]) -> None:
    frame = frames["fig04_target_spectra"]
    final = frame[frame["kind"] == "final"]
    for (task, seed), run in final.groupby(["task", "seed"]):
        high = synthetic.high_count(str(task), int(float(str(seed))))
        np.testing.assert_allclose(run.sort_values("rank")["variance"], synthetic.spectrum(2.0, high))
        assert (run["high"] == high).all()
    during = frame[frame["kind"] == "during"]
    assert set(during["task"]) == {"tworoom"}
    assert set(during["seed"]) == {3072}
    assert {50, 4000} <= set(during["step"]) <= set(synthetic.STEPS)


def test_condition_number(frames: dict[str, pd.DataFrame]) -> None:
    """Mutation: ``reached`` marks every step at the bound."""
    frame = frames["fig09_condition_number"]
    runs = frame[frame["kind"] == "run"]
    assert set(runs["kappa"]) == {2.0, 4.0}
    reached = runs[runs["reached"].astype(bool)]
    assert len(reached) == 4
    assert set(reached["step"]) == {1000}
    assert set(frame.loc[frame["kind"] == "bound", "kappa"]) == {1.25, 2.0, 4.0, 8.0, 16.0}


def test_feature_spectra(frames: dict[str, pd.DataFrame]) -> None:
    frame = frames["fig10_feature_spectra"]
    assert set(frame["kappa"]) == set(synthetic.KAPPAS)
    for (kappa, _), run in frame.groupby(["kappa", "seed"]):
        values = np.geomspace(2.0, 0.1 / float(str(kappa)), synthetic.DIM)
        np.testing.assert_allclose(run["eigenvalue"], values / values.mean())


def test_loss_against_success(frames: dict[str, pd.DataFrame]) -> None:
    frame = frames["fig11_loss_vs_success"]
    assert len(frame) == len(synthetic.TASKS) * len(synthetic.KAPPAS) * len(synthetic.SEEDS)
    for _, group in frame.groupby("task"):
        lowest, best = group[group["lowest_loss"]], group[group["best_planning"]]
        assert lowest[["kappa", "training_seed"]].to_numpy().tolist() == [[1.0, 42.0]]
        assert (best["success_percent"] == group["success_percent"].max()).all()
        assert best[["kappa", "training_seed"]].to_numpy().tolist() == [[4.0, 42.0]]


def test_ranking(frames: dict[str, pd.DataFrame]) -> None:
    frame = frames["fig07_ranking"]
    for index, cost in enumerate(("enc", "pred")):
        part = frame[(frame["task"] == "pusht") & (frame["cost"] == cost)]
        points = part[part["kind"] == "pair"].sort_values("pair")
        assert set(points["training_seed"]) == {3072}
        for kappa, column in ((1.0, "lewm"), (2.0, "anisowm")):
            expected = synthetic.agreement("pusht", kappa, 3072)[index][:-1]
            np.testing.assert_allclose(points[column], expected)
            mean = part[(part["kind"] == "mean") & (part["origin"] == "synthetic")]
            assert mean[column].item() == pytest.approx(expected.mean())
    assert len(frame[frame["origin"] == "published"]) == 8


@pytest.mark.parametrize(("name", "pairs"), [("fig03_neighborhoods", {3}), ("fig08_more_neighborhoods", {5, 6, 8})])
def test_neighborhoods(frames: dict[str, pd.DataFrame], name: str, pairs: set[int]) -> None:
    """Mutation: cells that are not valid count, or the goals are taken in another order."""
    frame = frames[name]
    cells = frame[frame["kind"] == "cell"]
    assert set(cells["pair"]) == pairs
    rho = frame[(frame["kind"] == "rho") & (frame["origin"] == "synthetic")].set_index(["task", "pair", "kappa"])["rho"]
    for (task, pair, kappa), grid in cells.groupby(["task", "pair", "kappa"]):
        valid = grid[grid["valid"].astype(bool)]
        assert len(valid) == synthetic.GRID * (synthetic.GRID - 1)
        expected = stats.spearmanr(valid["latent_cost"], valid["task_cost"]).statistic
        assert rho[task, pair, kappa] == pytest.approx(expected)
        low = grid["latent_low"].astype(bool)
        assert not low[~grid["valid"].astype(bool)].any()
        assert valid.loc[low[valid.index], "latent_cost"].max() < valid.loc[~low[valid.index], "latent_cost"].min()
        assert 0.05 <= low.sum() / len(valid) <= 0.2


def test_blend_keeps_what_stands_still() -> None:
    still = np.full((3, 4, 4, 3), 200, dtype=np.uint8)
    still[1, 0, 0], still[2, 3, 3] = 0, 100
    mixed = blend(still)
    assert (mixed[0, 0] == 100).all()
    assert (mixed[3, 3] == 150).all()
    assert (mixed[1:3, 1:3] == 200).all()


def test_rollouts(frames: dict[str, pd.DataFrame], results: Path) -> None:
    frame = frames["fig12_rollouts"]
    rollouts = frame.attrs["rollouts"]
    assert [(r.task, r.pair, r.kappa) for r in rollouts] == [
        (task, pair, kappa) for task in ("tworoom", "reacher") for pair in (3, 5) for kappa in (1.0, 2.0)
    ]
    for rollout in rollouts:
        assert rollout.reached.tolist() == [False] * 20 + [rollout.kappa == 2.0]
        assert [rollout.at(step) for step in (0, 10, 20, 50)] == [0, 10, 20, 20]
    assert set(frames["fig13_rollouts"]["task"]) == {"pusht", "cube"}


# 2. Pictures


@pytest.mark.parametrize("name", sorted(LABELS))
def test_labels_and_stamp(pictures: dict[str, Figure], name: str) -> None:
    figure = pictures[name]
    found = [label for axes in figure.get_axes() for label in (axes.get_xlabel(), axes.get_ylabel()) if label]
    for label in LABELS[name]:
        assert any(label in text for text in found), (label, found)
    assert any(text.get_text() == "synthetic" for text in figure.texts)
    assert figure.get_figwidth() in (style.COLUMN_WIDTH, style.PAGE_WIDTH)


def texts_of(figure: Figure) -> list[Text]:
    found: list[Text] = [text for legend in figure.legends for text in legend.get_texts()]
    for axes in figure.get_axes():
        legend = axes.get_legend()
        found += [*axes.texts, axes.xaxis.label, axes.yaxis.label, *_titles(axes)]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            found += [
                tick.label1
                for tick in axis.get_major_ticks()
                if low <= tick.get_loc() <= high and tick.label1.get_visible()
            ]
        found += legend.get_texts() if legend is not None else []
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def _titles(axes: Axes) -> list[Text]:
    return [axes.title, axes._left_title]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(LABELS))
def test_no_text_leaves_the_picture_or_overlaps_another(pictures: dict[str, Figure], name: str) -> None:
    assert_legible(pictures[name])


@pytest.mark.parametrize("name", [name for name in sorted(LABELS) if "rollouts" not in name])
def test_no_text_of_published_rows_does_either(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words grow with what was run: "1 to 3 seeds"."""
    monkeypatch.setattr(catalog, "MEASURED", Path(catalog.__file__).with_name("measured"))
    figure = catalog.get(name)
    assert isinstance(figure, catalog.Figure)
    drawn = figure.draw(figure.read(tmp_path))
    assert_legible(drawn)
    plt.close(drawn)


def assert_legible(figure: Figure) -> None:
    with style.sheet():
        figure.canvas.draw()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = []
    for text in texts_of(figure):
        plain = isinstance(text, Annotation)
        box = Text.get_window_extent(text, renderer) if plain else text.get_window_extent(renderer)
        corners = box.get_points() / figure.dpi
        assert (corners > -0.01).all(), text.get_text()
        assert (corners < figure.get_size_inches() + 0.01).all(), text.get_text()
        assert text.get_fontsize() >= 6.5, text.get_text()
        boxes.append((text.get_text(), box))
    for index, (first, box) in enumerate(boxes):
        for second, other in boxes[:index]:
            assert not box.padded(-1).overlaps(other.padded(-1)), (first, second)


def test_red_outlines_are_the_frames_at_the_goal(pictures: dict[str, Figure]) -> None:
    panels = pictures["fig12_rollouts"].get_axes()
    outlined = [axes for axes in panels if axes.spines["left"].get_visible()]
    # κ = 2 attains its goal at step 20: two tasks, two pairs, the columns of steps 20, 30, 40 and 50.
    assert len(outlined) == 2 * 2 * 4


def test_gif_shows_every_step(results: Path) -> None:
    figure = catalog.get("fig12_rollouts")
    assert isinstance(figure, catalog.Figure)
    assert figure.film is not None
    ((name, content),) = figure.film(results).items()
    assert figure.film(results) == {name: content}
    assert name == "fig12_rollouts.gif"
    with Image.open(io.BytesIO(content)) as gif:
        assert gif.size == (4 * 128, 3 * 128)
        lengths = []
        for index in range(getattr(gif, "n_frames", 1)):
            gif.seek(index)
            lengths.append(gif.info["duration"])
        # 21 steps, and 15 frames' time in which the last one stands still.
        assert sum(lengths) == 100 * (21 + 15)
        last = np.asarray(gif.convert("RGB"))
    # Top: κ = 2, outlined at the end. Below: κ = 1, not.
    assert np.abs(last[1, 64].astype(int) - (0xCC, 0x29, 0x36)).max() < 24
    assert (last[129, 64] > 200).all()


# 3. Nothing run


@pytest.mark.parametrize("name", sorted(LABELS))
def test_without_runs(tmp_path: Path, name: str) -> None:
    figure = catalog.get(name)
    assert isinstance(figure, catalog.Figure)
    frame = figure.read(tmp_path / "none")
    drawn = figure.draw(frame)
    words = " ".join(text.get_text() for text in [*texts_of(drawn), *_legend_titles(drawn)])
    assert "not run" in words or "not filmed" in words
    assert "synthetic" not in words
    assert set(frame["origin"].dropna()) <= {"published"}
    if figure.film is not None:
        assert figure.film(tmp_path / "none") == {}


def _legend_titles(figure: Figure) -> list[Text]:
    return [legend.get_title() for legend in figure.legends]


# 4. Bytes


def test_same_rows_same_bytes(results: Path, tmp_path: Path) -> None:
    figure = catalog.get("fig05_success_vs_kappa")
    first, second = (figure.render(results, tmp_path / name) for name in ("first", "second"))
    assert [path.suffix for path in first] == [".pdf", ".png", ".csv"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


# 5. Runs


def test_results_come_before_published_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    synthetic.write(far, tasks=("tworoom",))
    run = "visual/tworoom/k2-s3072-laptop/plan-laptop"
    shutil.copytree(far / run, near / run)
    monkeypatch.setattr(catalog, "MEASURED", far)
    found = {source.path: source.require(near) for source in visual_rows.PLAN.sources(near)}
    assert len(found) == 6
    assert {path for path, folder in found.items() if folder.is_relative_to(near)} == {run}


def test_one_setting_is_that_of_most_runs() -> None:
    """Mutation: the tie goes to the smaller preset."""
    rows = pd.DataFrame({"run": list("abc"), "preset": ["quick", "laptop", "quick"]})
    assert set(visual_rows.one_setting(rows)["preset"]) == {"quick"}
    assert set(visual_rows.one_setting(rows.head(2))["preset"]) == {"laptop"}


def test_bad_runs_are_one_sentence(tmp_path: Path) -> None:
    root = synthetic.write(tmp_path / "results", tasks=("tworoom",))
    folder = root / "visual" / "tworoom" / "k2-s3072-laptop" / "plan-laptop"
    good = read_rows(folder)
    for rows, message in (
        (good.drop(columns="success"), r"rows\.parquet lacks the column success"),
        (good.assign(origin="invented"), "must say in origin whether its rows are measured or synthetic"),
        (good.assign(task="cube"), "holds rows of another task than its folder"),
    ):
        with open_run(folder, {}, force=True) as run:
            run.write_rows(rows)
        with pytest.raises(ValueError, match=message):
            visual_rows.PLAN.rows(root)
    (folder / "rows.parquet").write_bytes(b"cut")
    with pytest.raises(ValueError, match=r"is not the file that run\.json describes"):
        catalog.get("fig02_success").render(root, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_of_an_earlier_run_are_not_drawn(tmp_path: Path) -> None:
    """A diagnosis again, without grids, leaves the earlier ones in the folder. Mutation: take what lies there."""
    root = synthetic.write(tmp_path / "results", tasks=("tworoom",))
    folder = root / "visual" / "tworoom" / "k2-s3072-laptop" / "diagnose"
    kept = read_rows(folder)
    assert (folder / "neighborhoods.parquet").is_file()
    with open_run(folder, {}, force=True) as run:
        run.write_rows(kept)
    drawn = visual_rows.DIAGNOSE.rows(root, "neighborhoods.parquet")
    assert (folder / "neighborhoods.parquet").is_file()
    assert set(drawn["run"]) == {f"visual/tworoom/k{k}-s{s}-laptop/diagnose" for k, s in ((1, 42), (1, 3072), (2, 42))}


def test_films_without_their_frames_are_refused(tmp_path: Path) -> None:
    root = synthetic.write(tmp_path / "results", tasks=("tworoom",))
    folder = root / "visual" / "tworoom" / "k2-s3072-laptop" / "film-laptop"
    rows, arrays = read_rows(folder), dict(np.load(folder / "frames.npz"))
    for broken, message in (
        ({name: value for name, value in arrays.items() if name != "goal_3"}, "lacks goal_3"),
        (arrays | {"steps_3": arrays["steps_3"] + 1}, "must have the same steps"),
        (arrays | {"pair_3": arrays["pair_3"].astype(np.float32)}, "must hold 8-bit colour frames"),
    ):
        with open_run(folder, {}, force=True) as run:
            run.write_rows(rows)
            run.write_file("frames.npz", lambda path, broken=broken: np.savez_compressed(path.open("wb"), **broken))
        films = film_frames.films(root)
        with pytest.raises(ValueError, match=message):
            film_frames.rollouts(root, films)


# 6. Publishing


def test_publishing_leaves_weights_and_frames_behind(tmp_path: Path) -> None:
    """Mutation: the published run.json still lists them."""
    root = synthetic.write(tmp_path / "results", tasks=("tworoom",), origin="measured")
    runs = catalog.runs(root)
    for path, left_out in (
        ("visual/tworoom/k2-s42-laptop/train", "target_logits.pt"),
        ("visual/tworoom/candidates-laptop", "candidates.npz"),
    ):
        target = publish(runs[path], root, tmp_path / "measured")
        assert left_out not in {file.name for file in target.iterdir()}
        assert set(read_run(root / path).files) - set(read_run(target).files) == {left_out}
        assert read_rows(target).equals(read_rows(root / path))
    film = "visual/tworoom/k2-s3072-laptop/film-laptop"
    assert "frames.npz" in read_run(publish(runs[film], root, tmp_path / "measured")).files
    other = synthetic.write(tmp_path / "other", tasks=("cube",))
    source = catalog.runs(other)["visual/cube/candidates-laptop"]
    with pytest.raises(ValueError, match="are not all measured"):
        publish(source, other, tmp_path / "measured")
