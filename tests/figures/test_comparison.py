"""The comparison's tables, from synthetic rows whose answers are known, and the page they are written into."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic_visual as synthetic
from scipy import stats

from figures import catalog, comparison, comparison_tables
from figures.visual_report import _pictures, write
from figures.visual_rows import planned
from theory.runs import finished_run, open_run
from visual.permutation import bootstrap_interval
from visual.statistics import wilson_interval


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("results"))


@pytest.fixture(autouse=True)
def nothing_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MEASURED", tmp_path / "measured")


def table(results: Path, name: str, task: str | None = None) -> pd.DataFrame:
    (section,) = [section for section in comparison.sections(results, task) if section.name == name]
    return section.table


def test_the_forecast_says_which_kappa_the_theory_expects(results: Path) -> None:
    rows = table(results, "forecast").set_index("task")
    assert rows.loc["TwoRoom", "mean regret at κ = 1"] == "0.100 [0.090, 0.110]"
    assert rows.loc["PushT", "best κ"] == "3.00 [1.00, 4.00]"
    assert list(rows.index) == ["TwoRoom", "Reacher", "PushT", "Cube"]


def test_the_forecast_from_latents_stands_beside_what_was_measured() -> None:
    """By task and seed; a κ = 1 without a forecast, as a rerun of old rows, gives no line."""

    def regret(value: float | None) -> dict[str, float | None]:
        return {"mean_regret": value, "mean_regret_low": 0.0, "mean_regret_high": 1.0}

    rows, summaries = [], {}
    for task, seed, kappa, own, forecast in (
        ("pusht", 2, 1.0, 0.1, [(1.0, 0.1), (2.0, 0.25), (4.0, 0.05), (8.0, None)]),
        ("pusht", 2, 2.0, 0.2, None),
        ("tworoom", 7, 1.0, 0.3, [(1.0, 0.3), (2.0, 0.3)]),
        ("tworoom", 7, 4.0, None, None),
        ("tworoom", 8, 1.0, 0.3, None),
        ("cube", 7, 2.0, 0.3, None),
    ):
        run = f"{task}-{seed}-{kappa}"
        rows += [{"task": task, "training_seed": seed, "kappa": kappa, "run": run}] * 2
        each = None if forecast is None else [{"kappa": at, **regret(value)} for at, value in forecast]
        geometry = None if own is None else {**regret(own), "local_mean_regret": 0.5}
        summaries[run] = {"geometry": geometry, "forecast": each}
    found = comparison_tables.latent_forecast(pd.DataFrame(rows), summaries)
    first, second = found.to_numpy().tolist()
    assert first == ["TwoRoom", "7", "0.300 [0.000, 1.000]", "0.300 [0.000, 1.000]", "–", "–", "–", "1"]
    assert second[:2] == ["PushT", "2"]
    assert second[4] == "0.200 [0.000, 1.000]; 0.500"
    assert [cell.split()[0] for cell in second[2:]] == ["0.100", "0.250", "0.200", "0.050", "–", "4"]


def test_success_has_what_belongs_beside_every_rate(results: Path) -> None:
    rows = table(results, "success").set_index(["task", "κ"])
    row = rows.loc[("TwoRoom", "2")]
    rates = [wilson_interval(int(synthetic.success("tworoom", 2.0, seed).sum()), 20) for seed in (42, 3072)]
    assert row["success, % (by training seed) [95 %]"] == "; ".join(
        f"{100 * rate.rate:.1f} [{100 * rate.low:.0f}, {100 * rate.high:.0f}]" for rate in rates
    )
    assert row["pairs"] == "20"
    floor = wilson_interval(4, 20)
    assert row["random actions"] == f"20 [{100 * floor.low:.0f}, {100 * floor.high:.0f}]"
    assert row["solved at the start"] == "10"
    unsolved = np.mean([synthetic.success("tworoom", 2.0, seed)[2:].mean() for seed in (42, 3072)])
    assert row["unsolved pairs only"] == f"{100 * unsolved:.1f}"
    assert row["ceiling"].startswith("95 [")
    assert row["ceiling"].endswith("n = 20")
    assert row["s per solve"] == "0.25"
    assert [task for task, _ in rows.index] == [t for t in ("TwoRoom", "Reacher", "PushT", "Cube") for _ in range(3)]


def test_differences_are_paired_and_test_pairs_and_seeds_apart(results: Path) -> None:
    """κ = 4 solves one more pair than κ = 1 in both seeds (10 + 4 // 2 against 10 + 1 // 2: two more)."""
    row = table(results, "differences").set_index(["task", "κ"]).loc[("TwoRoom", "4")]
    gained = [
        int(synthetic.success("tworoom", 4.0, seed).sum() - synthetic.success("tworoom", 1.0, seed).sum())
        for seed in (42, 3072)
    ]
    assert row["points, mean"] == f"+{100 * np.mean(gained) / 20:.1f}"
    assert row["by seed"] == "; ".join(f"+{100 * gain / 20:.1f}" for gain in gained)
    p_values = [min(1.0, 2 * stats.binom.cdf(0, gain, 0.5)) for gain in gained]
    assert row["McNemar p, by seed"] == "; ".join(f"{value:.2g}" for value in p_values)
    # No spread over seeds, and no interval.
    assert row["[95 %, over seeds]"] == f"[{row['points, mean']}, {row['points, mean']}]"
    # Two seeds that agree: the least that an exact test of two can give.
    assert row["p over seeds"] == "0.5 (least 0.5)"
    assert set(table(results, "differences")["κ"]) == {"2", "4"}


def test_intervals_over_seeds_are_students() -> None:
    """Mutation: divide by n instead of n − 1, or take the normal quantile."""
    gains = [1.5, -3.0, 0.5]
    low, high = stats.ttest_1samp(gains, 0).confidence_interval()
    assert comparison_tables._over_seeds(gains, "+.2f") == f"[{low:+.2f}, {high:+.2f}]".replace("-", "−")
    assert comparison_tables._over_seeds(gains[:1], "+.2f") == "–"


def test_ordering_leaves_out_what_cannot_be_ordered_and_pairs_the_rest(results: Path) -> None:
    rows = table(results, "ordering").set_index(["task", "κ"])
    enc = [np.nanmean(synthetic.agreement("pusht", 2.0, seed)[0]) for seed in (42, 3072)]
    assert rows.loc[("PushT", "2"), "J_enc, by seed"] == "; ".join(f"{value:.3f}" for value in enc)
    gains = [
        np.nanmean(synthetic.agreement("pusht", 2.0, seed)[1] - synthetic.agreement("pusht", 1.0, seed)[1])
        for seed in (42, 3072)
    ]
    row = table(results, "ordering-differences").set_index(["task", "κ"]).loc[("PushT", "2")]
    assert row["J_pred, by seed"] == "; ".join(f"{gain:+.3f}".replace("-", "−") for gain in gains)


def test_intervals_of_the_ordering_draw_episodes_whole(results: Path) -> None:
    """Mutation: bootstrap the pairs, two of which are of one episode."""
    seeds = [synthetic.agreement("pusht", 2.0, seed)[0] for seed in (42, 3072)]
    by_pair = np.mean(seeds, axis=0)[:-1]
    low, high = bootstrap_interval(by_pair, np.arange(len(by_pair)) // 2)
    row = table(results, "ordering").set_index(["task", "κ"]).loc[("PushT", "2")]
    assert row["J_enc, mean [95 %]"] == f"{by_pair.mean():.3f} [{low:.3f}, {high:.3f}]"
    assert (low, high) != bootstrap_interval(by_pair)


def test_all_tasks_together(results: Path, root: Path) -> None:
    """Every task and seed counts once, in points. Mutation: pool pairs instead of models, or divide by n − 0."""
    rows = table(results, "pooled").set_index(["measure", "κ"])
    for measure, index in (("J_enc", 0), ("J_pred", 1)):
        gains = [
            100 * np.nanmean(synthetic.agreement(task, 2.0, seed)[index] - synthetic.agreement(task, 1.0, seed)[index])
            for task in synthetic.TASKS
            for seed in synthetic.SEEDS
        ]
        row = rows.loc[(measure, "2")]
        assert row["pairs of models"] == "8"
        assert row["above κ = 1"] == str(sum(gain > 0 for gain in gains))
        assert row["points, mean"] == f"{np.mean(gains):+.2f}".replace("-", "−")
        low, high = stats.ttest_1samp(gains, 0).confidence_interval()
        assert row["[95 %, over models]"] == f"[{low:+.2f}, {high:+.2f}]".replace("-", "−")
        test = stats.permutation_test((gains,), np.mean, permutation_type="samples", n_resamples=np.inf)
        assert row["p over models"] == f"{test.pvalue:.2g} (least {2 / 2**8:.2g})"
    assert ("success", "4") in rows.index
    # More models than can be enumerated: no p-value, and no error.
    for seed in range(20):
        for kappa in (1.0, 2.0):
            add(root, kappa, seed, "laptop", "d")
    assert table(root, "pooled").set_index(["measure", "κ"]).loc[("J_pred", "2"), "p over models"] == "–"


def test_training_says_what_it_ended_with(results: Path) -> None:
    row = table(results, "training").set_index(["task", "κ"]).loc[("TwoRoom", "2")]
    assert row["target condition"] == "2.00"
    assert row["target high"] == "; ".join(str(synthetic.high_count("tworoom", seed)) for seed in (3072, 42))
    assert row["effective rank"] == "20.0 of 32"
    assert row["minutes"] == "10.0"
    assert table(results, "training").set_index(["task", "κ"]).loc[("Cube", "2"), "probe R²"] == "–"


def add(root: Path, kappa: float, seed: int, preset: str, stages: str = "tpd") -> Path:
    """Write a TwoRoom model: t(raining), p(lan), d(iagnosis)."""
    model = root / f"visual/tworoom/k{kappa:g}-s{seed}-{preset}"
    arguments = ("tworoom", kappa, seed, preset, "synthetic")
    for letter, name, stage in (
        ("t", "train", synthetic._train),
        ("p", "plan-laptop", synthetic._plan),
        ("d", "diagnose", synthetic._diagnose),
    ):
        if letter in stages:
            stage(model / name, *arguments)
    return model


@pytest.fixture
def root(results: Path, tmp_path: Path) -> Path:
    """A copy of the runs, to be changed."""
    shutil.copytree(results, tmp_path / "results")
    return tmp_path / "results"


MAIN = ("success", "differences", "ordering", "ordering-differences", "training")


def test_kappas_of_one_seed_stand_apart(results: Path, root: Path) -> None:
    """κ = 8 has one seed where the others have two: it is shown beside the other κ of that seed, and in no mean.

    Mutation: let the sweep into the other tables; take κ = 1 of another seed.
    """
    add(root, 8.0, 42, "laptop")
    for name in MAIN:
        assert table(root, name).equals(table(results, name)), name
    assert "sweep" not in {section.name for section in comparison.sections(results)}
    rows = table(root, "sweep").set_index("κ")
    assert list(rows.index) == ["1", "2", "4", "8"]
    assert set(rows["task"]) == {"TwoRoom"}
    assert set(rows["seed"]) == {"42"}
    gained = synthetic.success("tworoom", 8.0, 42).sum() - synthetic.success("tworoom", 1.0, 42).sum()
    assert rows.loc["8", "points"] == f"{100 * gained / 20:+.1f}"
    assert rows.loc["1", "points"] == "–"
    own, base = (np.nanmean(synthetic.agreement("tworoom", kappa, 42)[1]) for kappa in (8.0, 1.0))
    assert rows.loc["8", "J_pred, mean [95 %, over pairs]"].startswith(f"{own - base:+.3f} [".replace("-", "−"))
    # κ = 4 was not diagnosed.
    assert rows.loc["4", "J_pred, mean [95 %, over pairs]"] == "–"
    assert rows.loc["8", "high"] == str(synthetic.high_count("tworoom", 42))


def test_a_stage_that_is_not_finished_moves_no_model(results: Path, root: Path) -> None:
    """Mutation: decide by each stage's own rows which κ stands apart, or show only what was planned with."""
    add(root, 8.0, 42, "laptop", "td")
    rows = table(root, "sweep").set_index("κ")
    assert (rows.loc["8", "success, % [95 %]"], rows.loc["8", "high"]) == (
        "–",
        str(synthetic.high_count("tworoom", 42)),
    )
    assert rows.loc["4", "success, % [95 %]"] != "–"
    # κ = 2 has two seeds, wherever one of them is missing.
    shutil.rmtree(root / "visual/tworoom/k2-s42-laptop/diagnose")
    found = table(root, "ordering").set_index(["task", "κ"])
    assert found.loc[("TwoRoom", "2"), "J_pred, by seed"].count(";") == 0
    assert table(root, "success").equals(table(results, "success"))


def test_one_preset_throughout(results: Path, root: Path) -> None:
    """More models of another preset were trained, none planned with. Mutation: let each stage choose its preset."""
    for kappa in (1.0, 2.0, 4.0, 8.0, 16.0):
        for seed in (1, 2, 3):
            add(root, kappa, seed, "quick", "td")
    for name in MAIN:
        own = [found[found["task"] == "TwoRoom"] for found in (table(root, name), table(results, name))]
        assert own[0].equals(own[1]), name
    assert "sweep" not in {section.name for section in comparison.sections(root)}


def test_variants_are_compared_with_kappa_one_of_the_same_settings(results: Path, root: Path) -> None:
    """κ = 1 has no target and stands beside both rates of it, and beside no other D.

    Mutation: pair by the variant's whole name; take the preset's own κ = 1.
    """
    slow, fast = (f"laptop-latent_dim16-target_lr_multiplier{rate}" for rate in (1, 10))
    other = "laptop-latent_dim8-target_lr_multiplier1"
    for preset, kappa in ((slow, 1.0), (slow, 4.0), (fast, 4.0), (other, 1.0)):
        for seed in synthetic.SEEDS:
            add(root, kappa, seed, preset, "pd")
    # Rates that the preset's own models do not have.
    never = root / f"visual/tworoom/k1-s42-{slow}/plan-laptop"
    rewrite(never, lambda rows: rows.assign(success=rows["success"] & False))
    found = table(root, "variants")
    assert found[["changed", "κ"]].to_numpy().tolist() == [
        ["D = 16", "1"],
        ["D = 16, target's rate 1", "4"],
        ["D = 16, target's rate 10", "4"],
        ["D = 8", "1"],
    ]
    one, four = (100 * synthetic.success("tworoom", kappa, 3072).mean() for kappa in (1.0, 4.0))
    gains = [100 * synthetic.success("tworoom", 4.0, 42).mean(), four - one]
    assert found.loc[[1, 2], "points, mean"].tolist() == [f"{np.mean(gains):+.1f}"] * 2
    assert found.loc[0, "success, % [95 %]"].startswith("0.0 [")
    assert found["seeds"].tolist() == ["–", "2", "2", "–"]
    for name in MAIN:
        assert table(root, name).equals(table(results, name)), name


def test_variants_of_the_target_alone_stand_beside_the_presets_kappa_one(root: Path) -> None:
    """Two studies may have trained that κ = 1 again: one of them counts, under one name.

    Mutation: take variants' κ = 1 alone, or all of them.
    """
    slow, fast = (f"laptop-target_lr_multiplier{rate}" for rate in (1, 3))
    for kappa, preset in ((4.0, slow), (4.0, fast), (1.0, slow), (1.0, fast)):
        add(root, kappa, 42, preset, "pd")
    rewrite(
        root / f"visual/tworoom/k1-s42-{slow}/plan-laptop", lambda rows: rows.assign(success=rows["success"] & False)
    )
    found = table(root, "variants")
    assert found[["changed", "κ"]].to_numpy().tolist() == [
        ["target's rate 1", "4"],
        ["target's rate 3", "4"],
        ["–", "1"],
    ]
    gain = 100 * (synthetic.success("tworoom", 4.0, 42).mean() - synthetic.success("tworoom", 1.0, 42).mean())
    assert found.loc[[0, 1], "points, mean"].tolist() == [f"{gain:+.1f}"] * 2


def test_variants_of_other_presets_protocols_and_pairs_are_not_mixed_in(results: Path, root: Path) -> None:
    """Mutations: take every preset, or every protocol; let one variant's pairs hide all tables."""
    for preset in ("laptop-latent_dim16", "quick-latent_dim16"):
        for kappa in (1.0, 4.0):
            add(root, kappa, 42, preset, "pd")
    expected = table(root, "variants")
    assert len(expected) == 2
    model = root / "visual/tworoom/k4-s42-laptop-latent_dim16"
    shutil.copytree(model / "plan-laptop", model / "plan-paper")
    rewrite(model / "plan-paper", lambda rows: rows.assign(protocol="paper", success=rows["success"] & False))
    assert table(root, "variants").equals(expected)
    rewrite(model / "plan-laptop", lambda rows: rows[rows["pair"] < 10])
    assert table(root, "variants").loc[1, "points, mean"] == "–"
    for name in MAIN:
        assert table(root, name).equals(table(results, name)), name


def test_models_that_saw_other_pairs_are_not_compared(results: Path, tmp_path: Path) -> None:
    base = planned(results)
    base = base[base["task"] == "tworoom"]
    shifted = base.assign(goal=base["goal"] + (base["kappa"] > 1))
    with pytest.raises(ValueError, match="only on the same pairs"):
        comparison_tables.differences(shifted)


def rewrite(folder: Path, change: Callable[[pd.DataFrame], pd.DataFrame], **settings: object) -> None:
    """A run again with other rows and settings; its other files stay."""
    record = finished_run(folder)
    assert record is not None
    others = {name: (folder / name).read_bytes() for name in record.files if name != "rows.parquet"}
    with open_run(folder, record.settings | settings, force=True) as run:
        run.write_rows(change(pd.read_parquet(folder / "rows.parquet")))
        for name, content in others.items():
            run.write_file(name, partial(Path.write_bytes, data=content))


def test_seeds_with_other_pairs_are_compared_on_those_they_share(tmp_path: Path) -> None:
    """Mutation: divide a pair's gain by the number of seeds, whether they planned it or not."""
    results = synthetic.write(tmp_path / "results", tasks=("tworoom",))
    for folder in (results / "visual/tworoom").glob("k*-s42-laptop/plan-laptop"):
        rewrite(folder, lambda rows: rows[(rows["pair"] + 9) % 20 < 10])
    row = table(results, "differences").set_index("κ").loc["4"]
    shared = (np.arange(20) + 9) % 20 < 10
    gains = [
        (synthetic.success("tworoom", 4.0, seed).astype(int) - synthetic.success("tworoom", 1.0, seed))[shared]
        for seed in (42, 3072)
    ]
    assert row["by seed"] == "; ".join(f"{100 * gain.mean():+.1f}" for gain in gains)
    low, high = bootstrap_interval(np.mean(gains, axis=0))
    assert row["[95 %, over pairs]"] == f"[{100 * low:+.1f}, {100 * high:+.1f}]"
    assert table(results, "success").set_index("κ").loc["4", "pairs"] == "10; 20"


@pytest.mark.parametrize(("stage", "setting"), [("plan-laptop", "data_sha256"), ("diagnose", "candidates_sha256")])
def test_other_recordings_and_candidates_are_not_compared(tmp_path: Path, stage: str, setting: str) -> None:
    """The pairs have the same numbers, but they are others, be it of another κ or of another seed; or unknown.

    Mutation: join by pair alone, or ask for the same cases within a seed alone.
    """
    results = synthetic.write(tmp_path / "results", tasks=("tworoom",))
    rewrite(results / "visual/tworoom/k2-s42-laptop" / stage, lambda rows: rows, **{setting: "another"})
    with pytest.raises(ValueError, match=f"TwoRoom: models can be compared only on the same pairs.* in {setting}"):
        comparison.sections(results)
    rewrite(results / "visual/tworoom/k2-s42-laptop" / stage, lambda rows: rows, **{setting: None})
    with pytest.raises(ValueError, match=f"k2-s42-laptop/{stage}/run.json does not say its {setting}"):
        comparison.sections(results)
    # Every κ of one seed alike, and still not what the other seed has.
    for kappa in (1, 2, 4):
        folder = results / f"visual/tworoom/k{kappa}-s42-laptop" / stage
        if folder.is_dir():
            rewrite(folder, lambda rows: rows, **{setting: "another"})
    with pytest.raises(ValueError, match="TwoRoom: models can be compared only on the same pairs"):
        comparison.sections(results)


def test_outcomes_that_are_all_alike_leave_dashes(tmp_path: Path) -> None:
    """A diagnosis in which no two outcomes differ has no agreement, and the report says the rest."""
    results = synthetic.write(tmp_path / "results", tasks=("tworoom",))
    for folder in (results / "visual/tworoom").glob("k*/diagnose"):
        rewrite(folder, lambda rows: rows.assign(agreement_enc=np.nan))
    row = table(results, "ordering").set_index("κ").loc["2"]
    assert row[["J_enc, by seed", "J_enc, mean [95 %]"]].tolist() == ["–; –", "–"]
    assert row["J_pred, mean [95 %]"] != "–"
    row = table(results, "ordering-differences").set_index("κ").loc["2"]
    assert row[["J_enc, by seed", "J_enc, mean [95 %, over pairs]"]].tolist() == ["–", "–"]


def test_a_seed_or_kappa_that_is_missing_leaves_the_rest(tmp_path: Path) -> None:
    results = synthetic.write(tmp_path / "results", tasks=("tworoom",))
    shutil.rmtree(results / "visual/tworoom/k4-s42-laptop")
    # κ = 4 has one seed now, and stands apart.
    assert table(results, "differences").set_index("κ")["seeds"].to_dict() == {"2": "2"}
    assert table(results, "sweep")[["seed", "κ"]].to_numpy().tolist() == [["3072", kappa] for kappa in ("1", "2", "4")]
    for folder in (results / "visual/tworoom").glob("k1-*"):
        shutil.rmtree(folder)
    names = {section.name for section in comparison.sections(results)}
    assert names == {"forecast", "success", "ordering", "training", "sweep"}


def test_a_task_is_reported_with_its_own_preset_and_whatever_others_have(tmp_path: Path) -> None:
    """Mutation: choose the preset among all tasks, or read the runs of all of them."""
    results = synthetic.write(tmp_path / "results", tasks=("tworoom", "reacher"))
    synthetic.write(results, tasks=("cube",), preset="quick")
    assert set(table(results, "success", "cube")["κ"]) == {"1", "2", "4"}
    (results / "visual/tworoom/k1-s42-laptop/train/model.json").write_text("{")
    assert {section.name for section in comparison.sections(results, "cube")} >= {"success", "ordering", "training"}


def test_rows_and_cards_that_lack_something_are_one_sentence(tmp_path: Path) -> None:
    for task, folder, column in (
        ("tworoom", "advice-laptop", "best_low"),
        ("reacher", "k2-s42-laptop/plan-laptop", "solves"),
        ("pusht", "k2-s42-laptop/train", "seconds"),
    ):
        results = synthetic.write(tmp_path / column, tasks=(task,))
        rewrite(results / "visual" / task / folder, lambda rows, column=column: rows.drop(columns=column))
        with pytest.raises(ValueError, match=f"{folder}/rows.parquet lacks the column {column}"):
            comparison.sections(results)
    results = synthetic.write(tmp_path / "card", tasks=("cube",))
    train = results / "visual/cube/k2-s42-laptop/train"
    with open_run(train, {}, force=True) as run:
        run.write_rows(pd.read_parquet(train / "rows.parquet"))
        run.write_file("model.json", lambda path: path.write_text('{"held_out": {"prediction": 1.0}}'))
    with pytest.raises(ValueError, match=r"cube/k2-s42-laptop/train/model.json must hold copy in held_out"):
        comparison.sections(results)


def test_a_page_gets_its_tables_and_keeps_its_words(results: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    shutil.copy(comparison.PAGE, page)
    before = page.read_text(encoding="utf-8")
    comparison.write_page(results, page)
    text = page.read_text(encoding="utf-8")
    assert "| TwoRoom | 4 |" in text
    comparison.write_page(results, page)
    assert page.read_text(encoding="utf-8") == text
    # What a person wrote stays, byte for byte.
    assert comparison._MARK.sub("", text) == comparison._MARK.sub("", before)
    comparison.write_page(tmp_path / "nowhere", page)
    assert page.read_text(encoding="utf-8").count("Not run yet.") == len(comparison.NAMES)


def test_the_page_is_what_the_published_rows_give(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """docs/comparison.md is up to date: generating it again changes no byte."""
    monkeypatch.setattr(catalog, "MEASURED", Path(catalog.__file__).with_name("measured"))
    text = comparison.PAGE.read_text(encoding="utf-8")
    assert comparison.fill(text, comparison.sections(Path("figures/measured"))) == text


def test_markers_and_tables_must_agree(results: Path) -> None:
    found = comparison.sections(results)
    with pytest.raises(ValueError, match="disagree about 'sucess'"):
        comparison.fill("<!-- table: sucess -->\n<!-- end -->", [])
    with pytest.raises(ValueError, match="disagree about 'differences'"):
        comparison.fill("<!-- table: forecast -->\n<!-- end -->\n<!-- table: success -->\n<!-- end -->", found[:3])


def test_a_page_that_is_not_as_it_should_be_stays_as_it_is(results: Path, tmp_path: Path) -> None:
    """Mutation: let a table without an end run to that of the next one, with the words between."""
    page = tmp_path / "page.md"
    text = comparison.PAGE.read_text(encoding="utf-8").replace("<!-- end -->", "", 1)
    for content, message in (
        (text.encode(), "table 'forecast' is not ended"),
        (b"\xff\xfe", "it is not UTF-8 text"),
        (b"# No tables\n", "disagree about 'differences'"),
    ):
        page.write_bytes(content)
        for rows in (results, tmp_path / "nowhere") if b"table:" in content else (results,):
            with pytest.raises(ValueError, match=message):
                comparison.write_page(rows, page)
        assert page.read_bytes() == content


def test_the_report_of_a_task_holds_tables_words_and_pictures(results: Path, tmp_path: Path) -> None:
    drawn: list[str] = []
    markdown, html = write("tworoom", results, tmp_path / "report", drawn.append)
    text, page = (path.read_text(encoding="utf-8") for path in (markdown, html))
    for heading in ("Success on held-out pairs", "κ &gt; 1 against κ = 1, paired", "Do the costs order outcomes?"):
        assert heading in page
        assert heading.replace("&gt;", ">") in text
    assert "drawing fig07_ranking" in drawn
    assert page.count("data:image/png;base64,") == len(drawn) == text.count("![fig")
    assert "Reacher |" not in text
    assert 'src="http' not in page
    assert "<script" not in page
    assert "**k2-s42-laptop.** It was made up." in text
    for line in text.splitlines():
        if line.startswith("!["):
            assert (markdown.parent / line.split("(")[1].rstrip(")")).is_file()


def test_a_report_of_ones_own_runs_leaves_published_ones_out(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quick run beside published laptop runs: its report is about the quick run. Mutation: drop ``only_results``."""
    monkeypatch.setattr(catalog, "MEASURED", results)
    own = synthetic.write(tmp_path / "own", tasks=("tworoom",), preset="quick")
    for path in (own / "visual/tworoom").glob("k4-*"):
        shutil.rmtree(path)
    monkeypatch.setattr("figures.visual_report._pictures", lambda *arguments: [])
    text = write("tworoom", own, tmp_path / "report")[0].read_text(encoding="utf-8")
    assert "k2-s42-quick/train" in text
    assert "laptop" not in text.split("## Runs")[1].replace("plan-laptop", "").replace('"protocol"', "")
    assert "| TwoRoom | 4 |" not in text
    published = write("tworoom", tmp_path / "nothing", tmp_path / "report")[0].read_text(encoding="utf-8")
    assert "| TwoRoom | 4 |" in published


def test_a_task_without_runs_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"python -m visual study tasks=\[cube\]"):
        write("cube", tmp_path)
    assert not (tmp_path / "visual").exists()
    with pytest.raises(ValueError, match="no task 'cubes'"):
        write("cubes", tmp_path)


def test_a_task_outside_the_paper_gets_no_pictures_of_others(tmp_path: Path) -> None:
    """Mutation: draw every figure whose stages this task has runs of."""
    for stage in ("train", "plan-quick", "diagnose", "film-quick"):
        with open_run(tmp_path / "visual/pointmaze/k1-s1-quick" / stage, {}) as run:
            run.write_rows(pd.DataFrame({"origin": ["synthetic"]}))
    assert _pictures("pointmaze", tmp_path, tmp_path / "figures", lambda _: None) == []
