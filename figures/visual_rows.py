"""The finished runs of ``python -m visual``: all of a stage, those under ``results/`` first, then the published ones.

A figure draws models that were trained and judged alike. So it draws one preset and one protocol: those that most of
the finished runs have, the larger preset in case of a tie.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures import catalog
from theory.runs import ROWS_FILE, finished_run, read_run
from visual.statistics import Rate, wilson_interval
from visual.tasks import PAPER_TASKS

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

#: Names and titles of the paper's tasks, in its order.
TITLES: dict[str, str] = {task.name: task.title for task in PAPER_TASKS}
TASKS = tuple(TITLES)
NOT_RUN = "not run"
#: From the smallest to the largest.
PRESETS = ("quick", "laptop", "paper")
ORIGINS = ("measured", "synthetic")
_VARIANT = re.compile(rf"/k[^/-]+-s\d+-({'|'.join(PRESETS)})-[^/]+/[^/]+$")


@dataclass(frozen=True)
class Stage:
    """What a stage leaves behind.

    Attributes
    ----------
    pattern
        Its folders below ``visual/<task>/``.
    command
        What computes it; ``{task}`` is the task.
    columns
        Columns that a figure relies on, by file.
    private
        Files too large to publish, or of no use without the recording.
    """

    pattern: str
    command: str
    columns: dict[str, tuple[str, ...]]
    private: tuple[str, ...] = ()


_MODEL = ("origin", "task", "kappa", "training_seed", "preset")
STAGES = {
    "train": Stage(
        "k*-s*-*/train",
        "python -m visual train task={task} kappa=2",
        {
            ROWS_FILE: (
                *("origin", "task", "kappa", "seed", "preset", "step", "seconds", "prediction"),
                *("target_condition", "target_high", "target_variances", "feature_spectrum"),
            )
        },
        ("target_logits.pt",),
    ),
    "plan": Stage(
        "k*-s*-*/plan-*",
        "python -m visual plan task={task} kappa=2",
        {
            ROWS_FILE: (
                *(*_MODEL, "cost", "protocol", "solver", "pair", "episode", "success"),
                *("already_solved", "random_success", "seconds", "solves"),
            )
        },
    ),
    "ceiling": Stage(
        "simulator-*/plan-*",
        "python -m visual plan task={task} cost=simulator",
        {ROWS_FILE: ("origin", "task", "preset", "cost", "protocol", "solver", "pair", "success")},
    ),
    "candidates": Stage(
        "candidates-*",
        "python -m visual diagnose task={task} kappa=2",
        {ROWS_FILE: ("origin", "task", "preset", "pair", "sequence", "source", "outcome", "already_solved")},
        ("candidates.npz", "grids.npz"),
    ),
    "diagnose": Stage(
        "k*-s*-*/diagnose",
        "python -m visual diagnose task={task} kappa=2",
        {
            ROWS_FILE: (*_MODEL, "pair", "episode", "sequences", "agreement_enc", "agreement_pred"),
            "neighborhoods.parquet": (
                *(*_MODEL, "pair", "row", "column", "first", "second", "task_cost", "latent_cost", "valid"),
            ),
            "coordinates.parquet": (
                *(*_MODEL, "coordinate", "target_variance", "relative_residual", "predicted_variance"),
            ),
        },
    ),
    "advice": Stage(
        "advice-*",
        "python -m visual advise task={task}",
        {
            ROWS_FILE: (
                *("origin", "task", "preset", "kappa", "mean_regret", "low", "high"),
                *("best_kappa", "best_low", "best_high", "dim"),
            )
        },
    ),
    "film": Stage(
        "k*-s*-*/film*",
        "python -m visual film task={task} kappa=2",
        {ROWS_FILE: (*_MODEL, "protocol", "pair", "step", "outcome", "reached")},
    ),
}


@dataclass(frozen=True)
class VisualRuns:
    """All finished runs of a stage; a figure that needs them is also drawn without them, and says "not run".

    Attributes
    ----------
    stage
        A key of :data:`STAGES`.
    task
        One task; by default those of the paper.
    variants
        Runs of variants of a preset (:mod:`visual.variants`) alone; by default those of presets as they are, so that
        no number of variants changes what a figure of the comparison shows.
    """

    stage: str
    task: str | None = None
    variants: bool = False

    @property
    def path(self) -> str:
        """Pattern of the folders relative to ``results/``."""
        return f"visual/{self.task or '*'}/{STAGES[self.stage].pattern}"

    @property
    def command(self) -> str:
        """The command that computes one of them."""
        return STAGES[self.stage].command.format(task=self.task or "tworoom")

    def sources(self, results: Path) -> list[catalog.Source]:
        """Every finished run, each as a source of its own; a path found twice is the one under ``results``.

        Raises
        ------
        ValueError
            If one of them is damaged.
        """
        return [source for source in self.all_sources(results) if source.folder(results) is not None]

    def all_sources(self, results: Path) -> list[catalog.Source]:
        """A source for every folder of the stage, whether its run is finished, damaged or neither."""
        tasks = (self.task,) if self.task else TASKS
        pattern = STAGES[self.stage].pattern
        paths = {
            folder.relative_to(root).as_posix()
            for root in (results, catalog.MEASURED)
            for task in tasks
            for folder in (root / "visual" / task).glob(pattern)
            if folder.is_dir() and bool(_VARIANT.search(folder.as_posix())) == self.variants
        }
        private = STAGES[self.stage].private
        return [catalog.Source(path, self._command(path), private) for path in sorted(paths)]

    def _command(self, path: str) -> str:
        return STAGES[self.stage].command.format(task=Path(path).parts[1])

    def folders(self, results: Path) -> list[Path]:
        """Folders of :meth:`sources`."""
        return [source.require(results) for source in self.sources(results)]

    def require(self, results: Path) -> None:
        """``ValueError`` if a run is damaged; none at all is no error."""
        self.sources(results)

    def rows(self, results: Path, file: str = ROWS_FILE) -> pd.DataFrame:
        """Rows of one file of every run, with the run's path in the column ``run``; empty if there is no run.

        Raises
        ------
        ValueError
            If a file cannot be read, is empty, lacks a column, or its rows have another origin or task.
        """
        import pandas as pd

        columns = STAGES[self.stage].columns[file]
        parts = []
        for source in self.sources(results):
            folder = source.require(results)
            # A file of an earlier run may still lie there.
            if file not in read_run(folder).files:
                continue
            try:
                part = pd.read_parquet(folder / file)
            except Exception as error:
                raise ValueError(f"{folder / file} is not a readable Parquet file ({type(error).__name__}).") from None
            place = f"{source.path}/{file}"
            missing = [column for column in columns if column not in part.columns]
            if missing:
                raise ValueError(f"{place} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}.")
            if part.empty:
                raise ValueError(f"{place} holds no rows.")
            if not part["origin"].isin(ORIGINS).all():
                raise ValueError(f"{place} must say in origin whether its rows are {' or '.join(ORIGINS)}.")
            if not (part["task"] == Path(source.path).parts[1]).all():
                raise ValueError(f"{place} holds rows of another task than its folder.")
            parts.append(part.assign(run=source.path))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*columns, "run"])

    def cards(self, results: Path, file: str = "model.json") -> dict[str, dict[str, Any]]:
        """One JSON file of every run, by the run's path.

        Raises
        ------
        ValueError
            If a file is no JSON object.
        """
        cards = {}
        for source in self.sources(results):
            path = source.require(results) / file
            try:
                card = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                raise ValueError(f"{path} cannot be read; make it again with `{source.command} force=true`.") from None
            if not isinstance(card, dict):
                raise ValueError(f"{path} must hold a JSON object.")
            cards[source.path] = card
        return cards

    def settings(self, results: Path) -> dict[str, dict[str, Any]]:
        """Settings of every run, by the run's path."""
        found = {}
        for source in self.sources(results):
            record = finished_run(source.require(results))
            assert record is not None
            found[source.path] = record.settings
        return found


TRAIN = VisualRuns("train")
PLAN = VisualRuns("plan")
CEILING = VisualRuns("ceiling")
CANDIDATES = VisualRuns("candidates")
DIAGNOSE = VisualRuns("diagnose")
FILM = VisualRuns("film")
ADVICE = VisualRuns("advice")


def one_setting(rows: pd.DataFrame, columns: Sequence[str] = ("preset",)) -> pd.DataFrame:
    """The rows whose ``columns`` have the values that most runs have; the larger preset wins a tie."""
    if rows.empty:
        return rows
    runs = rows.drop_duplicates(["run", *columns])
    sizes = runs.groupby(list(columns))["run"].nunique()

    def rank(key: Any) -> tuple[int, int, str]:
        values = key if isinstance(key, tuple) else (key,)
        size = max((PRESETS.index(value) for value in values if value in PRESETS), default=-1)
        return int(sizes.loc[key]), size, str(values)

    best = max(sizes.index, key=rank)
    keep = (rows[list(columns)] == list(best if isinstance(best, tuple) else (best,))).all(axis=1)
    return rows[keep].reset_index(drop=True)


def one_seed(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each task the rows of one training seed: that of the most κ, of several such the largest number.

    Success differs more between training seeds than between κ, so a curve against κ keeps to one seed.
    """
    if rows.empty:
        return rows
    counts = rows.groupby(["task", "training_seed"])["kappa"].nunique().reset_index()
    chosen = counts.sort_values(["kappa", "training_seed"]).drop_duplicates("task", keep="last")
    return rows.merge(chosen[["task", "training_seed"]], on=["task", "training_seed"])


def apart(stages: Sequence[pd.DataFrame]) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """Of each stage, the rows of the κ that a task's training seeds share, and the rows of its κ sweeps.

    A κ with one training seed, where another κ of the task has several, belongs to a sweep: a mean over seeds beside a
    single model would compare seeds with κ. A sweep holds every κ of such a seed. Models count wherever one of the
    stages has them, so that a stage that is not finished moves none.
    """
    import numpy as np
    import pandas as pd

    models = pd.concat([rows[["task", "kappa", "training_seed"]] for rows in stages]).drop_duplicates()
    seeds = models.groupby(["task", "kappa"])["training_seed"].transform("nunique")
    alone = models[(seeds == 1) & (seeds.groupby(models["task"]).transform("max") > 1)]

    def having(rows: pd.DataFrame, names: list[str]) -> NDArray[np.bool_]:
        found = pd.MultiIndex.from_frame(rows[names]).isin(pd.MultiIndex.from_frame(alone[names]))
        return np.asarray(found, dtype=bool)

    shared = [rows[~having(rows, ["task", "kappa"])].reset_index(drop=True) for rows in stages]
    return shared, [rows[having(rows, ["task", "training_seed"])].reset_index(drop=True) for rows in stages]


def planned(results: Path, task: str | None = None) -> pd.DataFrame:
    """Episodes planned with CEM on the latent cost, of one preset and one protocol; of one task or of the paper's."""
    rows = VisualRuns("plan", task).rows(results)
    rows = rows[(rows["cost"] == "latent") & (rows["solver"] == "cem")]
    return one_setting(rows, ("preset", "protocol"))


def success_rates(rows: pd.DataFrame, column: str = "success") -> pd.DataFrame:
    """Success by task and κ, in percent.

    Parameters
    ----------
    rows
        Rows of :func:`planned`.
    column
        ``success``, ``random_success`` or ``already_solved``.

    Returns
    -------
    pandas.DataFrame
        ``task, kappa, success_percent, low, high, pairs, seeds, origin, preset, protocol``. ``low`` and ``high`` are
        Wilson's interval of the rate on ``pairs`` pairs: seeds share their pairs, so the mean over seeds is treated as
        one rate on these pairs and never as one on more.
    """
    import pandas as pd

    table = []
    for (task, _), group in rows.groupby(["task", "kappa"]):
        rate = pooled_interval(group, column)
        first = group.iloc[0]
        table.append(
            {
                "task": task,
                "kappa": float(first["kappa"]),
                "success_percent": 100 * float(group[column].astype(float).mean()),
                "low": 100 * rate.low,
                "high": 100 * rate.high,
                "pairs": rate.count,
                "seeds": group["training_seed"].nunique(),
                **{name: first[name] for name in ("origin", "preset", "protocol")},
            }
        )
    names = ["task", "kappa", "success_percent", "low", "high", "pairs", "seeds", "origin", "preset", "protocol"]
    return pd.DataFrame(table, columns=names)


def pooled_interval(rows: pd.DataFrame, column: str = "success") -> Rate:
    """Wilson's interval of the mean rate over seeds, on as many pairs as there are distinct ones."""
    count = int(rows["pair"].nunique())
    # The formula takes a mean over seeds as it takes a count: rounding it would move the interval off the mean.
    return wilson_interval(float(rows[column].astype(float).mean()) * count, count)  # type: ignore[arg-type]


def describe(rows: pd.DataFrame, count: str = "pair", noun: str = "n") -> str:
    """What a figure has: "measured here (laptop preset, n = 200, 3 seeds)", or "not run".

    Parameters
    ----------
    rows
        Rows with ``origin`` and ``preset``, and where there are seeds, ``training_seed``, ``seed`` or ``seeds``.
    count
        The column of pairs, counted in each ``run``, or a column that holds their number.
    noun
        What the number is called.
    """
    if rows.empty:
        return f"measured here: {NOT_RUN}"
    origin = "synthetic" if "synthetic" in set(rows["origin"]) else "measured here"
    parts = [f"{rows['preset'].iloc[0]} preset"]
    if count in rows:
        sizes = sorted(set(rows.groupby("run")[count].nunique())) if count == "pair" else sorted(set(rows[count]))
        parts.append(f"{noun} = {sizes[0]:.0f}" if len(sizes) == 1 else f"{noun} = {sizes[0]:.0f} to {sizes[-1]:.0f}")
    seeds = _seed_counts(rows)
    if seeds:
        parts.append(
            f"{seeds[0]} seed{'s' * (seeds[0] != 1)}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
        )
    return f"{origin} ({', '.join(parts)})"


def _seed_counts(rows: pd.DataFrame) -> list[int]:
    if "seeds" in rows:
        return sorted({int(value) for value in rows["seeds"]})
    name = "training_seed" if "training_seed" in rows else "seed"
    keys = [key for key in ("task", "kappa") if key in rows]
    return sorted(set(rows.groupby(keys)[name].nunique())) if name in rows and keys else []
