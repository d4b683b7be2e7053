"""Claims about planning and its evaluation.

1. In float64 the plans for many episodes at once equal those of stable-worldmodel's solver and cost, one episode at a
   time, with the same candidates, to 1e-8; the shipped cost is wrong for several episodes at a time.
2. The plan of a pair depends on seed, pair and how often it was planned, not on its neighbours or their order.
3. The terminal latent has the gradient of the shipped rollout; every solver of the protocol's list runs quietly, and
   none clamps.
4. Protocols hold the published settings; bad ones, another history and other sizes are one sentence each.
5. The standardised cost is the distance after division by the standard deviations.
6. An evaluation returns one row per pair, none dropped, the same whatever the batch size, and again when it is
   repeated; a batch gets a new policy; the random floor is a function of seed and pair.
7. The ceiling's cost is the outcome of the recorded end for recorded actions: 0.
8. A finished evaluation with equal settings is left alone, another one in its folder is an error.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from stable_worldmodel.policy import PlanConfig
from stable_worldmodel.solver import CEMSolver
from torch import Tensor
from visual_models import save_trained, tiny_preset

from theory.runs import read_rows
from visual import evaluation
from visual.ceiling import SimulatorCost
from visual.checkpoint import WorldModel, describe_model
from visual.data import Recording, open_recording
from visual.evaluation import RandomActions, Scaling, evaluate, feature_std
from visual.manifest import Manifest, Pairs
from visual.model import build_model
from visual.planning import PAIR_KEY, SOLVERS, EpisodeCEM, LatentCost, Planner, load_protocol
from visual.rollout import terminal_latent
from visual.success import plan, plan_folder
from visual.tasks import Task
from visual.training import step_seed

Recorded = Callable[[str], tuple[Task, Manifest]]
PRESET = tiny_preset(image_size=64, encoder_patch=32)


def random_model(dtype: torch.dtype = torch.float64, depth: int = 2) -> Any:
    """LeWM in which actions matter: its modulations start at zero."""
    model: Any = build_model(tiny_preset(predictor_depth=depth), 2, seed=0).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.predictor.parameters():
        parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    model = model.to(dtype)

    def forward(self: Any, actions: Tensor) -> Tensor:
        smooth = self.patch_embed(actions.to(dtype).permute(0, 2, 1)).permute(0, 2, 1)
        embedded: Tensor = self.embed(smooth)
        return embedded

    # The shipped embedder casts to float32, whatever the precision of its weights.
    model.action_encoder.forward = types.MethodType(forward, model.action_encoder)
    return model


def frames(count: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(2)
    shape = (count, 1, 3, 16, 16)
    return {name: torch.randn(shape, generator=generator, dtype=dtype) for name in ("pixels", "goal")}


def configured(solver: Any, count: int, horizon: int = 5) -> Any:
    space = Box(-1.0, 1.0, (count, 2))
    solver.configure(action_space=space, n_envs=count, config=PlanConfig(horizon, horizon, action_block=5))
    return solver


@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_plans_equal_the_shipped_ones(horizon: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Claim 1. Mutation: keep keys and values when the window slides, or use positions of the whole plan."""
    model, count = random_model(), 4
    settings: dict[str, Any] = {"num_samples": 40, "topk": 6, "n_steps": 4}
    ours = configured(EpisodeCEM(LatentCost(model), seed=5, **settings), count, horizon).solve(frames(count))
    for pair in range(count):
        shipped = CEMSolver(model, batch_size=1, seed=step_seed(5, pair, 0), **settings)
        alone = {name: value[pair : pair + 1] for name, value in frames(count).items()}
        # LeWM.get_cost looks for an action entry only to remove it; without a first plan the result is float32.
        alone["action"], zeros = torch.zeros(1, 1, 2), torch.zeros(1, horizon, 10, dtype=torch.float64)
        theirs = configured(shipped, 1, horizon).solve(alone, init_action=zeros)
        torch.testing.assert_close(ours["actions"][pair], theirs["actions"][0], atol=1e-8, rtol=0)
        assert ours["costs"][pair] == pytest.approx(theirs["costs"][0], rel=1e-9)
    assert float(ours["actions"].abs().max()) > 0.1
    capsys.readouterr()


def test_the_shipped_cost_mixes_episodes_and_ours_does_not() -> None:
    """Claim 1. Mutation: leave out unsqueeze(1) in LatentCost.criterion."""
    model, count, samples = random_model(), 3, 3
    plans = torch.randn(count, samples, 5, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    expanded = {name: value.unsqueeze(1).expand(-1, samples, -1, -1, -1, -1) for name, value in frames(count).items()}
    ours = LatentCost(model).get_cost(dict(expanded), plans)
    shipped = model.get_cost({**expanded, "action": torch.zeros(count, samples, 1, 2)}, plans.clone())
    alone = [
        model.get_cost(
            {name: value[i : i + 1] for name, value in expanded.items()} | {"action": torch.zeros(1, samples, 1, 2)},
            plans[i : i + 1].clone(),
        )
        for i in range(count)
    ]
    torch.testing.assert_close(ours, torch.cat(alone), atol=1e-10, rtol=1e-10)
    assert not torch.allclose(shipped, torch.cat(alone))


def test_plans_do_not_depend_on_neighbours() -> None:
    """Claim 2. Mutation: draw all candidates from one stream, or forget how often a pair was planned."""
    model = random_model(torch.float32)
    settings: dict[str, Any] = {"num_samples": 20, "topk": 4, "n_steps": 2, "seed": 0}
    everyone = {**frames(4, torch.float32), PAIR_KEY: torch.arange(4).unsqueeze(1)}
    together = configured(EpisodeCEM(LatentCost(model), **settings), 4)
    first, second = (together.solve(everyone)["actions"] for _ in range(2))
    assert not torch.allclose(first, second)
    turned = {name: value[[3, 1]] for name, value in everyone.items()}
    others = configured(EpisodeCEM(LatentCost(model), **settings), 2).solve(turned)["actions"]
    torch.testing.assert_close(others, first[[3, 1]], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", SOLVERS)
def test_no_solver_lets_neighbours_in(name: str) -> None:
    """Claim 2. Mutation: give the other solvers all episodes at once."""
    model = random_model(torch.float32)
    protocol = load_protocol("quick", solver=name, num_samples=12, elites=4, iterations=2)
    pixels = torch.randint(0, 256, (3, 1, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    everyone = {"pixels": pixels, "goal": pixels.flip(0), PAIR_KEY: torch.tensor([[4], [7], [9]])}

    def plans(rows: list[int]) -> list[Tensor]:
        planner = Planner(LatentCost(model), protocol, "tworoom", seed=0)
        planner.configure(action_space=Box(-1.0, 1.0, (len(rows), 2)), n_envs=len(rows), config=planner.config)
        info = {key: value[rows] for key, value in everyone.items()}
        return [planner.solve(info)["actions"] for _ in range(2)]

    first, second = plans([0, 1, 2])
    assert not torch.allclose(first, second)
    for again, expected in zip(plans([2, 0]), (first, second), strict=True):
        torch.testing.assert_close(again, expected[[2, 0]], atol=1e-4, rtol=1e-4)


def test_gradient_of_the_rollout() -> None:
    """Claim 3. Mutation: detach the latents or write in place."""
    model = random_model()
    plans = torch.randn(2, 3, 5, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    start = torch.randn(2, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    ours, theirs = plans.clone().requires_grad_(), plans.clone().requires_grad_()
    terminal_latent(model, start, ours).square().sum().backward()
    info = {"pixels": torch.zeros(2, 3, 1, 1), "emb": start[:, None, None].expand(2, 3, 1, 8)}
    model.rollout(info, theirs)["predicted_emb"][:, :, -1].square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_runs_quietly(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Claim 3. Mutation: take redirect_stdout out of Planner, or the bounds of iCEM back in."""
    protocol = load_protocol("quick", solver=name, iterations=4, initial_scale=3.0)
    cost = LatentCost(random_model(torch.float32))
    planner = Planner(cost, protocol, "tworoom", seed=0)
    planner.configure(action_space=Box(-1e-3, 1e-3, (3, 2)), n_envs=3, config=planner.config)
    pixels = torch.randint(0, 256, (3, 1, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    info = {"pixels": pixels, "goal": pixels.flip(0), PAIR_KEY: torch.tensor([[4], [7], [9]])}
    result = planner.solve(info)
    assert capsys.readouterr().out == ""
    assert result["actions"].shape == (3, planner.horizon, planner.action_dim) == (3, 5, 10)
    assert float(result["actions"].abs().max()) > 1e-2
    assert dict(planner.solves) == {4: 1, 7: 1, 9: 1}
    assert all(seconds > 0 for seconds in planner.seconds.values())
    assert planner.n_envs == 3


def test_protocols_are_the_published_ones() -> None:
    """Claim 4. Mutation: change a number in a protocol."""
    config, paper, laptop = (load_protocol(name) for name in ("lewm-config", "lewm-paper", "laptop"))
    for protocol in (config, paper):
        assert (protocol.num_samples, protocol.elites, protocol.horizon, protocol.receding) == (300, 30, 5, 5)
        assert (protocol.action_block, protocol.budget, protocol.pairs, protocol.initial_scale) == (5, 50, 50, 1.0)
    tasks = ("tworoom", "reacher", "pusht", "cube")
    assert [config.iterations_for(task) for task in tasks] == [30, 30, 30, 30]
    assert [paper.iterations_for(task) for task in tasks] == [10, 10, 30, 10]
    assert (laptop.num_samples, laptop.elites, laptop.iterations_for("pusht")) == (100, 10, 10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"solver": "sgd"}, "no solver 'sgd'; the solvers are cem, icem, mppi, gradient"),
        ({"elites": 1}, "elites = 1 must lie between 2"),
        ({"elites": 101}, "must lie between 2 and num_samples = 100"),
        ({"receding": 6}, "receding = 6 exceeds horizon = 5"),
        ({"iterations": 0}, "iterations must be a positive integer"),
        ({"initial_scale": 0.0}, "initial_scale must be positive"),
        ({"speed": 1}, r"unknown settings \['speed'\]"),
    ],
)
def test_bad_protocols(changes: dict[str, Any], message: str) -> None:
    """Claim 4. Mutation: drop any check."""
    with pytest.raises(ValueError, match=message):
        load_protocol("laptop", **changes)
    with pytest.raises(ValueError, match="no protocol 'desktop'; the protocols are laptop"):
        load_protocol("desktop")


def world_model(**card: Any) -> WorldModel:
    return describe_model(build_model(PRESET, 2, seed=0).eval().requires_grad_(False), card)


def test_models_that_do_not_fit(short_recording: Recorded) -> None:
    """Claim 4. Mutation: drop any check of check_fit."""
    task, manifest = short_recording("tworoom")
    recording = open_recording(manifest)
    small = describe_model(build_model(tiny_preset(), 2, seed=0))
    wide = describe_model(build_model(PRESET, 3, seed=0))
    quick = load_protocol("quick", pairs=1)
    cases = [
        (world_model(), load_protocol("quick", history=1), "history = 1, but the model was trained with 3"),
        (world_model(), load_protocol("quick", action_block=3), "action_block = 3 does not divide"),
        (world_model(), load_protocol("quick", pairs=500), "planning pairs, fewer than protocol.pairs = 500"),
        (small, quick, "frames of 64 px, but the model takes 16 px"),
        (world_model(task="cube"), quick, "trained on the task 'cube', not on 'tworoom'"),
        (wide, quick, "15 stacked action components, but 5 actions of .* have 10"),
        (None, quick, "The cost 'latent' needs a model"),
    ]
    for model, protocol, message in cases:
        with pytest.raises(ValueError, match=message):
            evaluate(model, task, recording, protocol)
    with pytest.raises(ValueError, match="no cost 'oracle'"):
        evaluate(world_model(), task, recording, quick, cost="oracle")


def test_standardised_cost(short_recording: Recorded) -> None:
    """Claim 5. Mutation: multiply by the standard deviation."""
    _, manifest = short_recording("tworoom")
    std = feature_std(world_model(), open_recording(manifest))
    assert std.shape == (8,)
    generator = torch.Generator().manual_seed(0)
    info = {
        "latent_end": torch.randn(2, 5, 8, generator=generator),
        "latent_goal": torch.randn(2, 8, generator=generator),
    }
    scaled = {name: value / std for name, value in info.items()}
    weighted = LatentCost(world_model().model, std.square().reciprocal()).criterion(info, torch.empty(0))
    plain = LatentCost(world_model().model).criterion(scaled, torch.empty(0))
    torch.testing.assert_close(weighted, plain)


def test_evaluation_rows(short_recording: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim 6. Mutation: plan with one stream for all, keep one policy for all batches, or drop solved pairs."""
    task, manifest = short_recording("tworoom")
    recording, pairs = open_recording(manifest), manifest.pairs
    protocol = load_protocol("quick", pairs=3, iterations=2, receding=2, budget=12)
    rows = evaluate(world_model(), task, recording, protocol)
    assert rows["pair"].tolist() == [0, 1, 2]
    assert rows["start"].tolist() == list(pairs.start[:3])
    assert rows["already_solved"].tolist() == list(pairs.already_solved[:3])
    assert (rows["best_outcome"] <= rows["final_outcome"]).all()
    assert ((rows["best_outcome"] < 1) == rows["success"]).all()
    assert (rows.loc[~rows["success"], "steps"] == 12).all()
    assert (rows.loc[~rows["success"], "solves"] == 2).all()
    monkeypatch.setattr(evaluation, "_AT_ONCE", 2)
    again = evaluate(world_model(), task, recording, protocol)
    compared = [name for name in rows if name not in ("seconds", "final_outcome", "best_outcome")]
    assert rows[compared].equals(again[compared])
    np.testing.assert_allclose(rows["final_outcome"], again["final_outcome"], rtol=1e-3)
    other = evaluate(world_model(), task, recording, protocol, seed=1)
    assert not np.allclose(rows["final_outcome"], other["final_outcome"])


class ReplayActor:
    """Takes the recorded actions of its pairs and keeps what it is shown."""

    def __init__(self, recording: Recording, pairs: Pairs, part: Sequence[int]) -> None:
        rows = [int(recording.offsets[pairs.episode[pair]]) + pairs.start[pair] for pair in part]
        self.actions = np.stack([recording.read("action", row + np.arange(25)) for row in rows], axis=1)
        self.seen: list[dict[str, Any]] = []

    def set_env(self, env: Any) -> None:
        self.num_envs = env.num_envs

    def get_action(self, info_dict: dict[str, Any]) -> np.ndarray:
        self.seen.append({name: np.array(info_dict[name][:, 0]) for name in ("pixels", "goal", PAIR_KEY)})
        action: np.ndarray = self.actions[len(self.seen) - 1]
        return action


def test_recorded_actions_succeed_and_recorded_frames_are_shown(short_recording: Recorded) -> None:
    """Claim 6. Mutation: leave the goal of the reset in the simulator, or show the frame of the reset."""
    task, manifest = short_recording("tworoom")
    recording, pairs = open_recording(manifest), manifest.pairs
    part = [pair for pair in range(len(pairs)) if not pairs.already_solved[pair]][:3]
    actor = ReplayActor(recording, pairs, part)
    episodes = list(evaluation.run_pairs(task, recording, pairs, part, 25, lambda _: actor, frames=True))
    assert [episode.pair for episode in episodes] == part
    assert all(episode.success for episode in episodes)
    assert all(episode.best < 1 for episode in episodes)
    first = np.array([int(recording.offsets[pairs.episode[pair]]) + pairs.start[pair] for pair in part])
    assert actor.seen[0][PAIR_KEY].tolist() == part
    np.testing.assert_array_equal(actor.seen[0]["pixels"], recording.read("pixels", first))
    for shown in actor.seen:
        np.testing.assert_array_equal(shown["goal"], recording.read("pixels", first + 25))
    assert not np.array_equal(actor.seen[3]["pixels"], actor.seen[0]["pixels"])
    np.testing.assert_array_equal(actor.seen[3]["pixels"], recording.read("pixels", first + 3))


def test_random_actions_follow_seed_and_pair() -> None:
    """Claim 6. Mutation: seed by position instead of by pair."""

    class Env:
        single_action_space = Box(np.array([-1.0, 0.0], dtype=np.float32), np.array([1.0, 5.0], dtype=np.float32))

    def draw(seed: int, pairs: list[int]) -> np.ndarray:
        actor = RandomActions(seed, pairs)
        actor.set_env(Env())
        return np.stack([actor.get_action({}) for _ in range(50)], axis=1)

    both = draw(0, [3, 8])
    np.testing.assert_array_equal(draw(0, [8, 3])[::-1], both)
    assert not np.array_equal(both[0], draw(1, [3])[0])
    assert both[..., 0].min() < -0.5
    assert 2.0 < both[..., 1].max() <= 5.0
    assert both[..., 1].min() >= 0.0


def test_the_ceiling_executes_plans(short_recording: Recorded) -> None:
    """Claim 7. Mutation: forget to scale the actions back, or start from the goal."""
    task, manifest = short_recording("tworoom")
    recording, pairs = open_recording(manifest), manifest.pairs
    first = int(recording.offsets[pairs.episode[0]] + pairs.start[0])
    state, goal = (
        {k: v[0] for k, v in recording.read_state(task, np.array([row])).items()} for row in (first, first + 25)
    )
    recorded = recording.read("action", first + np.arange(25))
    scaling = Scaling(np.array([0.2, -0.1], dtype=np.float32), np.array([0.5, 0.7], dtype=np.float32))
    candidates = torch.from_numpy(scaling.transform(recorded)).reshape(1, 1, 5, 10)
    cost = SimulatorCost(task, scaling)
    cost.observe(7, state, goal)
    info = {PAIR_KEY: torch.tensor([[7]])}
    try:
        costs = cost.get_cost(info, torch.cat([candidates, torch.zeros_like(candidates)], dim=1))
    finally:
        cost.close()
    assert float(costs[0, 0]) == pytest.approx(0.0, abs=1e-3)
    assert float(costs[0, 1]) > 0.1


def test_a_finished_evaluation_is_left_alone(
    short_recording: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Claim 8. Mutation: leave the weights' hash out of the settings."""
    task, manifest = short_recording("tworoom")
    out = tmp_path / "out"
    for kappa in (1, 2):
        save_trained(out / f"tworoom/k{kappa}-s1-quick/train", PRESET, kappa)
    protocol = load_protocol("quick", pairs=2, iterations=1, budget=5)

    def run(kappa: float = 2.0, **changes: Any) -> Path:
        return plan(task, kappa, "quick", 1, protocol, data=manifest.folder, out=out, **changes)

    run(kappa=1.0)
    folder = run()
    assert folder == out / "tworoom/k2-s1-quick/plan-quick"
    printed = capsys.readouterr().out
    assert "success" in printed
    assert "κ = 2 against κ = 1 on the same 2 pairs" in printed
    rows = read_rows(folder)
    first = ["origin", "task", "kappa", "training_seed", "preset", "cost", "protocol", "solver", "pair"]
    assert list(rows)[:9] == first
    assert rows.iloc[0, :9].tolist() == ["measured", "tworoom", 2.0, 1, "quick", "latent", "quick", "cem", 0]
    run()
    assert "is finished" in capsys.readouterr().out
    with pytest.raises(ValueError, match="holds a run with seed = 0, not 3"):
        run(seed=3)
    save_trained(out / "tworoom/k2-s1-quick/train", PRESET, 9)
    with pytest.raises(ValueError, match="weights_sha256"):
        run()
    names = [
        plan_folder("o", "tworoom", 2.0, 1, "laptop", load_protocol("laptop", solver="mppi")),
        plan_folder("o", "tworoom", 2.0, 1, "laptop", protocol, "standardized"),
        plan_folder("o", "tworoom", 2.0, 1, "laptop", protocol, "simulator"),
        plan_folder("o", "tworoom", 2.0, 1, "laptop", protocol, "latent", "x/released/checkpoint"),
        plan_folder("o", "tworoom", 2.0, 1, "laptop", protocol, "latent", "x/k1.25-s3072-laptop/train"),
    ]
    assert [str(name) for name in names] == [
        "o/tworoom/k2-s1-laptop/plan-laptop-mppi",
        "o/tworoom/k2-s1-laptop/plan-quick-standardized",
        "o/tworoom/simulator-laptop/plan-quick",
        "o/tworoom/released/plan-quick",
        "o/tworoom/checkpoint-k1.25-s3072-laptop/plan-quick",
    ]
