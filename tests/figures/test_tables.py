"""Tables.

1. Markdown and LaTeX hold the same cells; what either would read as markup is escaped.
2. Measured entries are what a count by hand gives; the published ones stand beside them.
3. Without runs a table holds the published half and says "not run".
4. The same rows give the same bytes; synthetic rows are marked.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic_visual as synthetic

from figures import catalog, published, tables, visual_rows

NAMES = ["table1_ordering", "table3_settings", "table4_seeds", "table5_outcomes", "table6_kappa"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("results"), tasks=("tworoom", "cube"))


@pytest.fixture(autouse=True)
def _nothing_published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(catalog, "MEASURED", tmp_path / "measured")


def printed(name: str, results: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    table = catalog.get(name)
    assert isinstance(table, catalog.Table)
    frame = table.read(results)
    return frame, table.layout(frame)


# 1. Writers


def test_markdown_and_latex_hold_the_same_cells() -> None:
    frame = pd.DataFrame({"a|b": ["x|y", "50 % & more_"], "κ": ["1", "–"]})
    assert tables.markdown(frame) == "| a\\|b | κ |\n| --- | --: |\n| x\\|y | 1 |\n| 50 % & more_ | – |\n"
    latex = tables.latex(frame, "n = 50 %", "t")
    assert "\\begin{tabular}{lr}\n\\toprule\na|b & $\\kappa$ \\\\\n\\midrule\nx|y & 1 \\\\\n" in latex
    assert "50 \\% \\& more\\_ & -- \\\\" in latex
    assert "\\caption{n = 50 \\%}" in latex


def test_numbers() -> None:
    nan = float("nan")
    assert [tables.number(-0.0051, "+.3f"), tables.number(nan)] == ["−0.005", "–"]
    assert [tables.trim(92.0), tables.trim(92.66), tables.trim(100.0), tables.trim(nan)] == ["92", "92.7", "100", "–"]


# 2. Entries


def test_seeds(results: Path) -> None:
    """Mutation: the mean over pairs of one seed."""
    frame, shown = printed("table4_seeds", results)
    for kappa in (1.0, 2.0):
        rates = {seed: 100 * synthetic.success("cube", kappa, seed).mean() for seed in synthetic.SEEDS}
        rows = frame[(frame["task"] == "cube") & (frame["kappa"] == kappa) & (frame["origin"] == "synthetic")]
        found = rows.set_index("seed")["success_percent"]
        assert found["3072"] == pytest.approx(rates[3072])
        assert found["42"] == pytest.approx(rates[42])
        assert found["mean"] == pytest.approx(np.mean(list(rates.values())))
    lines = shown[(shown["Task"] == "Cube") & (shown["κ"] == "2")].to_dict("records")
    assert [line["source"] for line in lines] == ["published (n = 50)", "synthetic (laptop preset, n = 20, 2 seeds)"]
    assert [lines[0][f"seed {seed}"] for seed in (3072, 1234, 42)] == ["78", "80", "80"]
    assert lines[1]["mean"].startswith("87.5 [")


def test_kappa(results: Path) -> None:
    """One seed, that of the most κ (a tie: the largest number). Mutation: the mean over seeds."""
    frame, shown = printed("table6_kappa", results)
    here = frame[frame["origin"] == "synthetic"].set_index(["task", "kappa", "seed"])
    assert len(here) == 2 * len(synthetic.KAPPAS) * len(synthetic.SEEDS)
    for (task, kappa, seed), row in here.iterrows():  # type: ignore[misc]
        rate = synthetic.success(str(task), float(kappa), int(seed)).mean()
        assert row["swept"] == (seed == 3072)
        assert row["success_percent"] == pytest.approx(100 * rate)
        assert (row["pairs"], row["seeds"]) == (synthetic.PAIRS, 1)
        # Wilson's bounds are the roots of (p − p̂)² = z² p(1 − p)/n.
        for bound in (row["low"] / 100, row["high"] / 100):
            spread = 1.959963984540054**2 * bound * (1 - bound) / synthetic.PAIRS
            assert (bound - rate) ** 2 == pytest.approx(spread, rel=1e-9)
    lines = shown[shown["κ"] == "16"].to_dict("records")
    assert [line["Cube"] for line in lines] == ["78", "not run"]
    (line,) = shown[(shown["κ"] == "4") & shown["source"].str.startswith("synthetic")].to_dict("records")
    assert line["source"] == "synthetic (laptop preset, n = 20, 1 seed)"
    assert line["Cube"].startswith(f"{100 * synthetic.success('cube', 4.0, 3072).mean():g} [")


def test_a_sweep_keeps_to_the_seed_of_the_most_kappas() -> None:
    rows = pd.DataFrame(
        {"task": ["a"] * 5 + ["b"], "training_seed": [1, 1, 1, 9, 9, 2], "kappa": [1.0, 2.0, 4.0, 1.0, 2.0, 1.0]}
    )
    found = visual_rows.one_seed(rows)
    assert found[["task", "training_seed"]].drop_duplicates().to_numpy().tolist() == [["a", 1], ["b", 2]]
    assert len(found) == 4
    assert visual_rows.one_seed(rows.head(0)).empty


def test_ordering(results: Path) -> None:
    """Mutation: a pair that one cost could not order stays in the mean."""
    frame, _ = printed("table1_ordering", results)
    here = frame[frame["origin"] == "synthetic"].set_index(["task", "cost"])
    agreements = {
        kappa: np.stack([synthetic.agreement("tworoom", kappa, seed) for seed in synthetic.SEEDS])[:, :, :-1]
        for kappa in (1.0, 2.0)
    }
    for index, cost in enumerate(("enc", "pred")):
        first, second = (agreements[kappa][:, index].mean() for kappa in (1.0, 2.0))
        row = here.loc[("tworoom", cost)]
        np.testing.assert_allclose(row[["lewm", "anisowm", "gap"]].astype(float), [first, second, second - first])
        assert (row["pairs"], row["seeds"]) == (synthetic.PAIRS - 1, 2)


def test_settings_and_outcomes(results: Path) -> None:
    _, settings = printed("table3_settings", results)
    (ours,) = [column for column in settings if column.startswith("laptop preset")]
    cells = settings.set_index("setting")
    assert cells.loc["batch size", ["published", ours]].tolist() == ["128", "64"]
    assert cells.loc["epochs", ["published", ours]].tolist() == ["15", "4000 steps"]
    assert cells.loc["training seeds", ours] == "42, 3072"
    _, outcomes = printed("table5_outcomes", results)
    cube = outcomes[outcomes["Task"] == "Cube"].to_dict("records")
    assert [line["cases"] for line in cube] == ["33", "20"]
    assert cube[1]["solved at the start"] == "2"


# 3. Nothing run


@pytest.mark.parametrize("name", NAMES)
def test_without_runs(tmp_path: Path, name: str) -> None:
    _, shown = printed(name, tmp_path / "none")
    text = tables.markdown(shown)
    assert "published" in text
    assert "not run" in text
    assert "nan" not in text


def test_published_numbers_are_all_printed(tmp_path: Path) -> None:
    _, shown = printed("table6_kappa", tmp_path / "none")
    for row in published.read("table6_kappa").to_dict("records"):
        title = {"tworoom": "TwoRoom", "reacher": "Reacher", "pusht": "PushT", "cube": "Cube"}[row["task"]]
        line = shown[(shown["κ"] == f"{row['kappa']:g}") & shown["source"].str.startswith("published")]
        assert line[title].item() == f"{row['success_percent']:g}"


# 4. Files


@pytest.mark.parametrize("name", NAMES)
def test_files(results: Path, tmp_path: Path, name: str) -> None:
    first = catalog.get(name).render(results, tmp_path / "first")
    second = catalog.get(name).render(results, tmp_path / "second")
    assert [path.suffix for path in first] == [".md", ".tex", ".csv"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert ("Synthetic rows" in first[0].read_text()) is (name != "table3_settings")


def test_settings_of_something_else_are_refused() -> None:
    from figures.table3_settings import data

    with pytest.raises(ValueError, match="The settings of visual/x are not those of a training"):
        data({"visual/x": {"preset": "laptop"}})
