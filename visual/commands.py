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


def diagnose(config: DictConfig) -> None:
    """Diagnose one world model on stored sequences and grids of states."""
    _require_task(config)
    _set_threads(config.threads)
    from rich.progress import Progress

    from visual.candidates import Budget
    from visual.diagnosis import diagnose as run

    with Progress(disable=not config.progress) as bar:
        bar_task = bar.add_task(f"executing candidates of {config.task}", total=None)
        run(
            config.task,
            _number(config, "kappa"),
            config.preset.name,
            config.seed,
            budget=Budget.from_mapping(_mapping(config.candidates)),
            cases=config.cases,
            seed=config.candidates_seed,
            candidates_from=config.candidates_from,
            checkpoint=config.checkpoint,
            data=config.data,
            out=config.out,
            device=config.device,
            progress=lambda done, total: bar.update(bar_task, completed=done, total=total),
            force=config.force,
            force_candidates=config.force_candidates,
        )


def film(config: DictConfig) -> None:
    """Film pairs planned with one world model."""
    _require_task(config)
    _set_threads(config.threads)
    from rich.progress import Progress

    from visual.film import film as run
    from visual.planning import Protocol

    with Progress(disable=not config.progress) as bar:
        bar_task = bar.add_task(f"planning {config.task}", total=None)
        run(
            config.task,
            _number(config, "kappa"),
            config.preset.name,
            config.seed,
            Protocol.from_mapping(_mapping(config.protocol)),
            pairs=config.pairs,
            seed=config.plan_seed,
            data=config.data,
            out=config.out,
            device=config.device,
            progress=lambda done, total: bar.update(bar_task, completed=done, total=total),
            force=config.force,
        )


def advise(config: DictConfig) -> None:
    """Forecast the regret against κ from logged states."""
    _require_task(config)
    from visual.advice import run

    run(config.task, config.preset.name, data=config.data, out=config.out, force=config.force)


def study(config: DictConfig) -> None:
    """Run what is missing of a comparison, or list it."""
    from pathlib import Path

    from visual import study as studies
    from visual.model import load_preset
    from visual.planning import load_protocol
    from visual.study_report import ConsoleReport, print_jobs

    wanted = studies.Study(
        tasks=tuple(str(task) for task in _list(config, "tasks")),
        kappas=tuple(float(kappa) for kappa in _list(config, "kappas")),
        seeds=tuple(int(seed) for seed in _list(config, "seeds")),
        preset=load_preset(config.preset).name,
        protocol=load_protocol(config.protocol),
        pairs=config.pairs,
        ceiling_pairs=config.ceiling_pairs,
        stages=tuple(_list(config, "stages")),
        data=Path(config.data),
        out=Path(config.out),
        published=None if config.published is None else Path(config.published),
    )
    if config.dry_run:
        print_jobs(wanted)
        return
    with ConsoleReport(wanted) as report:
        studies.run(wanted, workers=config.workers, report=report)


def _list(config: DictConfig, name: str) -> list[Any]:
    if OmegaConf.is_missing(config, name):
        raise ValueError(f"{name} is missing; give a list, for example {name}=[tworoom].")
    values = OmegaConf.to_container(config[name]) if OmegaConf.is_list(config[name]) else [config[name]]
    assert isinstance(values, list)
    return values


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
