"""What each command of ``python -m visual`` does with its configuration."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf


def collect(config: DictConfig) -> None:
    """Record a task."""
    _require_task(config)
    from visual.recording import collect as record

    with _progress(config, "recording") as progress:
        manifest = record(
            config.task,
            config.preset.name,
            _optional(_whole, config, "episodes"),
            _whole(config, "seed"),
            _optional(_text, config, "data"),
            progress=progress,
            force=_flag(config, "force"),
        )
    print(f"{manifest.path}: {manifest.episodes} episodes, {manifest.frames} frames, {len(manifest.pairs)} pairs.")


def train(config: DictConfig) -> None:
    """Train one world model."""
    _require_task(config)
    _set_threads(_optional(_whole, config, "threads"))
    from visual.experiment import train as run
    from visual.model import Preset

    run(
        config.task,
        _number(config, "kappa"),
        Preset.from_mapping(_mapping(config, "preset")),
        _whole(config, "seed"),
        data=_optional(_text, config, "data"),
        out=_text(config, "out"),
        accelerator=_text(config, "accelerator"),
        devices=_whole(config, "devices"),
        num_nodes=_whole(config, "num_nodes"),
        num_workers=_whole(config, "num_workers"),
        wandb=_flag(config, "wandb"),
        progress=_flag(config, "progress"),
        force=_flag(config, "force"),
    )


def plan(config: DictConfig) -> None:
    """Plan with one world model on held-out pairs."""
    _require_task(config)
    _set_threads(_optional(_whole, config, "threads"))
    from visual.planning import Protocol
    from visual.success import plan as run

    with _progress(config, "planning") as progress:
        run(
            config.task,
            _number(config, "kappa"),
            config.preset.name,
            _whole(config, "seed"),
            Protocol.from_mapping(_mapping(config, "protocol")),
            seed=_whole(config, "plan_seed"),
            cost=_text(config, "cost"),
            checkpoint=_optional(_text, config, "checkpoint"),
            data=_optional(_text, config, "data"),
            out=_text(config, "out"),
            device=_text(config, "device"),
            progress=progress,
            force=_flag(config, "force"),
        )


def diagnose(config: DictConfig) -> None:
    """Diagnose one world model on stored sequences and grids of states."""
    _require_task(config)
    _set_threads(_optional(_whole, config, "threads"))
    from visual.candidates import Budget
    from visual.diagnosis import diagnose as run

    with _progress(config, "executing candidates of") as progress:
        run(
            config.task,
            _number(config, "kappa"),
            config.preset.name,
            _whole(config, "seed"),
            budget=Budget.from_mapping(_mapping(config, "candidates")),
            cases=_optional(_whole, config, "cases"),
            seed=_whole(config, "candidates_seed"),
            candidates_from=_optional(_text, config, "candidates_from"),
            checkpoint=_optional(_text, config, "checkpoint"),
            data=_optional(_text, config, "data"),
            out=_text(config, "out"),
            device=_text(config, "device"),
            progress=progress,
            force=_flag(config, "force"),
            force_candidates=_flag(config, "force_candidates"),
        )


def film(config: DictConfig) -> None:
    """Film pairs planned with one world model."""
    _require_task(config)
    _set_threads(_optional(_whole, config, "threads"))
    from visual.film import film as run
    from visual.planning import Protocol

    with _progress(config, "planning") as progress:
        run(
            config.task,
            _number(config, "kappa"),
            config.preset.name,
            _whole(config, "seed"),
            Protocol.from_mapping(_mapping(config, "protocol")),
            pairs=_whole(config, "pairs"),
            seed=_whole(config, "plan_seed"),
            data=_optional(_text, config, "data"),
            out=_text(config, "out"),
            device=_text(config, "device"),
            progress=progress,
            force=_flag(config, "force"),
        )


def advise(config: DictConfig) -> None:
    """Forecast the regret against κ from logged states."""
    _require_task(config)
    from visual.advice import run

    run(
        config.task,
        config.preset.name,
        data=_optional(_text, config, "data"),
        out=_text(config, "out"),
        force=_flag(config, "force"),
    )


def study(config: DictConfig) -> None:
    """Run what is missing of a comparison, or list it."""
    from visual import study as studies
    from visual.model import Preset, load_preset
    from visual.planning import Protocol, load_protocol
    from visual.study_report import ConsoleReport, print_jobs

    preset = Preset.from_mapping(_mapping(config, "preset"))
    protocol = Protocol.from_mapping(_mapping(config, "protocol"))
    # The jobs are told names.
    if preset != load_preset(preset.name) or protocol != load_protocol(protocol.name):
        raise ValueError(
            "A study takes preset and protocol as they are, so that all of its models are alike; give no other "
            "setting of them than pairs=N and changes, or run the single commands."
        )
    published = _optional(_text, config, "published")
    wanted = studies.Study(
        tasks=tuple(_text(config, f"tasks[{index}]", task) for index, task in enumerate(_list(config, "tasks"))),
        kappas=tuple(_number(config, f"kappas[{index}]", kappa) for index, kappa in enumerate(_list(config, "kappas"))),
        seeds=tuple(_whole(config, f"seeds[{index}]", seed) for index, seed in enumerate(_list(config, "seeds"))),
        preset=preset.name,
        protocol=protocol,
        pairs=_optional(_whole, config, "pairs"),
        ceiling_pairs=_whole(config, "ceiling_pairs"),
        changes=_changes(config),
        stages=tuple(_text(config, f"stages[{index}]", stage) for index, stage in enumerate(_list(config, "stages"))),
        data=Path(_text(config, "data")),
        out=Path(_text(config, "out")),
        published=None if published is None else Path(published),
    )
    workers = _whole(config, "workers")
    if _flag(config, "dry_run"):
        print_jobs(wanted)
        return
    with ConsoleReport(wanted) as report:
        studies.run(wanted, workers=workers, report=report)


def _list(config: DictConfig, name: str) -> list[Any]:
    if OmegaConf.is_missing(config, name):
        raise ValueError(f"{name} is missing; give a list, for example {name}=[tworoom].")
    values = OmegaConf.to_container(config[name]) if OmegaConf.is_list(config[name]) else [config[name]]
    assert isinstance(values, list)
    return values


def _changes(config: DictConfig) -> dict[str, list[Any]]:
    if config["changes"] is None:
        return {}
    values = _mapping(config, "changes")
    return {name: value if isinstance(value, list) else [value] for name, value in values.items()}


@contextlib.contextmanager
def _progress(config: DictConfig, doing: str) -> Iterator[Callable[[int, int], object]]:
    """A bar, unless ``progress=false``; what it gives is called as ``progress(done, total)``."""
    from rich.progress import Progress

    with Progress(disable=not _flag(config, "progress")) as bar:
        task = bar.add_task(f"{doing} {config.task}", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _require_task(config: DictConfig) -> None:
    from visual.tasks import TASKS

    if OmegaConf.is_missing(config, "task"):
        raise ValueError(f"task is missing; give task=NAME, one of {', '.join(sorted(TASKS))}.")
    _text(config, "task")


def _set_threads(threads: int | None) -> None:
    if threads is None:
        return
    if threads < 1:
        raise ValueError(f"threads must be at least 1, but it is {threads}.")
    import torch

    torch.set_num_threads(threads)


def _mapping(config: DictConfig, name: str) -> dict[str, Any]:
    values = OmegaConf.to_container(config[name], resolve=True) if OmegaConf.is_config(config[name]) else None
    if not isinstance(values, dict):
        raise ValueError(f"{name} must be a group of settings, but it is {config[name]!r}.")
    return {str(key): value for key, value in values.items()}


# Hydra reads `force=no` as a text, which is true; so every setting is read by its type.
_OWN = object()
T = TypeVar("T")


def _value(config: DictConfig, name: str, value: Any) -> Any:
    return config[name] if value is _OWN else value


def _optional(read: Callable[[DictConfig, str], T], config: DictConfig, name: str) -> T | None:
    return None if config[name] is None else read(config, name)


def _number(config: DictConfig, name: str, value: Any = _OWN) -> float:
    value = _value(config, name, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a number, but it is {value!r}.")
    return float(value)


def _whole(config: DictConfig, name: str, value: Any = _OWN) -> int:
    value = _value(config, name, value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, but it is {value!r}.")
    return value


def _flag(config: DictConfig, name: str) -> bool:
    value = config[name]
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, but it is {value!r}.")
    return value


def _text(config: DictConfig, name: str, value: Any = _OWN) -> str:
    value = _value(config, name, value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or value == "":
        raise ValueError(f"{name} must be a text, but it is {value!r}.")
    # Hydra reads a folder named 2024 as a number.
    return str(value)
