"""The tasks, each one declarative :class:`Task`: what to simulate, how to record it, and what reaching a goal means.

Everything that differs between tasks stands here and nowhere else; a further task is one more specification
(:data:`POINTMAZE` is the example). Nothing here imports a simulator.

References
----------
AnisoWM (arXiv 2609.37441), Table 1: outcomes, thresholds and diagnostic horizons (docs/theory.md, T11).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visual.camera import Camera

Columns = Mapping[str, NDArray[Any]]
"""Recorded quantities by column name, each with the same leading axes."""


@dataclass(frozen=True)
class Setter:
    """A call that puts a simulator into a recorded state: ``method(argument=row[column], …, **constants)``.

    Attributes
    ----------
    method
        Name of a method of the unwrapped environment.
    columns
        Column that supplies each argument.
    constants
        Arguments that are not recorded.
    adjust
        Applied to the columns first, where the method does more than set them.
    """

    method: str
    columns: Mapping[str, str]
    constants: Mapping[str, Any] = field(default_factory=dict)
    adjust: Callable[[Columns], Columns] | None = None


@dataclass(frozen=True)
class Policy:
    """The policy that records a task: an importable class and its arguments.

    Attributes
    ----------
    target
        ``"module:Class"`` of a stable-worldmodel policy.
    arguments
        Keyword arguments of the class; the seed is set for each episode.
    """

    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Axis:
    """A physical coordinate that spans a neighbourhood of states.

    Attributes
    ----------
    label, unit
        Its name and unit in figures.
    parts
        Column and index of the coordinate, and of every other entry that moves with it.
    half_width
        How far a neighbourhood reaches on either side, in ``unit``.
    """

    label: str
    unit: str
    parts: tuple[tuple[str, int], ...]
    half_width: float


@dataclass(frozen=True)
class Neighborhood:
    """States around a goal: two coordinates vary, everything else stays as it is at the goal, at rest.

    Attributes
    ----------
    first, second
        The coordinates, drawn to the right and upwards or downwards.
    still
        Entries of each column that are set to zero: velocities.
    """

    first: Axis
    second: Axis
    still: Mapping[str, slice] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """As JSON values, for the settings of a run."""
        axes = {
            name: [axis.label, axis.unit, axis.half_width]
            for name, axis in (("first", self.first), ("second", self.second))
        }
        return {**axes, "parts": [[list(part) for part in axis.parts] for axis in (self.first, self.second)]}


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes
    ----------
    name, title
        Name on the command line and in folders; name in tables.
    env_id, arguments
        Gymnasium id and keyword arguments of the environment.
    recording_arguments
        Arguments that replace or join ``arguments`` while recording.
    policy
        The policy that records.
    max_episode_steps
        Steps after which a recorded episode is cut.
    columns
        Recorded state columns, each with the names that other files may use for it.
    start, goal
        Calls that set a state, and calls that set a goal from the columns of the goal's row.
    outcome
        ``outcome(state, goal) -> (...)``: how far a state is from the goal, in units of the success threshold; 1 is
        the boundary of success. The arguments are columns with any common leading axes.
    outcome_text
        The same in words.
    scaled_state
        The part of a state that the outcome measures, in units of the success threshold, (..., k): the outcome is a
        norm of the difference of two of them.
    scaled_periods
        Period of those coordinates of ``scaled_state`` that are angles, by index.
    boundary_succeeds
        Whether an outcome of exactly 1 is a success, as the environment decides it.
    horizon, cases
        Diagnostic horizon in environment steps and number of cases of the ordering statistics.
    episodes
        Episodes to record, by preset.
    camera
        What the fast renderer draws, for tasks simulated by MuJoCo; ``None`` for the others.
    seeded_variations
        Variations of the environment that a reset must be given explicitly, since the environment ignores seeds.
    neighborhood
        Which coordinates span a neighbourhood of states around a goal; ``None`` if none was chosen.
    """

    name: str
    title: str
    env_id: str
    policy: Policy
    max_episode_steps: int
    columns: Mapping[str, tuple[str, ...]]
    start: tuple[Setter, ...]
    goal: tuple[Setter, ...]
    outcome: Callable[[Columns, Columns], NDArray[np.float64]]
    outcome_text: str
    scaled_state: Callable[[Columns], NDArray[np.float64]]
    horizon: int
    cases: int
    episodes: Mapping[str, int]
    scaled_periods: Mapping[int, float] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    recording_arguments: Mapping[str, Any] = field(default_factory=dict)
    boundary_succeeds: bool = False
    camera: Camera | None = None
    seeded_variations: tuple[str, ...] = ()
    neighborhood: Neighborhood | None = None

    def solved(self, state: Columns, goal: Columns) -> NDArray[np.bool_]:
        """Whether ``outcome(state, goal)`` lies within the success threshold, as the environment decides it."""
        outcome = self.outcome(state, goal)
        return np.asarray(outcome <= 1.0 if self.boundary_succeeds else outcome < 1.0)


def wrap_angle(angle: NDArray[np.float64]) -> NDArray[np.float64]:
    """The angle in [−π, π) that equals ``angle`` (rad) up to full turns."""
    return np.asarray((angle + np.pi) % (2 * np.pi) - np.pi)


def _tworoom_outcome(state: Columns, goal: Columns) -> NDArray[np.float64]:
    return np.asarray(np.linalg.norm(_difference("state", state, goal), axis=-1) / 16.0)


def _reacher_outcome(state: Columns, goal: Columns) -> NDArray[np.float64]:
    return np.asarray(np.abs(_difference("qpos", state, goal)).max(axis=-1) / 0.05)


def _pusht_outcome(state: Columns, goal: Columns) -> NDArray[np.float64]:
    difference = _difference("state", state, goal)
    position = np.linalg.norm(difference[..., :4], axis=-1) / 20.0
    angle = np.abs(wrap_angle(difference[..., 4])) / (np.pi / 9)
    return np.maximum(position, angle)


def _before_settling(row: Columns) -> Columns:
    """PushT's setter lets 0.01 s pass, in which the agent moves on: start it that much earlier on its way.

    It then ends where it was recorded, and the contact solver gives the block back the velocity that is not recorded.
    """
    state = np.array(row["state"], dtype=np.float64)
    if state.shape[-1] == 7:
        state[:2] -= 0.01 * state[5:7]
    return {**row, "state": state}


def _cube_outcome(state: Columns, goal: Columns) -> NDArray[np.float64]:
    return np.asarray(np.linalg.norm(_difference("privileged_block_0_pos", state, goal), axis=-1) / 0.04)


def _pointmaze_outcome(state: Columns, goal: Columns) -> NDArray[np.float64]:
    return np.asarray(np.linalg.norm(_difference("observation", state, goal), axis=-1) / 1.0)


def _tworoom_scaled(state: Columns) -> NDArray[np.float64]:
    return np.asarray(state["state"], dtype=np.float64) / 16.0


def _reacher_scaled(state: Columns) -> NDArray[np.float64]:
    return np.asarray(state["qpos"], dtype=np.float64) / 0.05


def _pusht_scaled(state: Columns) -> NDArray[np.float64]:
    return np.asarray(state["state"], dtype=np.float64)[..., :5] / np.array([20.0, 20.0, 20.0, 20.0, np.pi / 9])


def _cube_scaled(state: Columns) -> NDArray[np.float64]:
    return np.asarray(state["privileged_block_0_pos"], dtype=np.float64) / 0.04


def _pointmaze_scaled(state: Columns) -> NDArray[np.float64]:
    return np.asarray(state["observation"], dtype=np.float64)


def _difference(column: str, state: Columns, goal: Columns) -> NDArray[np.float64]:
    return np.asarray(state[column], dtype=np.float64) - np.asarray(goal[column], dtype=np.float64)


TWOROOM = Task(
    name="tworoom",
    title="TwoRoom",
    env_id="swm/TwoRoom-v1",
    # The class also takes action_repeat_prob, which this release accepts and never applies.
    policy=Policy("stable_worldmodel.envs.two_room:ExpertPolicy", {"action_noise": 2.0, "action_repeat_prob": 0.05}),
    max_episode_steps=100,
    columns={"state": ("pos_agent", "proprio")},
    start=(Setter("_set_state", {"state": "state"}),),
    goal=(Setter("_set_goal_state", {"goal_state": "state"}),),
    outcome=_tworoom_outcome,
    outcome_text="distance from agent to goal / 16 px",
    scaled_state=_tworoom_scaled,
    horizon=20,
    cases=45,
    episodes={"quick": 60, "laptop": 700, "paper": 10_000},
    neighborhood=Neighborhood(
        Axis("agent x", "px", (("state", 0),), 48.0),
        Axis("agent y", "px", (("state", 1),), 48.0),
    ),
)

REACHER = Task(
    name="reacher",
    title="Reacher",
    env_id="swm/ReacherDMControl-v0",
    arguments={"task": "qpos_match"},
    policy=Policy("stable_worldmodel.policy:RandomPolicy"),
    max_episode_steps=100,
    columns={"qpos": (), "qvel": ()},
    start=(Setter("set_state", {"qpos": "qpos", "qvel": "qvel"}),),
    goal=(Setter("set_target_qpos", {"target_qpos": "qpos"}),),
    outcome=_reacher_outcome,
    outcome_text="largest joint error / 0.05 rad",
    scaled_state=_reacher_scaled,
    horizon=25,
    cases=50,
    episodes={"quick": 30, "laptop": 400, "paper": 10_000},
    camera=Camera(0),
    neighborhood=Neighborhood(
        Axis("shoulder", "rad", (("qpos", 0),), 0.5),
        Axis("wrist", "rad", (("qpos", 1),), 0.5),
        still={"qvel": slice(None)},
    ),
)

PUSHT = Task(
    name="pusht",
    title="PushT",
    env_id="swm/PushT-v1",
    policy=Policy("stable_worldmodel.envs.pusht:WeakPolicy", {"dist_constraint": 100}),
    max_episode_steps=60,
    columns={"state": ()},
    start=(Setter("_set_state", {"state": "state"}, adjust=_before_settling),),
    goal=(Setter("_set_goal_state", {"goal_state": "state"}),),
    outcome=_pusht_outcome,
    outcome_text="max(position error of agent and block / 20 px, angle error of the block / (π/9))",
    scaled_state=_pusht_scaled,
    scaled_periods={4: 18.0},
    horizon=25,
    cases=48,
    episodes={"quick": 50, "laptop": 600, "paper": 20_000},
    neighborhood=Neighborhood(
        Axis("block x", "px", (("state", 2),), 60.0),
        Axis("block y", "px", (("state", 3),), 60.0),
        still={"state": slice(5, 7)},
    ),
)

CUBE = Task(
    name="cube",
    title="Cube",
    env_id="swm/OGBCube-v0",
    arguments={"env_type": "single", "ob_type": "states", "multiview": False, "visualize_info": False},
    recording_arguments={"mode": "data_collection", "terminate_at_goal": False},
    policy=Policy("stable_worldmodel.envs.ogbench:ExpertPolicy"),
    max_episode_steps=60,
    columns={"qpos": (), "qvel": (), "privileged_block_0_pos": (), "privileged_block_0_quat": ()},
    start=(Setter("set_state", {"qpos": "qpos", "qvel": "qvel"}),),
    goal=(
        Setter(
            "set_target_pos",
            {"target_pos": "privileged_block_0_pos", "target_quat": "privileged_block_0_quat"},
            {"cube_id": 0},
        ),
    ),
    outcome=_cube_outcome,
    outcome_text="distance from block to target / 0.04 m",
    scaled_state=_cube_scaled,
    horizon=15,
    cases=33,
    episodes={"quick": 20, "laptop": 300, "paper": 10_000},
    boundary_succeeds=True,
    camera=Camera(
        "front_pixels",
        collision_shapes=True,
        colors={"ur5e": (0.5, 0.5, 0.52), "robotiq": (0.61, 0.28, 0.82)},
        hidden=("wall",),
    ),
    seeded_variations=("cube.start_position", "cube.start_yaw", "cube.goal_position", "cube.goal_yaw"),
    # The first fourteen entries of qpos are the arm's and the gripper's.
    neighborhood=Neighborhood(
        Axis("block x", "m", (("qpos", 14), ("privileged_block_0_pos", 0)), 0.12),
        Axis("block y", "m", (("qpos", 15), ("privileged_block_0_pos", 1)), 0.12),
        still={"qvel": slice(None)},
    ),
)

POINTMAZE = Task(
    name="pointmaze",
    title="PointMaze",
    env_id="swm/OGBMaze-v0",
    arguments={"loco_env_type": "point", "maze_type": "medium", "ob_type": "states"},
    recording_arguments={"terminate_at_goal": False},
    policy=Policy("visual.policies:HeldRandomPolicy", {"mean_steps": 10.0}),
    max_episode_steps=100,
    columns={"observation": ("qpos",)},
    start=(Setter("set_xy", {"xy": "observation"}),),
    goal=(Setter("set_goal", {"goal_xy": "observation"}),),
    outcome=_pointmaze_outcome,
    outcome_text="distance from agent to goal / 1 unit",
    scaled_state=_pointmaze_scaled,
    horizon=25,
    cases=50,
    episodes={"quick": 30, "laptop": 400, "paper": 10_000},
    boundary_succeeds=True,
    # The marker shows the goal of the environment's own task, not of a planning pair.
    camera=Camera(None, hidden=("target",)),
    neighborhood=Neighborhood(
        Axis("agent x", "units", (("observation", 0),), 2.0),
        Axis("agent y", "units", (("observation", 1),), 2.0),
    ),
)

PAPER_TASKS = (TWOROOM, REACHER, PUSHT, CUBE)
"""The four tasks of the paper, in its order."""

TASKS: dict[str, Task] = {task.name: task for task in (*PAPER_TASKS, POINTMAZE)}
"""Every task by name. Add one with ``TASKS[task.name] = task``."""


def get_task(name: str | Task) -> Task:
    """Return the task called ``name`` (a :class:`Task` passes through).

    Raises
    ------
    ValueError
        If there is no such task; the sentence lists the names.
    """
    if isinstance(name, Task):
        return name
    if name not in TASKS:
        raise ValueError(f"There is no task {name!r}; choose from {', '.join(sorted(TASKS))}.")
    return TASKS[name]
