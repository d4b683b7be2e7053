"""Training: every network of a stack at once, each on the data of its own seed (docs/theory.md, T10).

Loss of one network: mean squared latent error of the predictor + λ R_N(current and next features, pooled), with R_N the
ΛReg statistic. Gradients reach the encoder through both ends of the prediction. Losses add up over the stack and no
operation mixes networks, so each is trained as if alone.

Three choices change how soon the optimum is reached, not where it lies. With κ > 1 the way there is a flat valley:
prediction turns the encoder until the target's axes meet the state's, by a gradient far smaller than the noise of a
batch statistic. So the linear paths learn ten times as fast as the rest, Adam forgets the large gradients of the start
within 100 steps (β₂ = 0.99), and the encoder starts well conditioned (:func:`encoder_start`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from theory.regularizer import FullTarget, LambdaReg, attach_target, draw_slices
from theory.spd import check_count, check_kappa, check_scale
from toy2d.networks import HIDDEN, StackedMLP
from toy2d.system import Observation, ToySystem

#: Called after each step with the number of networks that made it.
StepHook = Callable[[int], None]

#: Adam's decay rates.
BETAS = (0.9, 0.99)

# Steps of data drawn at a time; part of what "same seed, same data" means, so not a setting.
_BLOCK = 50
# The uses of one seed draw from different streams.
_INIT_STREAM, _TRAIN_STREAM, TEST_STREAM = 1, 2, 3
_SLICE_SEED = 20_260_937


@dataclass(frozen=True)
class Case:
    """One network to train: a seed and a setting.

    Attributes
    ----------
    seed
        Fixes the start of the weights and the random numbers of the data, whatever the setting.
    sigma, kappa
        Process-noise standard deviation, and the target's condition-number bound κ ≥ 1.
    observation
        What the encoder sees (:class:`toy2d.system.ToySystem`).
    noise_ratio, noise_angle
        Shape of the noise, there too.

    Raises
    ------
    ValueError
        If the seed is negative, κ < 1, or the noise is one for which the system has no stationary action gain.
    """

    seed: int
    sigma: float
    kappa: float = 1.0
    observation: Observation = "identity"
    noise_ratio: float = 1.0
    noise_angle: float = 0.0

    def __post_init__(self) -> None:
        check_count(self.seed, "seed", 0)
        check_kappa(self.kappa, "kappa")
        _ = self.system

    @property
    def system(self) -> ToySystem:
        """The system this network learns."""
        return ToySystem(
            noise_std=self.sigma,
            observation=self.observation,
            noise_ratio=self.noise_ratio,
            noise_angle=self.noise_angle,
        )


@dataclass(frozen=True)
class TrainSettings:
    """How a stack is trained.

    Attributes
    ----------
    steps, batch_size
        Adam steps; fresh transitions a step. Current and next features are pooled, so the statistic sees N = 2·batch.
    learning_rate
        Peak rate of the hidden layers and biases; cosine to zero over ``steps``.
    skip_rate, target_rate
        Rates of the linear paths and of the target logits, as multiples of ``learning_rate``.
    weight
        λ.
    num_slices
        Slices of the statistic; in two dimensions evenly spaced angles with a random offset, otherwise random.
    latent_dim
        D.
    hidden
        Width of the hidden layers.
    linear_encoder
        Leave the encoder its linear path only.
    full_target
        Learn a full target covariance (:class:`theory.regularizer.FullTarget`) in place of ΛReg's diagonal one.
    """

    steps: int = 2000
    batch_size: int = 256
    learning_rate: float = 2e-3
    skip_rate: float = 10.0
    target_rate: float = 10.0
    weight: float = 0.09
    num_slices: int = 32
    latent_dim: int = 2
    hidden: int = HIDDEN
    linear_encoder: bool = False
    full_target: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "num_slices", "hidden"):
            check_count(getattr(self, name), name)
        # Fewer latent dimensions than state dimensions leave a singular metric (docs/theory.md, T1).
        check_count(self.latent_dim, "latent_dim", 2)
        for name in ("learning_rate", "skip_rate", "target_rate", "weight"):
            check_scale(getattr(self, name), name)


@dataclass(frozen=True)
class TrainedStack:
    """Trained networks, in case order.

    Attributes
    ----------
    cases, settings
        What was trained, and how.
    encoder, predictor
        (S, N, 2) → (S, N, D), and (S, N, D + 2) → (S, N, D) from the latent and the action.
    target_variances
        The learned Λ, (S, D): eigenvalues of the target, if that is full.
    statistic
        The regulariser's value at the last step, (S,).
    """

    cases: tuple[Case, ...]
    settings: TrainSettings
    encoder: StackedMLP
    predictor: StackedMLP
    target_variances: Tensor
    statistic: Tensor


def seeded_generator(seed: int, stream: int) -> torch.Generator:
    """Generator for one use (``stream``) of a seed; streams and neighbouring seeds are independent."""
    state = np.random.SeedSequence([seed, stream]).generate_state(1, dtype=np.uint64)[0]
    return torch.Generator().manual_seed(int(state))


def train(
    cases: Sequence[Case], settings: TrainSettings | None = None, on_step: StepHook | None = None
) -> TrainedStack:
    """Train one network for each case, all together.

    Raises
    ------
    ValueError
        If there are no cases.
    """
    settings = settings or TrainSettings()
    if not cases:
        raise ValueError("cases must not be empty: there is nothing to train.")
    size, dim = len(cases), settings.latent_dim
    generators = [seeded_generator(case.seed, _INIT_STREAM) for case in cases]
    skip = torch.stack([encoder_start(dim, generator) for generator in generators])
    encoder = StackedMLP(skip, generators, hidden=0 if settings.linear_encoder else settings.hidden)
    # The predicted latent starts as the current one.
    skip = torch.eye(dim + 2, dim).expand(size, -1, -1)
    predictor = StackedMLP(skip, generators, hidden=settings.hidden)
    kappas = torch.tensor([case.kappa for case in cases], dtype=torch.float64)
    target = FullTarget(dim, kappas, (size,)) if settings.full_target else None
    regularizer = LambdaReg(dim, kappa=kappas, num_slices=settings.num_slices, batch_shape=(size,), target=target)
    optimizer = _optimizer(encoder, predictor, regularizer, settings)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / settings.steps))
    )
    statistic = torch.empty(size)
    batches, slices = training_batches(cases, settings.batch_size), training_slices(dim, settings.num_slices)
    for _, (observed, action), columns in zip(range(settings.steps), batches, slices, strict=False):
        features = encoder(observed)
        current, following = features.split(settings.batch_size, dim=1)
        predicted = predictor(torch.cat((current, action), dim=-1))
        error = (predicted - following).square().mean((-2, -1))
        statistic = regularizer(features, slices=columns, reduction="none")
        optimizer.zero_grad(set_to_none=True)
        (error + settings.weight * statistic).sum().backward()
        optimizer.step()
        schedule.step()
        if on_step is not None:
            on_step(size)
    variances = regularizer.target.variances().detach()
    return TrainedStack(tuple(cases), settings, encoder, predictor, variances, statistic.detach())


def _optimizer(
    encoder: StackedMLP, predictor: StackedMLP, regularizer: LambdaReg, settings: TrainSettings
) -> torch.optim.Optimizer:
    skips = [encoder.skip, predictor.skip]
    rest = [
        parameter
        for network in (encoder, predictor)
        for name, parameter in network.named_parameters()
        if name != "skip"
    ]
    groups: list[dict[str, Any]] = [
        {"params": rest},
        {"params": skips, "lr": settings.learning_rate * settings.skip_rate},
    ]
    optimizer = torch.optim.Adam(groups, lr=settings.learning_rate, betas=BETAS, fused=True)
    attach_target(optimizer, regularizer, lr_multiplier=settings.target_rate)
    return optimizer


def encoder_start(dim: int, generator: torch.Generator) -> Tensor:
    """Start of an encoder's linear path (2, D): singular values 1 and 1/2 between random orthogonal directions.

    Well conditioned, so that no network begins by untangling a nearly singular map with its nonlinear path; and with a
    metric of condition number 4 that lies in a random direction, so that no setting starts at its answer.
    """
    left, right = (torch.linalg.qr(torch.randn(size, 2, generator=generator))[0] for size in (2, dim))
    return (left * torch.tensor([1.0, 0.5])) @ right.mT


def training_batches(cases: Sequence[Case], batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield for ever observations of current, then next states (S, 2·batch, 2), and actions (S, batch, 2).

    The standard normal numbers behind a network's batch depend on its seed and the step alone.
    """
    systems = [case.system for case in cases]
    seeds = sorted({case.seed for case in cases})
    index = torch.tensor([seeds.index(case.seed) for case in cases])
    generators = [seeded_generator(seed, _TRAIN_STREAM) for seed in seeds]
    std = torch.tensor(systems[0].state_std)
    # Transposed, since states are rows. A diagonal matrix rounds no more than its diagonal would.
    gain = torch.tensor(np.stack([system.action_matrix.T for system in systems]), dtype=std.dtype)
    noise = torch.tensor(np.stack([system.noise_factor.T for system in systems]), dtype=std.dtype)
    warped = torch.tensor([case.observation == "nonlinear" for case in cases])
    warp = ToySystem(noise_std=0.0, observation="nonlinear").observe
    while True:
        blocks = [torch.randn(_BLOCK, 3, batch_size, 2, generator=generator) for generator in generators]
        for draws in torch.stack(blocks, dim=1):
            normal = draws[index]
            state, action = normal[:, 0] * std, normal[:, 1]
            following = systems[0].decay * state + action @ gain + normal[:, 2] @ noise
            observed = torch.cat((state, following), dim=1)
            if warped.any():
                observed[warped] = warp(observed[warped])
            yield observed, action


def training_slices(dim: int, count: int) -> Iterator[Tensor]:
    """Yield unit columns (D, count) for ever, one set a step for all networks: a function of the step alone."""
    generator = torch.Generator().manual_seed(_SLICE_SEED)
    while True:
        if dim == 2:
            angles = (torch.arange(count) + torch.rand(1, generator=generator)) * (math.pi / count)
            yield torch.stack((angles.cos(), angles.sin()))
        else:
            yield draw_slices(dim, count, generator=generator)
