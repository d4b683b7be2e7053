"""What the linear theory says of a task before anything is trained: the regret against κ, from logged states alone.

The states that the outcome measures, in units of the success threshold (``Task.scaled_state``), have a covariance Σ;
what a linear regression on the state and the actions of one frame cannot say of the next frame's state has a covariance
Σ_w. With these and Q = I, docs/theory.md T7 gives the regret of the metric that ΛReg settles at for each κ, and the
best κ.

It is a forecast for an encoder that is linear in these states and has no other coordinates. The encoders trained here
are neither; how far the forecast holds is a question to the rows, not an assumption.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from theory.estimate import estimate_covariances
from theory.regret import best_kappa, regret_curve
from theory.runs import describe_finished, finished_run, open_run, read_rows
from visual.data import Recording, open_recording
from visual.tasks import Task, get_task

KAPPAS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
_LEVEL = 0.95


def advise(
    task: str | Task, recording: Recording, *, frameskip: int = 5, draws: int = 200, seed: int = 0
) -> pd.DataFrame:
    """Regret of the linear theory for each κ, from the training episodes of a recording.

    Parameters
    ----------
    task, recording
        The task and its recording.
    frameskip
        Environment steps of one transition.
    draws, seed
        Bootstrap draws over episodes for the intervals, and their seed.

    Returns
    -------
    DataFrame
        One row per κ: ``kappa``; ``mean_regret``, ``low``, ``high`` (mean over lines, with a 95 % interval);
        ``worst_regret``, ``condition_number``, ``num_high``; and, equal in all rows, ``best_kappa``, ``best_low``,
        ``best_high``, ``dim``, ``transitions``.

    Raises
    ------
    ValueError
        If ``frameskip`` is below 1 or the recording is too short or does not vary.

    References
    ----------
    Derived here (docs/theory.md, T7); covariances as :func:`theory.estimate.estimate_covariances`.
    """
    if frameskip < 1:
        raise ValueError(f"frameskip must be at least 1, but it is {frameskip}.")
    states, following, actions, episodes = _transitions(get_task(task), recording, frameskip)
    found = estimate_covariances(states, following, actions, episodes=episodes, resamples=draws, seed=seed)
    curve = regret_curve(found.state_cov, found.noise_cov, KAPPAS)
    pairs = list(zip(found.state_cov_draws, found.noise_cov_draws, strict=True))
    drawn = np.array([regret_curve(*pair, KAPPAS)["mean_regret"] for pair in pairs])
    best = np.array([best_kappa(*pair).kappa for pair in pairs])
    tails = [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2]
    curve.insert(2, "low", np.quantile(drawn, tails[0], axis=0))
    curve.insert(3, "high", np.quantile(drawn, tails[1], axis=0))
    return curve.assign(
        best_kappa=best_kappa(found.state_cov, found.noise_cov).kappa,
        best_low=float(np.quantile(best, tails[0])),
        best_high=float(np.quantile(best, tails[1])),
        dim=states.shape[1],
        transitions=len(states),
    )


def run(
    task: str | Task,
    preset: str = "laptop",
    *,
    data: str | Path | None = None,
    out: str | Path = "results/visual",
    force: bool = False,
) -> Path:
    """Leave the rows of :func:`advise` in ``<out>/<task>/advice-<preset>`` and say them in words.

    Raises
    ------
    ValueError
        As :func:`advise`, or if the folder holds a run with other settings.
    """
    task = get_task(task)
    recording = open_recording(data or Path("data") / task.name / preset)
    folder = Path(out) / task.name / f"advice-{preset}"
    settings: dict[str, Any] = {
        "task": task.name,
        "preset": preset,
        "kappas": list(KAPPAS),
        "data_sha256": recording.sha256,
    }
    record = None if force else finished_run(folder, settings)
    if record is not None:
        print(describe_finished(record))
    else:
        with open_run(folder, settings, force=force) as opened:
            rows = advise(task, recording)
            for position, (name, value) in enumerate(
                {"origin": "measured", "task": task.name, "preset": preset}.items()
            ):
                rows.insert(position, name, value)
            opened.write_rows(rows)
    print(describe(read_rows(folder)))
    return folder


def describe(rows: pd.DataFrame) -> str:
    """One sentence."""
    first = rows.iloc[0]
    at = rows.set_index("kappa")["mean_regret"]
    return (
        f"From {first['transitions']} logged transitions of {first['dim']} states, the linear theory forecasts a mean "
        f"regret of {at[1.0]:.3f} at κ = 1, {at[2.0]:.3f} at κ = 2 and {at[4.0]:.3f} at κ = 4; the best κ is "
        f"{first['best_kappa']:.2f} [{first['best_low']:.2f}, {first['best_high']:.2f}]."
    )


def _transitions(
    task: Task, recording: Recording, frameskip: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """States (T, k), the states ``frameskip`` rows later, the actions between (T, frameskip · A), episodes (T,)."""
    states = task.scaled_state(recording.read_state(task))
    actions = np.asarray(recording.read("action"), dtype=np.float64)
    parts: list[Sequence[NDArray[Any]]] = []
    for episode in recording.episodes_of("train"):
        begin, length = int(recording.offsets[episode]), int(recording.lengths[episode])
        if length <= frameskip:
            continue
        own = states[begin : begin + length].copy()
        for coordinate, period in task.scaled_periods.items():
            own[:, coordinate] = np.unwrap(own[:, coordinate], period=period)
        starts = np.arange(0, length - frameskip, frameskip)
        blocks = actions[begin + starts[:, None] + np.arange(frameskip)]
        parts.append(
            (own[starts], own[starts + frameskip], blocks.reshape(len(starts), -1), np.full(len(starts), episode))
        )
    if not parts:
        raise ValueError(f"{recording.path} has no training episode of more than {frameskip} rows.")
    states, following, driven, episodes = (np.concatenate(part) for part in zip(*parts, strict=True))
    return states, following, driven, episodes
