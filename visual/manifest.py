"""What a recording holds and how it is used: ``manifest.json`` beside the recording's HDF5 file.

Episodes are split once, **by episode**: no frame of an episode that is trained on is ever planned on. A planning pair
is a start row and the row ``goal_offset`` steps later in the same held-out episode; pairs that are solved before the
first action are kept and marked.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from theory.runs import write_atomic
from visual.tasks import Columns, Task

MANIFEST_FILE = "manifest.json"
RECORDING_FILE = "recording.h5"
GOAL_OFFSET = 25
CLIP_ROWS = 21
"""Rows of the shortest episode that holds a clip: four blocks of five actions, and the frame after them."""

_PLANNING_SHARE, _VALIDATION_SHARE, _HELD_OUT_LIMIT = 0.15, 0.05, 200
MAX_PAIRS = 200


@dataclass(frozen=True)
class Split:
    """Episodes by use; the three sets are disjoint, but two episodes leave one that serves as both held-out sets."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    planning: tuple[int, ...]


@dataclass(frozen=True)
class Pairs:
    """Planning pairs, in the order in which an evaluation takes them.

    Attributes
    ----------
    episode
        Episode of each pair, (n,).
    start, goal
        Rows within the episode, (n,).
    outcome
        Outcome of the start state against the goal (``Task.outcome``), (n,).
    already_solved
        Whether the start state counts as a success, (n,).
    """

    episode: tuple[int, ...]
    start: tuple[int, ...]
    goal: tuple[int, ...]
    outcome: tuple[float, ...]
    already_solved: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.episode)


@dataclass(frozen=True)
class Manifest:
    """A recording, described.

    Attributes
    ----------
    folder
        Where it lies (not stored: a folder may be moved).
    settings
        All that determines the recording: task, environment and its arguments, policy, preset, image size, seed,
        number of episodes, step limit.
    file, sha256, bytes
        Name, SHA-256 and size of the HDF5 file.
    episodes, frames
        Numbers of episodes and of rows.
    columns
        Type and shape per row of each column.
    split, goal_offset, pairs
        Episodes by use; steps from start to goal; the planning pairs.
    versions, machine, commit, command, created
        Package versions, machine, git commit, command line and time (UTC) of the recording.
    """

    folder: Path
    settings: dict[str, Any]
    file: str
    sha256: str
    bytes: int
    episodes: int
    frames: int
    columns: dict[str, dict[str, Any]]
    split: Split
    goal_offset: int
    pairs: Pairs
    versions: dict[str, str]
    machine: dict[str, Any]
    commit: str | None
    command: str
    created: str

    @property
    def path(self) -> Path:
        """The HDF5 file."""
        return self.folder / self.file

    def write(self) -> None:
        """Write ``manifest.json`` into the folder."""
        content = {name: value for name, value in asdict(self).items() if name != "folder"}
        write_atomic(self.folder / MANIFEST_FILE, json.dumps(content, ensure_ascii=False) + "\n")

    def verify(self, *, content: bool = True) -> None:
        """Check that the HDF5 file is the one described: its size and, with ``content``, its SHA-256.

        Raises
        ------
        ValueError
            If the file is missing, truncated or another one.
        """
        if not self.path.is_file():
            raise ValueError(f"{self.path} is missing though {MANIFEST_FILE} describes it.")
        size = self.path.stat().st_size
        if size != self.bytes:
            raise ValueError(f"{self.path} has {size} bytes instead of {self.bytes}: it is truncated or another file.")
        if content and file_sha256(self.path) != self.sha256:
            raise ValueError(f"{self.path} is not the file that {MANIFEST_FILE} describes (its SHA-256 differs).")


def read_manifest(path: str | Path) -> Manifest:
    """Read ``manifest.json`` from a folder or from its own path.

    Raises
    ------
    ValueError
        If there is none or it is damaged.
    """
    path = Path(path)
    path = path / MANIFEST_FILE if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"{path} does not exist; record the task first (collect).")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        split = Split(**{name: tuple(values) for name, values in content.pop("split").items()})
        pairs = Pairs(**{name: tuple(values) for name, values in content.pop("pairs").items()})
        return Manifest(folder=path.parent, split=split, pairs=pairs, **content)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise ValueError(f"{path} is damaged; record the task again with force.") from None


def split_episodes(lengths: NDArray[np.integer[Any]], seed: int, goal_offset: int = GOAL_OFFSET) -> Split:
    """Split episodes at random: 15 % for planning and 5 % for validation, at most 200 of each, the rest for training.

    Planning episodes are drawn among those that hold a pair, validation episodes among those that hold a clip.

    Parameters
    ----------
    lengths
        Rows of each episode, (m,).
    seed
        Seed of the draw.
    goal_offset
        Steps from start to goal.

    Raises
    ------
    ValueError
        If there are fewer than two episodes.
    """
    lengths = np.asarray(lengths)
    total = len(lengths)
    if total < 2:
        raise ValueError(f"A recording of {total} episodes cannot be split by episode; record at least two.")
    order = np.random.default_rng(np.random.SeedSequence([seed, total])).permutation(total)
    num_planning = min(max(1, round(_PLANNING_SHARE * total)), _HELD_OUT_LIMIT)
    planning = [int(i) for i in order if lengths[i] > goal_offset][:num_planning]
    rest = [int(i) for i in order if int(i) not in set(planning)]
    num_validation = min(max(1, round(_VALIDATION_SHARE * total)), _HELD_OUT_LIMIT) if total > 2 else 0
    validation = [i for i in rest if lengths[i] >= CLIP_ROWS][:num_validation] if len(rest) > 1 else []
    train = sorted(set(rest) - set(validation))
    return Split(tuple(train), tuple(sorted(validation or planning)), tuple(sorted(planning)))


def draw_pairs(
    task: Task,
    lengths: NDArray[np.integer[Any]],
    offsets: NDArray[np.integer[Any]],
    columns: Columns,
    episodes: tuple[int, ...],
    seed: int,
    goal_offset: int = GOAL_OFFSET,
    limit: int = MAX_PAIRS,
) -> Pairs:
    """Draw planning pairs from held-out episodes: one from each episode in random order, then a second one, and so on.

    So the first pairs, which an evaluation takes, come from different episodes and are independent.

    Parameters
    ----------
    task
        Its outcome marks pairs that are already solved.
    lengths, offsets
        Rows and first row of each episode, (m,).
    columns
        State columns of the whole recording.
    episodes
        The held-out episodes.
    seed
        Seed of the draw.
    goal_offset
        Steps from start to goal.
    limit
        Largest number of pairs.
    """
    generator = np.random.default_rng(np.random.SeedSequence([seed, len(lengths), 1]))
    order = [int(e) for e in generator.permutation(np.asarray(episodes, dtype=np.int64))]
    starts = {e: generator.permutation(max(0, int(lengths[e]) - goal_offset)) for e in order}
    chosen = [
        (e, int(starts[e][turn]))
        for turn in range(max((len(s) for s in starts.values()), default=0))
        for e in order
        if turn < len(starts[e])
    ][:limit]
    episode = np.array([e for e, _ in chosen], dtype=np.int64)
    start = np.array([s for _, s in chosen], dtype=np.int64)
    rows = np.asarray(offsets)[episode] + start
    state = {name: np.asarray(columns[name])[rows] for name in task.columns}
    goal = {name: np.asarray(columns[name])[rows + goal_offset] for name in task.columns}
    return Pairs(
        episode=tuple(episode.tolist()),
        start=tuple(start.tolist()),
        goal=tuple((start + goal_offset).tolist()),
        outcome=tuple(task.outcome(state, goal).tolist()),
        already_solved=tuple(task.solved(state, goal).tolist()),
    )


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
