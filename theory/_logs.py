"""Logged transitions from a Parquet, CSV or NPZ file, for ``python -m theory kappa``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from theory.spd import Array, check_array

if TYPE_CHECKING:
    import pandas as pd

_STATE, _NEXT, _ACTION, _EPISODE, _STEP = "state_", "next_state_", "action_", "episode", "step"


@dataclass(frozen=True, eq=False)
class TransitionLog:
    """One transition a row.

    Attributes
    ----------
    states, next_states, actions
        (T, n), (T, n) and (T, m).
    episodes
        Labels (T,), or ``None``.
    names
        Names of the state's n coordinates.
    """

    states: Array
    next_states: Array
    actions: Array
    episodes: Any
    names: list[str]


def read_log(path: Path) -> TransitionLog:
    """Read a log.

    A table (``.parquet``, ``.csv``) has columns ``state_*``, ``next_state_*`` with the same endings, ``action_*`` (none
    for a system without actions) and, optionally, ``episode``. Without ``next_state_*`` it needs ``episode``: rows that
    follow one another in an episode, in the order of ``step`` if that exists, are transitions. An ``.npz`` file holds
    arrays ``states``, ``next_states`` and optionally ``actions`` and ``episodes``.

    Raises
    ------
    ValueError
        If the file is missing, is not readable as its ending says, or lacks what is listed above.
    """
    readers = {".npz": _read_arrays, ".csv": _read_table, ".parquet": _read_table, ".pq": _read_table}
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path} must be a .parquet, .csv or .npz file.")
    if not path.is_file():
        raise ValueError(f"{path} does not exist or is not a file.")
    return readers[path.suffix.lower()](path)


def _read_arrays(path: Path) -> TransitionLog:
    try:
        with np.load(path, allow_pickle=False) as archive:
            content = {name: archive[name] for name in archive.files}
    except Exception as error:
        raise ValueError(f"{path} cannot be read as NPZ ({type(error).__name__}).") from None
    for name in ("states", "next_states"):
        if name not in content:
            raise ValueError(f"{path} must hold an array {name!r}, but it holds {_listing(content)}.")
    states = check_array(content["states"], "states", ndim=2)
    return TransitionLog(
        states=states,
        next_states=check_array(content["next_states"], "next_states", ndim=2),
        actions=content.get("actions", np.zeros((states.shape[0], 0))),
        episodes=content.get("episodes"),
        names=[str(index) for index in range(states.shape[1])],
    )


def _read_table(path: Path) -> TransitionLog:
    import pandas as pd

    try:
        table = pd.read_csv(path) if path.suffix.lower() == ".csv" else pd.read_parquet(path)
    except Exception as error:
        raise ValueError(f"{path} cannot be read as {path.suffix[1:].upper()} ({type(error).__name__}).") from None
    table = table.rename(columns=str)
    names = _endings(table, _STATE)
    if not names:
        raise ValueError(f"{path} must have columns state_…, but its columns are {_listing(table.columns)}.")
    follow, acts = _endings(table, _NEXT), _endings(table, _ACTION)
    episodes = table[_EPISODE].to_numpy() if _EPISODE in table else None
    states = _numbers(table, _STATE, names)
    if follow:
        if sorted(follow) != sorted(names):
            raise ValueError(
                f"{path} must have the same endings after next_state_ ({_listing(follow)}) as after state_ "
                f"({_listing(names)})."
            )
        return TransitionLog(states, _numbers(table, _NEXT, names), _numbers(table, _ACTION, acts), episodes, names)
    if episodes is None:
        raise ValueError(f"{path} must have columns next_state_…, or a column episode whose rows follow one another.")
    keys = [table[_STEP].to_numpy(), pd.factorize(episodes)[0]] if _STEP in table else [pd.factorize(episodes)[0]]
    order = np.lexsort(keys)
    states, actions, episodes = states[order], _numbers(table, _ACTION, acts)[order], episodes[order]
    inside = np.flatnonzero(episodes[1:] == episodes[:-1])
    if inside.size == 0:
        raise ValueError(f"{path} must have an episode of at least two rows.")
    return TransitionLog(states[inside], states[inside + 1], actions[inside], episodes[inside], names)


def _endings(table: pd.DataFrame, prefix: str) -> list[str]:
    """What follows ``prefix`` in the columns' names: numbers in order, names in the file's order."""
    endings = [str(column)[len(prefix) :] for column in table.columns if str(column).startswith(prefix)]
    return sorted(endings, key=int) if all(ending.isdecimal() for ending in endings) else endings


def _numbers(table: pd.DataFrame, prefix: str, endings: list[str]) -> Array:
    columns = []
    for ending in endings:
        values = table[prefix + ending].to_numpy()
        columns.append(check_array(values, prefix + ending, ndim=1))
    return np.stack(columns, axis=1) if columns else np.zeros((len(table), 0))


def _listing(names: Any, limit: int = 8) -> str:
    names = [str(name) for name in names]
    return (", ".join(names[:limit]) + (", …" if len(names) > limit else "")) or "none"
