"""Recordings as training data: an HDF5 file opened with every check, and clips of it as PyTorch tensors.

Any file in stable-worldmodel's HDF5 layout opens: one dataset per column with all episodes end to end, and ``ep_len``
and ``ep_offset``. A file with a manifest uses the manifest's split; a file without one is split here by the same rule.

A clip is ``frames`` frames, ``frameskip`` rows apart, each with the block of ``frameskip`` actions that follows it, as
LeWorldModel is trained on. All its actions are real: a clip never contains the last row of an episode, whose action
leads nowhere (NaN in these files; the episode's *first* action in files of stable-worldmodel 0.1.1's own recorder).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from visual.manifest import MANIFEST_FILE, Manifest, Pairs, Split, draw_pairs, read_manifest, split_episodes
from visual.tasks import Task, get_task

if TYPE_CHECKING:
    import h5py

Indices = torch.Tensor | NDArray[np.integer[Any]] | Sequence[int]

_BLOCK_ROWS = 512


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
        with _open(self.path) as file:
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
    with _open(path) as file:
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


class ClipDataset:
    """Clips of a recording, fetched by index as whole batches.

    Frames are held in memory as ``uint8`` if they fit into half of what is free, or else memory-mapped from a file
    beside the recording that is written once; either way a batch is one gather.

    Parameters
    ----------
    path
        As for :func:`open_recording`.
    split
        ``"train"``, ``"validation"`` or ``"planning"``.
    frames
        Frames F of a clip.
    frameskip
        Rows from one frame to the next.
    image_size
        Required height and width of the frames, if any.
    storage
        ``"memory"``, ``"mapped"``, or ``"auto"``.
    verify, split_seed
        As for :func:`open_recording`.

    Attributes
    ----------
    recording
        The recording.
    image_size, action_dim
        Height and width H = W of the frames; A, components of one action.
    action_mean, action_std
        Mean and standard deviation of single actions over this split, (A,), float32.

    Raises
    ------
    ValueError
        As :func:`open_recording`, and if the split holds no episode long enough for a clip.
    """

    def __init__(
        self,
        path: str | Path | Manifest,
        split: str = "train",
        frames: int = 4,
        frameskip: int = 5,
        *,
        image_size: int | None = None,
        storage: str = "auto",
        verify: bool = True,
        split_seed: int = 0,
    ) -> None:
        if frames < 1 or frameskip < 1:
            raise ValueError(f"A clip needs at least one frame and a frameskip of one; got {frames} and {frameskip}.")
        if storage not in ("auto", "memory", "mapped"):
            raise ValueError(f"There is no storage {storage!r}; choose from auto, memory, mapped.")
        self.recording = open_recording(path, image_size=image_size, verify=verify, split_seed=split_seed)
        self.split, self.frames, self.frameskip = split, frames, frameskip
        self.image_size, self.action_dim = self.recording.image_size, self.recording.action_dim
        span = frames * frameskip
        lengths, offsets = self.recording.lengths, self.recording.offsets
        episodes = [e for e in self.recording.episodes_of(split) if lengths[e] > span]
        if not episodes:
            raise ValueError(
                f"{self.recording.path} has no episode of more than {span} rows in the split {split!r}, "
                f"so it holds no clip of {frames} frames at frameskip {frameskip}."
            )
        ranges = [(int(offsets[e]), int(offsets[e] + lengths[e])) for e in episodes]
        local = np.cumsum([0, *(stop - start for start, stop in ranges)])
        self._rows = np.concatenate([np.arange(start, stop) for start, stop in ranges])
        self._starts = torch.from_numpy(
            np.concatenate([begin + np.arange(lengths[e] - span) for begin, e in zip(local, episodes, strict=False)])
        )
        actions = np.asarray(self.recording.read("action"), dtype=np.float32)[self._rows]
        last = np.zeros(len(self._rows), dtype=bool)
        last[local[1:] - 1] = True
        self._actions = torch.from_numpy(actions)
        self.action_mean = torch.from_numpy(actions[~last].mean(axis=0, dtype=np.float64).astype(np.float32))
        self.action_std = torch.from_numpy(actions[~last].std(axis=0, dtype=np.float64).astype(np.float32))
        self._frame_offsets = torch.arange(frames) * frameskip
        self._action_offsets = torch.arange(span)
        self._pixels = self._load_frames(ranges, storage)
        self._order: tuple[tuple[int, int], torch.Tensor] | None = None

    def __len__(self) -> int:
        """Number of clips."""
        return len(self._starts)

    def batch(
        self, indices: torch.Tensor | NDArray[np.integer[Any]] | Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Fetch clips by index.

        Parameters
        ----------
        indices
            Clip numbers, (B,).

        Returns
        -------
        pixels, actions
            (B, F, 3, H, W) uint8, and (B, F, frameskip · A) float32: the recorded actions, not standardised.

        Raises
        ------
        ValueError
            If an index is not a clip number.
        """
        starts = self._starts_of(indices)
        rows = (starts[:, None] + self._frame_offsets).reshape(-1)
        shape = (len(starts), self.frames, 3, self.image_size, self.image_size)
        # NumPy gathers whole frames; torch.index_select of uint8 rows was measured six times slower.
        pixels = torch.from_numpy(self._pixels[rows.numpy()])
        actions = self._actions.index_select(0, (starts[:, None] + self._action_offsets).reshape(-1))
        return pixels.reshape(shape), actions.reshape(len(starts), self.frames, self.frameskip * self.action_dim)

    def states(self, indices: Indices, task: str | Task) -> torch.Tensor:
        """Physical states at the frames of clips, for probes: (B, F, S) float32, the task's columns side by side."""
        rows = (self._starts_of(indices)[:, None] + self._frame_offsets).reshape(-1).numpy()
        columns = self.recording.read_state(task, self._rows[rows])
        flat = np.concatenate([np.asarray(values).reshape(len(rows), -1) for values in columns.values()], axis=1)
        return torch.from_numpy(flat.astype(np.float32)).reshape(-1, self.frames, flat.shape[1])

    def indices(self, seed: int, step: int, batch_size: int) -> torch.Tensor:
        """Clip numbers of the batch of a training step, a function of ``(seed, step)`` alone: (batch_size,).

        The steps read one endless sequence of permutations of all clips, so each clip is seen once before any is seen
        twice, and a resumed training sees the batches that it would have seen.
        """
        if step < 0 or batch_size < 1:
            raise ValueError(f"A batch needs a step ≥ 0 and a size ≥ 1; got {step} and {batch_size}.")
        count, position, taken = len(self), step * batch_size, []
        missing = batch_size
        while missing:
            epoch, begin = divmod(position, count)
            chunk = self._permutation(seed, epoch)[begin : begin + missing]
            taken.append(chunk)
            position += len(chunk)
            missing -= len(chunk)
        return torch.cat(taken)

    def sample(self, seed: int, step: int, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """``batch(indices(seed, step, batch_size))``."""
        return self.batch(self.indices(seed, step, batch_size))

    def _starts_of(self, indices: Indices) -> torch.Tensor:
        chosen = torch.as_tensor(indices, dtype=torch.int64).reshape(-1)
        if len(chosen) and (int(chosen.min()) < 0 or int(chosen.max()) >= len(self)):
            raise ValueError(f"indices must lie in 0..{len(self) - 1}.")
        return self._starts[chosen]

    def _permutation(self, seed: int, epoch: int) -> torch.Tensor:
        if self._order is None or self._order[0] != (seed, epoch):
            generator = np.random.default_rng(np.random.SeedSequence([seed, epoch]))
            self._order = (seed, epoch), torch.from_numpy(generator.permutation(len(self)))
        return self._order[1]

    def _load_frames(self, ranges: list[tuple[int, int]], storage: str) -> NDArray[np.uint8]:
        shape = (len(self._rows), 3, self.image_size, self.image_size)
        if storage == "memory" or (storage == "auto" and int(np.prod(shape)) <= _free_memory() // 2):
            pixels = np.empty(shape, dtype=np.uint8)
            self._fill(pixels, ranges)
            return pixels
        path = self.recording.path
        cache = path.parent / f".frames-{path.stem}-{self.split}-{self.frames * self.frameskip}.npy"
        if not (cache.is_file() and cache.stat().st_mtime >= path.stat().st_mtime):
            self._write_cache(cache, shape, ranges)
        return np.load(cache, mmap_mode="r")

    def _write_cache(self, cache: Path, shape: tuple[int, ...], ranges: list[tuple[int, int]]) -> None:
        try:
            handle, name = tempfile.mkstemp(dir=cache.parent, prefix=".tmp-", suffix=".npy")
            os.close(handle)
        except OSError as error:
            raise ValueError(f"{cache} cannot be written: {error.strerror or error}.") from None
        temporary = Path(name)
        try:
            mapped = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
            self._fill(mapped, ranges)
            mapped.flush()
            temporary.replace(cache)
        except OSError as error:
            raise ValueError(f"{cache} cannot be written: {error.strerror or error}.") from None
        finally:
            temporary.unlink(missing_ok=True)

    def _fill(self, pixels: NDArray[np.uint8], ranges: list[tuple[int, int]]) -> None:
        position = 0
        with _open(self.recording.path) as file:
            for start, stop in ranges:
                for begin in range(start, stop, _BLOCK_ROWS):
                    block = file["pixels"][begin : min(begin + _BLOCK_ROWS, stop)]
                    pixels[position : position + len(block)] = block.transpose(0, 3, 1, 2)
                    position += len(block)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[h5py.File]:
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
        np.isfinite(pixels[i : i + _BLOCK_ROWS]).all() for i in range(0, len(pixels), _BLOCK_ROWS)
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


def _free_memory() -> int:
    """Bytes of memory that are free, as far as the system says so."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 4 * 1024**3
