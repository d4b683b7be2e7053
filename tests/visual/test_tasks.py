"""Claims about the tasks and their simulators.

1. Every task opens: its setters exist in the environment; a misspelt setter or argument is an error, never skipped.
2. ``Task.solved`` is the environment's own success, on both sides of the boundary.
3. A simulator set to a recorded state draws the recorded frame, so recording and evaluation see the same pictures.
4. What follows a set state is a function of it and of the actions, whatever was executed before.
5. A reset is a function of its seed (Cube ignores seeds by itself) and compiles no model again.
6. Worlds leave no OpenGL error behind at exit, with the fast and with the environment's own rendering.
7. Neither ``import visual`` nor its specifications load a simulator or PyTorch.
8. Unknown tasks, missing OpenGL, a mujoco that is too new, an uninstalled simulator and a misspelt policy argument are
   one sentence each.
9. A fifth task needs one specification: PointMaze differs from the others in its :class:`Task` alone.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from visual.data import open_recording
from visual.environments import make_policy, open_world, read_columns, render, set_goal, set_state
from visual.manifest import Manifest
from visual.tasks import PAPER_TASKS, PUSHT, TASKS, TWOROOM, Policy, Setter, Task, get_task, wrap_angle

ROOT = Path(__file__).resolve().parents[2]
Recorded = Callable[[str], tuple[Task, Manifest]]


@pytest.mark.parametrize("name", sorted(TASKS))
def test_success_is_that_of_the_environment_on_both_sides(name: str, short_recording: Recorded) -> None:
    """Goals near and far from the state that a zero action leads to.

    Mutation: compare with ``outcome < 0.9``.
    """
    task, manifest = short_recording(name)
    row = {key: values[5] for key, values in open_recording(manifest).read_state(task).items()}
    if "qvel" in row:
        # At rest: Reacher's simulator stops half-way through a step in which it is at the goal.
        row["qvel"] = np.zeros_like(row["qvel"])
    generator = np.random.default_rng(0)
    verdicts = []
    with open_world(task, pixels=False) as world:
        still = np.zeros((1, *world.envs.single_action_space.shape), dtype=np.float32)
        world.reset(seed=0)
        set_state(world, task, row)
        world.envs.step(still)
        reached = read_columns(task, world.infos)
        for scale in np.concatenate([np.linspace(0.5, 0.98, 8), np.linspace(1.02, 1.5, 8)]):
            goal = _displaced(task, reached, scale, generator)
            world.reset(seed=0)
            set_state(world, task, row)
            set_goal(world, task, goal)
            _, _, terminated, _, infos = world.envs.step(still)
            state = read_columns(task, infos)
            assert task.outcome(state, goal) == pytest.approx(scale, rel=1e-3)
            assert bool(task.solved(state, goal)) == bool(terminated[0]) == (scale < 1)
            verdicts.append(bool(terminated[0]))
    assert verdicts == [True] * 8 + [False] * 8


def _displaced(
    task: Task, state: dict[str, np.ndarray], scale: float, generator: np.random.Generator
) -> dict[str, np.ndarray]:
    """The state moved in a random direction until its outcome is ``scale``, by bisection on the task's own outcome."""
    column = next(iter(task.columns)) if task.name != "cube" else "privileged_block_0_pos"
    direction = generator.normal(size=state[column].shape)

    def moved(step: float) -> dict[str, np.ndarray]:
        return {**state, column: (state[column] + step * direction).astype(np.float64)}

    low, high = 0.0, 1e-3
    while task.outcome(moved(high), state) < scale:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if task.outcome(moved(middle), state) < scale else (low, middle)
    return moved(high)


def test_pusht_outcome_is_the_larger_of_position_and_wrapped_angle() -> None:
    """Position in 20 px over agent and block, angle in π/9 the short way round.

    Mutation: leave out ``wrap_angle``.
    """
    state = {"state": np.array([[100.0, 100, 200, 200, 0.05, 9, 9]])}
    turned = {"state": np.array([[100.0, 100, 200, 200, 2 * np.pi - 0.05, 0, 0]])}
    shifted = {"state": np.array([[103.0, 100, 200, 204, 0.05, 0, 0]])}
    np.testing.assert_allclose(PUSHT.outcome(state, turned), 0.1 / (np.pi / 9))
    np.testing.assert_allclose(PUSHT.outcome(state, shifted), 5 / 20)
    np.testing.assert_allclose(wrap_angle(np.array([3.5, -3.5])), [3.5 - 2 * np.pi, 2 * np.pi - 3.5])


@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_recorded_state_draws_the_recorded_frame(name: str, short_recording: Recorded) -> None:
    """Set the state of a recorded row in an evaluation world and draw: the recorded frame.

    Exact up to rounding, but for Cube, which draws bodies where they were 0.002 s before.

    Mutation: drop ``adjust`` from PushT's setter, which lets 0.01 s pass; or the supersampling from one of two worlds.
    """
    task, manifest = short_recording(name)
    recording = open_recording(manifest)
    states, frames = recording.read_state(task), recording.read("pixels")
    rows = [0, 9, 17]
    with open_world(task, image_size=64) as world:
        world.reset(seed=11)
        drawn = []
        for row in rows:
            set_state(world, task, {key: values[row] for key, values in states.items()})
            drawn.append(render(world).astype(int))
    tolerance = 0.5 if name == "cube" else 0.02
    for row, picture in zip(rows, drawn, strict=True):
        assert np.abs(picture - frames[row]).mean() <= tolerance
    assert np.abs(drawn[0] - drawn[2]).mean() > 2 * tolerance


@pytest.mark.parametrize("name", sorted(TASKS))
def test_what_follows_a_set_state_does_not_depend_on_what_was_before(name: str, short_recording: Recorded) -> None:
    """The same actions from recorded states, in another order, bit for bit; after other resets too, but for PushT.

    Cube leaves actuator inputs and a warm start of the solver behind at random values, and a tenth of a millimetre can
    become centimetres where the gripper touches the block.

    Mutation: do not zero ``ctrl`` and ``qacc_warmstart`` in ``set_state``.
    """
    task, manifest = short_recording(name)
    states = open_recording(manifest).read_state(task)
    rows = range(0, len(next(iter(states.values()))), 4)
    with open_world(task, pixels=False) as world:
        generator = np.random.default_rng(0)
        plan = generator.uniform(-1, 1, size=(5, 1, *world.envs.single_action_space.shape)).astype(np.float32)

        def end(row: int, seed: int) -> np.ndarray:
            world.reset(seed=seed)
            set_state(world, task, {key: values[row] for key, values in states.items()})
            for actions in plan:
                _, _, _, _, world.infos = world.envs.step(actions)
            return np.concatenate([values.ravel() for values in read_columns(task, world.infos).values()])

        first = {row: end(row, row) for row in rows}
        other = 0 if name == "pusht" else 1000
        again = {row: end(row, other + row) for row in reversed(rows)}
    for row in rows:
        np.testing.assert_array_equal(first[row], again[row])
    assert len({values.tobytes() for values in first.values()}) == len(rows)


@pytest.mark.parametrize("name", ["cube", "pointmaze"])
def test_resets_follow_their_seed_and_compile_once(name: str) -> None:
    """Both environments draw from generators that a reset does not seed.

    Mutation: drop ``seeded_numpy`` from ``SeededReset.reset`` (PointMaze), or the sampled variations (Cube); or keep
    ``mark_dirty``.
    """
    task = TASKS[name]
    with open_world(task, recording=True, pixels=False) as world:
        states, models = [], []
        for seed in (3, 4, 3):
            np.random.seed(len(states))  # noqa: NPY002  (another state of the global generator each time)
            world.reset(seed=seed)
            states.append(np.concatenate([v.ravel() for v in read_columns(task, world.infos).values()]))
            models.append(world.envs.envs[0].unwrapped.model)
    np.testing.assert_array_equal(states[0], states[2])
    assert np.abs(states[0] - states[1]).max() > 1e-3
    assert models[0] is models[1] is models[2]


def test_a_seeded_reset_leaves_the_global_generator_alone() -> None:
    """Mutation: leave out ``set_state`` in ``seeded_numpy``."""
    from visual.resets import seeded_numpy

    np.random.seed(5)  # noqa: NPY002
    expected = np.random.uniform(size=3)  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    with seeded_numpy(1):
        np.random.uniform(size=7)  # noqa: NPY002
    np.testing.assert_array_equal(np.random.uniform(size=3), expected)  # noqa: NPY002


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"start": (Setter("_set_stat", {"state": "state"}),)}, "no method '_set_stat'"),
        ({"goal": (Setter("_set_goal_state", {"goal": "state"}),)}, "_set_goal_state cannot be called"),
        ({"columns": {"position": ()}}, "does not report the column 'position'"),
    ],
)
def test_misspelt_names_are_errors(change: dict[str, object], sentence: str) -> None:
    """stable-worldmodel would skip them in silence and score the random start state.

    Mutation: return without a check from ``_bound_method`` when the method is missing.
    """
    task = dataclasses.replace(TWOROOM, **change)
    with pytest.raises(ValueError, match=sentence):
        _open_and_read(task)


def _open_and_read(task: Task) -> None:
    with open_world(task, pixels=False) as world:
        world.reset(seed=0)
        read_columns(task, world.infos)


def test_states_that_lack_a_column_or_are_not_finite_are_refused() -> None:
    """Mutation: drop the check for finite values in ``_apply``."""
    with open_world(TWOROOM, pixels=False) as world:
        world.reset(seed=0)
        with pytest.raises(ValueError, match="needs the column 'state'"):
            set_state(world, TWOROOM, {"qpos": np.zeros(2)})
        with pytest.raises(ValueError, match="not finite"):
            set_goal(world, TWOROOM, {"state": np.array([1.0, np.nan])})
        with pytest.raises(ValueError, match="without pixels"):
            render(world)


def test_worlds_close_without_opengl_errors() -> None:
    """Frames of Reacher and Cube, fast and their own, in a process of their own; its standard error stays clean.

    Mutation: do not close the renderer in ``FastRendering.close`` or ``ReleasedRendering.close``; or do not call
    ``require_rendering``.
    """
    program = (
        "import warnings; warnings.filterwarnings('ignore')\n"
        "from visual.environments import open_world, render\n"
        "kept = []  # nothing is freed by the garbage collector before exit\n"
        "for name in ('reacher', 'cube'):\n"
        "    for fast in (False, True):\n"
        "        with open_world(name, image_size=16, fast_rendering=fast) as world:\n"
        "            kept.append(world)\n"
        "            world.reset(seed=0)\n"
        "            print(render(world).std() > 1)\n"
    )
    result = _python(program)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["True"] * 4
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr


def test_specifications_load_nothing_heavy() -> None:
    """Mutation: import stable_worldmodel at the top of ``visual/environments.py``."""
    result = _python(
        "import sys, visual, visual.tasks, visual.reading, visual.environments, visual.recording\n"
        "print([name for name in ('torch', 'stable_worldmodel', 'mujoco', 'h5py') if name in sys.modules])"
    )
    assert result.stdout.strip() == "[]", result.stderr


def test_missing_opengl_is_one_sentence() -> None:
    """A rendering backend that cannot work (a device number that does not exist); worlds ask before they open.

    Mutation: catch only ImportError in ``require_rendering``.
    """
    result = _python(
        "from visual.rendering import require_rendering\n"
        "try:\n"
        "    require_rendering()\n"
        "except ValueError as error:\n"
        "    print(error)\n",
        MUJOCO_GL="egl",
        MUJOCO_EGL_DEVICE_ID="977",
    )
    assert "No OpenGL library for rendering can be used here" in result.stdout, result.stderr
    assert len(result.stdout.strip().splitlines()) == 1


def test_triton_loads_before_opengl() -> None:
    """Loaded after a software OpenGL context, Triton ends the process with a segmentation fault.

    Mutation: do not import triton in ``require_rendering`` (seen where Triton is installed).
    """
    result = _python(
        "import contextlib\n"
        "from visual.rendering import require_rendering\n"
        "require_rendering()\n"
        "with contextlib.suppress(ImportError):\n"
        "    import triton.runtime\n"
        "print('alive')\n"
    )
    assert (result.returncode, result.stdout.strip()) == (0, "alive"), result.stderr


def test_a_mujoco_that_is_too_new_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: compare with ``> 4``."""
    from visual.rendering import require_rendering

    require_rendering()
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "4.0.0" if name == "mujoco" else version(name))
    with pytest.raises(ValueError, match=r"mujoco 4\.0\.0 does not work with dm_control"), open_world("reacher"):
        pass


def test_simulators_that_are_not_installed_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: let ModuleNotFoundError pass."""
    monkeypatch.setitem(sys.modules, "stable_worldmodel", None)
    with pytest.raises(ValueError, match=r"pip install 'anisowm\[visual\]'"), open_world("tworoom"):
        pass


def test_unknown_tasks_and_sizes_are_refused() -> None:
    """Mutation: return ``TASKS.get(name)``."""
    with pytest.raises(ValueError, match="no task 'twoooms'; choose from cube, pointmaze, pusht, reacher, tworoom"):
        get_task("twoooms")
    with pytest.raises(ValueError, match="at least one environment"), open_world("tworoom", num_envs=0):
        pass


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (Policy("stable_worldmodel.envs.pusht:WeakPolicy", {"dist_constrain": 5}), "no argument dist_constrain"),
        (Policy("stable_worldmodel.envs.pusht:StrongPolicy"), "cannot be imported"),
        (Policy("stable_worldmodel.envs.pushed:WeakPolicy"), "cannot be imported"),
        (Policy("visual.policies:HeldRandomPolicy", {"mean_steps": 0.5}), "at least one step"),
    ],
)
def test_bad_policies_are_one_sentence(policy: Policy, sentence: str) -> None:
    """The library's policies keep any keyword as an attribute and ignore it.

    Mutation: do not compare with the signature.
    """
    with pytest.raises(ValueError, match=sentence):
        make_policy(policy)


def test_paper_tasks_come_in_its_order_with_its_diagnostics() -> None:
    """Horizons and cases of the ordering table (docs/theory.md, T11).

    Mutation: swap two horizons.
    """
    assert [(t.title, t.horizon, t.cases) for t in PAPER_TASKS] == [
        ("TwoRoom", 20, 45),
        ("Reacher", 25, 50),
        ("PushT", 25, 48),
        ("Cube", 15, 33),
    ]


def _python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "MUJOCO_GL": "egl", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
