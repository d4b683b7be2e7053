"""Replay recorded actions from recorded states: does a simulator that is set to a state go where the recording went?

It checks the setters, the row convention of actions, and how far a state determines the future. It is 1 where the
state is complete (TwoRoom, Reacher), and less where contacts carry hidden state (PushT, Cube).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from visual.environments import open_world, quiet, read_columns, set_state
from visual.manifest import Pairs
from visual.reading import Recording
from visual.tasks import Task, get_task


@dataclass(frozen=True)
class Replay:
    """Result of a replay.

    Attributes
    ----------
    outcome
        Outcome of the reached state against the recorded one (``Task.outcome``), (n,).
    reached
        Whether that is a success, (n,).
    """

    outcome: NDArray[np.float64]
    reached: NDArray[np.bool_]

    @property
    def rate(self) -> float:
        """Share of pairs whose recorded end was reached."""
        return float(self.reached.mean())


def replay(task: str | Task, recording: Recording, pairs: Pairs, count: int | None = None) -> Replay:
    """Execute the recorded actions of planning pairs from their recorded starts.

    Parameters
    ----------
    task
        A task or its name.
    recording, pairs
        The recording and its pairs.
    count
        Use only the first ``count`` pairs.

    Raises
    ------
    ValueError
        If ``count`` is not between 1 and the number of pairs.
    """
    task = get_task(task)
    count = len(pairs) if count is None else count
    if not 1 <= count <= len(pairs):
        raise ValueError(f"count must lie in 1..{len(pairs)}; got {count}.")
    first_rows, last_rows = recording.rows_of(pairs)
    outcomes, reached = [], []
    with quiet(), open_world(task, pixels=False) as world:
        for pair in range(count):
            first, last = int(first_rows[pair]), int(last_rows[pair])
            states = recording.read_state(task, np.array([first, last]))
            start, end = ({name: values[i] for name, values in states.items()} for i in (0, 1))
            world.reset(seed=pair)
            # The goal stays unset: dm_control would start a new episode when it is reached on the way.
            set_state(world, task, start)
            for action in recording.read("action", slice(first, last)):
                _, _, _, _, world.infos = world.envs.step(action[None])
            state = read_columns(task, world.infos)
            outcomes.append(float(task.outcome(state, end)))
            reached.append(bool(task.solved(state, end)))
    return Replay(np.array(outcomes), np.array(reached))
