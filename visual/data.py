"""Recordings as training data: clips of an HDF5 recording as PyTorch tensors.

A clip is ``frames`` frames, ``frameskip`` rows apart, each with the block of ``frameskip`` actions that follows it, as
LeWorldModel is trained on. All its actions are real: a clip never contains the last row of an episode, whose action
leads nowhere (NaN in these files; the episode's *first* action in files of stable-worldmodel 0.1.1's own recorder).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from theory.runs import replacing
from visual.manifest import Manifest
from visual.reading import BLOCK_ROWS, Recording, open_hdf5, open_recording
from visual.tasks import Task

__all__ = ["ClipDataset", "Indices", "Recording", "open_recording"]

Indices = torch.Tensor | NDArray[np.integer[Any]] | Sequence[int]


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

    def rows(self, indices: Indices) -> NDArray[np.int64]:
        """Rows of the recording at which clips start, (B,)."""
        return np.asarray(self._rows[self._starts_of(indices).numpy()])

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
        # Named after what it holds: these rows of this very file.
        status = path.stat()
        content = repr((ranges, self.image_size, status.st_size, status.st_mtime_ns)).encode()
        cache = path.parent / f".frames-{path.stem}-{hashlib.sha256(content).hexdigest()[:16]}.npy"
        if not cache.is_file():
            self._write_cache(cache, shape, ranges)
        return np.load(cache, mmap_mode="r")

    def _write_cache(self, cache: Path, shape: tuple[int, ...], ranges: list[tuple[int, int]]) -> None:
        with replacing(cache) as temporary:
            mapped = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
            self._fill(mapped, ranges)
            mapped.flush()

    def _fill(self, pixels: NDArray[np.uint8], ranges: list[tuple[int, int]]) -> None:
        position = 0
        with open_hdf5(self.recording.path) as file:
            for start, stop in ranges:
                for begin in range(start, stop, BLOCK_ROWS):
                    block = file["pixels"][begin : min(begin + BLOCK_ROWS, stop)]
                    pixels[position : position + len(block)] = block.transpose(0, 3, 1, 2)
                    position += len(block)


def _free_memory() -> int:
    """Bytes of memory that are free, as far as the system says so."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 4 * 1024**3
