"""Run folders.

1. Files of a run appear together, or not at all: an exception inside the block leaves an earlier run whole.
2. A finished run with equal settings is recognised; unequal settings, damaged and swapped files are errors.
3. A folder without run.json is a run that was killed: it starts clean.
4. An unwritable folder is found before the work starts.
5. A file is replaced as a whole or not at all; what killed processes left is removed after a week.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pandas as pd
import pytest

from theory import runs

SETTINGS = {"seeds": [0, 1], "kappa": 2.0}


def write_run(folder: Path, value: float = 1.0, *, force: bool = False) -> None:
    with runs.open_run(folder, SETTINGS, force=force) as run:
        run.write_rows(pd.DataFrame({"value": [value]}))
        run.write_file("note.txt", lambda path: path.write_text("kept"))


def test_round_trip(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    record = runs.finished_run(tmp_path / "run", {"kappa": 2.0, "seeds": (0, 1)})
    assert record is not None
    assert set(record.files) == {"rows.parquet", "note.txt"}
    assert record.versions["numpy"]
    assert record.seconds >= 0
    assert runs.read_rows(tmp_path / "run")["value"].tolist() == [1.0]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["note.txt", "rows.parquet", "run.json"]
    assert str(tmp_path) not in (tmp_path / "run" / "run.json").read_text()


def test_error_inside_keeps_the_earlier_run_and_leaves_nothing_behind(tmp_path: Path) -> None:
    write_run(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def killed_halfway() -> None:
        with runs.open_run(tmp_path, SETTINGS, force=True) as run:
            run.write_rows(pd.DataFrame({"value": [2.0]}))
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        killed_halfway()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_finished_run_needs_force(tmp_path: Path) -> None:
    write_run(tmp_path, 1.0)
    with pytest.raises(ValueError, match="use force"):
        write_run(tmp_path, 2.0)
    assert runs.read_rows(tmp_path)["value"].tolist() == [1.0]
    write_run(tmp_path, 2.0, force=True)
    assert runs.read_rows(tmp_path)["value"].tolist() == [2.0]


@pytest.mark.parametrize("other", [{"seeds": [0, 1], "kappa": 4.0}, {"seeds": [0, 1]}, {**SETTINGS, "sigma": 0.5}])
def test_unequal_settings_are_an_error_never_a_mix(tmp_path: Path, other: dict[str, object]) -> None:
    write_run(tmp_path)
    with pytest.raises(ValueError, match=r"holds a run with (kappa|sigma)"):
        runs.finished_run(tmp_path, other)


def test_killed_before_the_record_starts_clean(tmp_path: Path) -> None:
    pd.DataFrame({"value": [9.0]}).to_parquet(tmp_path / "rows.parquet")
    assert runs.finished_run(tmp_path, SETTINGS) is None
    with pytest.raises(ValueError, match=r"no finished run"):
        runs.read_rows(tmp_path)
    write_run(tmp_path)
    assert runs.read_rows(tmp_path)["value"].tolist() == [1.0]


def test_killed_between_renames_is_seen(tmp_path: Path) -> None:
    write_run(tmp_path)
    pd.DataFrame({"value": [9.0]}).to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match="is not the file that"):
        runs.read_rows(tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"files": []}, {"files": {"rows.parquet": 5}}, {"settings": []}, {"started": 5}, {"seconds": "x"}, {"commit": 7}],
)
def test_record_with_values_of_other_types(tmp_path: Path, change: dict[str, object]) -> None:
    write_run(tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(record | change))
    with pytest.raises(ValueError, match="damaged"):
        runs.finished_run(tmp_path, SETTINGS)


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_in_the_record_s_place_is_found_before_the_work(tmp_path: Path, force: bool) -> None:
    (tmp_path / "run.json").mkdir()
    with pytest.raises(ValueError, match=r"run\.json is a folder"), runs.open_run(tmp_path, SETTINGS, force=force):
        pytest.fail("the work started")
    with pytest.raises(ValueError, match="damaged"):
        runs.finished_run(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"settings": {}}'])
def test_damaged_record(tmp_path: Path, text: str) -> None:
    write_run(tmp_path)
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match="damaged"):
        runs.finished_run(tmp_path)
    write_run(tmp_path, 3.0, force=True)
    assert runs.read_rows(tmp_path)["value"].tolist() == [3.0]


def test_missing_file(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "note.txt").unlink()
    with pytest.raises(ValueError, match="missing"):
        runs.read_run(tmp_path)


def test_unwritable_folder_is_found_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    entered = False
    with pytest.raises(ValueError, match="cannot be written"), runs.open_run(tmp_path / "file" / "run", SETTINGS):
        entered = True
    assert not entered


@pytest.mark.parametrize("settings", [{"kappa": float("nan")}, {"kappa": object()}])
def test_settings_must_be_json(tmp_path: Path, settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="JSON values"), runs.open_run(tmp_path, settings):
        pass


def test_empty_rows_and_bad_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no rows"), runs.open_run(tmp_path, SETTINGS) as run:
        run.write_rows(pd.DataFrame({"value": []}))
    for name in ("run.json", "../escape.txt"):
        with pytest.raises(ValueError, match="not a name"), runs.open_run(tmp_path, SETTINGS) as run:
            run.write_file(name, lambda path: path.touch())
    assert list(tmp_path.iterdir()) == []


def test_write_atomic_replaces_whole_files(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.md"
    runs.write_atomic(path, "one")
    runs.write_atomic(path, "κ two")
    assert path.read_text(encoding="utf-8") == "κ two"
    assert [entry.name for entry in path.parent.iterdir()] == ["report.md"]


def test_what_fails_inside_replacing_leaves_the_old_file(tmp_path: Path) -> None:
    """Mutation: rename in the ``finally`` of ``replacing``."""
    path = tmp_path / "weights.bin"
    runs.write_atomic(path, b"\xff old")
    with pytest.raises(AttributeError), runs.replacing(path) as temporary:
        temporary.write_half()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="cannot be written"), runs.replacing(path) as temporary:
        temporary.unlink()
    assert path.read_bytes() == b"\xff old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["weights.bin"]


def test_what_a_killed_process_left_is_removed_after_a_week(tmp_path: Path) -> None:
    """Not before, when another process may still write, and nothing that others left.

    Mutation: remove nothing, or whatever its age, or every ``.tmp-*``.
    """
    names = {".anisowm-tmp-old.parquet": 169, ".anisowm-tmp-young.parquet": 167, ".tmp-foreign": 1000}
    for name, hours in names.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - 3600 * hours,) * 2)
    write_run(tmp_path)
    assert [(tmp_path / name).exists() for name in names] == [False, True, True]


def test_record_says_how(tmp_path: Path) -> None:
    write_run(tmp_path)
    content = json.loads((tmp_path / "run.json").read_text())
    assert {"settings", "files", "versions", "machine", "commit", "command", "started", "seconds"} == set(content)


def test_a_command_names_no_path_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: leave the arguments as they were typed."""
    monkeypatch.chdir(tmp_path)
    command = f"python -m visual plan task=cube data=/elsewhere/data/cube out={tmp_path}/results/visual {tmp_path}/a.h5"
    assert runs.portable_command(command) == "python -m visual plan task=cube data=…/cube out=results/visual a.h5"
    # What is no absolute path stays: relative ones, ratios, lists, Hydra's overrides.
    for text in ("python -m figures list --results results/quick", "x=a/b y=1/2 tasks=[a,b] http://host/x"):
        assert runs.portable_command(text) == text
    assert runs.portable_command("paths=[/a/b,/c/d]") == "paths=[…/b,…/d]"


def test_published_runs_name_no_path_of_a_machine() -> None:
    for path in Path("figures/measured").rglob("run.json"):
        command = json.loads(path.read_text(encoding="utf-8"))["command"]
        assert runs.portable_command(command) == command, path
