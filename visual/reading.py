"""Recordings opened with every check.

Any file in stable-worldmodel's HDF5 layout opens: one dataset per column with all episodes end to end, and ``ep_len``
and ``ep_offset``. A file with a manifest uses the manifest's split; a file without one is split here by the same rule.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from visual.manifest import (
    MANIFEST_FILE,
    Manifest,
    Pairs,
    Split,
    draw_pairs,
    file_sha256,
    read_manifest,
    split_episodes,
)
from visual.tasks import Task, get_task

if TYPE_CHECKING:
    import h5py

BLOCK_ROWS = 512
"""Rows read at once where a whole column of frames is walked through."""


@dataclass(frozen=True)
class Recording:
    """An HDF5 recording that passed every check.

    Attributes
    ----------
    path
        The HDF5 file.
    lengths, offsets
        Rows and first row of each episode, (m,).
    image_size
        Height and width of the frames in pixels.
    action_dim
        Number of action components A.
    column_names
        Every column of the file.
    split
        Episodes by use.
    manifest
        The manifest, if the file has one.
    """

    path: Path
    lengths: NDArray[np.int64]
    offsets: NDArray[np.int64]
    image_size: int
    action_dim: int
    column_names: tuple[str, ...]
    split: Split
    manifest: Manifest | None

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.lengths)

    @property
    def sha256(self) -> str:
        """SHA-256 of the HDF5 file: the manifest's, or computed where there is none."""
        return self.manifest.sha256 if self.manifest is not None else file_sha256(self.path)

    @property
    def preset(self) -> str | None:
        """Name of the preset it was recorded with; ``None`` for a file without a manifest."""
        return None if self.manifest is None else str(self.manifest.settings["preset"])

    def episodes_of(self, split: str) -> tuple[int, ...]:
        """Episodes of ``"train"``, ``"validation"`` or ``"planning"``.

        Raises
        ------
        ValueError
            If there is no such split or it is empty.
        """
        if split not in ("train", "validation", "planning"):
            raise ValueError(f"There is no split {split!r}; choose from train, validation, planning.")
        chosen: tuple[int, ...] = getattr(self.split, split)
        if not chosen:
            raise ValueError(f"{self.path} has no episode in the split {split!r}; record more episodes.")
        return chosen

    def read(self, column: str, rows: NDArray[np.integer[Any]] | slice | None = None) -> NDArray[Any]:
        """Read a column: all rows, a slice, or chosen rows in the given order."""
        with open_hdf5(self.path) as file:
            dataset = file[column]
            if rows is None or isinstance(rows, slice):
                return np.asarray(dataset[slice(None) if rows is None else rows])
            unique, inverse = np.unique(np.asarray(rows, dtype=np.int64), return_inverse=True)
            if len(unique) and (unique[0] < 0 or unique[-1] >= len(dataset)):
                raise ValueError(f"{self.path} has {len(dataset)} rows; row {int(unique[-1])} is not one of them.")
            return np.asarray(dataset[unique])[inverse.reshape(-1)]

    def column_of(self, task: str | Task, column: str) -> str:
        """The file's name for a state column of a task (published files use other names).

        Raises
        ------
        ValueError
            If the file has the column under no name; the sentence says which names were tried.
        """
        task = get_task(task)
        names = (column, *task.columns[column])
        for name in names:
            if name in self.column_names:
                return name
        raise ValueError(f"{self.path} has no column {' or '.join(map(repr, names))}, which {task.title} needs.")

    def read_state(self, task: str | Task, rows: NDArray[np.integer[Any]] | None = None) -> dict[str, NDArray[Any]]:
        """Read the state columns of a task under the task's own names.

        Raises
        ------
        ValueError
            If a column is missing or not finite.
        """
        task = get_task(task)
        state = {name: self.read(self.column_of(task, name), rows) for name in task.columns}
        for name, values in state.items():
            if not np.isfinite(values).all():
                raise ValueError(f"{self.path} holds a value that is not finite in the state column {name!r}.")
        return state

    def rows_of(self, pairs: Pairs) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows in the file of the starts and of the goals of planning pairs, each (n,)."""
        first = self.offsets[np.asarray(pairs.episode, dtype=np.int64)]
        return first + np.asarray(pairs.start, dtype=np.int64), first + np.asarray(pairs.goal, dtype=np.int64)

    def pairs(self, task: str | Task, seed: int = 0) -> Pairs:
        """The planning pairs: those of the manifest, or drawn by the same rule for a file without one.

        Raises
        ------
        ValueError
            If no held-out episode is long enough for a pair.
        """
        if self.manifest is not None:
            pairs = self.manifest.pairs
        else:
            task = get_task(task)
            pairs = draw_pairs(
                task, self.lengths, self.offsets, self.read_state(task), self.episodes_of("planning"), seed
            )
        if not len(pairs):
            raise ValueError(
                f"{self.path} has no held-out episode long enough for a planning pair; record more episodes."
            )
        return pairs


def open_recording(
    path: str | Path | Manifest, *, image_size: int | None = None, verify: bool = True, split_seed: int = 0
) -> Recording:
    """Open a recording and check it.

    Parameters
    ----------
    path
        An HDF5 file, a recording's folder, its ``manifest.json``, or the manifest itself.
    image_size
        Required height and width of the frames, if any.
    verify
        Whether a file with a manifest is compared with its SHA-256 (its size always is).
    split_seed
        Seed of the split of a file without a manifest.

    Raises
    ------
    ValueError
        If the file is missing, truncated, not HDF5, lacks columns, holds an action that is not finite before the last
        row of an episode, or frames that are not square RGB images of 8 bits or not of the required size.
    """
    manifest = path if isinstance(path, Manifest) else None
    if manifest is None:
        path = Path(path)  # type: ignore[arg-type]
        if path.is_dir() or path.name == MANIFEST_FILE:
            manifest = read_manifest(path)
        elif path.suffix in (".h5", ".hdf5") and (path.parent / MANIFEST_FILE).is_file():
            beside = read_manifest(path.parent)
            manifest = beside if beside.file == path.name else None
    if manifest is not None:
        manifest.verify(content=verify)
        path = manifest.path
    assert isinstance(path, Path)
    if not path.is_file():
        raise ValueError(f"{path} does not exist.")
    with open_hdf5(path) as file:
        names = tuple(name for name in file if name not in ("ep_len", "ep_offset"))
        for name in ("ep_len", "ep_offset", "pixels", "action"):
            if name not in file:
                raise ValueError(f"{path} has no dataset {name!r}, so it is not a recording of episodes with frames.")
        lengths, offsets = file["ep_len"][:].astype(np.int64), file["ep_offset"][:].astype(np.int64)
        _check_episodes(path, lengths, offsets, {name: len(file[name]) for name in names})
        size = _check_frames(path, file["pixels"], image_size)
        action_dim = _check_actions(path, file["action"], lengths, offsets)
    split = manifest.split if manifest is not None else split_episodes(lengths, split_seed)
    return Recording(path, lengths, offsets, size, action_dim, names, split, manifest)


@contextlib.contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
    """Open an HDF5 file for reading; ``ValueError`` if it, or what is read of it in the block, is not readable."""
    import h5py
    import hdf5plugin  # noqa: F401  (registers the compression filters of published files)

    try:
        with h5py.File(path, "r", rdcc_nbytes=64 * 1024 * 1024) as file:
            yield file
    except (OSError, RuntimeError, KeyError) as error:
        raise ValueError(
            f"{path} is truncated or not a readable HDF5 file ({str(error).split('(')[0].strip()})."
        ) from None


def _check_episodes(path: Path, lengths: NDArray[np.int64], offsets: NDArray[np.int64], rows: dict[str, int]) -> None:
    if not len(lengths) or len(lengths) != len(offsets) or lengths.min() < 1 or offsets.min() < 0:
        raise ValueError(f"{path} does not say where its episodes begin and end (ep_len, ep_offset).")
    needed = int((offsets + lengths).max())
    for name, available in rows.items():
        if available < needed:
            raise ValueError(f"{path} is truncated: its column {name!r} has {available} rows, its episodes {needed}.")


def _check_frames(path: Path, pixels: h5py.Dataset, image_size: int | None) -> int:
    if pixels.dtype.kind == "f" and not all(
        np.isfinite(pixels[i : i + BLOCK_ROWS]).all() for i in range(0, len(pixels), BLOCK_ROWS)
    ):
        raise ValueError(f"{path} holds frames with values that are not finite.")
    if pixels.dtype != np.uint8 or len(pixels.shape) != 4 or pixels.shape[3] != 3 or pixels.shape[1] != pixels.shape[2]:
        raise ValueError(
            f"{path} must hold square RGB frames of 8 bits, (rows, H, H, 3) uint8; "
            f"it holds {pixels.shape} {pixels.dtype}."
        )
    if image_size is not None and pixels.shape[1] != image_size:
        raise ValueError(f"{path} holds frames of {pixels.shape[1]} px, but {image_size} px are required.")
    return int(pixels.shape[1])


def _check_actions(path: Path, action: h5py.Dataset, lengths: NDArray[np.int64], offsets: NDArray[np.int64]) -> int:
    if len(action.shape) != 2 or action.dtype.kind != "f":
        raise ValueError(f"{path} must hold floating-point actions (rows, A); it holds {action.shape} {action.dtype}.")
    finite = np.isfinite(action[:]).all(axis=1)
    finite[offsets + lengths - 1] = True
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        episode = int(np.flatnonzero((offsets <= row) & (row < offsets + lengths))[0])
        step = row - int(offsets[episode])
        raise ValueError(f"{path} holds an action that is not finite in step {step} of episode {episode}.")
    return int(action.shape[1])
