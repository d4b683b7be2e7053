"""Claims about splits, pairs and clips.

1. The split is by episode: disjoint, complete, a function of the seed; planning episodes hold a pair.
2. A pair's goal is 25 rows after its start in the same held-out episode; the first pairs come from different episodes;
   ``already_solved`` is the task's predicate.
3. A batch equals row-by-row slicing of the file, in memory and memory-mapped, and equals stable-worldmodel's own
   reader; no clip contains the last row of an episode.
4. The sampler is a function of seed and step; every clip comes once before any comes twice.
5. Files with published names and columns open by path, compressed or not, with the same split and pairs.
6. Missing, truncated, foreign or damaged files, actions and frames that are not finite, and wrong image sizes are one
   sentence each.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from visual.data import ClipDataset, open_recording
from visual.manifest import (
    GOAL_OFFSET,
    MANIFEST_FILE,
    MAX_PAIRS,
    Manifest,
    draw_pairs,
    file_sha256,
    read_manifest,
    split_episodes,
)
from visual.tasks import CUBE, PUSHT, REACHER, TWOROOM, Task

WriteFile = Callable[..., Path]
lengths_lists = st.lists(st.integers(1, 120), min_size=2, max_size=80)


@given(lengths_lists, st.integers(0, 2**31))
def test_the_split_is_by_episode(lengths: list[int], seed: int) -> None:
    """Mutation: draw validation episodes from all episodes instead of the rest."""
    rows = np.array(lengths)
    split = split_episodes(rows, seed)
    assert split == split_episodes(rows, seed)
    train, validation, planning = (set(part) for part in (split.train, split.validation, split.planning))
    assert not train & (validation | planning)
    assert train | validation | planning == set(range(len(lengths)))
    assert train
    assert all(lengths[e] > GOAL_OFFSET for e in planning)
    if len(lengths) > 2 and validation and planning and validation != planning:
        assert not validation & planning
    if max(lengths) > GOAL_OFFSET:
        assert planning


@given(lengths_lists, st.integers(0, 2**31))
def test_pairs_lie_in_held_out_episodes(lengths: list[int], seed: int) -> None:
    """Mutation: take the goal ``goal_offset + 1`` rows later, or mark pairs by another threshold."""
    rows = np.array(lengths)
    offsets = np.cumsum(rows) - rows
    split = split_episodes(rows, seed)
    positions = np.random.default_rng(seed).normal(size=(int(rows.sum()), 2)) * 12
    pairs = draw_pairs(TWOROOM, rows, offsets, {"state": positions}, split.planning, seed)
    assert pairs == draw_pairs(TWOROOM, rows, offsets, {"state": positions}, split.planning, seed)
    assert len(pairs) == min(MAX_PAIRS, sum(lengths[e] - GOAL_OFFSET for e in split.planning))
    assert set(pairs.episode) <= set(split.planning)
    assert len(set(zip(pairs.episode, pairs.start, strict=True))) == len(pairs)
    assert len(set(pairs.episode[: len(split.planning)])) == min(len(split.planning), len(pairs))
    for i, (episode, start, goal) in enumerate(zip(pairs.episode, pairs.start, pairs.goal, strict=True)):
        assert goal == start + GOAL_OFFSET < lengths[episode]
        distance = np.linalg.norm(positions[offsets[episode] + start] - positions[offsets[episode] + goal])
        assert pairs.outcome[i] == pytest.approx(distance / 16)
        assert pairs.already_solved[i] == (distance < 16)


@pytest.mark.parametrize("storage", ["memory", "mapped"])
@pytest.mark.parametrize(("frames", "frameskip"), [(4, 5), (3, 2), (1, 1)])
def test_a_batch_equals_slicing_the_file(write_file: WriteFile, storage: str, frames: int, frameskip: int) -> None:
    """Every clip of every split, by plain loops over episodes.

    Mutation: let clips start one row later, or take actions of ``frames`` instead of ``frames · frameskip`` rows.
    """
    path = write_file()
    with h5py.File(path) as file:
        pixels, action = file["pixels"][:], file["action"][:]
        lengths, offsets = file["ep_len"][:], file["ep_offset"][:]
    for split in ("train", "validation", "planning"):
        clips = ClipDataset(path, split, frames, frameskip, storage=storage)
        expected_pixels, expected_actions = [], []
        for episode in clips.recording.episodes_of(split):
            for start in range(lengths[episode] - frames * frameskip):
                row = offsets[episode] + start
                expected_pixels.append([pixels[row + k * frameskip].transpose(2, 0, 1) for k in range(frames)])
                blocks = [action[row + k * frameskip : row + (k + 1) * frameskip].ravel() for k in range(frames)]
                expected_actions.append(blocks)
        order = np.random.default_rng(0).permutation(len(clips))
        got_pixels, got_actions = clips.batch(order)
        assert got_pixels.dtype == torch.uint8
        np.testing.assert_array_equal(got_pixels.numpy(), np.array(expected_pixels)[order])
        np.testing.assert_array_equal(got_actions.numpy(), np.array(expected_actions, dtype=np.float32)[order])
        assert torch.isfinite(got_actions).all()


def test_clips_equal_those_of_stable_worldmodel(write_file: WriteFile) -> None:
    """The same clips through its reader, but for those that reach into the last row.

    Mutation: stack a block's actions in another order.
    """
    from stable_worldmodel.data.formats.hdf5 import HDF5Dataset

    path = write_file()
    clips = ClipDataset(path, "train")
    theirs = HDF5Dataset(path=path, frameskip=5, num_steps=4, keys_to_load=["pixels", "action"])
    kept = [
        i
        for i, (episode, start) in enumerate(theirs.clip_indices)
        if episode in clips.recording.split.train and start + 20 < theirs.lengths[episode]
    ]
    assert len(kept) == len(clips)
    for mine, other in enumerate(kept):
        pixels, actions = clips.batch([mine])
        assert torch.equal(pixels[0], theirs[other]["pixels"])
        assert torch.equal(actions[0], theirs[other]["action"])


def test_memory_map_is_written_once_and_renewed_with_the_recording(write_file: WriteFile) -> None:
    """Mutation: leave the recording's time out of the map's name."""
    import os

    path = write_file()
    first, _ = ClipDataset(path, storage="mapped").batch([0, 1])
    (cache,) = path.parent.glob(".frames-*.npy")
    before = cache.stat().st_mtime_ns
    ClipDataset(path, storage="mapped")
    assert cache.stat().st_mtime_ns == before
    write_file(seed=1)
    os.utime(path, ns=(before + 10**10, before + 10**10))
    second, _ = ClipDataset(path, storage="mapped").batch([0, 1])
    memory, _ = ClipDataset(path, storage="memory").batch([0, 1])
    assert torch.equal(second, memory)
    assert not torch.equal(first, second)
    assert not list(path.parent.glob(".anisowm-tmp-*"))


def test_memory_maps_of_other_splits_and_of_older_files_are_not_mixed_up(write_file: WriteFile) -> None:
    """Another split by another seed, and a file whose time lies before the map's. Mutation: name maps by the split."""
    import os

    path = write_file(lengths=(30, 45, 24, 60, 33, 52))
    for seed in (0, 1, 2):
        mapped, memory = (ClipDataset(path, storage=kind, split_seed=seed) for kind in ("mapped", "memory"))
        assert torch.equal(mapped.batch([0, 5])[0], memory.batch([0, 5])[0])
    write_file(lengths=(30, 45, 24, 60, 33, 52), seed=1)
    os.utime(path, ns=(10**18, 10**18))
    mapped, memory = (ClipDataset(path, storage=kind) for kind in ("mapped", "memory"))
    assert torch.equal(mapped.batch([0, 5])[0], memory.batch([0, 5])[0])


def test_action_statistics_leave_out_the_last_rows(write_file: WriteFile) -> None:
    """Also where the last action is finite but belongs to the start of the episode.

    Mutation: take the mean over all rows.
    """
    path = write_file(last_action=50.0)
    clips = ClipDataset(path)
    with h5py.File(path) as file:
        rows = [
            file["action"][file["ep_offset"][e] : file["ep_offset"][e] + file["ep_len"][e] - 1]
            for e in clips.recording.split.train
            if file["ep_len"][e] > 20
        ]
    actions = np.concatenate(rows)
    np.testing.assert_allclose(clips.action_mean.numpy(), actions.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(clips.action_std.numpy(), actions.std(axis=0), rtol=1e-5)
    assert clips.batch(range(len(clips)))[1].abs().max() <= 1


def test_states_belong_to_the_frames(write_file: WriteFile) -> None:
    """Mutation: read the states at consecutive rows."""
    path = write_file(columns={"state": lambda rows: np.arange(2.0 * rows).reshape(rows, 2)})
    clips = ClipDataset(path, "train")
    states = clips.states([3, 0], TWOROOM)
    assert states.shape == (2, 4, 2)
    np.testing.assert_array_equal(np.diff(states[..., 0].numpy(), axis=1), 10.0)
    first = clips.recording.offsets[clips.recording.split.train[0]]
    np.testing.assert_array_equal(states[:, 0, 0].numpy(), [2.0 * (first + 3), 2.0 * first])


@given(st.integers(0, 1000), st.integers(1, 90), st.integers(0, 40))
def test_batches_are_a_function_of_seed_and_step(seed: int, batch_size: int, step: int) -> None:
    """Mutation: number the permutations from the step instead of the position, draw with replacement, or keep the
    first permutation for ever.
    """
    clips = _SAMPLER_CLIPS[0]
    fresh = clips.indices(seed, step, batch_size)
    for other in (step + 3, 0):
        clips.indices(seed + 1, other, batch_size)
    assert torch.equal(fresh, clips.indices(seed, step, batch_size))
    assert len(fresh) == batch_size
    assert not torch.equal(clips.indices(seed, 0, len(clips)), clips.indices(seed, 1, len(clips)))
    stream = torch.cat([clips.indices(seed, s, batch_size) for s in range(step + 1)])
    assert torch.equal(stream[-batch_size:], fresh)
    count = len(clips)
    for epoch in range(len(stream) // count):
        assert sorted(stream[epoch * count : (epoch + 1) * count].tolist()) == list(range(count))


_SAMPLER_CLIPS: list[ClipDataset] = []


@pytest.fixture(autouse=True, scope="module")
def _sampler_clips(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One small data set for the property above, which hypothesis calls many times."""
    path = tmp_path_factory.mktemp("sampler") / "file.h5"
    lengths = np.array([30, 33, 40])
    with h5py.File(path, "w") as file:
        file["pixels"] = np.zeros((103, 8, 8, 3), dtype=np.uint8)
        file["action"] = np.zeros((103, 1), dtype=np.float32)
        file["ep_len"], file["ep_offset"] = lengths, np.cumsum(lengths) - lengths
    _SAMPLER_CLIPS[:] = [ClipDataset(path)]


def test_sample_is_the_batch_of_the_indices(write_file: WriteFile) -> None:
    """And another seed gives another order.

    Mutation: ignore the seed.
    """
    clips = ClipDataset(write_file())
    pixels, actions = clips.sample(3, 2, 5)
    expected = clips.batch(clips.indices(3, 2, 5))
    assert torch.equal(pixels, expected[0])
    assert torch.equal(actions, expected[1])
    assert not torch.equal(clips.indices(3, 0, 20), clips.indices(4, 0, 20))
    for indices in ([len(clips)], [-1]):
        with pytest.raises(ValueError, match="indices must lie in"):
            clips.batch(indices)
    with pytest.raises(ValueError, match="size ≥ 1"):
        clips.indices(0, 0, 0)


def _normal(*shape: int) -> Callable[[int], np.ndarray]:
    return lambda rows: np.random.default_rng(1).normal(size=(rows, *shape))


PUBLISHED = {
    "tworoom.h5": (TWOROOM, 2, {"pos_agent": _normal(2), "proprio": _normal(2), "pos_target": _normal(2)}),
    "reacher.h5": (REACHER, 2, {"qpos": _normal(2), "qvel": _normal(2), "observation": _normal(6)}),
    "pusht_expert_train.h5": (PUSHT, 2, {"state": _normal(7), "proprio": _normal(4), "step_idx": _normal()}),
    "cube_single_expert.h5": (
        CUBE,
        5,
        {
            "qpos": _normal(21),
            "qvel": _normal(20),
            "privileged_block_0_pos": _normal(3),
            "privileged_block_0_quat": _normal(4),
            "episode_idx": _normal(),
        },
    ),
}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_published_files_open_by_path(write_file: WriteFile, name: str, compressed: bool) -> None:
    """Mutation: take a state column only under the task's own name."""
    task, action_dim, columns = PUBLISHED[name]
    filters: Any = hdf5plugin.Blosc() if compressed else None
    path = write_file(name=name, action_dim=action_dim, columns=columns, filters=filters)
    recording = open_recording(path)
    assert (recording.image_size, recording.action_dim, recording.episodes) == (8, action_dim, 4)
    assert recording.manifest is None
    pixels, actions = ClipDataset(path).sample(0, 0, 3)
    assert pixels.shape == (3, 4, 3, 8, 8)
    assert actions.shape == (3, 4, 5 * action_dim)
    state = recording.read_state(task, np.array([7, 2, 7]))
    assert set(state) == set(task.columns)
    first = next(iter(task.columns))
    np.testing.assert_array_equal(state[first], recording.read(recording.column_of(task, first))[[7, 2, 7]])
    pairs = recording.pairs(task)
    assert set(pairs.episode) <= set(recording.split.planning)
    starts, goals = recording.rows_of(pairs)
    np.testing.assert_array_equal(goals - starts, GOAL_OFFSET)
    outcome = task.outcome(recording.read_state(task, starts), recording.read_state(task, goals))
    np.testing.assert_allclose(outcome, pairs.outcome)


def test_compressed_files_open_in_a_fresh_process(write_file: WriteFile) -> None:
    """The imports above register the filters, so another process reads the file.

    Mutation: do not import hdf5plugin in ``open_hdf5``.
    """
    path = write_file(filters=hdf5plugin.Blosc())
    program = (
        "import sys; from visual.data import open_recording; print(open_recording(sys.argv[1]).read('pixels').sum())"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.stdout.strip() == str(open_recording(path).read("pixels").sum()), result.stderr


def test_a_recording_opens_by_folder_manifest_and_file(
    short_recording: Callable[[str], tuple[Task, Manifest]],
) -> None:
    """All with the manifest's split and pairs.

    Mutation: split a file anew although a manifest lies beside it.
    """
    task, manifest = short_recording("tworoom")
    for path in (manifest, manifest.folder, manifest.folder / MANIFEST_FILE, manifest.path, str(manifest.path)):
        recording = open_recording(path, image_size=64)
        assert recording.split == manifest.split
        assert recording.pairs(task) == manifest.pairs
    clips = ClipDataset(manifest.folder)
    assert clips.batch([0])[0].shape == (1, 4, 3, 64, 64)
    frame = open_recording(manifest).read("pixels", np.array([clips._rows[0]]))[0]
    np.testing.assert_array_equal(clips.batch([0])[0][0, 0].numpy(), frame.transpose(2, 0, 1))


def _change(path: Path, name: str, values: Any) -> None:
    with h5py.File(path, "a") as file:
        if name in file:
            del file[name]
        if values is not None:
            file[name] = values


def _with_nan(path: Path, row: int) -> None:
    with h5py.File(path, "a") as file:
        file["action"][row] = np.nan


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda p: p.unlink(), "does not exist"),
        (lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]), "truncated or not a readable HDF5 file"),
        (lambda p: p.write_text("episodes", encoding="utf-8"), "truncated or not a readable HDF5 file"),
        (lambda p: _change(p, "pixels", None), "no dataset 'pixels'"),
        (lambda p: _change(p, "ep_len", None), "no dataset 'ep_len'"),
        (lambda p: _change(p, "ep_len", np.zeros(4, dtype=int)), "where its episodes begin"),
        (lambda p: _change(p, "state", np.zeros((17, 2))), "column 'state' has 17 rows, its episodes 159"),
        (lambda p: _with_nan(p, 33), "not finite in step 3 of episode 1"),
        (lambda p: _change(p, "action", np.zeros(159)), "floating-point actions"),
        (lambda p: _change(p, "action", np.zeros((159, 2), dtype=int)), "floating-point actions"),
        (lambda p: _change(p, "pixels", np.full((159, 8, 8, 3), np.nan)), "frames with values that are not finite"),
        (lambda p: _change(p, "pixels", np.zeros((159, 8, 8, 3))), "square RGB frames of 8 bits"),
        (lambda p: _change(p, "pixels", np.zeros((159, 8, 9, 3), dtype=np.uint8)), "square RGB frames of 8 bits"),
        (lambda p: _change(p, "pixels", np.zeros((159, 8, 8, 1), dtype=np.uint8)), "square RGB frames of 8 bits"),
        (lambda p: _change(p, "pixels", np.zeros((159, 9, 9, 3), dtype=np.uint8)), "9 px, but 8 px are required"),
    ],
)
def test_bad_files_are_one_sentence(write_file: WriteFile, damage: Callable[[Path], object], sentence: str) -> None:
    """Mutation: drop the check that the sentence belongs to."""
    path = write_file()
    ClipDataset(path, image_size=8)
    damage(path)
    with pytest.raises(ValueError, match=sentence) as caught:
        ClipDataset(path, image_size=8)
    assert "\n" not in str(caught.value)


def test_bad_requests_are_one_sentence(write_file: WriteFile, tmp_path: Path) -> None:
    """Mutation: drop any of these checks."""
    path = write_file()
    for arguments, sentence in (
        ({"split": "test"}, "no split 'test'"),
        ({"frames": 0}, "at least one frame"),
        ({"storage": "disk"}, "no storage 'disk'"),
        ({"frames": 9, "frameskip": 9}, "no episode of more than 81 rows"),
    ):
        with pytest.raises(ValueError, match=sentence):
            ClipDataset(path, **arguments)
    with pytest.raises(ValueError, match="no column 'qpos', which Reacher needs"):
        open_recording(path).read_state(REACHER)
    with pytest.raises(ValueError, match="row 1000 is not one of them"):
        open_recording(path).read("action", np.array([3, 1000]))
    blank = write_file(name="nan.h5", columns={"state": lambda rows: np.full((rows, 2), np.nan)})
    with pytest.raises(ValueError, match="not finite in the state column 'state'"):
        open_recording(blank).read_state(TWOROOM)
    short = write_file((21, 22, 23), name="short.h5")
    with pytest.raises(ValueError, match="no episode in the split 'planning'"):
        open_recording(short).pairs(TWOROOM)
    with pytest.raises(ValueError, match="cannot be split by episode"):
        open_recording(write_file((40,), name="one.h5"))
    with pytest.raises(ValueError, match="record the task first"):
        open_recording(tmp_path)


def test_a_manifest_rejects_another_file(
    short_recording: Callable[[str], tuple[Task, Manifest]], tmp_path: Path
) -> None:
    """Missing, shorter, equally long but different; and a damaged manifest.

    Mutation: compare sizes only.
    """
    _, original = short_recording("tworoom")
    manifest = dataclasses.replace(original, folder=tmp_path)
    manifest.write()
    assert read_manifest(tmp_path) == manifest
    with pytest.raises(ValueError, match="is missing though"):
        open_recording(tmp_path)
    content = bytearray(original.path.read_bytes())
    manifest.path.write_bytes(content[:-10])
    with pytest.raises(ValueError, match="truncated or another file"):
        open_recording(tmp_path)
    content[len(content) // 2] ^= 1
    manifest.path.write_bytes(content)
    assert file_sha256(manifest.path) != manifest.sha256
    with pytest.raises(ValueError, match="SHA-256 differs"):
        open_recording(tmp_path)
    open_recording(tmp_path, verify=False)
    (tmp_path / MANIFEST_FILE).write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="is damaged"):
        open_recording(tmp_path)
