"""Covariances and metrics from data that known systems made.

Claims:

1. Σ̂ and Σ̂_w are what the normal equations give; Σ̂_w is unbiased with few rows: its degrees of freedom are right.
2. Intervals cover at their level: covariances and relative noise, a metric's condition number and regret; correlated
   rows need their episodes.
3. A change of the state's units or basis moves every estimate as it moves the truth; N and regret in that basis stay.
4. A linear encoder's metric is found exactly, whatever its rotation and offset; noise in the latents only lowers R².
5. Local metrics of a linear encoder are all equal; those of a bent one are JᵀJ at their centres, and their mean E[JᵀJ].
6. Singular metrics are reported as such; draws are reproducible; bad input is one sentence that names the argument, and
   the direction in which the data do not vary.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Array, conditions, dims, random_rotation, random_spd, seeds

from theory.estimate import estimate_covariances, estimate_local_metrics, estimate_metric
from theory.estimate.bootstrap import block_sums, block_weights, row_blocks
from theory.metric import encoder_metric
from theory.regret import mean_line_regret, worst_regret
from theory.spd import condition_number
from theory.target import relative_noise


def transitions(
    rng: np.random.Generator, count: int, state_cov: Array, noise_cov: Array, action_dim: int = 1
) -> dict[str, Array]:
    """Independent rows of x' = Ax + Ba + b + w with x ~ N(μ, Σ): a stable A, unit actions."""
    dim = state_cov.shape[0]
    states = rng.standard_normal((count, dim)) @ np.linalg.cholesky(state_cov).T + rng.standard_normal(dim)
    actions = rng.standard_normal((count, action_dim)) + 0.3 * states[:, :1]
    noise = rng.standard_normal((count, dim)) @ np.linalg.cholesky(noise_cov).T
    dynamics, gain = 0.6 * random_rotation(rng, dim), rng.standard_normal((dim, action_dim))
    return {
        "states": states,
        "next_states": states @ dynamics.T + actions @ gain.T + 2.0 + noise,
        "actions": actions,
        "dynamics": dynamics,
        "gain": gain,
    }


def columns(data: dict[str, Array]) -> dict[str, Any]:
    return {name: data[name] for name in ("states", "next_states", "actions")}


def covered(interval: tuple[Array, Array], truth: Array | float) -> Array:
    lower, upper = interval
    return np.asarray((lower <= truth) & (truth <= upper))


# --- 1. point estimates ----------------------------------------------------------------------------------------------


@given(seed=seeds(), dim=dims(1, 8), action_dim=st.integers(0, 3), extra=st.integers(0, 200), condition=conditions(1e6))
@settings(max_examples=40)
def test_estimates_are_the_normal_equations(seed: int, dim: int, action_dim: int, extra: int, condition: float) -> None:
    """Σ̂ = np.cov; Â, B̂, b̂ solve ZᵀZθ = Zᵀx' with Z = (1, x, a); residuals have T − n − m − 1 degrees of freedom.

    Mutation: ``freedom = count - dim - action_dim`` (the offset forgotten).
    """
    rng = np.random.default_rng(seed)
    count = 2 * dim + action_dim + 1 + extra
    data = transitions(rng, count, random_spd(rng, dim, condition), random_spd(rng, dim, 10.0, 0.1), action_dim)
    estimate = estimate_covariances(**columns(data), resamples=50)
    np.testing.assert_allclose(estimate.state_cov, np.cov(data["states"].T).reshape(dim, dim), rtol=1e-9, atol=1e-9)
    design = np.hstack([np.ones((count, 1)), data["states"], data["actions"]])
    unit = np.abs(design).max(axis=0)
    solution = np.linalg.pinv(design / unit) @ data["next_states"] / unit[:, None]
    residuals = data["next_states"] - design @ solution
    freedom = count - np.linalg.matrix_rank(design / unit)
    assert estimate.degrees_of_freedom == freedom
    np.testing.assert_allclose(estimate.noise_cov, residuals.T @ residuals / freedom, rtol=1e-6, atol=1e-9)
    fitted = (
        data["states"] @ estimate.dynamics.T + data["actions"] @ estimate.action_gain.T + estimate.offset + residuals
    )
    np.testing.assert_allclose(fitted, data["next_states"], atol=1e-6 * np.abs(data["states"]).max())


def test_noise_covariance_is_unbiased_with_few_rows() -> None:
    """Twelve rows, six regressors: the mean over 1,200 logs is Σ_w within its error; RᵀR/T would be half of it."""
    rng = np.random.default_rng(0)
    state_cov, noise_cov = np.diag([3.0, 1.0, 0.5]), np.diag([0.3, 0.2, 0.1])
    totals = np.array(
        [
            np.diag(
                estimate_covariances(**columns(transitions(rng, 12, state_cov, noise_cov, 2)), resamples=50).noise_cov
            )
            for _ in range(1200)
        ]
    )
    error = totals.std(axis=0) / math.sqrt(totals.shape[0])
    assert (np.abs(totals.mean(axis=0) - np.diag(noise_cov)) < 4 * error).all()
    assert (error < 0.03 * np.diag(noise_cov)).all()


def test_many_rows_recover_the_system() -> None:
    rng = np.random.default_rng(1)
    state_cov, noise_cov = random_spd(rng, 3, 10.0), random_spd(rng, 3, 5.0, 0.05)
    data = transitions(rng, 200_000, state_cov, noise_cov, 2)
    estimate = estimate_covariances(**columns(data))
    np.testing.assert_allclose(estimate.state_cov, state_cov, atol=0.02 * state_cov.max())
    np.testing.assert_allclose(estimate.noise_cov, noise_cov, atol=0.02 * noise_cov.max())
    np.testing.assert_allclose(estimate.dynamics, data["dynamics"], atol=0.01)
    np.testing.assert_allclose(estimate.action_gain, data["gain"], atol=0.01)
    assert estimate.num_transitions == 200_000


# --- 2. intervals ----------------------------------------------------------------------------------------------------


def test_covariance_intervals_cover_at_their_level() -> None:
    """90 % intervals over 250 logs: every entry and every relative level is covered 84 to 96 % of the time.

    Mutation: draws not normalised to T rows (``weights * 1``), or quantiles at (1 − level) instead of (1 − level)/2.
    """
    rng = np.random.default_rng(2)
    state_cov, noise_cov = np.array([[2.0, 0.6], [0.6, 1.0]]), np.array([[0.3, 0.05], [0.05, 0.1]])
    levels = np.linalg.eigvalsh(relative_noise(state_cov, noise_cov))
    hits: dict[str, list[Array]] = {"state_cov": [], "noise_cov": [], "relative_noise": []}
    truth = {"state_cov": state_cov, "noise_cov": noise_cov, "relative_noise": levels}
    for index in range(250):
        data = transitions(rng, 300, state_cov, noise_cov)
        estimate = estimate_covariances(**columns(data), level=0.9, resamples=200, seed=index)
        for name in hits:
            hits[name].append(covered(estimate.interval[name], truth[name]))
    for name, found in hits.items():
        rates = np.mean(found, axis=0)
        assert (rates > 0.84).all(), (name, rates)
        assert (rates < 0.96).all(), (name, rates)


def test_correlated_rows_need_their_episodes() -> None:
    """State rows that hardly move within an episode: with labels the interval covers, rows on their own are too sure.

    Mutation: ``row_blocks`` ignores ``episodes``.
    """
    rng = np.random.default_rng(3)
    with_labels, without = [], []
    for index in range(120):
        labels = np.repeat(np.arange(40), 10)
        states = np.repeat(rng.standard_normal((40, 1)), 10, axis=0) + 0.1 * rng.standard_normal((400, 1))
        data = {"states": states, "next_states": states + rng.standard_normal((400, 1)), "actions": np.zeros((400, 0))}
        # Shuffled, so that neighbouring rows say nothing and only the labels can.
        order = rng.permutation(400)
        data = {name: rows[order] for name, rows in data.items()}
        labelled = estimate_covariances(**data, episodes=labels[order], resamples=100, seed=index)
        alone = estimate_covariances(**data, resamples=100, seed=index)
        with_labels.append(covered(labelled.interval["state_cov"], 1.01))
        without.append(covered(alone.interval["state_cov"], 1.01))
    assert np.mean(with_labels) > 0.82
    assert np.mean(without) < 0.65


def test_metric_intervals_cover_at_their_level() -> None:
    """90 % intervals for ρ, mean and worst regret, R² and M's entries with noisy latents.

    Mutation: ``maps`` replaced by the point estimate (no spread), or R² draws without the division by the total.
    """
    rng = np.random.default_rng(4)
    encoder = np.array([[1.0, 0.2], [0.0, 0.6], [0.3, -0.3]])
    metric = encoder_metric(encoder)
    signal = float(np.trace(metric))
    truth = {
        "condition_number": condition_number(metric),
        "mean_regret": mean_line_regret(metric),
        "worst_regret": worst_regret(metric),
        "r_squared": signal / (signal + 3 * 0.25),
        "metric": metric,
    }
    hits: dict[str, list[Array]] = {name: [] for name in truth}
    for index in range(160):
        states = rng.standard_normal((400, 2))
        latents = states @ encoder.T + 0.5 * rng.standard_normal((400, 3))
        estimate = estimate_metric(states, latents, level=0.9, resamples=150, seed=index)
        for name in hits:
            hits[name].append(covered(estimate.interval[name], truth[name]))
    for name, found in hits.items():
        rates = np.mean(found, axis=0)
        assert (rates > 0.83).all(), (name, rates)
        assert (rates < 0.97).all(), (name, rates)


@given(seed=seeds(), count=st.integers(2, 3000), labelled=st.booleans(), width=st.integers(1, 3))
def test_blocks_keep_every_row_once(seed: int, count: int, labelled: bool, width: int) -> None:
    """Block sums add up to the whole; weights count T rows in every draw.

    Mutation: ``ends`` one row early.
    """
    rng = np.random.default_rng(seed)
    episodes = None
    if labelled:
        episodes = rng.integers(0, 7, count)
        episodes[:2] = 0, 1
    blocks = row_blocks(count, 9, episodes)
    first, second = rng.standard_normal((count, width)), rng.standard_normal((count, 2))
    sums = block_sums(first, second, blocks)
    np.testing.assert_allclose(sums.sum(axis=0), first.T @ second, atol=1e-9)
    np.testing.assert_allclose(
        block_sums(np.ones((count, 1)), np.ones((count, 1)), blocks)[:, 0, 0], np.bincount(blocks)
    )
    np.testing.assert_allclose(block_weights(blocks, 50, seed) @ np.bincount(blocks), count)
    assert blocks.max() < 1000


# --- 3. invariance ---------------------------------------------------------------------------------------------------


@given(seed=seeds(), dim=dims(1, 6), units=st.floats(-6, 6))
@settings(max_examples=40)
def test_covariances_move_with_the_state(seed: int, dim: int, units: float) -> None:
    """Under x → Cx + c, Σ → CΣCᵀ, Σ_w → CΣ_wCᵀ, A → CAC⁻¹; eigenvalues of N and their intervals stay.

    Mutation: intervals of ``relative_noise`` from draws in different units (``residuals`` not divided by ``scale``).
    """
    rng = np.random.default_rng(seed)
    data = transitions(rng, 40 + 3 * dim, random_spd(rng, dim, 20.0), random_spd(rng, dim, 10.0, 0.1))
    change = 10**units * random_spd(rng, dim, 10.0) @ random_rotation(rng, dim)
    shift = 10**units * rng.standard_normal(dim)
    moved = {name: data[name] @ change.T + shift for name in ("states", "next_states")}
    before = estimate_covariances(**columns(data), resamples=60)
    after = estimate_covariances(**moved, actions=data["actions"], resamples=60)
    np.testing.assert_allclose(
        after.state_cov, change @ before.state_cov @ change.T, rtol=1e-7, atol=1e-9 * 10 ** (2 * units)
    )
    np.testing.assert_allclose(
        after.noise_cov, change @ before.noise_cov @ change.T, rtol=1e-7, atol=1e-9 * 10 ** (2 * units)
    )
    np.testing.assert_allclose(after.dynamics @ change, change @ before.dynamics, rtol=1e-6, atol=1e-7 * 10**units)
    for end in (0, 1):
        np.testing.assert_allclose(
            after.interval["relative_noise"][end], before.interval["relative_noise"][end], rtol=1e-6
        )
    np.testing.assert_allclose(
        after.noise_cov_draws, change @ before.noise_cov_draws @ change.T, rtol=1e-6, atol=1e-8 * 10 ** (2 * units)
    )


@given(seed=seeds(), dim=dims(2, 6), spare=st.integers(0, 6), noise=st.floats(0, 1))
@settings(max_examples=40)
def test_metric_moves_with_state_and_not_with_latent_rotation(seed: int, dim: int, spare: int, noise: float) -> None:
    """Under z → Rz + c M stays; x → Cx makes it C⁻ᵀMC⁻¹; costs relative to a moved task metric stay, intervals too.

    Mutation: ``metric_in_units`` divides by ``scale`` once.
    """
    rng = np.random.default_rng(seed)
    states = rng.standard_normal((120, dim)) @ random_spd(rng, dim, 5.0)
    latents = states @ rng.standard_normal((dim, dim + spare)) + noise * rng.standard_normal((120, dim + spare))
    task_metric = random_spd(rng, dim, 4.0)
    plain = estimate_metric(states, latents, task_metric=task_metric, resamples=50)
    turned = estimate_metric(
        states, latents @ random_rotation(rng, dim + spare) - 3.0, task_metric=task_metric, resamples=50
    )
    change = random_spd(rng, dim, 5.0)
    back = np.linalg.inv(change)
    moved_task = back.T @ task_metric @ back
    moved = estimate_metric(states @ change.T, latents, task_metric=(moved_task + moved_task.T) / 2, resamples=50)
    np.testing.assert_allclose(turned.metric, plain.metric, rtol=1e-7, atol=1e-9 * plain.metric.max())
    np.testing.assert_allclose(
        change.T @ moved.metric @ change, plain.metric, rtol=1e-6, atol=1e-8 * plain.metric.max()
    )
    for other in (turned, moved):
        assert other.r_squared == pytest.approx(plain.r_squared, abs=1e-9)
        for name in ("condition_number", "mean_regret", "worst_regret"):
            assert getattr(other, name) == pytest.approx(getattr(plain, name), rel=1e-5, abs=1e-9)
            np.testing.assert_allclose(other.interval[name], plain.interval[name], rtol=1e-4, atol=1e-8)


# --- 4. linear encoders ----------------------------------------------------------------------------------------------


@given(seed=seeds(), dim=dims(1, 12), spare=st.integers(0, 5), condition=conditions(1e4))
@settings(max_examples=40)
def test_a_linear_encoder_is_found_exactly(seed: int, dim: int, spare: int, condition: float) -> None:
    """With z = Wx + b without noise: Ŵ = W, M̂ = WᵀW, R² = 1, regrets those of M, intervals of no width.

    Mutation: regress without centring the latents.
    """
    rng = np.random.default_rng(seed)
    states = rng.standard_normal((3 * dim + 10, dim)) @ random_spd(rng, dim, min(condition, 100.0))
    encoder = random_rotation(rng, dim + spare)[:, :dim] @ random_spd(rng, dim, math.sqrt(condition))
    estimate = estimate_metric(states, states @ encoder.T + 5.0, resamples=50)
    np.testing.assert_allclose(estimate.encoder, encoder, atol=1e-8 * np.abs(encoder).max())
    np.testing.assert_allclose(estimate.metric, encoder_metric(encoder), atol=1e-8 * np.abs(encoder).max() ** 2)
    assert estimate.r_squared == pytest.approx(1.0, abs=1e-12)
    if dim > 1:
        assert estimate.condition_number == pytest.approx(condition_number(encoder_metric(encoder)), rel=1e-5)
        assert estimate.mean_regret == pytest.approx(mean_line_regret(estimate.metric), rel=1e-6)
        assert estimate.worst_regret == pytest.approx(worst_regret(estimate.metric), rel=1e-6)
        width = np.diff(estimate.interval["condition_number"])
        assert abs(float(width[0])) < 1e-6 * estimate.condition_number
    else:
        assert math.isnan(estimate.mean_regret)
        assert math.isnan(estimate.worst_regret)


def test_noisy_latents_lower_r_squared_and_little_else() -> None:
    rng = np.random.default_rng(5)
    encoder = rng.standard_normal((8, 3))
    states = rng.standard_normal((20_000, 3))
    latents = states @ encoder.T + 2.0 * rng.standard_normal((20_000, 8))
    estimate = estimate_metric(states, latents)
    signal = float((encoder**2).sum())
    assert estimate.r_squared == pytest.approx(signal / (signal + 32), abs=0.02)
    np.testing.assert_allclose(estimate.metric, encoder_metric(encoder), atol=0.02 * signal)


# --- 5. neighbourhoods -----------------------------------------------------------------------------------------------


@given(seed=seeds(), dim=dims(1, 5), centers=st.integers(1, 8))
@settings(max_examples=25)
def test_local_metrics_of_a_linear_encoder_agree(seed: int, dim: int, centers: int) -> None:
    """One metric everywhere, spread 0, regret that of the global metric.

    Mutation: leave out the neighbourhood's scale in ``metric_in_units``.
    """
    rng = np.random.default_rng(seed)
    states = rng.standard_normal((200, dim)) @ random_spd(rng, dim, 10.0)
    encoder = rng.standard_normal((dim + 2, dim))
    local = estimate_local_metrics(states, states @ encoder.T + 1.0, centers=centers, seed=seed)
    expected = encoder_metric(encoder)
    np.testing.assert_allclose(
        local.metrics, np.broadcast_to(expected, local.metrics.shape), atol=1e-8 * expected.max()
    )
    np.testing.assert_allclose(local.mean_metric, expected, atol=1e-8 * expected.max())
    np.testing.assert_allclose(local.spread, 0.0, atol=1e-6)
    np.testing.assert_allclose(local.r_squared, 1.0, atol=1e-9)
    assert local.num_singular == 0
    if dim > 1:
        np.testing.assert_allclose(local.mean_regrets, mean_line_regret(expected), rtol=1e-5, atol=1e-10)


def test_local_metrics_of_a_bent_encoder_are_its_jacobians() -> None:
    """For z = (x₁, x₂ + x₁²), J = [[1, 0], [2x₁, 1]]: the global linear fit sees M = I, the local ones do not.

    Mutation: nearest neighbours of the data's mean instead of the centre.
    """
    rng = np.random.default_rng(6)
    states = rng.standard_normal((60_000, 2))
    latents = np.stack([states[:, 0], states[:, 1] + states[:, 0] ** 2], axis=1)
    places = np.array([[0.0, 0.0], [1.0, 0.5], [-0.7, -1.0]])
    local = estimate_local_metrics(states, latents, centers=places, neighbors=60)
    for place, metric, regret in zip(places, local.metrics, local.mean_regrets, strict=True):
        jacobian = np.array([[1.0, 0.0], [2 * place[0], 1.0]])
        np.testing.assert_allclose(metric, jacobian.T @ jacobian, atol=0.12)
        assert regret == pytest.approx(mean_line_regret(jacobian.T @ jacobian), abs=0.05)
    assert local.radii.max() < 0.3
    assert local.r_squared.min() > 0.99
    assert local.spread.min() > 0.1
    random = estimate_local_metrics(states, latents, centers=600, neighbors=60)
    np.testing.assert_allclose(random.mean_metric, [[5.0, 0.0], [0.0, 1.0]], atol=0.7)
    whole = estimate_metric(states, latents)
    np.testing.assert_allclose(whole.metric, np.eye(2), atol=0.1)
    assert whole.mean_regret < 0.01 < random.mean_regret
    assert whole.r_squared == pytest.approx(0.5, abs=0.02)


def test_neighborhoods_follow_the_states_own_units() -> None:
    """Scaling one coordinate by 1e6 picks the same neighbours: distance is Mahalanobis.

    Mutation: query the tree in raw coordinates.
    """
    rng = np.random.default_rng(7)
    states = rng.standard_normal((500, 2))
    latents = np.stack([np.sin(states[:, 0]), states[:, 1] + states[:, 0] ** 2], axis=1)
    units = np.array([1.0, 1e6])
    plain = estimate_local_metrics(states, latents, centers=5, seed=1)
    scaled = estimate_local_metrics(states * units, latents, centers=5, seed=1)
    np.testing.assert_allclose(scaled.metrics * np.outer(units, units), plain.metrics, rtol=1e-8)
    np.testing.assert_allclose(scaled.radii, plain.radii, rtol=1e-9)


# --- 6. singular, reproducible, refused ------------------------------------------------------------------------------


def test_a_latent_smaller_than_the_state_has_a_singular_metric() -> None:
    rng = np.random.default_rng(8)
    states = rng.standard_normal((100, 3))
    for latents in (states[:, :2], states @ np.diag([1.0, 1.0, 0.0])):
        estimate = estimate_metric(states, latents, resamples=50)
        assert estimate.condition_number == math.inf
        assert math.isnan(estimate.mean_regret)
        assert estimate.worst_regret == math.inf
        local = estimate_local_metrics(states, latents, centers=4)
        assert local.num_singular == 4
        assert math.isnan(local.mean_regret)
        assert np.isnan(local.spread).all()
    # Collapsed in one neighbourhood only: counted there.
    states = np.concatenate([rng.standard_normal((50, 2)), rng.standard_normal((50, 2)) + 20])
    latents = np.where(states[:, :1] > 10, 0.0, states)
    local = estimate_local_metrics(states, latents, centers=[[0.0, 0.0], [20.0, 20.0]], neighbors=30)
    assert local.num_singular == 1
    assert local.mean_regret == local.mean_regrets[0]


def test_same_seed_same_interval() -> None:
    rng = np.random.default_rng(9)
    data = columns(transitions(rng, 50, np.eye(2), 0.1 * np.eye(2)))
    runs = [estimate_covariances(**data, resamples=50, seed=seed) for seed in (1, 1, 2, np.random.default_rng(1))]
    for name in runs[0].interval:
        np.testing.assert_array_equal(runs[0].interval[name], runs[1].interval[name])
        np.testing.assert_array_equal(runs[0].interval[name], runs[3].interval[name])
    assert not np.array_equal(runs[0].state_cov_draws, runs[2].state_cov_draws)
    wide = estimate_covariances(**data, resamples=50, level=0.99)
    narrow = estimate_covariances(**data, resamples=50, level=0.5)
    assert (wide.interval["noise_cov"][0] <= narrow.interval["noise_cov"][0]).all()
    assert (wide.interval["noise_cov"][1] >= narrow.interval["noise_cov"][1]).all()


def test_noiseless_logs_have_no_noise() -> None:
    rng = np.random.default_rng(10)
    data = transitions(rng, 60, np.eye(2), np.eye(2))
    next_states = data["states"] @ data["dynamics"].T + data["actions"] @ data["gain"].T
    estimate = estimate_covariances(data["states"], next_states, data["actions"], resamples=50)
    assert np.abs(estimate.noise_cov).max() < 1e-25


def logs(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(11)
    return {**columns(transitions(rng, 40, np.eye(3), 0.1 * np.eye(3), 2)), **changes}


def with_column(name: str, index: int, values: Any) -> dict[str, Any]:
    data = logs()
    data[name][:, index] = values
    return data


ANGLE = np.random.default_rng(12).uniform(0, 2 * np.pi, 40)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (logs(states=np.zeros(40)), ["states", "2 dimensions"]),
        (logs(states=np.zeros((40, 0)), next_states=np.zeros((40, 0))), ["states", "at least one column"]),
        (logs(next_states=np.zeros((39, 3))), ["next_states", "as many rows"]),
        (logs(next_states=np.zeros((40, 2))), ["next_states", "as many columns"]),
        (logs(actions=np.zeros((39, 2))), ["actions", "as many rows"]),
        (with_column("states", 1, np.nan), ["states", "finite"]),
        (with_column("next_states", 1, np.inf), ["next_states", "finite"]),
        ({name: rows[:8] for name, rows in logs().items()}, ["states", "at least 9 rows", "there are 8"]),
        (with_column("states", 1, 4.2), ["states", "(0, 1, 0)"]),
        (with_column("states", 2, 2 * logs()["states"][:, 0]), ["states", "(0.894, 0, -0.447)"]),
        (with_column("actions", 0, 1.0), ["actions", "(1, 0)"]),
        (with_column("actions", 0, 3 * logs()["states"][:, 1]), ["actions", "linear function of states", "0.949"]),
        (logs(states=1e200 * logs()["states"]), ["states", "squares"]),
        (logs(states=1e-200 * logs()["states"]), ["states", "squares"]),
        (logs(level=1.0), ["level"]),
        (logs(resamples=10), ["resamples"]),
        (logs(seed=-1), ["seed"]),
        (logs(episodes=np.zeros(40)), ["episodes", "two different"]),
        (logs(episodes=np.zeros(39)), ["episodes", "one label per row"]),
    ],
)
def test_bad_logs_are_one_sentence(arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError, match=words[0]) as caught:
        estimate_covariances(**arguments)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_logged_sine_and_cosine_of_one_angle() -> None:
    """A full turn is fine (sin² + cos² = 1 is no linear relation); an angle that stands still is named."""
    rng = np.random.default_rng(13)

    def pair(angle: Array) -> dict[str, Any]:
        states = np.stack([np.sin(angle), np.cos(angle), rng.standard_normal(40)], axis=1)
        return logs(states=states, next_states=states + 0.1 * rng.standard_normal((40, 3)))

    assert estimate_covariances(**pair(ANGLE)).state_cov.shape == (3, 3)
    with pytest.raises(ValueError, match=r"states must vary.*\(1, 0, 0\)"):
        estimate_covariances(**pair(np.full(40, 0.3)))
    # Near zero the cosine is constant to rounding of a logged single-precision number.
    with pytest.raises(ValueError, match=r"states must vary.*\(0, 1, 0\)"):
        estimate_covariances(**pair(1e-7 * (ANGLE - 3)))


def test_single_precision_duplicates_are_found() -> None:
    states = logs()["states"]
    states[:, 2] = (0.1 * states[:, 0]).astype(np.float32)
    states[:, 0] = states[:, 0].astype(np.float32)
    with pytest.raises(ValueError, match="states must vary"):
        estimate_covariances(**logs(states=states))


STATES, LATENTS = np.random.default_rng(14).standard_normal((2, 50, 3))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"latents": LATENTS[:49]}, ["latents", "as many rows"]),
        ({"latents": LATENTS[:, 0]}, ["latents", "2 dimensions"]),
        ({"latents": np.zeros((50, 0))}, ["latents", "at least one column"]),
        ({"latents": np.ones((50, 4))}, ["latents", "collapsed"]),
        ({"latents": LATENTS * 1j}, ["latents", "real"]),
        ({"states": np.ones((50, 3))}, ["states", "(1, 0, 0)"]),
        ({"states": STATES[:4], "latents": LATENTS[:4]}, ["states", "at least 5 rows"]),
        ({"task_metric": np.diag([1.0, 1.0, 0.0])}, ["task_metric", "(0, 0, 1)"]),
        ({"level": 0.0}, ["level"]),
    ],
)
def test_bad_latents_are_one_sentence(arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError, match=words[0]) as caught:
        estimate_metric(**{"states": STATES, "latents": LATENTS, **arguments})
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"centers": 0}, ["centers"]),
        ({"centers": 51}, ["centers", "at most"]),
        ({"centers": np.zeros((2, 2))}, ["centers", "columns"]),
        ({"centers": np.zeros((0, 3))}, ["centers", "empty"]),
        ({"neighbors": 4}, ["neighbors", "at least 5"]),
        ({"seed": 1.5}, ["seed"]),
        ({"neighbors": 51}, ["neighbors", "at most"]),
        ({"states": np.round(STATES) + 1e-9 * STATES, "neighbors": 5}, ["states near a center"]),
    ],
)
def test_bad_neighborhoods_are_one_sentence(arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError, match=words[0]) as caught:
        estimate_local_metrics(**{"states": STATES, "latents": LATENTS, **arguments})
    for word in words:
        assert word in str(caught.value)
