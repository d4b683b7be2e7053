"""The comparison of κ = 1 with κ > 1 as tables: success, paired differences, ordering, targets, time.

Everything is computed from the rows of finished runs; nothing is stored here. :func:`sections` gives the tables of one
task or of all, :func:`fill` writes them between the markers of a Markdown page whose text a person wrote.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from figures import comparison_tables as tables
from figures.tables import markdown
from figures.visual_rows import TITLES, VisualRuns, apart, one_setting, planned
from theory.runs import write_atomic

#: The page of the really-run comparison.
PAGE = Path("docs/comparison.md")
#: Names of the tables.
NAMES = (
    *("forecast", "forecast-latents", "success", "differences"),
    *("ordering", "ordering-differences", "pooled", "training", "sweep", "variants"),
)
_MARK = re.compile(r"(<!-- table: (?P<name>[a-z-]+) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Section:
    """One table.

    Attributes
    ----------
    name, title
        Name in the markers of a page; heading.
    table
        Cells of text under column heads.
    note
        How to read it.
    """

    name: str
    title: str
    table: pd.DataFrame
    note: str


def sections(results: Path, task: str | None = None) -> list[Section]:
    """Every table of the comparison that has rows.

    Parameters
    ----------
    results
        Folder of runs; published runs count where it has none.
    task
        One task, with the preset and protocol of most of its own runs; by default all of the paper that were run.

    Raises
    ------
    ValueError
        If rows are damaged or lack a column.
    """
    stages = {name: VisualRuns(name, task) for name in ("train", "plan", "diagnose", "ceiling", "advice")}
    episodes = _alike(_with_setting(planned(results, task), stages["plan"], results, "data_sha256"), "data_sha256")
    ordering = stages["diagnose"].rows(results)
    training = stages["train"].rows(results).rename(columns={"seed": "training_seed"})
    # One preset throughout: that of the plans, of what there is without any.
    chosen = next((rows for rows in (episodes, one_setting(ordering), one_setting(training)) if len(rows)), None)
    if chosen is not None:
        ordering, training = (rows[rows["preset"] == chosen["preset"].iloc[0]] for rows in (ordering, training))
    ordering = _with_setting(ordering, stages["diagnose"], results, "candidates_sha256")
    ordering = _alike(ordering, "candidates_sha256")
    cards, summaries = stages["train"].cards(results), stages["diagnose"].cards(results, "summary.json")
    forecasts = tables.latent_forecast(ordering, summaries)
    variants = _variants(results, task, episodes, ordering, summaries)
    (episodes, ordering, training), swept = apart([episodes, ordering, training])
    sweep = tables.sweep(swept[0], swept[1], swept[2], cards, summaries)
    ceilings = stages["ceiling"].rows(results)
    found = [
        Section("forecast", "Forecast from logged states", tables.forecast(stages["advice"].rows(results)), _FORECAST),
        Section(
            "forecast-latents",
            "Forecast from the latents of κ = 1",
            forecasts,
            _LATENT_FORECAST,
        ),
        Section("success", "Success on held-out pairs", tables.success(episodes, ceilings), _RATE),
        Section("differences", "κ > 1 against κ = 1, paired", tables.differences(episodes), _DIFFERENCE),
        Section("ordering", "Do the costs order outcomes?", tables.agreement(ordering), _ORDER),
        Section("ordering-differences", "Ordering, paired", tables.ordering_differences(ordering), _ORDER_DIFFERENCE),
        Section("pooled", "All tasks together", tables.pooled(episodes, ordering), _POOLED),
        Section("training", "What training ended with", tables.trained(training, cards), _TRAINED),
        Section("sweep", "κ sweep, one training seed", sweep, _SWEEP),
        Section("variants", "κ > 1 against κ = 1 at other settings", variants, _VARIANTS),
    ]
    return [section for section in found if not section.table.empty]


def _variants(
    results: Path,
    task: str | None,
    episodes: pd.DataFrame,
    ordering: pd.DataFrame,
    summaries: dict[str, dict[str, object]],
) -> pd.DataFrame:
    """The table of variants of the preset and protocol that ``episodes`` have, the preset's own κ = 1 among them."""
    if episodes.empty:
        return episodes
    plans, diagnoses = (VisualRuns(stage, task, variants=True) for stage in ("plan", "diagnose"))
    own, orders = (
        rows[rows["preset"].str.startswith(f"{episodes['preset'].iloc[0]}-")]
        for rows in (plans.rows(results), diagnoses.rows(results))
    )
    alike = (own["cost"] == "latent") & (own["solver"] == "cem") & (own["protocol"] == episodes["protocol"].iloc[0])
    return tables.variants(
        _with_setting(own[alike], plans, results, "data_sha256"),
        _with_setting(orders, diagnoses, results, "candidates_sha256"),
        (episodes[episodes["kappa"] == 1], ordering[ordering["kappa"] == 1]),
        summaries | diagnoses.cards(results, "summary.json"),
    )


def fill(text: str, found: list[Section]) -> str:
    """A page with its tables written anew: each ``<!-- table: name --> … <!-- end -->`` gets the table of that name.

    Raises
    ------
    ValueError
        If a marker names no table or is not ended, or a table has no marker.
    """
    for match in _MARK.finditer(text):
        # Without this, the text down to the next table's end would be lost.
        if "<!-- table:" in match["body"]:
            raise ValueError(f"The page's table {match['name']!r} is not ended by <!-- end --> before the next one.")
    by_name = {section.name: section for section in found}
    marked = [match["name"] for match in _MARK.finditer(text)]
    known = set(NAMES)
    unknown = sorted(set(marked) - known) + sorted(set(by_name) - set(marked))
    if unknown:
        raise ValueError(f"The page's markers and the tables disagree about {unknown[0]!r}.")

    def replace(match: re.Match[str]) -> str:
        section = by_name.get(match["name"])
        body = "Not run yet.\n" if section is None else f"\n{markdown(section.table)}\n{section.note}\n\n"
        return match[1] + body + match[4]

    return _MARK.sub(replace, text)


def write_page(results: Path, page: Path = PAGE) -> None:
    """Write the tables of ``results`` into a page.

    Raises
    ------
    ValueError
        As :func:`fill`, or if the page cannot be read or written.
    """
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{page} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise ValueError(f"{page} cannot be read: it is not UTF-8 text.") from None
    write_atomic(page, fill(text, sections(results)))


def _with_setting(rows: pd.DataFrame, stage: VisualRuns, results: Path, name: str) -> pd.DataFrame:
    """Rows with one of their run's settings in a column: only equal ones are paired, and none counts without."""
    settings = stage.settings(results)
    for run in rows["run"].unique():
        if not settings[run].get(name):
            raise ValueError(f"{run}/run.json does not say its {name}, so its rows do not count; compute it again.")
    return rows.assign(**{name: rows["run"].map({run: own.get(name) for run, own in settings.items()})})


def _alike(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Rows whose tasks agree on a setting: then means over seeds are over the same cases, not only the same numbers."""
    for task, own in rows.groupby("task"):
        if own[name].nunique() > 1:
            first, other = own.drop_duplicates(name)["run"].iloc[:2]
            raise ValueError(
                f"{TITLES.get(str(task), task)}: models can be compared only on the same pairs, of one recording and "
                f"with the same candidates, but {first} and {other} differ in {name}; make both alike."
            )
    return rows


_FORECAST = (
    "`python -m visual advise`: covariance and one-frame regression noise of the states that the outcome measures, in "
    "units of the success threshold, from training episodes alone; regret of the metric that ΛReg settles at if the "
    "encoder is linear in these states and has no other coordinates (docs/theory.md, T7). Intervals: bootstrap over "
    "episodes."
)
_LATENT_FORECAST = (
    "Mean regret of the best linear map from the states to the latent of held-out frames, in units of the success "
    "threshold, and after the semicolon the mean over local linear maps, which is what a planner meets near a goal. "
    "At κ = 1 as measured; for other κ the forecast scales those latents by the target that their one-step residuals "
    "ask for, spare dimensions first (docs/theory.md, T12; `python -m visual diagnose`), and “measured” is the model "
    "that was trained with that κ and seed. “Best κ” is the least of ten values up to 16. Intervals: bootstrap over "
    "episodes."
)
_RATE = (
    "Wilson intervals, one training seed each. Random actions and the share solved before the first action are of the "
    "same pairs; “unsolved pairs only” leaves the latter out. The ceiling is the same planner on the simulator's true "
    "cost, on the first n of the pairs."
)
_DIFFERENCE = (
    "McNemar's exact test asks, for one trained model of each kind, whether they differ on pairs like these, and takes "
    "pairs as independent. “p over episodes” asks the same of all seeds together, with the pairs of an episode flipped "
    "together. “p over seeds” and the interval over seeds (Student's t) ask whether other training runs would differ "
    "like these; with few seeds the p value cannot be small, and the least it could be is given."
)
_ORDER = (
    "Mean over pairs of the share of sequence pairs whose cost order agrees with their outcome order (docs/theory.md, "
    "T11). Every model scores the same stored sequences. Intervals: bootstrap of the "
    "mean over seeds, the pairs of an episode drawn together."
)
_ORDER_DIFFERENCE = (
    "Agreement of κ minus that of κ = 1, same seeds, pairs and sequences; intervals as above, over seeds Student's t."
)
_POOLED = (
    "A pair of models has one task, one training seed, and differs in κ. Student's interval over the pairs of models, "
    "and the exact test that flips their signs: would other models on these tasks differ like these? Models of a task "
    "share pairs and sequences, so this says nothing of other tasks."
)
_TRAINED = (
    "Held-out episodes, mean over seeds. “Relative” is the prediction error over the features' variance: the target's "
    "mean variance is 1 by construction, so errors at different κ are comparable but are not errors of one metric. "
    "“Target high” counts coordinates above the mean target variance, by seed; “minutes” is wall-clock time on one "
    "thread of a shared machine."
)
_SWEEP = (
    "κ with one training seed, beside the other κ of that seed: nothing here says how another seed would do. Intervals "
    "as above, over pairs; differences are to κ = 1 of the same seed. “High” counts coordinates of the learned target "
    "above its mean. “Kept” is the ratio of the features' variances on its high and low coordinates, “asked” that of "
    "the target's own."
)
_VARIANTS = (
    "Models with the settings in the second column changed, against κ = 1 with the same ones (κ = 1 has no target, and "
    "stands beside every rate of it), by training seed in ascending order; columns as above. A dash where two were not "
    "judged on the same pairs or sequences."
)
