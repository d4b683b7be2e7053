"""A study: what is missing, in which order it runs, what a failure or an interruption leaves behind."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from omegaconf import OmegaConf
from rich.console import Console
from visual_models import save_trained, tiny_preset

from theory.runs import open_run
from visual import study
from visual.__main__ import main
from visual.checkpoint import weights_hash
from visual.planning import load_protocol
from visual.study import Job, Study
from visual.study_report import ConsoleReport, print_jobs

#: Stands in for ``python -m visual``: notes that it ran, then leaves a finished run, or fails as it is told.
PROGRAM = """
import hashlib, sys, pandas as pd
from pathlib import Path
from theory.runs import open_run
notes, folder, name, failing = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
with notes.open("a") as stream:
    stream.write(name + "\\n")
if name == failing:
    print("error: the disk is made of cheese.", file=sys.stderr)
    sys.exit(2)
if name.startswith("collect"):
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
else:
    settings = {"name": name, "data_sha256": "0", "weights_sha256": hashlib.sha256(b"weights").hexdigest()}
    with open_run(folder, settings) as run:
        run.write_rows(pd.DataFrame({"value": [1]}))
        (folder / "checkpoint").mkdir()
        (folder / "checkpoint/weights.pt").write_bytes(b"weights")
print("all is well")
"""


def make(tmp_path: Path, **changes: Any) -> Study:
    values: dict[str, Any] = {
        "tasks": ("tworoom",),
        "kappas": (1.0, 2.0),
        "seeds": (3072, 42),
        "preset": "laptop",
        "protocol": load_protocol("laptop"),
        "data": tmp_path / "data",
        "out": tmp_path / "out",
    }
    return Study(**{**values, **changes})


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Let jobs run as ``PROGRAM``; calling it names the job that fails, or says which ran so far."""
    notes = tmp_path / "notes"
    notes.touch()
    failing = {"name": ""}
    monkeypatch.setattr(study.Study, "_of_present_recording", staticmethod(lambda job, record: True))
    monkeypatch.setattr(
        study,
        "command_of",
        lambda job: [sys.executable, "-c", PROGRAM, str(notes), str(job.folder), job.name, failing["name"]],
    )

    def ran(fail: str | None = None) -> list[str]:
        if fail is not None:
            failing["name"] = fail
        return notes.read_text().splitlines()

    return ran


def finish(folder: Path, sha256: str) -> None:
    with open_run(folder, {"data_sha256": sha256}) as run:
        run.write_rows(pd.DataFrame({"value": [1]}))


def by_name(jobs: Sequence[Job]) -> dict[str, Job]:
    return {job.name: job for job in jobs}


def test_every_model_is_trained_planned_and_diagnosed_on_one_recording(tmp_path: Path) -> None:
    jobs = make(tmp_path, ceiling_pairs=20, pairs=200).jobs()
    assert [job.stage for job in jobs].count("train") == 4
    assert len(by_name(jobs)) == len(jobs) == 2 + 3 * 4 + 1
    plan = by_name(jobs)["plan tworoom κ=2 seed=42"]
    assert plan.needs == ("train tworoom κ=2 seed=42",)
    assert "protocol.pairs=200" in plan.arguments
    assert plan.folder == tmp_path / "out/tworoom/k2-s42-laptop/plan-laptop"
    assert {job.recording for job in jobs if job.stage != "collect"} == {tmp_path / "data/tworoom/laptop"}
    # Each κ has one model before any has two.
    trained = [job.name for job in jobs if job.stage == "train"]
    assert trained[:2] == ["train tworoom κ=1 seed=3072", "train tworoom κ=2 seed=3072"]


def test_changes_give_one_model_per_combination(tmp_path: Path) -> None:
    """Each with its own folder and settings, all on the preset's recording; κ = 1 has no target to move.

    Mutation: name every variant like the preset, or train κ = 1 at every rate of the target.
    """
    changes = {"latent_dim": [16, 32], "target_lr_multiplier": [1, 10]}
    wanted = make(tmp_path, seeds=(42,), changes=changes)
    trained = [job for job in wanted.jobs() if job.stage == "train"]
    assert [job.folder.parent.name for job in trained] == [
        "k1-s42-laptop-latent_dim16-target_lr_multiplier1",
        "k2-s42-laptop-latent_dim16-target_lr_multiplier1",
        "k2-s42-laptop-latent_dim16-target_lr_multiplier10",
        "k1-s42-laptop-latent_dim32-target_lr_multiplier1",
        "k2-s42-laptop-latent_dim32-target_lr_multiplier1",
        "k2-s42-laptop-latent_dim32-target_lr_multiplier10",
    ]
    assert len(by_name(wanted.jobs())) == len(wanted.jobs()) == 2 + 3 * 6
    assert {job.recording for job in trained} == {tmp_path / "data/tworoom/laptop"}
    for job in wanted.jobs():
        if job.stage in ("train", "plan", "diagnose"):
            assert "preset=laptop" in job.arguments
            name = next(item for item in job.arguments if item.startswith("preset.name="))
            assert name.removeprefix("preset.name=") in str(job.folder)
    assert "preset.latent_dim=32" in trained[-1].arguments
    assert "preset.target_lr_multiplier=10" in trained[-1].arguments
    assert {job.folder.parent.name for job in make(tmp_path, seeds=(42,)).jobs() if job.stage == "train"} == {
        "k1-s42-laptop", "k2-s42-laptop"
    }  # fmt: skip
    diagnoses = [job for job in wanted.jobs() if job.stage == "diagnose"]
    assert all(diagnoses[0].name in job.needs for job in diagnoses[1:])


def test_one_diagnosis_comes_before_the_others_since_it_executes_their_candidates(tmp_path: Path) -> None:
    first, *others = [job for job in make(tmp_path).jobs() if job.stage == "diagnose"]
    assert all(first.name in job.needs for job in others)
    assert first.needs == ("train tworoom κ=1 seed=3072",)


def test_the_arguments_are_ones_that_the_commands_take(tmp_path: Path) -> None:
    """Every ``name=value`` of a job is a setting of its command's configuration."""
    folder = Path(study.__file__).parent / "conf"
    groups = set()
    for name in ("folders", "preset/laptop", "protocol/laptop"):
        groups |= set(OmegaConf.load(folder / f"{name}.yaml").keys())
    for job in make(tmp_path, pairs=9, ceiling_pairs=3, changes={"latent_dim": [16]}).jobs():
        command, *settings = study.command_of(job)[3:]
        known = set(OmegaConf.load(folder / f"{command}.yaml").keys()) | groups | {"preset", "protocol"}
        assert {setting.split("=")[0].split(".")[0] for setting in settings} <= known


def test_a_study_runs_everything_once_in_an_order_that_respects_needs(
    tmp_path: Path, programs: Callable[..., list[str]]
) -> None:
    wanted = make(tmp_path)
    done = study.run(wanted, workers=3)
    assert sorted(programs()) == sorted(job.name for job in done) == sorted(by_name(wanted.jobs()))
    order = programs()
    for job in wanted.jobs():
        assert all(order.index(need) < order.index(job.name) for need in job.needs)
    assert wanted.missing() == []
    assert study.run(wanted) == []
    assert len(programs()) == len(order)


def test_a_failure_stops_only_what_needs_it_and_the_next_run_goes_on(
    tmp_path: Path, programs: Callable[..., list[str]]
) -> None:
    wanted = make(tmp_path, seeds=(3072,))
    programs("train tworoom κ=1 seed=3072")
    with pytest.raises(ValueError, match=r"of 8 jobs failed; the first was train tworoom κ=1 .* made of cheese"):
        study.run(wanted, workers=2)
    left = set(by_name(wanted.missing()))
    assert "plan tworoom κ=2 seed=3072" not in left
    assert "plan tworoom κ=1 seed=3072" in left
    assert "plan tworoom κ=1 seed=3072" not in programs()
    programs("")
    assert {job.name for job in study.run(wanted)} == left
    assert wanted.missing() == []


def test_an_interruption_stops_the_processes_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Callable[..., list[str]]
) -> None:
    wanted = make(tmp_path, seeds=(3072,))
    started: list[Any] = []
    original = study._start

    def start(job: Job, logs: Path) -> Any:
        if job.stage != "collect":
            monkeypatch.setattr(study, "command_of", lambda job: [sys.executable, "-c", "import time; time.sleep(60)"])
        started.append(original(job, logs))
        return started[-1]

    class Impatient(study.Report):
        def waiting(self, running: Sequence[Job]) -> None:
            if any(job.stage == "train" for job in running):
                raise KeyboardInterrupt

    monkeypatch.setattr(study, "_start", start)
    with pytest.raises(KeyboardInterrupt):
        study.run(wanted, workers=2, report=Impatient())
    assert len(started) == 3
    assert all(item.process.poll() is not None for item in started)
    assert len(wanted.missing()) == 7
    assert programs() == ["collect tworoom"]


def test_published_rows_count_but_weights_are_not_published(tmp_path: Path) -> None:
    published = tmp_path / "published"
    wanted = make(tmp_path, kappas=(1.0,), seeds=(42,), published=published)
    assert len(wanted.missing()) == 5
    finish(published / "tworoom/advice-laptop", "0")
    for stage in ("train", "plan-laptop", "diagnose"):
        finish(published / "tworoom/k1-s42-laptop" / stage, "0")
    assert wanted.missing() == []
    # Recordings alone are asked for to have them.
    recordings = make(tmp_path, kappas=(1.0,), seeds=(42,), published=published, stages=("collect",))
    assert [job.stage for job in recordings.missing()] == ["collect"]
    # One more pair of models to compare needs its own weights, not those of the finished ones.
    more = make(tmp_path, kappas=(1.0, 2.0), seeds=(42,), published=published)
    assert {job.stage for job in more.missing()} == {"collect", "train", "plan", "diagnose"}
    assert not any("κ=1" in job.name for job in more.missing())
    # A diagnosis that is missing opens weights that were not published: that model is trained again.
    for path in (published / "tworoom/k1-s42-laptop/diagnose").iterdir():
        path.unlink()
    assert [job.stage for job in wanted.missing()] == ["collect", "train", "diagnose"]


def test_fewer_pairs_than_asked_for_are_not_finished(tmp_path: Path) -> None:
    """A study of 200 pairs must not report 50; more than asked for are enough, since pairs have one order."""
    published = tmp_path / "published"
    for root in (tmp_path / "out", published):
        with open_run(root / "tworoom/k1-s42-laptop/plan-laptop", {"protocol": {"pairs": 50}}) as run:
            run.write_rows(pd.DataFrame({"value": [1]}))
    wanted = {"kappas": (1.0,), "seeds": (42,), "stages": ("plan",)}
    for pairs in (None, 20, 50):
        assert make(tmp_path, **wanted, pairs=pairs).missing() == []
        assert make(tmp_path, **wanted, pairs=pairs, out=tmp_path / "new", published=published).missing() == []
    with pytest.raises(ValueError, match="fewer than the 200 planning pairs that are asked for"):
        make(tmp_path, **wanted, pairs=200).missing()
    again = make(tmp_path, **wanted, pairs=200, out=tmp_path / "new", published=published)
    assert [job.stage for job in again.missing()] == ["plan"]


def test_runs_of_weights_that_were_trained_again_are_not_finished(tmp_path: Path) -> None:
    wanted = make(tmp_path, kappas=(1.0,), seeds=(42,), stages=("train", "diagnose"))
    train, diagnose = wanted.jobs()
    save_trained(train.folder, tiny_preset(), 0)
    with open_run(diagnose.folder, {"weights_sha256": weights_hash(train.folder)}) as run:
        run.write_rows(pd.DataFrame({"value": [1]}))
    assert wanted.missing() == []
    save_trained(train.folder, tiny_preset(), 1)
    with pytest.raises(ValueError, match=r"other weights than those in .* which was trained again"):
        wanted.missing()


def test_what_is_left_of_a_killed_study_is_not_run_a_second_time(tmp_path: Path) -> None:
    """A process inherits the lock on its log, so the lock ends with the process and not with the study."""
    job = make(tmp_path, kappas=(1.0,), seeds=(42,)).jobs()[0]
    logs = tmp_path / "logs"
    logs.mkdir()
    sleeping = [sys.executable, "-c", "print('here', flush=True); import time; time.sleep(60)"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(study, "command_of", lambda job: sleeping)
        left = study._start(job, logs)
        left.log.close()  # As a kill does.
        try:
            with pytest.raises(ValueError, match="collect tworoom is already being run"):
                study._start(job, logs)
        finally:
            left.process.kill()
            left.process.wait()
        again = study._start(job, logs)
        again.process.kill()
        again.process.wait()
        again.log.close()


def test_a_run_on_another_recording_is_no_part_of_the_study(tmp_path: Path, short_recording: Any) -> None:
    _, manifest = short_recording("tworoom")
    folder = tmp_path / "data/tworoom/laptop"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(manifest.folder)
    wanted = make(tmp_path, kappas=(1.0,), seeds=(42,), published=tmp_path / "published")
    train = by_name(wanted.jobs())["train tworoom κ=1 seed=42"]
    finish(tmp_path / "published/tworoom/k1-s42-laptop/train", "0" * 64)
    assert not wanted.finished(train)
    finish(train.folder, manifest.sha256)
    assert wanted.finished(train)
    (train.folder / "run.json").unlink()
    finish(train.folder, "0" * 64)
    with pytest.raises(ValueError, match="another recording"):
        wanted.finished(train)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tasks": ()}, "at least one entry in tasks"),
        ({"tasks": ("tworom",)}, "no task 'tworom'"),
        ({"kappas": (1.0, 1.0)}, "none twice"),
        ({"kappas": (0.5,)}, "kappas must be at least 1"),
        ({"kappas": (float("nan"),)}, "kappas must be at least 1"),
        ({"kappas": (float("inf"),)}, "kappas must be at least 1 and finite"),
        ({"stages": ("train", "dance")}, "no stage 'dance'"),
        ({"pairs": 0}, "pairs must be at least 1"),
        ({"ceiling_pairs": -1}, "ceiling_pairs at least 0"),
    ],
)
def test_bad_studies_get_one_sentence(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make(tmp_path, **changes)


def test_the_terminal_lists_jobs_and_reports_each_end(tmp_path: Path, programs: Callable[..., list[str]]) -> None:
    wanted = make(tmp_path, kappas=(1.0,), seeds=(42,))
    listing = Console(file=io.StringIO(), width=200)
    print_jobs(wanted, listing)
    assert "5 of 5 jobs are missing." in listing.file.getvalue()  # type: ignore[attr-defined]
    told = Console(file=io.StringIO(), width=200)
    with ConsoleReport(wanted, told) as report:
        study.run(wanted, workers=1, report=report)
    lines = told.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[-1].startswith("[5/5] diagnose tworoom κ=1 seed=42: done in 0 min")
    assert lines[-1].endswith("all is well")


def run_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *settings: str) -> tuple[Any, str]:
    """``python -m visual study`` in this process: exit status, and what it wrote."""
    monkeypatch.setattr(sys, "argv", ["visual"])
    with pytest.raises(SystemExit) as caught:
        main(["study", *settings])
    captured = capsys.readouterr()
    return caught.value.code, captured.err or captured.out


def test_the_command_lists_without_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with another preset and protocol than the default ones."""
    monkeypatch.chdir(tmp_path)
    settings = ["tasks=[tworoom]", "dry_run=true", "published=null", f"data={tmp_path / 'data'}"]
    status, text = run_command(capsys, monkeypatch, *settings)
    assert status == 0
    assert "8 of 8 jobs are missing." in text
    status, text = run_command(capsys, monkeypatch, *settings, "preset=quick", "protocol=quick")
    assert status == 0
    assert "k2-s3072-quick/plan-quick" in "".join(text.split())
    assert not (tmp_path / "results/visual/tworoom").exists()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("kappas=abc", "kappas[0] must be a number, but it is 'abc'"),
        ("seeds=[1.5]", "seeds[0] must be a whole number, but it is 1.5"),
        ("seeds=[-1]", "seeds must not be negative"),
        ("stages=[]", "at least one entry in stages"),
        ("tasks=[[tworoom]]", "tasks[0] must be a text"),
        ("workers=-1", "workers must be at least 0"),
        ("workers=two", "workers must be a whole number"),
        ("pairs=many", "pairs must be a whole number"),
        ("dry_run=no", "dry_run must be true or false, but it is 'no'"),
        ("preset.steps=7", "A study takes preset and protocol as they are"),
        ("protocol.pairs=7", "give no other setting of them than pairs=N"),
        ("preset=desktop", "Could not find 'preset/desktop'"),
        ("kappas=[1,1.0000001]", "share the folder k1"),
        ("changes=16", "changes must be a group of settings, but it is 16"),
        ("changes={size: [1]}", "changes can name the numbers of a preset, image_size"),
        ("changes={precision: [1]}", "; got 'precision'"),
        ("changes={name: [1]}", "; got 'name'"),
        ("changes={epochs: [1]}", "; got 'epochs'"),
        ("changes={latent_dim: []}", "changes.latent_dim must list numbers"),
        ("changes={latent_dim: [16, 16]}", "at least one and none twice; got [16, 16]"),
        ("changes={latent_dim: [sixteen]}", "changes.latent_dim must list numbers"),
        ("changes={encoder_heads: [3]}", "encoder_dim = 64 is not a multiple of encoder_heads = 3"),
        ("changes={learning_rate: [0.1, 0.10000001]}", "two share the name laptop-learning_rate0.1"),
    ],
)
def test_a_bad_setting_of_the_command_gets_one_sentence(
    setting: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [] if setting.startswith("tasks") else ["tasks=[tworoom]"]
    status, text = run_command(capsys, monkeypatch, *arguments, "stages=[train]", setting, "published=null")
    assert status == 2
    assert text.startswith("error: ")
    assert text.count("\n") == 1
    assert sentence in text
