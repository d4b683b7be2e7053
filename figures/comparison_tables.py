"""The comparison's tables as cells of text, each from the rows of one stage."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from figures.tables import BLANK, number
from figures.visual_rows import TITLES, one_setting
from visual.permutation import MAX_ENUMERATED, bootstrap_interval, sign_flip_p_value
from visual.statistics import mcnemar_exact, wilson_interval
from visual.variants import TARGET_SETTINGS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

#: Costs whose ordering is measured, and all measures of a model, with the column that holds each case's value.
COSTS = {"J_enc": "agreement_enc", "J_pred": "agreement_pred"}
MEASURES = {"success": "success", **COSTS}
#: What a card says of the held-out episodes and the tables show.
_HELD_OUT = ("prediction", "copy", "feature_variance", "effective_rank", "feature_spectrum", "probe_r2")


def forecast(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per task: what the linear theory says of the states before anything is trained."""
    table = []
    for task in [task for task in _order(rows) if task in set(rows["task"])]:
        own = one_setting(rows[rows["task"] == task])
        at = own.set_index("kappa")
        first = own.iloc[0]
        regrets = {
            f"mean regret at κ = {kappa:g}": (
                f"{at['mean_regret'][kappa]:.3f} [{at['low'][kappa]:.3f}, {at['high'][kappa]:.3f}]"
                if kappa in at.index
                else BLANK
            )
            for kappa in (1.0, 2.0, 4.0)
        }
        best = f"{first['best_kappa']:.2f} [{first['best_low']:.2f}, {first['best_high']:.2f}]"
        table.append({"task": TITLES.get(task, task), "states": str(first["dim"]), **regrets, "best κ": best})
    return pd.DataFrame(table)


def latent_forecast(ordering: pd.DataFrame, summaries: dict[str, dict[str, object]]) -> pd.DataFrame:
    """One row per task and seed whose κ = 1 was diagnosed: its forecast for other κ, and what those models have.

    Parameters
    ----------
    ordering
        Rows of ``diagnose`` with their ``run``, of one preset.
    summaries
        ``summary.json`` by run.
    """
    table = []
    models = ordering.drop_duplicates("run")
    for task in [task for task in _order(models) if task in set(models["task"])]:
        for seed, group in models[models["task"] == task].groupby("training_seed"):
            runs = {float(kappa): summaries[run] for kappa, run in zip(group["kappa"], group["run"], strict=True)}
            rows = runs.get(1.0, {}).get("forecast")
            if not isinstance(rows, list):
                continue
            forecasts = {row["kappa"]: row for row in rows}
            cells = {"task": TITLES.get(task, task), "seed": str(seed), "κ = 1": _regret(forecasts.get(1.0))}
            for kappa in (2.0, 4.0):
                cells[f"κ = {kappa:g}, forecast"] = _regret(forecasts.get(kappa))
                cells[f"κ = {kappa:g}, measured"] = _regret(runs.get(kappa, {}).get("geometry"))
            known = [(row["mean_regret"], row["kappa"]) for row in rows if row["mean_regret"] is not None]
            table.append({**cells, "best κ": f"{min(known)[1]:g}" if known else BLANK})
    return pd.DataFrame(table)


def _order(rows: pd.DataFrame) -> list[str]:
    """Tasks in the paper's order, then others."""
    return [*TITLES, *sorted(set(rows["task"]) - set(TITLES))]


def _regret(found: object) -> str:
    if not isinstance(found, dict) or found.get("mean_regret") is None:
        return BLANK
    local = found.get("local_mean_regret")
    cell = f"{found['mean_regret']:.3f} [{found['mean_regret_low']:.3f}, {found['mean_regret_high']:.3f}]"
    return cell if local is None else f"{cell}; {local:.3f}"


def success(episodes: pd.DataFrame, ceilings: pd.DataFrame) -> pd.DataFrame:
    """One row per task and κ: the rate of each seed with its interval, and what belongs beside it."""

    def row(group: pd.DataFrame) -> dict[str, str]:
        by_seed = [part for _, part in group.groupby("training_seed")]
        first = by_seed[0]
        floor = wilson_interval(int(first["random_success"].sum()), len(first))
        unsolved = group[~group["already_solved"].astype(bool)]
        return {
            "success, % (by training seed) [95 %]": "; ".join(_rate(part["success"]) for part in by_seed),
            "pairs": "; ".join(dict.fromkeys(str(len(part)) for part in by_seed)),
            "random actions": f"{100 * floor.rate:.0f} [{100 * floor.low:.0f}, {100 * floor.high:.0f}]",
            "solved at the start": f"{100 * first['already_solved'].mean():.0f}",
            "unsolved pairs only": f"{100 * unsolved['success'].mean():.1f}",
            "ceiling": _ceiling(ceilings, str(first["task"].iloc[0])),
            "s per solve": number(group["seconds"].sum() / max(1, group["solves"].sum()), ".2f"),
        }

    return _by_model(episodes, row)


def differences(episodes: pd.DataFrame) -> pd.DataFrame:
    """One row per task and κ > 1: points gained over κ = 1 on the same pairs and seeds, with both kinds of test."""

    def row(base: pd.DataFrame, other: pd.DataFrame) -> dict[str, str]:
        joined = _gained(base, other, "success")
        by_seed = [part for _, part in joined.groupby("training_seed")]
        by_pair = joined.groupby(["episode", "pair"], as_index=False)["gain"].sum()
        low, high = bootstrap_interval(by_pair["gain"] / len(by_seed), by_pair["episode"])
        gains = [100 * float(part["gain"].mean()) for part in by_seed]
        tests = [mcnemar_exact(part["success_base"].astype(int), part["success"].astype(int)) for part in by_seed]
        return {
            "points, mean": number(float(np.mean(gains)), "+.1f"),
            "[95 %, over pairs]": f"[{number(100 * low, '+.1f')}, {number(100 * high, '+.1f')}]",
            "by seed": "; ".join(number(gain, "+.1f") for gain in gains),
            "[95 %, over seeds]": _over_seeds(gains, "+.1f"),
            "McNemar p, by seed": "; ".join(_p(value) for value in tests),
            "p over episodes": _p(sign_flip_p_value(by_pair["gain"], by_pair["episode"])),
            "p over seeds": _p_over(gains),
        }

    return _against_one(episodes, row)


def agreement(ordering: pd.DataFrame) -> pd.DataFrame:
    """One row per task and κ: mean agreement over pairs, by seed."""

    def row(group: pd.DataFrame) -> dict[str, str]:
        cells = {"pairs": str(group["pair"].nunique()), "sequences": f"{group['sequences'].mean():.0f}"}
        for head, name in COSTS.items():
            means = group.groupby("training_seed")[name].mean()
            cells[f"{head}, by seed"] = "; ".join(number(value, ".3f") for value in means)
            by_pair = group.groupby(["episode", "pair"])[name].mean().dropna()
            cells[f"{head}, mean [95 %]"] = _with_interval(float(means.mean()), by_pair, ".3f")
        return cells

    return _by_model(ordering, row)


def ordering_differences(ordering: pd.DataFrame) -> pd.DataFrame:
    """One row per task, κ > 1 and cost: agreement gained over κ = 1 on the same sequences."""

    def row(base: pd.DataFrame, other: pd.DataFrame) -> dict[str, str]:
        cells = {}
        for head, name in COSTS.items():
            joined = _gained(base, other, name)
            by_pair = joined.groupby(["episode", "pair"])["gain"].mean()
            gains = joined.groupby("training_seed")["gain"].mean().to_numpy()
            cells[f"{head}, mean [95 %, over pairs]"] = _with_interval(float(by_pair.mean()), by_pair, "+.3f")
            cells[f"{head}, by seed"] = "; ".join(number(gain, "+.3f") for gain in gains) or BLANK
            cells[f"{head}, [95 %, over seeds]"] = _over_seeds(gains, "+.3f")
        return cells

    return _against_one(ordering, row)


def gains(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """What κ > 1 has over κ = 1 of the same task and training seed, on the same cases, in points.

    Returns
    -------
    pandas.DataFrame
        ``task, kappa, training_seed, points``, one row per pair of models.
    """
    found = []
    for task, kappa, base, other in _against(rows):
        by_seed = 100 * _gained(base, other, column).groupby("training_seed")["gain"].mean()
        found += [(task, kappa, seed, value) for seed, value in by_seed.items()]
    return pd.DataFrame(found, columns=["task", "kappa", "training_seed", "points"])


def pooled(episodes: pd.DataFrame, ordering: pd.DataFrame) -> pd.DataFrame:
    """One row per measure and κ > 1: the differences to κ = 1 of every task and training seed together, in points."""
    table = []
    for measure, column in MEASURES.items():
        for kappa, group in gains(episodes if measure == "success" else ordering, column).groupby("kappa"):
            values = group["points"].to_numpy()
            if len(values) < 2:
                continue
            table.append(
                {
                    "measure": measure,
                    "κ": f"{kappa:g}",
                    "pairs of models": str(len(values)),
                    "above κ = 1": str((values > 0).sum()),
                    "points, mean": number(values.mean(), "+.2f"),
                    "[95 %, over models]": _over_seeds(values, "+.2f"),
                    "p over models": _p_over(values),
                }
            )
    return pd.DataFrame(table)


def trained(rows: pd.DataFrame, cards: dict[str, dict[str, object]]) -> pd.DataFrame:
    """One row per task and κ: the last log row and the held-out evaluation, mean over seeds."""

    def row(group: pd.DataFrame) -> dict[str, str]:
        last = group.sort_values("step").groupby("run").tail(1)
        held_out = pd.DataFrame([_held_out(run, cards[run]) for run in last["run"]])
        features = [np.asarray(values, dtype=float) for values in held_out["feature_spectrum"]]
        return {
            "seeds": str(last["training_seed"].nunique()),
            "held-out prediction": number(held_out["prediction"].mean(), ".4f"),
            "copying": number(held_out["copy"].mean(), ".2f"),
            "relative": number(float((held_out["prediction"] / held_out["feature_variance"]).mean()), ".4f"),
            "probe R²": number(float(held_out["probe_r2"].astype(float).mean()), ".3f"),
            "target condition": number(last["target_condition"].mean(), ".2f"),
            "target high": "; ".join(str(value) for value in last["target_high"]),
            "effective rank": f"{held_out['effective_rank'].mean():.1f} of {len(features[0])}",
            "minutes": number(last["seconds"].mean() / 60, ".1f"),
        }

    return _by_model(rows, row)


def sweep(
    episodes: pd.DataFrame,
    ordering: pd.DataFrame,
    training: pd.DataFrame,
    cards: dict[str, dict[str, object]],
    summaries: dict[str, dict[str, object]],
) -> pd.DataFrame:
    """One row per task, training seed and κ of a sweep (:func:`figures.visual_rows.apart`).

    Parameters
    ----------
    episodes, ordering, training
        Rows of plans, diagnoses and training logs of sweeps alone.
    cards, summaries
        ``model.json`` and ``summary.json`` by run.
    """
    models = pd.concat([rows[["task", "kappa", "training_seed"]] for rows in (episodes, ordering, training)])
    found = []
    for seed in sorted(set(models["training_seed"])):
        every, plans, orders, logs = (
            rows[rows["training_seed"] == seed] for rows in (models, episodes, ordering, training)
        )
        parts = (
            (_by_model(plans, _rates), ["success, % [95 %]"]),
            (differences(plans), ["points, mean", "[95 %, over pairs]", "McNemar p, by seed"]),
            (ordering_differences(orders), [f"{name}, mean [95 %, over pairs]" for name in ("J_enc", "J_pred")]),
            (trained(logs, cards), ["relative", "target high", "effective rank"]),
            (_kept(orders, summaries), ["kept of asked"]),
        )
        table = _by_model(every, lambda _: {})
        table.insert(1, "seed", str(seed))
        found.append(_beside(table, parts))
    names = {"points, mean": "points", "McNemar p, by seed": "McNemar p", "target high": "high"}
    return pd.concat(found, ignore_index=True).rename(columns=names) if found else pd.DataFrame()


def variants(
    episodes: pd.DataFrame,
    ordering: pd.DataFrame,
    plain: tuple[pd.DataFrame, pd.DataFrame],
    summaries: dict[str, dict[str, object]],
) -> pd.DataFrame:
    """One row per variant of a preset (:mod:`visual.variants`) that was planned with, beside κ = 1 of its settings.

    Parameters
    ----------
    episodes, ordering
        Rows of plans and diagnoses of variants of one preset, planned with one protocol.
    plain
        Rows of the preset's own κ = 1: the base of variants that change the target alone.
    summaries
        ``summary.json`` by run.
    """
    found = []
    for name in sorted(set(episodes["preset"])):
        plans, orders = (_with_base(name, rows, more) for rows, more in zip((episodes, ordering), plain, strict=True))
        over_pairs, over_seeds = "[95 %, over pairs]", "[95 %, over seeds]"
        parts = (
            (_if_alike(differences, plans), ["seeds", "points, mean", over_pairs, over_seeds]),
            (
                _if_alike(ordering_differences, orders),
                [f"J_pred, mean {over_pairs}", "J_pred, by seed", f"J_pred, {over_seeds}"],
            ),
            (_kept(orders, summaries), ["kept of asked"]),
        )
        table = _beside(_by_model(plans, _rates), parts)
        labels = [_label(_base(name) if kappa == "1" else name) for kappa in table["κ"]]
        table.insert(1, "changed", labels)
        found.append(table)
    if not found:
        return pd.DataFrame()
    rows = pd.concat(found, ignore_index=True).drop_duplicates(["task", "changed", "κ"])
    return rows.sort_values(["task", "changed"], kind="stable", ignore_index=True)


def _with_base(name: str, rows: pd.DataFrame, plain: pd.DataFrame) -> pd.DataFrame:
    """Rows of a variant's κ > 1 and of the κ = 1 that differs from it in the target alone.

    Two studies may have trained that κ = 1 under two names; the first name counts, for every κ > 1 alike.
    """
    own = rows[rows["preset"] == name]
    base = pd.concat([plain, rows[rows["kappa"] == 1]])
    base = base[base["task"].isin(own["task"]) & (base["preset"].map(_base) == _base(name))]
    base = base.sort_values("preset", kind="stable")
    first = base.drop_duplicates(["task", "training_seed"])[["task", "training_seed", "preset"]]
    return pd.concat([own[own["kappa"] > 1], base.merge(first)], ignore_index=True)


def _if_alike(table: Callable[[pd.DataFrame], pd.DataFrame], rows: pd.DataFrame) -> pd.DataFrame:
    """A table of differences, empty where the models were not judged alike: a variant must not hide all the others."""
    try:
        return table(rows)
    except ValueError:
        return pd.DataFrame()


#: Settings in the name of a variant, as a table has them.
_SETTINGS = {
    "steps": "{} steps",
    "latent_dim": "D = {}",
    "regularizer_weight": "λ = {}",
    "target_lr_multiplier": "target's rate {}",
}
_SETTING = re.compile(r"-([a-z_]+)(\d[\d.]*(?:e[+-]?\d+)?)")


def _label(preset: str) -> str:
    changed = _SETTING.findall(preset)
    return ", ".join(_SETTINGS.get(name, f"{name} {{}}").format(value) for name, value in changed) or BLANK


def _base(preset: str) -> str:
    """A variant's name without the settings that κ = 1 lacks."""
    return _SETTING.sub(lambda match: "" if match[1] in TARGET_SETTINGS else match[0], preset)


def _beside(table: pd.DataFrame, parts: Iterable[tuple[pd.DataFrame, list[str]]]) -> pd.DataFrame:
    """Columns of other tables at the rows' task and κ, a dash where they have none."""
    for part, columns in parts:
        table = table.merge(part.reindex(columns=["task", "κ", *columns]), how="left", on=["task", "κ"])
    return table.astype(object).fillna(BLANK)


def _rates(group: pd.DataFrame) -> dict[str, str]:
    return {"success, % [95 %]": "; ".join(_rate(part["success"]) for _, part in group.groupby("training_seed"))}


def _kept(ordering: pd.DataFrame, summaries: dict[str, dict[str, object]]) -> pd.DataFrame:
    """How much of the target's anisotropy the features have, by training seed."""

    def row(group: pd.DataFrame) -> dict[str, str]:
        cells = []
        for run in group.sort_values("training_seed")["run"].drop_duplicates():
            found = summaries[run].get("occupancy")
            if isinstance(found, dict) and found.get("anisotropy_kept") is not None:
                cells.append(f"{found['anisotropy_kept']:.2f} of {found['anisotropy_asked']:.2f}")
            else:
                cells.append(BLANK)
        return {"kept of asked": "; ".join(cells) if set(cells) != {BLANK} else BLANK}

    return _by_model(ordering, row)


def _held_out(run: str, card: dict[str, object]) -> dict[str, object]:
    """What a card says of the held-out episodes; ``ValueError`` if it lacks a number that the tables show."""
    found = card.get("held_out")
    missing = [name for name in _HELD_OUT if not isinstance(found, dict) or name not in found]
    if missing or not isinstance(found, dict):
        raise ValueError(f"{run}/model.json must hold {missing[0]} in held_out; train again with force=true.")
    return found


def _of_all_seeds(joined: pd.DataFrame) -> pd.DataFrame:
    """Only the pairs that every training seed has, so that a mean over seeds and one over pairs are the same mean."""
    keys = [name for name in ("pair", "episode", "start", "goal") if name in joined]
    seeds = joined.groupby(keys)["training_seed"].transform("nunique")
    common = joined[seeds == joined["training_seed"].nunique()].reset_index(drop=True)
    if common.empty:
        raise ValueError("Training seeds can be compared together only on the same pairs, but they share none.")
    return common


def _with_interval(mean: float, by_pair: pd.Series, form: str) -> str:
    """A mean with its bootstrap interval, episodes drawn whole; a dash where no pair has a number."""
    if by_pair.empty:
        return BLANK
    low, high = bootstrap_interval(by_pair, by_pair.index.get_level_values("episode"))
    return f"{number(mean, form)} [{number(low, form)}, {number(high, form)}]"


def over_seeds(values: ArrayLike) -> tuple[float, float]:
    """Student's 95 % interval of the mean over a few training runs, at least two."""
    found = np.asarray(values, dtype=float)
    half = stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))
    return float(found.mean() - half), float(found.mean() + half)


def _over_seeds(values: ArrayLike, form: str) -> str:
    """That interval as text; a dash for one seed."""
    if len(np.asarray(values)) < 2:
        return BLANK
    return "[{}, {}]".format(*(number(value, form) for value in over_seeds(values)))


def _by_model(rows: pd.DataFrame, row: Callable[[pd.DataFrame], dict[str, str]]) -> pd.DataFrame:
    """Rows of text per task, in the paper's order, and κ."""
    table = [
        {"task": TITLES.get(str(task), str(task)), "κ": f"{kappa:g}", **row(group)}
        for task, kappa, group in _groups(rows)
    ]
    return pd.DataFrame(table)


def _against_one(rows: pd.DataFrame, row: Callable[[pd.DataFrame, pd.DataFrame], dict[str, str]]) -> pd.DataFrame:
    table = []
    for task, kappa, base, other in _against(rows):
        seeds = str(other["training_seed"].nunique())
        table.append({"task": TITLES.get(task, task), "κ": f"{kappa:g}", "seeds": seeds, **row(base, other)})
    return pd.DataFrame(table)


def _against(rows: pd.DataFrame) -> Iterator[tuple[str, float, pd.DataFrame, pd.DataFrame]]:
    """Task, κ > 1, and the rows of κ = 1 and of that κ of the training seeds that both have."""
    groups = {(task, kappa): group for task, kappa, group in _groups(rows)}
    for (task, kappa), group in groups.items():
        base = groups.get((task, 1.0))
        if kappa == 1.0 or base is None:
            continue
        seeds = set(base["training_seed"]) & set(group["training_seed"])
        if seeds:
            base, other = (part[part["training_seed"].isin(seeds)] for part in (base, group))
            yield task, kappa, base, other


def _groups(rows: pd.DataFrame) -> Iterator[tuple[str, float, pd.DataFrame]]:
    for task in _order(rows) if not rows.empty else []:
        part = rows[rows["task"] == task]
        for kappa in sorted(set(part["kappa"])):
            yield task, float(kappa), part[part["kappa"] == kappa]


def _joined(base: pd.DataFrame, other: pd.DataFrame, column: str) -> pd.DataFrame:
    """The two models' rows side by side, by training seed and pair; ``ValueError`` unless they have the same ones."""
    names = ("training_seed", "pair", "episode", "start", "goal", "data_sha256", "candidates_sha256")
    keys = [name for name in names if name in other]
    joined = other[[*keys, column]].merge(base[[*keys, column]], on=keys, suffixes=("", "_base"), validate="1:1")
    if len(joined) != len(other) or len(joined) != len(base):
        first = other.iloc[0]
        raise ValueError(
            f"{TITLES.get(first['task'], first['task'])}: κ = {first['kappa']:g} and κ = 1 can be compared only on the "
            "same pairs, each once, of one recording and with the same candidates; plan or diagnose both alike."
        )
    return joined


def _gained(base: pd.DataFrame, other: pd.DataFrame, column: str) -> pd.DataFrame:
    """Both models' rows side by side, with the ``gain`` of the other, of cases for which every seed has a value."""
    joined = _joined(base, other, column).dropna(subset=[column, f"{column}_base"])
    joined["gain"] = joined[column].astype(float) - joined[f"{column}_base"].astype(float)
    return joined if joined.empty else _of_all_seeds(joined)


def _rate(successes: pd.Series) -> str:
    rate = wilson_interval(int(successes.sum()), len(successes))
    return f"{100 * rate.rate:.1f} [{100 * rate.low:.0f}, {100 * rate.high:.0f}]"


def _ceiling(ceilings: pd.DataFrame, task: str) -> str:
    rows = ceilings[ceilings["task"] == task]
    if rows.empty:
        return BLANK
    values: NDArray[np.bool_] = rows["success"].to_numpy(dtype=bool)
    rate = wilson_interval(int(values.sum()), len(values))
    return f"{100 * rate.rate:.0f} [{100 * rate.low:.0f}, {100 * rate.high:.0f}], n = {rate.count}"


def _p_over(values: ArrayLike) -> str:
    """Exact p-value over runs whose signs are flipped, and the least it could be; a dash for more than are counted."""
    count = len(np.asarray(values))
    if count > MAX_ENUMERATED:
        return BLANK
    return f"{_p(sign_flip_p_value(np.asarray(values)))} (least {2.0 ** (1 - count):.2g})"


def _p(value: float) -> str:
    return f"{value:.2g}" if value >= 0.001 else "< 0.001"
