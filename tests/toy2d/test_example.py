"""The example that figure 1a draws.

Claims:
1. Its line is the worst case of M ∝ Σ⁻¹: a linear encoder that matches pays (c − 1)²/(4c) there.
2. The point chosen has the least latent cost on the line, and the stored grid is that cost.
3. It survives the way to disk and back, and training it is the same as taking it from a stack.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

from theory.regret import worst_case
from toy2d.example import GRID_SIDE, example_of, separation_example
from toy2d.networks import StackedMLP
from toy2d.system import STATE_CONDITION, ToySystem
from toy2d.training import Case, TrainSettings, train


def matching_encoder() -> StackedMLP:
    skip = torch.diag(torch.tensor([1 / 1.75, 1.0]))[None]
    return StackedMLP(skip, [torch.Generator()], hidden=0).requires_grad_(False)


def test_line_is_the_worst_case() -> None:
    """Claim 1.

    Mutation: swap the components (``direction = std[::-1] / ‖std‖``).
    """
    example = example_of(ToySystem(0.1), matching_encoder())
    assert example.regret == pytest.approx((STATE_CONDITION - 1) ** 2 / (4 * STATE_CONDITION), abs=2e-3)
    worst = worst_case(np.linalg.inv(example.state_cov))
    assert abs(worst.direction @ example.direction) == pytest.approx(1.0, abs=1e-9)
    assert example.regret == pytest.approx(worst.regret, abs=2e-3)
    np.testing.assert_allclose(example.metric, np.diag([1 / 3.0625, 1.0]), atol=1e-5)


def test_geometry() -> None:
    """Claims 1 and 2: the goal at distance 1 from the optimum, perpendicular; the choice on the line.

    Mutation: report the choice as ``goal + position * direction``.
    """
    example = example_of(ToySystem(0.1), matching_encoder())
    gap = example.goal - example.point
    assert np.linalg.norm(gap) == pytest.approx(1)
    assert gap @ example.direction == pytest.approx(0, abs=1e-12)
    np.testing.assert_array_equal(example.optimal, example.point)
    along = example.chosen - example.point
    assert np.linalg.norm(along) ** 2 == pytest.approx(example.regret)
    assert along[0] * example.direction[1] == pytest.approx(along[1] * example.direction[0])
    assert np.sum((example.chosen - example.goal) ** 2) - 1 == pytest.approx(example.regret)


@pytest.mark.parametrize("observation", ["identity", "nonlinear"])
def test_latent_cost_is_stored(observation: str) -> None:
    """Claim 2: the grid holds ‖encoder(y) − encoder(goal)‖², rows along x₂; least on the line at the choice.

    Mutation: store the transposed grid.
    """
    system = ToySystem(0.1, observation=observation)  # type: ignore[arg-type]
    encoder = StackedMLP(torch.tensor([[[0.5, 0.3], [0.1, 1.0]]]), [torch.Generator().manual_seed(3)])
    encoder.requires_grad_(False).weight_out.mul_(20)
    example = example_of(system, encoder)

    def cost(points: np.ndarray) -> np.ndarray:
        latent, goal = (
            encoder(system.observe(torch.tensor(place, dtype=torch.float32))[None])[0]
            for place in (points, example.goal[None])
        )
        return (latent - goal).square().sum(1).numpy()

    for row, column in ((0, GRID_SIDE - 1), (40, 100), (80, 80)):
        place = np.array([[example.grid_x[column], example.grid_y[row]]])
        assert example.latent_cost[row, column] == pytest.approx(cost(place)[0], rel=1e-4)
    line = example.point + np.linspace(-3, 3, 6001)[:, None] * example.direction
    assert cost(example.chosen[None])[0] <= cost(line).min() + 1e-5


def test_disk_and_training(tmp_path: Path) -> None:
    """Claim 3.

    Mutation: train with another seed than asked for (``Case(0, sigma)``).
    """
    example = separation_example(seed=3, sigma=0.2, steps=4)
    example.save(tmp_path / "example.npz")
    with np.load(tmp_path / "example.npz", allow_pickle=False) as archive:
        assert set(archive.files) == {field.name for field in fields(example)}
        for field in fields(example):
            np.testing.assert_array_equal(archive[field.name], getattr(example, field.name))
    stack = train([Case(1, 0.3), Case(3, 0.2)], TrainSettings(steps=4))
    same = example_of(stack.cases[1].system, stack.encoder.select(1), 3)
    np.testing.assert_allclose(same.latent_cost, example.latent_cost, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [({"sigma": 0.9}, "noise_std must be below"), ({"steps": 0}, "steps must be"), ({"seed": -1}, "seed must be")],
)
def test_bad_settings_are_refused(arguments: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        separation_example(**arguments)  # type: ignore[arg-type]
