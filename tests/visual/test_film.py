"""Claims about films.

1. A film shows what the evaluation did: same pairs, steps, outcomes and success, and the recorded start and goal.
2. Its pairs are the first that are not solved at the start.
3. It fits into the limit, by leaving out steps but never the first or the last.
4. A finished film is left alone; bad input is one sentence.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from visual_models import save_trained, tiny_preset

from theory.runs import RUN_FILE, open_run, read_rows
from visual.data import open_recording
from visual.film import RecordedActions, _arenas, choose, compress, film, replay
from visual.manifest import Manifest, Pairs
from visual.neighborhoods import GRIDS_FILE
from visual.planning import load_protocol
from visual.success import plan
from visual.tasks import Task

Recorded = Callable[[str], tuple[Task, Manifest]]
PRESET = tiny_preset(image_size=64, encoder_patch=32)


def test_a_film_shows_what_the_evaluation_did(
    short_recording: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mutation: film with another seed, or replay the actions of the other pair."""
    task, manifest = short_recording("tworoom")
    out = tmp_path / "out"
    save_trained(out / "tworoom/k2-s1-quick/train", PRESET, 2)
    recording = open_recording(manifest.folder)
    planning = recording.pairs(task)
    chosen = choose(planning, 2)
    protocol = load_protocol("quick", pairs=max(chosen) + 1, iterations=1, budget=12)
    cells = np.arange(9, dtype=np.uint8).reshape(1, 3, 3, 1, 1, 1) * np.ones((1, 1, 1, 8, 8, 3), dtype=np.uint8)
    with open_run(out / "tworoom/candidates-quick", {"data_sha256": manifest.sha256}) as drawn:
        drawn.write_file(GRIDS_FILE, lambda path: np.savez(path, pairs=np.array([5]), frames=cells))

    def run(**changes: Any) -> Path:
        return film(task, 2.0, "quick", 1, protocol, pairs=2, data=manifest.folder, out=out, **changes)

    folder = run()
    evaluated = read_rows(plan(task, 2.0, "quick", 1, protocol, data=manifest.folder, out=out)).set_index("pair")
    rows = read_rows(folder)
    assert folder == out / "tworoom/k2-s1-quick/film-quick"
    assert set(rows["origin"]) == {"measured"}
    with np.load(folder / "frames.npz") as stored:
        frames = dict(stored)
    for pair in chosen:
        shown = rows[rows["pair"] == pair].sort_values("step")
        assert shown["step"].tolist() == list(range(evaluated.loc[pair, "steps"] + 1))
        assert shown["outcome"].iloc[0] == pytest.approx(evaluated.loc[pair, "start_outcome"])
        assert shown["outcome"].iloc[-1] == pytest.approx(evaluated.loc[pair, "final_outcome"], abs=1e-12)
        assert shown["outcome"].iloc[1:].min() == pytest.approx(evaluated.loc[pair, "best_outcome"], abs=1e-12)
        assert shown["reached"].any() == evaluated.loc[pair, "success"]
        first = recording.offsets[planning.episode[pair]]
        np.testing.assert_array_equal(
            [frames[f"pair_{pair}"][0], frames[f"goal_{pair}"]],
            recording.read("pixels", np.array([first + planning.start[pair], first + planning.goal[pair]])),
        )
        np.testing.assert_array_equal(frames[f"steps_{pair}"], shown["step"])
    assert frames["scene"].shape == (224, 224, 3)
    assert frames["grid_5"][:, 0, 0, 0].tolist() == [4, 0, 2, 6, 8]
    capsys.readouterr()
    run()
    assert "is finished" in capsys.readouterr().out
    with pytest.raises(ValueError, match="holds a run with seed = 0, not 3"):
        run(seed=3)
    with pytest.raises(ValueError, match="The device 'nowhere' cannot be used here"):
        run(device="nowhere")
    with pytest.raises(ValueError, match="seed of candidates must not be negative, but it is -1"):
        run(seed=-1)
    with pytest.raises(ValueError, match="k1-s1-quick/train"):
        film(task, 1.0, "quick", 1, protocol, data=manifest.folder, out=out)


def test_recorded_actions_reach_the_recorded_goal(short_recording: Recorded) -> None:
    task, manifest = short_recording("tworoom")
    recording = open_recording(manifest.folder)
    planning = recording.pairs(task)
    (pair,) = choose(planning, 1)
    first = int(recording.offsets[planning.episode[pair]])
    start, goal = first + planning.start[pair], first + planning.goal[pair]
    rows, frames = replay(task, recording, planning, {pair: list(recording.read("action", slice(start, goal)))})
    assert rows["outcome"].iloc[-1] < 1
    assert rows["reached"].iloc[-1]
    assert rows["reached"].is_monotonic_increasing
    difference = frames[f"pair_{pair}"].astype(float) - recording.read("pixels", slice(start, goal + 1))
    assert np.abs(difference).mean() < 1


def test_pairs_are_the_first_that_are_not_solved() -> None:
    pairs = Pairs((0, 1, 2, 3), (0,) * 4, (9,) * 4, (0.5, 2.0, 0.1, 3.0), (True, False, True, False))
    assert [choose(pairs, count) for count in (1, 2)] == [[1], [1, 3]]
    for count in (0, 3):
        with pytest.raises(ValueError, match=rf"pairs must lie in 1\.\.2, .* but it is {count}"):
            choose(pairs, count)


def test_a_film_fits_into_the_limit() -> None:
    """Mutation: the last step is left out."""
    noise = np.random.default_rng(0).integers(0, 256, (52, 16, 16, 3), dtype=np.uint8)
    frames = {"pair_3": noise, "steps_3": np.arange(52, dtype=np.int16), "goal_3": noise[0]}
    whole = compress(frames)
    with np.load(io.BytesIO(whole)) as stored:
        np.testing.assert_array_equal(stored["pair_3"], noise)
    content = compress(frames, len(whole) - 1)
    assert len(content) < len(whole)
    with np.load(io.BytesIO(content)) as stored:
        assert stored["steps_3"].tolist() == [*range(0, 51, 2), 51]
        np.testing.assert_array_equal(stored["pair_3"], noise[stored["steps_3"]])
        np.testing.assert_array_equal(stored["goal_3"], noise[0])
    with pytest.raises(ValueError, match="film fewer pairs"):
        compress(frames, 100)


def test_arenas_are_those_of_a_finished_run_on_the_same_recording(tmp_path: Path) -> None:
    """Mutation: take grids from a folder whatever lies there."""
    grids = {"pairs": np.array([5]), "frames": np.zeros((1, 3, 3, 8, 8, 3), dtype=np.uint8)}
    assert _arenas(tmp_path / "none", "this") == {}
    with open_run(tmp_path, {"data_sha256": "this"}) as run:
        run.write_file(GRIDS_FILE, lambda path: np.savez(path, **grids))  # type: ignore[arg-type]
    assert list(_arenas(tmp_path, "this")) == ["grid_5"]
    assert _arenas(tmp_path, "another") == {}
    content = (tmp_path / GRIDS_FILE).read_bytes()
    (tmp_path / GRIDS_FILE).write_bytes(content[:-9])
    with pytest.raises(ValueError, match=r"is not the file that run\.json describes"):
        _arenas(tmp_path, "this")
    # Killed after the grids were renamed and before the record was written.
    (tmp_path / GRIDS_FILE).write_bytes(content)
    (tmp_path / RUN_FILE).unlink()
    assert _arenas(tmp_path, "this") == {}


def test_an_actor_is_remembered_by_pair() -> None:
    class Counting:
        calls = 0

        def set_env(self, env: Any) -> None:
            self.env = env

        def get_action(self, info_dict: dict[str, Any]) -> np.ndarray:
            self.calls += 1
            return np.array([[self.calls], [10 * self.calls], [-1]])

    actor = RecordedActions(Counting(), [7, 4])
    actor.set_env(None)
    actor.get_action({})
    assert actor.get_action({})[1] == 20
    assert {pair: np.ravel(done).tolist() for pair, done in actor.actions.items()} == {7: [1, 2], 4: [10, 20]}
