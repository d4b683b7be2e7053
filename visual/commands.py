"""What each command of ``python -m visual`` does with its configuration."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf


def collect(config: DictConfig) -> None:
    """Record a task."""
    _require_task(config)
    from rich.progress import Progress

    from visual.recording import collect as record

    with Progress(disable=not config.progress) as bar:
        bar_task = bar.add_task(f"recording {config.task}", total=None)
        manifest = record(
            config.task,
            config.preset.name,
            config.episodes,
            config.seed,
            config.data,
            progress=lambda done, total: bar.update(bar_task, completed=done, total=total),
            force=config.force,
        )
    print(f"{manifest.path}: {manifest.episodes} episodes, {manifest.frames} frames, {len(manifest.pairs)} pairs.")


def train(config: DictConfig) -> None:
    """Train one world model."""
    _require_task(config)
    _set_threads(config.threads)
    from visual.experiment import train as run
    from visual.model import Preset

    run(
        config.task,
        _number(config, "kappa"),
        Preset.from_mapping(_mapping(config.preset)),
        config.seed,
        data=config.data,
        out=config.out,
        accelerator=config.accelerator,
        devices=config.devices,
        num_nodes=config.num_nodes,
        num_workers=config.num_workers,
        wandb=config.wandb,
        progress=config.progress,
        force=config.force,
    )


def plan(config: DictConfig) -> None:
    """Plan with one world model on held-out pairs."""
    _require_task(config)
    _set_threads(config.threads)
    from rich.progress import Progress

    from visual.planning import Protocol
    from visual.success import plan as run

    with Progress(disable=not config.progress) as bar:
        bar_task = bar.add_task(f"planning {config.task}", total=None)
        run(
            config.task,
            _number(config, "kappa"),
            config.preset.name,
            config.seed,
            Protocol.from_mapping(_mapping(config.protocol)),
            seed=config.plan_seed,
            cost=config.cost,
            checkpoint=config.checkpoint,
            data=config.data,
            out=config.out,
            device=config.device,
            progress=lambda done, total: bar.update(bar_task, completed=done, total=total),
            force=config.force,
        )


def _require_task(config: DictConfig) -> None:
    from visual.tasks import TASKS

    if OmegaConf.is_missing(config, "task"):
        raise ValueError(f"task is missing; give task=NAME, one of {', '.join(sorted(TASKS))}.")


def _set_threads(threads: int | None) -> None:
    if threads is None:
        return
    if threads < 1:
        raise ValueError(f"threads must be at least 1, but it is {threads}.")
    import torch

    torch.set_num_threads(threads)


def _number(config: DictConfig, name: str) -> float:
    value = config[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a number, but it is {value!r}.")
    return float(value)


def _mapping(config: DictConfig) -> dict[str, Any]:
    values = OmegaConf.to_container(config, resolve=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}
