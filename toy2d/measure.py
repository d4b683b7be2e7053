"""What is measured on each trained network: its metric, its folds, its prediction error, and the regret it plans with.

All test data come from the network's own seed (a stream apart from training), so a row depends on nothing else.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from theory.regret import mean_line_regret
from toy2d.networks import StackedMLP
from toy2d.planning import draw_cases, encoder_inputs, grid_positions, line_search, predictor_inputs
from toy2d.system import ToySystem
from toy2d.training import TEST_STREAM, TrainedStack, seeded_generator

#: Test states for the metric, folds and the nonlinear share; test transitions for the prediction error.
TEST_STATES = 4096
TEST_TRANSITIONS = 1024

#: A network is called folded if more than this share of test states has the other orientation (or is near singular).
FOLD_THRESHOLD = 0.01

#: For D > 2 there is no det J: a state counts as near singular if λmin/λmax of JᵀJ is below this.
SINGULAR_RATIO = 0.01

#: A network has collapsed if its features have less than this variance along their second principal axis: the
#: regulariser asks for variances of order one in the two dimensions the state has.
COLLAPSE_VARIANCE = 0.01


def measure_stack(stack: TrainedStack, lines: int) -> list[dict[str, Any]]:
    """One row of measurements for each network of the stack, in order."""
    rows = []
    for position, case in enumerate(stack.cases):
        encoder, predictor = stack.encoder.select(position), stack.predictor.select(position)
        generator = seeded_generator(case.seed, TEST_STREAM)
        row: dict[str, Any] = {
            "observation": case.observation,
            "sigma": case.sigma,
            "kappa": case.kappa,
            "latent_dim": stack.settings.latent_dim,
            "seed": case.seed,
            "steps": stack.settings.steps,
        }
        row |= prediction_error(case.system, encoder, predictor, generator)
        row |= encoder_geometry(case.system, encoder, generator)
        row |= planning(case.system, encoder, predictor, lines, generator)
        learned = sorted(stack.target_variances[position].tolist(), reverse=True)
        row |= {
            "target_variances": learned,
            "target_condition": learned[0] / learned[-1],
            "regularizer": float(stack.statistic[position]),
        }
        rows.append(row)
    return rows


@torch.no_grad()
def prediction_error(
    system: ToySystem, encoder: StackedMLP, predictor: StackedMLP, generator: torch.Generator
) -> dict[str, float]:
    """Mean squared error of the predictor against the conditional mean of the next latent, on held-out transitions.

    The mean runs over transitions and latent coordinates. E[encoder(x') | x, a] is integrated over the process noise
    by a 7 × 7 Gauss–Hermite rule, so the error counts neither the irreducible noise nor Monte Carlo's.
    """
    normal = torch.randn(TEST_TRANSITIONS, 4, generator=generator)
    state, action = normal[:, :2] * torch.tensor(system.state_std), normal[:, 2:]
    nodes, weights = np.polynomial.hermite_e.hermegauss(7)
    offsets = torch.tensor(list(itertools.product(nodes, repeat=2)), dtype=state.dtype)
    mass = torch.tensor([a * b for a, b in itertools.product(weights, repeat=2)], dtype=state.dtype)
    mass = mass / mass.sum()
    mean = system.conditional_mean(state, action)
    following = mean[:, None] + offsets @ torch.tensor(system.noise_factor.T, dtype=state.dtype)
    latents = encoder(system.observe(following).flatten(0, 1)[None])[0].view(len(state), len(mass), -1)
    expected = torch.einsum("nkd,k->nd", latents, mass)
    current = encoder(system.observe(state)[None])
    predicted = predictor(torch.cat((current[0], action), dim=1)[None])[0]
    error = float((predicted - expected).square().mean())
    variance = float(current[0].var(dim=0, correction=0).mean())
    return {
        "prediction_error": error,
        "prediction_error_relative": error / variance if variance > 0 else float("nan"),
    }


def encoder_geometry(system: ToySystem, encoder: StackedMLP, generator: torch.Generator) -> dict[str, Any]:
    """The encoder's mean Jacobian metric E[JᵀJ] in state coordinates, its folds, and its nonlinear share."""
    state = torch.randn(TEST_STATES, 2, generator=generator) * torch.tensor(system.state_std)
    latent, jacobian = encoder_jacobian(system, encoder, state)
    local = jacobian.transpose(1, 2) @ jacobian
    metric = local.mean(0, dtype=torch.float64).numpy()
    metric = (metric + metric.T) / 2
    precision = np.linalg.inv(system.state_cov)
    precision /= np.trace(precision)
    if latent.shape[1] == 2:
        negative = float((torch.linalg.det(jacobian) < 0).double().mean())
        fold_share = min(negative, 1 - negative)
    else:
        eigenvalues = torch.linalg.eigvalsh(local)
        fold_share = float((eigenvalues[:, 0] < SINGULAR_RATIO * eigenvalues[:, 1]).double().mean())
    regressors = torch.cat((state, torch.ones(len(state), 1)), dim=1).double()
    features = latent.double()
    residual = features - regressors @ torch.linalg.lstsq(regressors, features).solution
    variance = float(features.var(dim=0, correction=0).sum())
    principal = torch.linalg.eigvalsh(torch.cov(features.T))
    return {
        "metric_11": float(metric[0, 0]),
        "metric_12": float(metric[0, 1]),
        "metric_22": float(metric[1, 1]),
        "metric_ratio": float(metric[0, 0] / metric[1, 1]),
        "metric_regret": mean_line_regret(metric),
        "metric_deviation": float(np.linalg.norm(metric / np.trace(metric) - precision) / np.linalg.norm(precision)),
        "fold_share": fold_share,
        "folded": fold_share > FOLD_THRESHOLD,
        "nonlinear_share": float(residual.square().mean(0).sum()) / variance if variance > 0 else float("nan"),
        "collapsed": bool(principal[-2] < COLLAPSE_VARIANCE),
    }


def encoder_jacobian(system: ToySystem, encoder: StackedMLP, state: Tensor) -> tuple[Tensor, Tensor]:
    """Latents (n, D) and their Jacobians (n, D, 2) with respect to the state, the observation's warp included."""
    state = state.clone().requires_grad_(True)
    latent = encoder(system.observe(state)[None])[0]
    # Samples do not interact, so the gradient of a sum over samples holds every sample's own gradient.
    rows = [torch.autograd.grad(column.sum(), state, retain_graph=True)[0] for column in latent.unbind(1)]
    return latent.detach(), torch.stack(rows, dim=1)


@torch.no_grad()
def planning(
    system: ToySystem, encoder: StackedMLP, predictor: StackedMLP, lines: int, generator: torch.Generator
) -> dict[str, float]:
    """Normalised regrets of planning with J_pred and J_enc over ``lines`` imposed lines, and the actions' tails."""
    cases = draw_cases(system, lines, generator)
    goal = encoder(system.observe(cases.goal)[None])[0]
    predicted = grid_positions(line_search(predictor, predictor_inputs(system, encoder, cases), goal))
    encoded = grid_positions(line_search(encoder, encoder_inputs(system, cases), goal))
    action = system.action_for(cases.state, cases.outcome(predicted))
    result = {"action_tail_share": float((action.abs() > 3).any(1).double().mean())}
    for name, position in (("pred", predicted), ("enc", encoded)):
        regret = position.double().square()
        result |= {f"regret_{name}": float(regret.mean()), f"regret_{name}_median": float(regret.median())}
    return result
