"""Training as a function of seed and step, with Lightning: resumable to the same weights, on one device or several.

Everything random in step s follows from (seed, s): the clips, the statistic's slices and dropout. So a run that was
killed goes on from its last resume state and ends, on a CPU with the same number of threads, with the same weights as
one that was not.
"""

from __future__ import annotations

import contextlib
import logging
import math
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.trainer.connectors import callback_connector
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from theory.regularizer import attach_target
from visual.model import Preset, build_model, build_regularizer, normalize_pixels, world_model_loss
from visual.monitor import Monitor

if TYPE_CHECKING:
    from lightning.pytorch.utilities.types import OptimizerLRScheduler

RESUME_FOLDER = "resume"
RESUME_FILE = "last.ckpt"
LOG_FOLDER = "log"
_SLICES, _DROPOUT = 0, 1


class ClipSource(Protocol):
    """What training needs of data: clips by step."""

    def __len__(self) -> int:
        """Number of clips."""
        ...

    def sample(self, seed: int, step: int, batch_size: int) -> tuple[Tensor, Tensor]:
        """Pixels (B, T, 3, H, W) and stacked actions (B, T, frameskip · A) of step ``step``; a function of both."""
        ...


def step_seed(seed: int, step: int, stream: int) -> int:
    """A 63-bit seed for one stream of random numbers of one step; distinct triples give unrelated streams."""
    state = np.random.SeedSequence([seed, step, stream]).generate_state(1, np.uint64)
    return int(state[0]) >> 1


class StepDataset(Dataset[tuple[Tensor, Tensor]]):
    """Item s is the batch of step s for one of ``world_size`` devices."""

    def __init__(self, source: ClipSource, seed: int, batch_size: int, rank: int, world_size: int) -> None:
        self.source = source
        self.seed = seed
        self.batch_size = batch_size
        self.rank = rank
        self.world_size = world_size

    def __getitem__(self, step: int) -> tuple[Tensor, Tensor]:
        """Batch of step ``step``."""
        return self.source.sample(self.seed, step * self.world_size + self.rank, self.batch_size)


class StepSampler(Sampler[int]):
    """Steps ``start`` to ``total`` − 1; its length is that of the whole run, since Lightning counts from its start."""

    def __init__(self, start: int, total: int) -> None:
        self.start = start
        self.total = total

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.total))

    def __len__(self) -> int:
        return self.total


class LeWMTraining(L.LightningModule):
    """LeWM with ΛReg, AdamW, warm-up and cosine.

    Parameters
    ----------
    preset, kappa, seed
        Configuration; κ = 1 is LeWM.
    source
        Training clips.
    action_mean, action_std
        Scaling of one environment action, (A,).
    total_steps
        Length of the run.
    num_workers
        Processes that load clips; 0 loads in this one.
    """

    action_mean: Tensor
    action_std: Tensor

    def __init__(
        self,
        preset: Preset,
        kappa: float,
        seed: int,
        source: ClipSource,
        action_mean: Tensor,
        action_std: Tensor,
        total_steps: int,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        if seed < 0:
            raise ValueError(f"seed must not be negative, but it is {seed}.")
        self.preset = preset
        self.kappa = kappa
        self.seed = seed
        self.source = source
        self.total_steps = total_steps
        self.num_workers = num_workers
        self.model = build_model(preset, len(action_mean), seed)
        self.regularizer = build_regularizer(preset, kappa)
        self.register_buffer("action_mean", action_mean.float(), persistent=False)
        self.register_buffer("action_std", action_std.float(), persistent=False)
        self.gradient_norm = torch.tensor(math.nan)

    def prepare(self, pixels: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised pixels and standardised stacked actions of a batch."""
        pixels, actions = pixels.to(self.action_mean.device), actions.to(self.action_mean.device)
        repeats = actions.shape[-1] // len(self.action_mean)
        scaled = (actions.float() - self.action_mean.repeat(repeats)) / self.action_std.repeat(repeats)
        return normalize_pixels(pixels), scaled

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Let dropout follow from seed, step and device."""
        torch.manual_seed(step_seed(self.seed, self.global_step, _DROPOUT + self.global_rank))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """Loss of one batch."""
        pixels, actions = self.prepare(*batch)
        # The same slices on every device: the statistic compares one empirical characteristic function.
        generator = torch.Generator(pixels.device).manual_seed(step_seed(self.seed, self.global_step, _SLICES))
        losses = world_model_loss(
            self.model, self.regularizer, self.preset.regularizer_weight, pixels, actions, generator
        )
        return {
            "loss": losses.total,
            "prediction": losses.prediction.detach(),
            "statistic": losses.statistic.detach(),
            "features": losses.features.detach(),
        }

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """AdamW; the target's logits in their own group, without decay, clipped after each update; one schedule."""
        optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=self.preset.learning_rate,
            weight_decay=self.preset.weight_decay,
            fused=self.device.type in ("cpu", "cuda"),
        )
        attach_target(optimizer, self.regularizer, lr_multiplier=self.preset.target_lr_multiplier)
        warmup = self.preset.warmup(self.total_steps)
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: schedule_factor(step, warmup, self.total_steps)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def configure_gradient_clipping(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        """Clip the gradient's norm here, since Lightning declines to with a fused optimiser in mixed precision."""
        self.gradient_norm = torch.nn.utils.clip_grad_norm_(self.parameters(), self.preset.clip_norm)

    def train_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """Batches from the step that is due."""
        dataset = StepDataset(self.source, self.seed, self.preset.batch_size, self.global_rank, self.trainer.world_size)
        return DataLoader(
            dataset,
            batch_size=None,
            sampler=StepSampler(self.trainer.global_step, self.total_steps),
            num_workers=self.num_workers,
            pin_memory=self.trainer.strategy.root_device.type == "cuda",
        )


def schedule_factor(step: int, warmup: int, total: int) -> float:
    """Learning rate of step ``step`` relative to its peak: (s+1)/W for s < W, then ½(1 + cos π(s−W)/(T−W))."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, total - warmup))))


def is_first_process() -> bool:
    """Whether this is the process of a data-parallel run that writes."""
    return int(getattr(rank_zero_only, "rank", 0) or 0) == 0


@contextlib.contextmanager
def _own_callbacks_only() -> Iterator[None]:
    """Within the block, trainers get no callbacks from entry points.

    stable-pretraining, once installed, adds fourteen to every trainer: they print, list packages, watch the hardware
    and write files into the run's folder.
    """
    name = "_load_external_callbacks"
    original = getattr(callback_connector, name, None)
    setattr(callback_connector, name, lambda group: [])
    try:
        yield
    finally:
        setattr(callback_connector, name, original)


class _ProgressBar(TQDMProgressBar):
    """Lightning's bar with the losses of the last log row."""

    def __init__(self, monitor: Monitor) -> None:
        super().__init__(refresh_rate=10)
        self._monitor = monitor

    def get_metrics(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, Any]:
        """Losses to show."""
        return self._monitor.summary()


def fit(
    module: LeWMTraining,
    monitor: Monitor,
    folder: Path,
    *,
    accelerator: str = "auto",
    devices: int = 1,
    num_nodes: int = 1,
    wandb: bool = False,
    progress: bool = True,
) -> None:
    """Train in ``folder``, from the last resume state if there is one.

    Parameters
    ----------
    module, monitor
        What to train and who watches.
    folder
        The run's folder; resume states lie under ``resume/``, logs under ``log/``.
    accelerator, devices, num_nodes
        Lightning's; several devices train data-parallel.
    wandb
        Log to Weights & Biases too.
    progress
        Show a progress bar.

    Raises
    ------
    ValueError
        If the loss stops being finite, the features collapse, there is no such accelerator here, or Weights & Biases is
        wanted and not installed.
    """
    resume = folder / RESUME_FOLDER / RESUME_FILE
    if is_first_process():
        shutil.rmtree(folder / LOG_FOLDER, ignore_errors=True)
    loggers: list[Any] = [CSVLogger(folder, name=LOG_FOLDER, version="", flush_logs_every_n_steps=1)]
    if wandb:
        loggers.append(_wandb_logger(folder))
    saver = ModelCheckpoint(
        dirpath=folder / RESUME_FOLDER,
        filename="last",
        every_n_train_steps=module.preset.save_every,
        save_top_k=1,
        enable_version_counter=False,
    )
    callbacks: list[L.Callback] = [monitor, saver]
    if progress:
        callbacks.append(_ProgressBar(monitor))
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with warnings.catch_warnings(), _own_callbacks_only():
        # These concern choices made here on purpose: loading in this process, a step-wise loader, one log row in 50.
        for message in (
            ".*does not have many workers.*",
            ".*dataloader is not resumable.*",
            ".*exists and is not empty.*",
            ".*LeafSpec.*is deprecated.*",
        ):
            warnings.filterwarnings("ignore", message=message)
        trainer = _make_trainer(
            accelerator=accelerator,
            devices=devices,
            num_nodes=num_nodes,
            strategy="ddp" if devices * num_nodes > 1 else "auto",
            sync_batchnorm=devices * num_nodes > 1 and torch.cuda.is_available() and accelerator != "cpu",
            precision=module.preset.precision,
            max_steps=module.total_steps,
            max_epochs=-1,
            log_every_n_steps=1,
            logger=loggers,
            callbacks=callbacks,
            enable_progress_bar=progress,
            enable_model_summary=False,
            use_distributed_sampler=False,
            num_sanity_val_steps=0,
            default_root_dir=folder,
        )
        trainer.fit(module, ckpt_path=resume if resume.is_file() else None, weights_only=True)


def _make_trainer(**arguments: Any) -> L.Trainer:
    try:
        return L.Trainer(**arguments)
    except (MisconfigurationException, ImportError, ValueError, RuntimeError) as error:
        asked = ", ".join(f"{name} = {arguments[name]!r}" for name in ("accelerator", "devices", "precision"))
        raise ValueError(f"Lightning cannot train here with {asked}: {' '.join(str(error).split())}") from None


def _wandb_logger(folder: Path) -> Any:
    from lightning.pytorch.loggers import WandbLogger

    try:
        return WandbLogger(save_dir=folder, project="anisowm", name="-".join(folder.parts[-3:-1]))
    except ModuleNotFoundError:
        raise ValueError("wandb = true needs the package wandb, which is not installed.") from None
