"""Claims about the commands, run as a user runs them.

1. Each task trains, ends with the same weights after a kill as without one, and plans; also after SIGKILL.
2. Bad input is exit status 2 and one sentence: data, sizes, history, NaN, checkpoints, devices, no OpenGL library.
3. A sweep leaves one run per job, here and through submitit's local launcher; the Slurm launcher asks for an array with
   one task per device.
4. The ablation, the ceiling and every solver end in rows of their own folder.
5. The GPU script's recording, made in parts by several processes, is the one that a single process makes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from visual_models import tiny_preset

from benchmarks import gpu_tworoom
from theory.runs import read_rows, read_run
from visual import recording
from visual.__main__ import main
from visual.checkpoint import save_checkpoint
from visual.data import ClipDataset
from visual.manifest import Manifest
from visual.model import build_model, model_config
from visual.tasks import TASKS, Task

Recorded = Callable[[str], tuple[Task, Manifest]]
ROOT = Path(__file__).resolve().parents[2]
PRESET = tiny_preset(
    name="quick", image_size=64, encoder_patch=32, steps=6, log_every=3, save_every=2, probe_every=6, batch_size=4
)
TINY = [
    f"preset.{name}={'null' if value is None else value}"
    for name, value in PRESET.to_mapping().items()
    if name not in ("name", "image_size")
]
SHORT = ["protocol=quick", "protocol.pairs=1", "protocol.iterations=1", "protocol.budget=6", "progress=false"]


class Killed(BaseException):
    """What a kill looks like from inside."""


@dataclass
class Outcome:
    """How a command ended."""

    status: int
    out: str
    err: str


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Run ``python -m visual`` in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["visual"])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main(list(arguments))
        captured = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return Outcome(caught.value.code, captured.out, captured.err)

    return run


def train_arguments(task: str, data: Path, *more: str, flags: tuple[str, ...] = ()) -> list[str]:
    settings = [f"task={task}", "preset=quick", "seed=7", f"data={data}", "accelerator=cpu", "threads=1"]
    return ["train", *flags, *settings, "progress=false", *TINY, *more]


def plan_arguments(data: Path, *more: str, flags: tuple[str, ...] = ()) -> list[str]:
    return ["plan", *flags, "task=tworoom", "preset=quick", "seed=7", f"data={data}", *SHORT, *more]


def weights(out: Path, task: str, kappa: str = "2") -> dict[str, torch.Tensor]:
    path = out / task / f"k{kappa}-s7-quick/train/checkpoint/weights.pt"
    state: dict[str, torch.Tensor] = torch.load(path, weights_only=True)
    return state


def assert_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert list(first) == list(second)
    different = [name for name in first if not torch.equal(first[name], second[name])]
    assert different == []


@pytest.mark.parametrize("name", sorted(TASKS))
def test_each_task_trains_resumes_and_plans(
    name: str,
    short_recording: Recorded,
    command: Callable[..., Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Claim 1. Mutation: begin a resumed run at step 0, or name a wrong state column in a task."""
    _, manifest = short_recording(name)
    assert command(*train_arguments(name, manifest.folder, "out=whole")).status == 0
    sample = ClipDataset.sample

    def killing(self: ClipDataset, seed: int, step: int, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        if step == 5:
            raise Killed
        return sample(self, seed, step, batch_size)

    with monkeypatch.context() as patched:
        patched.setattr(ClipDataset, "sample", killing)
        patched.setattr(sys, "argv", ["visual"])
        with pytest.raises(Killed):
            main(train_arguments(name, manifest.folder, "out=runs"))
    assert (tmp_path / f"runs/{name}/k2-s7-quick/train/resume/last.ckpt").is_file()
    assert command(*train_arguments(name, manifest.folder, "out=runs")).status == 0
    assert_equal(weights(tmp_path / "runs", name), weights(tmp_path / "whole", name))
    planned = command("plan", f"task={name}", "preset=quick", "seed=7", f"data={manifest.folder}", "out=runs", *SHORT)
    assert planned.status == 0, planned.err
    assert "random actions" in planned.out
    rows = read_rows(tmp_path / f"runs/{name}/k2-s7-quick/plan-quick")
    assert rows[["origin", "task", "pair"]].to_numpy().tolist() == [["measured", name, 0]]
    assert np.isfinite(rows[["final_outcome", "best_outcome", "start_outcome", "seconds"]].to_numpy(float)).all()


def in_new_process(program: str, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_resume_after_sigkill(short_recording: Recorded, command: Callable[..., Outcome], tmp_path: Path) -> None:
    """Claim 1. Mutation: write the resume state under its final name, or only when training ends."""
    _, manifest = short_recording("tworoom")
    program = (
        "import os, signal, sys\n"
        "from visual.__main__ import main\n"
        "from visual.data import ClipDataset\n"
        "sample = ClipDataset.sample\n"
        "def killing(self, seed, step, batch_size):\n"
        "    if step == 5:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return sample(self, seed, step, batch_size)\n"
        "ClipDataset.sample = killing\n"
        "main(sys.argv[1:])\n"
    )
    killed = in_new_process(program, *train_arguments("tworoom", manifest.folder, "out=runs"), cwd=tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "runs/tworoom/k2-s7-quick/train/checkpoint").exists()
    for out in ("runs", "whole"):
        assert command(*train_arguments("tworoom", manifest.folder, f"out={out}")).status == 0
    assert_equal(weights(tmp_path / "runs", "tworoom"), weights(tmp_path / "whole", "tworoom"))
    # A resumed run has the log of the whole one.
    assert read_rows(tmp_path / "runs/tworoom/k2-s7-quick/train")["step"].tolist() == [3, 6]


def untrained(folder: Path, **changes: Any) -> Path:
    preset = tiny_preset(image_size=64, encoder_patch=32, **changes)
    save_checkpoint(folder, build_model(preset, 2, seed=0), model_config(preset, 2))
    return folder


def damaged(source: Path, target: Path, change: Callable[[h5py.File], object]) -> Path:
    shutil.copy(source, target)
    with h5py.File(target, "a") as file:
        change(file)
    return target


def put(name: str, row: int, value: float) -> Callable[[h5py.File], object]:
    def change(file: h5py.File) -> None:
        values = file[name][:].astype(np.float32)
        values[row] = value
        del file[name]
        file[name] = values

    return change


def test_bad_input_is_one_sentence(short_recording: Recorded, command: Callable[..., Outcome], tmp_path: Path) -> None:
    """Claim 2. Mutation: drop any of the checks, or let the error of another package through."""
    _, manifest = short_recording("tworoom")
    whole = manifest.path.read_bytes()
    cut = tmp_path / "cut.h5"
    cut.write_bytes(whole[: len(whole) // 2])
    nan_action = damaged(manifest.path, tmp_path / "action.h5", put("action", 3, np.nan))
    nan_pixels = damaged(manifest.path, tmp_path / "pixels.h5", put("pixels", 3, np.nan))
    nan_state = damaged(manifest.path, tmp_path / "state.h5", put("state", 3, np.nan))
    no_state = damaged(manifest.path, tmp_path / "column.h5", lambda file: file.pop("state"))
    good = untrained(tmp_path / "good")
    config = json.loads((good / "checkpoint/config.json").read_text(encoding="utf-8"))
    other = untrained(tmp_path / "other")
    shutil.copy(untrained(tmp_path / "wide", predictor_mlp=24) / "checkpoint/weights.pt", other / "checkpoint")
    foreign = untrained(tmp_path / "foreign")
    config["projector"] = {"_target_": "os.mkdir", "path": str(tmp_path / "called")}
    (foreign / "checkpoint/config.json").write_text(json.dumps(config), encoding="utf-8")
    folder = manifest.folder
    cases: list[tuple[list[str], str]] = [
        (train_arguments("tworoom", cut), "truncated or not a readable HDF5 file"),
        (train_arguments("tworoom", nan_action), "an action that is not finite in step 3 of episode 0"),
        (train_arguments("tworoom", nan_pixels), "frames with values that are not finite"),
        (train_arguments("tworoom", no_state), "has no column"),
        (train_arguments("reacher", folder), "tworoom"),
        (train_arguments("tworoom", folder, "preset.image_size=32"), "64 px, but 32 px are required"),
        (train_arguments("tworoom", folder, "preset.history=2"), "history + 1 frames"),
        (train_arguments("tworoom", folder, "kappa=0.5"), "kappa"),
        (train_arguments("tworoom", folder, "accelerator=tpu"), "Lightning cannot train here with accelerator = 'tpu'"),
        (train_arguments("tworoom", folder, "preset.precision=8-true"), "Lightning cannot train here with"),
        (train_arguments("tworoom", folder, "seed=-1"), "seed must not be negative"),
        (train_arguments("tworoom", folder, "devices=0"), "devices"),
        (train_arguments("tworoom", folder, "num_nodes=0"), "num_nodes must be at least 1"),
        (train_arguments("tworoom", folder, "num_workers=-1"), "num_workers must be at least 0"),
        (train_arguments("tworoom", folder, "force=no"), "force must be true or false, but it is 'no'"),
        (train_arguments("tworoom", folder, "threads=all"), "threads must be a whole number"),
        (plan_arguments(folder), "holds no trained model; train it first: python -m visual train task=tworoom kappa=2"),
        (plan_arguments(folder, f"checkpoint={good}", "plan_seed=-1"), "seed of planning must not be negative"),
        (plan_arguments(folder, "checkpoint=nowhere"), "nowhere"),
        (plan_arguments(cut, f"checkpoint={good}"), "truncated or not a readable HDF5 file"),
        (plan_arguments(nan_state, f"checkpoint={good}"), "not finite in the state column 'state'"),
        (plan_arguments(folder, f"checkpoint={other}"), "another architecture than config.json"),
        (plan_arguments(folder, f"checkpoint={foreign}"), "names 'os.mkdir', which is outside"),
        (plan_arguments(folder, f"checkpoint={good}", "protocol.history=1"), "trained with 3 context frames"),
        (plan_arguments(folder, f"checkpoint={good}", "device=tpu"), "The device 'tpu' cannot be used here"),
        (plan_arguments(folder, f"checkpoint={good}", "cost=oracle"), "no cost 'oracle'"),
        (plan_arguments(folder, "cost=simulator", "protocol.solver=gradient"), "needs a cost with a gradient"),
        (["plan", "task=tworoom", "protocol=desktop"], "Could not find 'protocol/desktop'"),
        (["collect", "task=chess"], "no task 'chess'"),
        (["collect", "task=tworoom", "force=no"], "force must be true or false, but it is 'no'"),
        (["collect", "task=tworoom", "episodes=few"], "episodes must be a whole number"),
        (["collect", "task=tworoom", "episodes=1", "progress=false"], "at least two episodes"),
    ]
    failures = []
    for number, (arguments, message) in enumerate(cases):
        ended = command(*arguments, f"out=results/visual/{number}")
        lines = [line for line in ended.err.splitlines() if line]
        good_ending = ended.status == 2 and len(lines) == 1 and lines[0].startswith("error: ") and message in lines[0]
        if not good_ending:
            failures.append(f"{message!r} is missing from status {ended.status}: {ended.err.strip()[-500:]}")
    assert not failures, "\n".join(failures)
    assert not (tmp_path / "called").exists()


def test_missing_opengl_is_one_sentence(tmp_path: Path) -> None:
    """Claim 2. Mutation: open the simulator without asking for OpenGL first."""
    program = "import sys; from visual.__main__ import main; main(sys.argv[1:])"
    arguments = ["collect", "task=reacher", "preset=quick", "episodes=2", "progress=false"]
    ended = in_new_process(program, *arguments, cwd=tmp_path, MUJOCO_GL="egl", MUJOCO_EGL_DEVICE_ID="977")
    assert ended.returncode == 2, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: No OpenGL library for rendering can be used here")


def test_a_sweep_leaves_one_run_per_job(
    short_recording: Recorded, command: Callable[..., Outcome], tmp_path: Path
) -> None:
    """Claims 3 and 4. Mutation: let jobs of a sweep share Hydra's folder or the run's, or plan-folders their name."""
    _, manifest = short_recording("tworoom")
    ended = command(*train_arguments("tworoom", manifest.folder, "kappa=1,2", flags=("-m",)))
    assert ended.status == 0, ended.err
    out = tmp_path / "results/visual"
    assert [read_run(out / f"tworoom/k{k}-s7-quick/train").settings["kappa"] for k in (1, 2)] == [1.0, 2.0]
    (sweep,) = (out / "hydra/train").iterdir()
    assert {path.name for path in sweep.iterdir()} == {"0", "1", "multirun.yaml"}
    planned = command(*plan_arguments(manifest.folder, "protocol.solver=cem,icem,mppi,gradient", flags=("-m",)))
    assert planned.status == 0, planned.err
    assert command(*plan_arguments(manifest.folder, "cost=standardized")).status == 0
    assert command(*plan_arguments(manifest.folder, "cost=simulator", "protocol.num_samples=6")).status == 0
    model = out / "tworoom/k2-s7-quick"
    solvers = {path.name: read_rows(path).loc[0, ["solver", "cost"]].tolist() for path in model.glob("plan-*")}
    assert solvers == {
        "plan-quick": ["cem", "latent"],
        "plan-quick-icem": ["icem", "latent"],
        "plan-quick-mppi": ["mppi", "latent"],
        "plan-quick-gradient": ["gradient", "latent"],
        "plan-quick-standardized": ["cem", "standardized"],
    }
    ceiling = read_rows(out / "tworoom/simulator-quick/plan-quick")
    assert ceiling["cost"].tolist() == ["simulator"]
    assert ceiling["kappa"].isna().all()


def test_the_local_launcher_runs_jobs(short_recording: Recorded, tmp_path: Path) -> None:
    """Claim 3. Mutation: keep something in the job's function that cannot be pickled."""
    _, manifest = short_recording("tworoom")
    arguments = train_arguments("tworoom", manifest.folder, "kappa=1,2", "hydra/launcher=submitit_local", flags=("-m",))
    result = subprocess.run(
        [sys.executable, "-m", "visual", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    out = tmp_path / "results/visual/tworoom"
    assert [read_run(out / f"k{k}-s7-quick/train").settings["kappa"] for k in (1, 2)] == [1.0, 2.0]
    assert {path.name for path in tmp_path.iterdir()} == {"results"}


def test_the_slurm_launcher_asks_for_an_array(
    short_recording: Recorded, command: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claim 3. Mutation: misspell a key in conf/hydra/launcher/slurm.yaml, or leave tasks_per_node at 1."""
    import submitit

    _, manifest = short_recording("tworoom")
    arguments = train_arguments(
        "tworoom", manifest.folder, "kappa=1,2", "hydra/launcher=slurm", "devices=4", flags=("-m",)
    )
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, body in (("sbatch", f'cp "$1" {tmp_path}/batch.sh; echo Submitted batch job 12'), ("srun", "exit 0")):
        (programs / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    # Nothing runs, so there is nothing to wait for.
    monkeypatch.setattr(submitit.Job, "results", lambda self: [SimpleNamespace(return_value=None)])
    ended = command(*arguments, "hydra.launcher.account=lab", "hydra.launcher.partition=gpu")
    assert ended.status == 0, ended.err
    batch = (tmp_path / "batch.sh").read_text(encoding="utf-8")
    asked = dict(
        line.removeprefix("#SBATCH --").split("=", 1) for line in batch.splitlines() if line.startswith("#SBATCH --")
    )
    wanted = {"account": "lab", "partition": "gpu", "time": "240", "array": "0-1%2", "nodes": "1"}
    wanted |= {"ntasks-per-node": "4", "gpus-per-node": "4", "cpus-per-task": "8"}
    assert {name: asked.get(name) for name in wanted} == wanted
    assert "srun" in batch


def test_parts_of_several_processes_make_the_same_recording(tmp_path: Path) -> None:
    """Claim 5. Mutation: seed episodes by their position in the part."""
    alone = recording.collect("tworoom", "quick", 3, 0, tmp_path / "alone")
    parts = tmp_path / "spread" / recording._PARTS
    parts.mkdir(parents=True)
    settings = recording._settings(TASKS["tworoom"], "quick", 3, 0)
    recording._open_parts(tmp_path / "spread", parts, settings)
    for first, last in ((2, 2), (0, 1)):
        gpu_tworoom.record_part("tworoom", "quick", tmp_path / "spread", first, last, 0)
    spread = recording.collect("tworoom", "quick", 3, 0, tmp_path / "spread")
    assert (spread.sha256, spread.pairs) == (alone.sha256, alone.pairs)
