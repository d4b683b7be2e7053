"""Success of a model, or of the planner's ceiling, in its run folder; compared with LeWM on the same pairs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from theory.runs import describe_finished, finished_run, open_run, read_rows, read_run
from visual.checkpoint import foreign_name, load_checkpoint, weights_hash
from visual.data import open_recording
from visual.evaluation import evaluate
from visual.experiment import run_folder, trained_folder
from visual.planning import Protocol
from visual.statistics import Comparison, compare, summarize
from visual.tasks import Task, get_task


def plan(
    task: str | Task,
    kappa: float,
    preset: str,
    training_seed: int,
    protocol: Protocol,
    *,
    seed: int = 0,
    cost: str = "latent",
    checkpoint: str | Path | None = None,
    data: str | Path | None = None,
    out: str | Path = "results/visual",
    device: str = "cpu",
    progress: Callable[[int, int], object] | None = None,
    force: bool = False,
) -> Path:
    """Plan with a model on held-out pairs and leave the rows in its run folder.

    Parameters
    ----------
    task, kappa, preset, training_seed
        Which model: that of ``run_folder``. The last three label the rows of a ``checkpoint``.
    protocol, seed, cost
        How to plan; seed of candidates and random actions; see :func:`visual.evaluation.evaluate`.
    checkpoint
        A checkpoint from elsewhere, instead of the run's.
    data
        Recording; by default ``data/<task>/<preset>``.
    out, device, progress, force
        Where run folders lie; where to plan; called as ``progress(done, total)``; plan again over a finished run.

    Returns
    -------
    Path
        The run's folder, ``…/plan-<protocol>``.

    Raises
    ------
    ValueError
        If an input is not valid, or the folder holds a run with other settings.
    """
    task = get_task(task)
    folder = plan_folder(out, task.name, kappa, training_seed, preset, protocol, cost, checkpoint)
    recording = open_recording(data or Path("data") / task.name / preset)
    source = None
    if cost != "simulator":
        source = Path(checkpoint) if checkpoint else trained_folder(out, task.name, kappa, training_seed, preset)
    model = None if source is None else load_checkpoint(source)
    settings: dict[str, Any] = {
        "task": task.name,
        "kappa": float(kappa) if model is not None else None,
        "training_seed": training_seed if model is not None else None,
        "preset": preset,
        "protocol": vars(protocol),
        "seed": seed,
        "cost": cost,
        "data_sha256": recording.sha256,
        "weights_sha256": None if source is None else weights_hash(source),
    }
    record = None if force else finished_run(folder, settings)
    if record is not None:
        print(describe_finished(record))
    else:
        with open_run(folder, settings, force=force) as run:
            rows = evaluate(model, task, recording, protocol, seed=seed, cost=cost, device=device, progress=progress)
            labels = {"origin": "measured"}
            labels |= {name: settings[name] for name in ("task", "kappa", "training_seed", "preset", "cost")}
            labels |= {"protocol": protocol.name, "solver": protocol.solver}
            for position, (name, value) in enumerate(labels.items()):
                rows.insert(position, name, value)
            run.write_rows(rows)
    print(describe(read_rows(folder)))
    baseline = plan_folder(out, task.name, 1.0, training_seed, preset, protocol, cost, None)
    if checkpoint is None and cost != "simulator" and kappa != 1.0 and _comparable(baseline, settings):
        print(describe_comparison(compare(read_rows(baseline), read_rows(folder)), kappa))
    return folder


def plan_folder(
    out: str | Path,
    task: str,
    kappa: float,
    training_seed: int,
    preset: str,
    protocol: Protocol,
    cost: str = "latent",
    checkpoint: str | Path | None = None,
) -> Path:
    """Folder of an evaluation: ``plan-<protocol>`` beside the model's ``train``, with what differs from the default.

    A ceiling has no model and lies in ``<out>/<task>/simulator-<preset>``, a checkpoint from elsewhere in
    ``<out>/<task>/<its folder's name>``.
    """
    parent = run_folder(out, task, kappa, training_seed, preset)
    if cost == "simulator":
        parent = Path(out) / task / f"simulator-{preset}"
    elif checkpoint is not None:
        parent = Path(out) / task / foreign_name(Path(checkpoint))
    name = f"plan-{protocol.name}"
    if protocol.solver != "cem":
        name += f"-{protocol.solver}"
    if cost == "standardized":
        name += "-standardized"
    return parent / name


def describe(rows: pd.DataFrame) -> str:
    """One sentence with the rate and what belongs beside it."""
    table = summarize(rows)
    percent = {name: 100 * value for name, value in table.items() if name not in ("n", "unsolved_n")}
    return (
        f"success {percent['rate']:.0f} % [{percent['low']:.0f}, {percent['high']:.0f}] on {table['n']} pairs; random "
        f"actions {percent['floor']:.0f} % [{percent['floor_low']:.0f}, {percent['floor_high']:.0f}]; "
        f"{percent['solved_at_start']:.0f} % solved at the start, {percent['unsolved_rate']:.0f} % "
        f"[{percent['unsolved_low']:.0f}, {percent['unsolved_high']:.0f}] of the other {table['unsolved_n']}; "
        f"{rows['seconds'].sum() / max(1, rows['solves'].sum()):.3f} s per solve."
    )


def describe_comparison(comparison: Comparison, kappa: float) -> str:
    """One sentence on two models on the same pairs."""
    return (
        f"κ = {kappa:g} against κ = 1 on the same {comparison.count} pairs: {100 * comparison.difference:+.0f} points "
        f"[{100 * comparison.low:+.0f}, {100 * comparison.high:+.0f}], {comparison.only_second} pairs only κ = "
        f"{kappa:g}, {comparison.only_first} only κ = 1, exact McNemar p = {comparison.p_value:.2g}."
    )


def _comparable(folder: Path, settings: dict[str, Any]) -> bool:
    if finished_run(folder) is None:
        return False
    other = read_run(folder).settings
    return all(other.get(name) == settings[name] for name in ("protocol", "seed", "cost", "data_sha256"))
