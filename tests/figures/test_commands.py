"""``python -m figures``.

1. ``list`` says for each figure what it needs and whether the rows exist, or the command that makes them.
2. Names and ``all`` draw; a missing, damaged or unknown input is one sentence, exit status 2 and no figure.
3. ``publish`` copies finished measured runs, and refuses synthetic, half-written and large ones without a trace.
4. ``--help`` loads neither matplotlib nor PyTorch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import synthetic_visual
from typer.testing import CliRunner

from figures import catalog, publish
from figures.__main__ import app
from theory.commands import run_app
from theory.runs import open_run, read_rows


def run(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    """Exit status, output and errors of a command, as ``python -m figures`` gives them."""
    with pytest.raises(SystemExit) as end:
        run_app(lambda: app([str(arg) for arg in args], prog_name="figures"))
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out, printed.err


def assert_sentence(status: int, errors: str, part: str) -> None:
    assert status == 2, errors
    assert errors.startswith("error: ")
    assert part in errors
    assert errors.strip().count("\n") == 0
    assert "Traceback" not in errors


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing published, a wide terminal, and no file of this checkout within reach."""
    monkeypatch.setattr(catalog, "MEASURED", tmp_path / "measured")
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(tmp_path)


def test_list_names_the_command_for_missing_rows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out, _ = run(capsys, "list", "--results", tmp_path / "none")
    assert status == 0
    for name in catalog.names():
        assert name in out
        assert catalog.get(name).needs or "none needed: closed forms" in out
        for source in catalog.get(name).needs:
            state = "missing" if isinstance(source, catalog.Source) else "not run"
            assert f"{state}: {source.command}" in out


def test_list_tells_computed_from_published_and_damaged(
    capsys: pytest.CaptureFixture[str], measured_results: Path
) -> None:
    run(capsys, "publish", "toy2d/kappa-sweep", "--results", measured_results)
    for path in (measured_results / "toy2d" / "kappa-sweep").iterdir():
        path.unlink()
    (measured_results / "toy2d" / "overcomplete" / "rows.parquet").write_bytes(b"cut")
    _, out, _ = run(capsys, "list", "--results", measured_results)
    lines = {line.split()[0]: line for line in out.splitlines()[1:]}
    assert "computed" in lines["fig01_separation"]
    assert "published" in lines["fig_regret_vs_kappa"]
    assert "damaged: python -m toy2d overcomplete --force" in lines["fig_overcomplete"]


def test_draw_by_name_and_all(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    status, out, _ = run(capsys, "fig_regret_vs_kappa", "--results", results)
    assert status == 0
    drawn = [Path(line) for line in out.splitlines()]
    assert [path.suffix for path in drawn] == [".pdf", ".png", ".csv"]
    assert all(path.parent == results / "figures" and path.is_file() for path in drawn)
    status, out, _ = run(capsys, "all", "--results", results, "--out", results / "elsewhere")
    # A PDF or LaTeX, a PNG or Markdown, and a CSV each; films are drawn only where there are some.
    assert (status, len(out.splitlines())) == (0, 3 * len(catalog.names()))


def test_published_rows_are_drawn_when_there_are_no_others(
    capsys: pytest.CaptureFixture[str], measured_results: Path, tmp_path: Path
) -> None:
    run(capsys, "publish", "--results", measured_results)
    status, _, _ = run(capsys, "all", "--results", tmp_path / "none")
    assert status == 0
    assert len(list((tmp_path / "none" / "figures").glob("*.csv"))) == len(catalog.names())


def test_bad_input_draws_nothing(capsys: pytest.CaptureFixture[str], results: Path, tmp_path: Path) -> None:
    status, _, errors = run(capsys, "fig_regret_vs_kappa", "fig99", "--results", results)
    assert_sentence(status, errors, "There is no figure 'fig99'; the figures are fig01_separation")
    status, _, errors = run(capsys, "fig_regret_vs_kappa", "--results", tmp_path / "none")
    assert_sentence(status, errors, "make it with `python -m toy2d kappa-sweep`")
    (results / "toy2d" / "kappa-sweep" / "rows.parquet").write_bytes(b"PAR1 cut short")
    status, _, errors = run(capsys, "all", "--results", results)
    assert_sentence(status, errors, "is not the file that run.json describes")
    assert not (results / "figures").exists()


def test_foreign_rows_are_one_sentence(capsys: pytest.CaptureFixture[str], results: Path) -> None:
    with open_run(results / "toy2d" / "kappa-sweep", {}, force=True) as foreign:
        foreign.write_rows(pd.DataFrame({"success": [1, 0]}))
    status, _, errors = run(capsys, "fig_regret_vs_kappa", "--results", results)
    assert_sentence(status, errors, "The rows of toy2d/kappa-sweep lack the columns")


@pytest.mark.parametrize("content", [b"not an archive", b"PK\x03\x04 cut short"])
def test_an_unreadable_example_names_the_command(
    capsys: pytest.CaptureFixture[str], results: Path, content: bytes
) -> None:
    with open_run(results / "toy2d" / "noise-sweep", {}, force=True) as run_folder:
        run_folder.write_rows(pd.read_parquet(results / "toy2d" / "noise-sweep" / "rows.parquet"))
        run_folder.write_file("example.npz", lambda path: path.write_bytes(content))
    status, _, errors = run(capsys, "fig01_separation", "--results", results)
    assert_sentence(status, errors, "make it again with `python -m toy2d noise-sweep --force`")


def test_an_unwritable_folder_is_one_sentence(
    capsys: pytest.CaptureFixture[str], results: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("kept")
    status, _, errors = run(capsys, "fig_regret_vs_kappa", "--results", results, "--out", tmp_path / "file")
    assert_sentence(status, errors, "cannot be written")
    # Nothing is published here, so the folder is looked at before the rows.
    status, _, errors = run(capsys, "docs", "--folder", tmp_path / "file")
    assert_sentence(status, errors, "cannot be written")
    assert (tmp_path / "file").read_text() == "kept"


def test_publish_copies_whole_runs(capsys: pytest.CaptureFixture[str], measured_results: Path, tmp_path: Path) -> None:
    for _ in range(2):
        status, out, _ = run(capsys, "publish", "--results", measured_results)
        assert (status, len(out.splitlines())) == (0, 4)
    for sweep in ("noise-sweep", "kappa-sweep", "overcomplete", "diagonal"):
        source, target = measured_results / "toy2d" / sweep, tmp_path / "measured" / "toy2d" / sweep
        assert {path.name: path.read_bytes() for path in source.iterdir()} == {
            path.name: path.read_bytes() for path in target.iterdir()
        }
        assert read_rows(target).equals(read_rows(source))
    assert sorted(path.name for path in (tmp_path / "measured" / "toy2d").iterdir()) == [
        "diagonal",
        "kappa-sweep",
        "noise-sweep",
        "overcomplete",
    ]


def test_publish_refuses(
    capsys: pytest.CaptureFixture[str], results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: drop the check of the origin, of ``run.json`` or of the size."""
    status, _, errors = run(capsys, "publish", "toy2d/kappa-sweep", "--results", results)
    assert_sentence(status, errors, "are not all measured")
    (results / "toy2d" / "noise-sweep" / "run.json").unlink()
    status, _, errors = run(capsys, "publish", "toy2d/noise-sweep", "--results", results)
    assert_sentence(status, errors, "holds no finished run")
    status, _, errors = run(capsys, "publish", "toy2d/mass-sweep", "--results", results)
    assert_sentence(status, errors, "There is no run 'toy2d/mass-sweep' to publish")
    status, _, errors = run(capsys, "publish", "--results", tmp_path / "none")
    assert_sentence(status, errors, "holds no finished run to publish")
    assert not (tmp_path / "measured").exists()


def test_a_damaged_run_keeps_no_other_from_being_published(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Mutation: read every run before one is chosen, or stop at the first that is damaged."""
    results = synthetic_visual.write(tmp_path / "results", tasks=("tworoom",), origin="measured")
    good, bad = (f"visual/tworoom/k{kappa}-s42-laptop/plan-laptop" for kappa in (1, 2))
    (results / bad / "rows.parquet").write_bytes(b"half")
    status, out, _ = run(capsys, "publish", good, "--results", results)
    assert (status, Path(out.strip())) == (0, tmp_path / "measured" / good)
    status, _, errors = run(capsys, "publish", bad, "--results", results)
    assert_sentence(status, errors, bad)
    assert not (tmp_path / "measured" / bad).exists()
    # Without names, everything that is sound, and then a sentence about what is not.
    status, out, errors = run(capsys, "publish", "--results", results, "--to", tmp_path / "all")
    assert_sentence(status, errors, bad)
    paths = {path.relative_to(tmp_path / "all").as_posix() for path in map(Path, out.split())}
    assert paths == {run for run in catalog.runs(results) if (results / run / "run.json").exists()} - {bad}
    assert len(paths) > 10


def test_publish_refuses_large_files_and_keeps_the_earlier_run(
    capsys: pytest.CaptureFixture[str], measured_results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capsys, "publish", "toy2d/kappa-sweep", "--results", measured_results)
    published = tmp_path / "measured" / "toy2d" / "kappa-sweep"
    before = json.loads((published / "run.json").read_text())
    monkeypatch.setattr(publish, "MAX_BYTES", 100)
    status, _, errors = run(capsys, "publish", "toy2d/kappa-sweep", "--results", measured_results)
    assert_sentence(status, errors, "only files up to 1 MB are published")
    assert json.loads((published / "run.json").read_text()) == before


def test_a_publication_that_fails_at_the_end_puts_the_earlier_run_back(
    capsys: pytest.CaptureFixture[str], measured_results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: leave the earlier run in the staging folder, which is deleted."""
    run(capsys, "publish", "toy2d/kappa-sweep", "--results", measured_results)
    published = tmp_path / "measured" / "toy2d" / "kappa-sweep"
    before = {path.name: path.read_bytes() for path in published.iterdir()}
    rename = Path.rename

    def fail(path: Path, target: Path) -> Path:
        if path.name == "new":
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    status, _, errors = run(capsys, "publish", "toy2d/kappa-sweep", "--results", measured_results)
    assert_sentence(status, errors, "kappa-sweep cannot be written: No space left on device")
    assert {path.name: path.read_bytes() for path in published.iterdir()} == before
    assert [path.name for path in published.parent.iterdir()] == ["kappa-sweep"]


def test_help_is_light() -> None:
    """Mutation: import ``figures.style``'s matplotlib at the top of ``__main__``."""
    code = (
        "import sys; from figures.__main__ import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'matplotlib', 'torch', 'pandas', 'scipy', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=os.environ | {"COLUMNS": "100"})


def test_usage_errors_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert CliRunner().invoke(app, ["reproduce", "--fast"]).exit_code == 2
    status, _, errors = run(capsys, "list", "--folder", "x")
    assert status == 2
    assert "Traceback" not in errors
