"""One reachable line, drawn: what the task wants, what a trained encoder's latent cost chooses (figure 1a)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from theory.spd import check_count
from toy2d.measure import encoder_geometry
from toy2d.networks import StackedMLP
from toy2d.planning import PlanningCases, encoder_inputs, grid_positions, line_search
from toy2d.system import ToySystem
from toy2d.training import TEST_STREAM, Case, TrainSettings, seeded_generator, train

Array = NDArray[np.float64]

#: Half-width (state units) and points a side of the grid on which the latent cost is stored.
GRID_HALF_WIDTH = 2.2
GRID_SIDE = 161


@dataclass(frozen=True)
class SeparationExample:
    """A planning case and what two costs make of it.

    Attributes
    ----------
    state_cov
        Σ (2, 2).
    metric
        The encoder's mean Jacobian metric E[JᵀJ] (2, 2), in state coordinates.
    point, direction, goal
        The reachable line through ``point`` along the unit vector ``direction``, and the goal, each (2,). ``point`` is
        the point of the line nearest the goal, at distance 1.
    chosen, optimal
        The point of the line with least latent cost ‖encoder(y) − encoder(goal)‖², and with least distance, each (2,).
    grid_x, grid_y, latent_cost
        The latent cost at y = (grid_x[j], grid_y[i]), (len(grid_y), len(grid_x)).
    regret
        Normalised planning regret of ``chosen``.
    """

    state_cov: Array
    metric: Array
    point: Array
    direction: Array
    goal: Array
    chosen: Array
    optimal: Array
    grid_x: Array
    grid_y: Array
    latent_cost: Array
    regret: float

    def save(self, path: str | Path) -> None:
        """Write the fields as an ``.npz`` archive."""
        arrays: dict[str, Any] = {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}
        with Path(path).open("wb") as stream:
            np.savez_compressed(stream, **arrays)


def separation_example(seed: int = 0, sigma: float = 0.1, steps: int = 2000) -> SeparationExample:
    """Train one encoder at κ = 1 and draw its example (:func:`example_of`).

    Raises
    ------
    ValueError
        If the noise has no stationary action gain, or ``steps`` is not a positive whole number.
    """
    case = Case(check_count(seed, "seed", 0), sigma)
    stack = train([case], TrainSettings(steps=steps))
    return example_of(case.system, stack.encoder.select(0), seed)


def example_of(system: ToySystem, encoder: StackedMLP, seed: int = 0) -> SeparationExample:
    """The line along which M ∝ Σ⁻¹ errs most, through the middle of the data, as a trained encoder sees it.

    The direction lies between the axes at (√λmax, √λmin) of Σ⁻¹, the worst case of docs/theory.md, T6; the goal's
    foot and the goal are symmetric about the origin. ``encoder`` is a stack of one.
    """
    std = np.asarray(system.state_std)
    # The axis of the small deviation has λmax = 1/std.min()², and that of the large one takes the component √λmax.
    direction = std / np.linalg.norm(std)
    normal = np.array([-direction[1], direction[0]])
    point, goal = -normal / 2, normal / 2

    def tensor(value: Array) -> torch.Tensor:
        return torch.as_tensor(value, dtype=torch.float32)

    line = PlanningCases(tensor(0 * point)[None], tensor(point)[None], tensor(direction)[None], tensor(goal)[None])
    with torch.no_grad():
        target = encoder(system.observe(line.goal)[None])[0]
        position = float(grid_positions(line_search(encoder, encoder_inputs(system, line), target), torch.float64)[0])
        axis = np.linspace(-GRID_HALF_WIDTH, GRID_HALF_WIDTH, GRID_SIDE)
        grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        cost = (encoder(system.observe(tensor(grid))[None])[0] - target).square().sum(1)
    geometry = encoder_geometry(system, encoder, seeded_generator(seed, TEST_STREAM))
    off_diagonal = geometry["metric_12"]
    return SeparationExample(
        state_cov=system.state_cov,
        metric=np.array([[geometry["metric_11"], off_diagonal], [off_diagonal, geometry["metric_22"]]]),
        point=point,
        direction=direction,
        goal=goal,
        chosen=point + position * direction,
        optimal=point,
        grid_x=axis,
        grid_y=axis,
        latent_cost=cost.double().numpy().reshape(GRID_SIDE, GRID_SIDE),
        regret=position**2,
    )
