"""Claims about recording and replaying.

1. Two episodes of every task record: row 0 is the reset, the action in row t leads to row t + 1, the last action is
   NaN; columns have plain names, no goal image, and stable-worldmodel's own reader opens the file.
2. An episode is a function of the seed and its number, whatever was recorded before it, for every task.
3. A recording killed in the middle goes on after its last complete part and ends with the same bytes.
4. A finished recording is not recorded again; other settings in its folder are an error; ``force`` replaces it.
5. Replayed actions reach the recorded end: always in TwoRoom, Reacher and PointMaze, and at the known rates elsewhere.
6. The manifest says what was recorded, with which versions, and describes exactly the file.
7. Bad input is one sentence.
8. NumPy's products and sines, which Cube's inverse kinematics goes through, round alike on every x86 with AVX2.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import visual.recording
from visual.data import open_recording
from visual.environments import make_policy, open_world, read_columns, set_state
from visual.manifest import Manifest, file_sha256, read_manifest
from visual.recording import collect, record_episode
from visual.replay import replay
from visual.tasks import TASKS, TWOROOM, Task

ROOT = Path(__file__).resolve().parents[2]
Recorded = Callable[[str], tuple[Task, Manifest]]


@pytest.mark.parametrize("name", sorted(TASKS))
def test_rows_and_columns_follow_the_convention(name: str, short_recording: Recorded) -> None:
    """Read with stable-worldmodel's own reader.

    Mutation: store the first action in the last row; or write the simulator's names, with ``/`` in them.
    """
    from stable_worldmodel.data.formats.hdf5 import HDF5Dataset

    task, manifest = short_recording(name)
    dataset = HDF5Dataset(path=manifest.path)
    assert set(dataset.column_names) == {"pixels", "action", "episode_idx", "step_idx", *task.columns}
    assert len(dataset.lengths) == 2
    for number, length in enumerate(dataset.lengths):
        episode = dataset.load_episode(number)
        assert episode["pixels"].shape == (length, 3, 64, 64)
        np.testing.assert_array_equal(episode["step_idx"], np.arange(length))
        np.testing.assert_array_equal(episode["episode_idx"], number)
        actions = episode["action"].numpy()
        assert np.isnan(actions[-1]).all()
        assert np.isfinite(actions[:-1]).all()


@pytest.mark.parametrize("name", sorted(TASKS))
def test_an_episode_is_a_function_of_seed_and_number(name: str, short_recording: Recorded) -> None:
    """Record episode 1 alone and compare with the one recorded after episode 0; row 0 is the seeded reset.

    Mutation: seed the policy once per recording, or drop the reset row.
    """
    task, manifest = short_recording(name)
    recording = open_recording(manifest)
    start, length = int(recording.offsets[1]), int(recording.lengths[1])
    with open_world(task, image_size=64, recording=True) as world:
        world.set_policy(make_policy(task.policy))
        episode = record_episode(world, task, manifest.settings["seed"], 1)
    for column, values in episode.items():
        np.testing.assert_array_equal(recording.read(column, slice(start, start + length)), values)
    other = recording.read("action", slice(0, 5))
    assert np.abs(other - episode["action"][:5]).max() > 1e-3


def test_an_episode_does_not_depend_on_the_global_generator() -> None:
    """A policy that draws from NumPy's global generator, as OGBench's oracles do.

    Mutation: drop ``seeded_numpy`` from ``record_episode``.
    """
    from stable_worldmodel.policy import BasePolicy

    class GlobalPolicy(BasePolicy):
        def set_seed(self, seed: int) -> None:
            self.seed = seed

        def get_action(self, obs: object, **kwargs: object) -> np.ndarray:
            return np.random.uniform(-1, 1, size=self.env.action_space.shape)  # noqa: NPY002

    task = dataclasses.replace(TWOROOM, max_episode_steps=4)
    with open_world(task, image_size=16, recording=True) as world:
        world.set_policy(GlobalPolicy())
        np.random.seed(1)  # noqa: NPY002
        first = record_episode(world, task, 0, 0)["action"]
        np.random.seed(2)  # noqa: NPY002
        np.testing.assert_array_equal(record_episode(world, task, 0, 0)["action"], first)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_replayed_actions_reach_the_recorded_end(name: str, short_recording: Recorded) -> None:
    """All pairs of the short recording; stable-worldmodel alone reached 95 % in PushT and 75 % in Cube.

    Mutation: replay ``action[t + 1]`` from row t.
    """
    task, manifest = short_recording(name)
    recording = open_recording(manifest)
    pairs = recording.pairs(task)
    result = replay(task, recording, pairs)
    assert len(result.outcome) == len(pairs) >= 4
    if name in ("tworoom", "reacher", "pointmaze"):
        assert result.outcome.max() < 1e-3
    assert result.rate >= {"pusht": 0.95, "cube": 0.75}.get(name, 1.0)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_one_recorded_action_leads_to_the_next_row(name: str, short_recording: Recorded) -> None:
    """One step from each of a few rows, much finer than the success threshold.

    Mutation: shift the actions by one row when recording.
    """
    task, manifest = short_recording(name)
    recording = open_recording(manifest)
    states, actions = recording.read_state(task), recording.read("action")
    errors, moves = [], []
    with open_world(task, pixels=False) as world:
        for row in (0, 4, 8, 12):
            here, there = ({key: values[r] for key, values in states.items()} for r in (row, row + 1))
            world.reset(seed=0)
            set_state(world, task, here)
            _, _, _, _, infos = world.envs.step(actions[row][None])
            errors.append(float(task.outcome(read_columns(task, infos), there)))
            moves.append(float(task.outcome(here, there)))
    tolerance = {"pusht": 0.05, "cube": 0.02}.get(name, 1e-4)
    assert max(errors) <= tolerance
    if name != "cube":
        assert max(moves) > 2 * tolerance


def test_a_killed_recording_resumes_to_the_same_file(tmp_path: Path) -> None:
    """Kill the process after five episodes, with parts of about 60 rows and rubbish left behind by a write.

    Mutation: count episodes from the number of parts, or resume at episode 0.
    """
    program = (
        "import dataclasses, os, signal, sys, visual.recording as r\n"
        "from visual.tasks import TWOROOM\n"
        "r._PART_ROWS = 60\n"
        "task = dataclasses.replace(TWOROOM, max_episode_steps=30)\n"
        "stop = lambda done, total: os.kill(os.getpid(), signal.SIGKILL) if done == 5 else None\n"
        "r.collect(task, 'quick', episodes=8, seed=3, out=sys.argv[1], progress=stop)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "killed")],
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    parts = tmp_path / "killed" / "parts"
    assert sorted(parts.glob("part-*.h5"))
    assert not (tmp_path / "killed" / "manifest.json").exists()
    (parts / "part-000006-000007.tmp").write_bytes(b"half a part")

    task = dataclasses.replace(TWOROOM, max_episode_steps=30)
    with pytest.raises(ValueError, match="with seed = 3, not 4"):
        collect(task, "quick", episodes=8, seed=4, out=tmp_path / "killed")
    calls: list[int] = []
    resumed = collect(
        task, "quick", episodes=8, seed=3, out=tmp_path / "killed", progress=lambda done, _: calls.append(done)
    )
    assert 0 < calls[0] <= 5
    assert calls == list(range(calls[0], 9))
    whole = collect(task, "quick", episodes=8, seed=3, out=tmp_path / "whole")
    assert resumed.sha256 == whole.sha256 == file_sha256(whole.path)
    assert (resumed.split, resumed.pairs) == (whole.split, whole.pairs)
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == ["manifest.json", "recording.h5"]


def test_a_gap_between_parts_is_recorded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose one part of a recording that was stopped before its parts became one file.

    Mutation: take every part, also after a gap.
    """
    task = dataclasses.replace(TWOROOM, max_episode_steps=6)
    monkeypatch.setattr(visual.recording, "_PART_ROWS", 1)
    finish = visual.recording._finish

    def stop(*arguments: object) -> Manifest:
        raise KeyboardInterrupt

    monkeypatch.setattr(visual.recording, "_finish", stop)
    with pytest.raises(KeyboardInterrupt):
        collect(task, "quick", episodes=3, out=tmp_path)
    (tmp_path / "parts" / "part-000001-000001.h5").unlink()
    monkeypatch.setattr(visual.recording, "_finish", finish)
    calls: list[int] = []
    manifest = collect(task, "quick", episodes=3, out=tmp_path, progress=lambda done, _: calls.append(done))
    assert calls == [1, 2, 3]
    numbers = open_recording(manifest).read("episode_idx")
    assert sorted(set(numbers.tolist())) == [0, 1, 2]
    assert (np.diff(numbers) >= 0).all()


def test_finished_recordings_are_kept_compared_and_replaced(tmp_path: Path) -> None:
    """Mutation: record again although the manifest is there; or compare no settings."""
    task = dataclasses.replace(TWOROOM, max_episode_steps=6)
    first = collect(task, "quick", episodes=2, seed=0, out=tmp_path)
    calls: list[int] = []
    again = collect(task, "quick", episodes=2, seed=0, out=tmp_path, progress=lambda done, _: calls.append(done))
    assert again == first
    assert calls == []
    with pytest.raises(ValueError, match="holds a recording with episodes = 2, not 3"):
        collect(task, "quick", episodes=3, seed=0, out=tmp_path)
    replaced = collect(task, "quick", episodes=3, seed=0, out=tmp_path, force=True)
    assert replaced.episodes == 3
    assert read_manifest(tmp_path) == replaced


def test_the_manifest_describes_the_recording(short_recording: Recorded) -> None:
    """Versions matter: PushT's scale and success rule differ between releases of stable-worldmodel.

    Mutation: leave out ``_simulator_versions``.
    """
    task, manifest = short_recording("pusht")
    assert manifest.versions["stable-worldmodel"] == "0.1.1"
    assert {"python", "mujoco", "pymunk", "gymnasium"} <= set(manifest.versions)
    assert manifest.settings["policy"] == {
        "target": "stable_worldmodel.envs.pusht:WeakPolicy",
        "arguments": {"dist_constraint": 100},
    }
    assert manifest.settings["max_episode_steps"] == task.max_episode_steps
    assert manifest.bytes == manifest.path.stat().st_size
    assert manifest.columns["pixels"] == {"type": "uint8", "shape": [64, 64, 3]}
    assert manifest.frames == int(open_recording(manifest).lengths.sum())
    camera = short_recording("cube")[1].settings["camera"]
    assert camera["collision_shapes"] is True
    assert camera["hidden"] == ["wall"]


def test_bad_input_is_one_sentence(tmp_path: Path, short_recording: Recorded) -> None:
    """Mutation: drop any of the checks at the door of ``collect`` or ``replay``."""
    for arguments, sentence in (
        ({"task": "tworooms"}, "no task 'tworooms'"),
        ({"preset": "desktop"}, "no preset 'desktop'"),
        ({"episodes": 1}, "at least two episodes"),
        ({"seed": -1}, "must not be negative"),
    ):
        with pytest.raises(ValueError, match=sentence):
            collect(**{"task": "tworoom", "preset": "quick", "out": tmp_path, **arguments})
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="cannot be written"):
        collect("tworoom", "quick", out=blocked / "below")
    task, manifest = short_recording("tworoom")
    recording = open_recording(manifest)
    with pytest.raises(ValueError, match=r"count must lie in 1\.\."):
        replay(task, recording, recording.pairs(task), count=0)
    parts = tmp_path / "damaged" / "parts"
    parts.mkdir(parents=True)
    (parts / "settings.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="damaged"):
        collect("tworoom", "quick", out=tmp_path / "damaged")
    assert os.listdir(tmp_path / "damaged") == ["parts"]


_KERNELS = """
import os, runpy, sys
sys.argv = ["visual", "collect", "--help"]
try:
    runpy.run_module("visual", run_name="__main__", alter_sys=True)
except SystemExit as end:
    assert not end.code
import numpy, threadpoolctl
found = [info["architecture"] for info in threadpoolctl.threadpool_info() if info["internal_api"] == "openblas"]
from numpy._core._multiarray_umath import __cpu_dispatch__ as dispatch, __cpu_features__ as features
print(any(features[name] for name in dispatch if name.startswith(("X86_V4", "AVX512"))))
print(os.environ.get("OPENBLAS_CORETYPE"), *found)
"""


@pytest.mark.parametrize("chosen", [None, "Nehalem"])
def test_the_commands_use_the_same_kernels_on_every_processor(chosen: str | None) -> None:
    """Claim 8. Mutations: set the variables after NumPy is imported, or over the user's choice."""
    ours = ("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    if chosen is not None:
        # NumPy refuses to start with a list of either kind.
        environment |= {"OPENBLAS_CORETYPE": chosen, "NPY_ENABLE_CPU_FEATURES": "X86_V3"}
    run = subprocess.run(
        [sys.executable, "-c", _KERNELS], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    wide, last = run.stdout.splitlines()[-2:]
    variable, *kernels = last.split()
    cpu = Path("/proc/cpuinfo")
    if cpu.is_file() and "avx2" in cpu.read_text(encoding="utf-8", errors="replace").split():
        assert variable == (chosen or "Haswell")
        assert set(kernels) == {variable}
        assert wide == "False"
    else:
        assert variable == str(chosen)
