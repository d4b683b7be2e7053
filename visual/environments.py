"""Simulators of a task: opened with every trap of stable-worldmodel 0.1.1 guarded, set to recorded states, closed.

What this module guards, each once:

- A misspelt callable is skipped in silence by ``World.evaluate``: here every name is checked against the environment.
- Cube ignores seeds: here the state columns after a reset with a seed are a function of it.
- Cube compiles its model again at each reset: here once.
- TwoRoom's frames depend on the processor in their last bit: here they do not (:mod:`visual.dots`).
- EGL prints tracebacks at exit unless worlds are closed: :func:`open_world` closes them.
- Importing the simulators takes seconds: they are imported when the first world opens.
- Column names with ``/`` become groups in HDF5: :func:`read_columns` writes ``_``.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visual.tasks import Columns, Policy, Setter, Task, get_task

if TYPE_CHECKING:
    from stable_worldmodel import World

FRAME_COLUMN = "pixels"


@contextlib.contextmanager
def open_world(
    task: str | Task,
    *,
    num_envs: int = 1,
    image_size: int = 64,
    recording: bool = False,
    fast_rendering: bool = True,
    pixels: bool = True,
) -> Iterator[World]:
    """Open ``num_envs`` simulators of a task as a stable-worldmodel ``World`` and close them at the end.

    Parameters
    ----------
    task
        A task or its name.
    num_envs
        Number of simulators; for an evaluation it is the number of episodes.
    image_size
        Height and width of the frames in pixels.
    recording
        Whether the recording arguments of the task apply; otherwise the environment ends an episode at the goal.
    fast_rendering
        Whether a MuJoCo task is drawn by :mod:`visual.rendering` instead of by itself. Evaluate with what the
        recording used.
    pixels
        Whether each step renders a frame.

    Raises
    ------
    ValueError
        If there is no environment or a frame is smaller than 8 px, if the simulators are not installed, if no OpenGL
        library can be loaded, or if a setter of the task is not a method of the environment with those arguments.
    """
    task = get_task(task)
    if num_envs < 1 or image_size < 8:
        raise ValueError(
            f"A world needs at least one environment and frames of 8 px, not {num_envs} and {image_size} px."
        )
    world = _build_world(task, num_envs, image_size, recording, fast_rendering, pixels)
    try:
        for setter in (*task.start, *task.goal):
            _bound_method(task, setter, world.envs.envs[0].unwrapped)
        yield world
    finally:
        world.close()


def _build_world(
    task: Task, num_envs: int, image_size: int, recording: bool, fast_rendering: bool, pixels: bool
) -> World:
    # Without a display, EGL is the backend that software rendering offers; the choice falls when mujoco loads.
    if not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")
    try:
        with quiet():
            import stable_worldmodel as swm
    except ModuleNotFoundError as error:
        raise ValueError(
            f"The simulators are not installed ({error.name} is missing): pip install 'anisowm[visual]'."
        ) from None
    from visual.dots import portable_dots
    from visual.rendering import rendering_wrapper, require_rendering
    from visual.resets import seeded_resets

    wrappers: list[Any] = [portable_dots, seeded_resets(task.seeded_variations)]
    if task.camera is not None:
        if pixels:
            require_rendering()
        wrappers.append(rendering_wrapper(task.camera, image_size, fast=fast_rendering))
    with quiet():
        return swm.World(
            task.env_id,
            num_envs=num_envs,
            image_shape=(image_size, image_size) if pixels else None,
            add_pixels=pixels,
            # An evaluation has its own budget; the limit of the environment must never cut it short.
            max_episode_steps=task.max_episode_steps if recording else 10**9,
            pre_wrappers=wrappers,
            disable_env_checker=True,
            **{**task.arguments, **(task.recording_arguments if recording else {})},
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drop warnings: those that the libraries give about their own environments concern nothing that is done here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def make_policy(policy: Policy) -> Any:
    """Instantiate a recording policy.

    Raises
    ------
    ValueError
        If the class cannot be imported or refuses an argument.
    """
    module, _, name = policy.target.partition(":")
    try:
        cls = getattr(importlib.import_module(module), name)
        unknown = set(policy.arguments) - set(inspect.signature(cls.__init__).parameters)
        if unknown:
            # The policies of stable-worldmodel keep any keyword as an attribute and then ignore it.
            raise ValueError(f"{policy.target} has no argument {', '.join(sorted(unknown))}.")
        return cls(**policy.arguments)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"The policy {policy.target} cannot be imported: {error}.") from None


def read_columns(task: Task, infos: Mapping[str, Any], index: int = 0) -> dict[str, NDArray[Any]]:
    """Copy the state columns, and the frame where there is one, of simulator ``index`` out of ``World.infos``.

    Raises
    ------
    ValueError
        If the environment does not report a column of the task.
    """
    reported = {name.replace("/", "_"): values for name, values in infos.items()}
    row: dict[str, NDArray[Any]] = {}
    for name in task.columns:
        if name not in reported:
            raise ValueError(f"{task.title} does not report the column {name!r}.")
        row[name] = np.array(reported[name][index][0])
    if FRAME_COLUMN in reported:
        row[FRAME_COLUMN] = np.array(reported[FRAME_COLUMN][index][0])
    return row


def render(world: World, index: int = 0) -> NDArray[np.uint8]:
    """Draw simulator ``index`` as it is now, for example after :func:`set_state`: (image_size, image_size, 3) uint8."""
    from stable_worldmodel.wrapper import AddPixelsWrapper

    wrapper = world.envs.envs[index]
    while not isinstance(wrapper, AddPixelsWrapper):
        if not hasattr(wrapper, "env"):
            raise ValueError("The world was opened without pixels.")
        wrapper = wrapper.env
    return np.asarray(wrapper._get_pixels()[0][FRAME_COLUMN])


def set_state(world: World, task: Task, state: Columns, index: int = 0) -> None:
    """Put simulator ``index`` into a recorded state (one row of each state column).

    Reset the world before. MuJoCo's actuator inputs and the warm start of its solver, which no state records and a
    reset of Cube leaves at random values, become zero: what follows is then a function of the state and the actions, to
    the last bit. On PushT it is one of the seed of that reset, too: pymunk pushes overlapping bodies apart in the step
    after, and an overlap that the reset made then moves the bodies of the state, by up to 0.6 px after one reset in
    seven. Callers reset with the number of the pair.
    """
    data = _mujoco_data(world.envs.envs[index].unwrapped)
    if data is not None:
        data.ctrl[:] = 0
        data.qacc_warmstart[:] = 0
    for setter in task.start:
        _apply(task, setter, world, state, index)


def set_goal(world: World, task: Task, goal: Columns, index: int = 0) -> None:
    """Make a recorded state the goal of simulator ``index``: its success is measured against it from the next step."""
    for setter in task.goal:
        _apply(task, setter, world, goal, index)


def _mujoco_data(environment: Any) -> Any | None:
    """``MjData`` of an environment of OGBench, Gymnasium or dm_control; none for other simulators."""
    physics = getattr(getattr(environment, "env", None), "physics", None)
    data = getattr(environment if physics is None else physics, "data", None)
    return data if hasattr(data, "qacc_warmstart") else None


def _apply(task: Task, setter: Setter, world: World, row: Columns, index: int) -> None:
    method = _bound_method(task, setter, world.envs.envs[index].unwrapped)
    missing = [column for column in setter.columns.values() if column not in row]
    if missing:
        raise ValueError(f"{task.title}: {setter.method} needs the column {missing[0]!r}, which the row does not have.")
    values = row if setter.adjust is None else setter.adjust(row)
    arguments = {argument: np.array(values[column]) for argument, column in setter.columns.items()}
    if not all(np.isfinite(value).all() for value in arguments.values()):
        raise ValueError(f"{task.title}: {setter.method} got a state that is not finite.")
    method(**arguments, **setter.constants)


def _bound_method(task: Task, setter: Setter, environment: Any) -> Any:
    method = getattr(environment, setter.method, None)
    if not callable(method):
        raise ValueError(f"{task.title}: the environment {task.env_id} has no method {setter.method!r}.")
    try:
        inspect.signature(method).bind(**dict.fromkeys([*setter.columns, *setter.constants]))
    except TypeError as error:
        raise ValueError(f"{task.title}: {setter.method} cannot be called as specified: {error}.") from None
    return method
