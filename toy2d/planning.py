"""Planning on an imposed line: which reachable outcome does a latent cost choose, and what does the choice cost?

The reachable line is {p + s u, |s| ≤ 3}, through p with unit direction u; the goal lies at distance 1 from p,
perpendicular to the line, so p is the task optimum and J(p) = 1. One action reaches the whole plane, so the line is
imposed: a point y on it is the conditional-mean outcome of a = B⁻¹(y − 0.6 x). The planner takes the y of least

    J_pred(y) = ‖predictor(encoder(x), a) − encoder(goal)‖²   or   J_enc(y) = ‖encoder(y) − encoder(goal)‖²,

and its normalised regret at the conditional-mean outcome is J(y) − J(p) = s² (docs/theory.md, T5, T10).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from theory.spd import check_count
from toy2d.networks import StackedMLP
from toy2d.system import WARP_SKEW, ToySystem

#: Half-length of the imposed line, and the number of its grid points: a step of 0.005.
HALF_LENGTH = 3.0
GRID_POINTS = 1201

# 1200 cells are searched as 30 coarse cells, each split by 5, 4, 2.
_SPLITS = (40, 8, 2, 1)
_CHUNK_ROWS = 1 << 14
# Largest |GELU'| and |GELU''|, rounded up: Φ(√2) + √2 φ(√2) = 1.12890 and 2 φ(0) = 0.79788.
_GELU_SLOPE, _GELU_BEND = 1.1290, 0.7979


@dataclass(frozen=True)
class PlanningCases:
    """Imposed lines: current state x, point p (the task optimum), unit direction u and goal, each (n, 2)."""

    state: Tensor
    point: Tensor
    direction: Tensor
    goal: Tensor

    def outcome(self, position: Tensor) -> Tensor:
        """Outcomes p + s u (n, 2) at positions s (n,)."""
        return self.point + position[:, None] * self.direction


@dataclass(frozen=True)
class LineInputs:
    """A network's inputs along lines: ``base + s · slope`` (n, d_in); with ``observer``, what it sees of that state."""

    base: Tensor
    slope: Tensor
    observer: ToySystem | None = None

    @property
    def affine(self) -> bool:
        """Whether the inputs are affine in s."""
        return self.observer is None or self.observer.observation == "identity"

    def at(self, line: Tensor, position: Tensor) -> Tensor:
        """Inputs (m, d_in) of lines ``line`` (m,) at positions s (m,)."""
        inputs = torch.addcmul(self.base[line], position[:, None], self.slope[line])
        return inputs if self.observer is None else self.observer.observe(inputs)

    def derivative_bounds(self) -> tuple[Tensor, Tensor]:
        """Bounds (n, d_in) on the absolute first and second derivative of the inputs in s, anywhere on the line."""
        slope = self.slope.abs()
        if self.observer is None or self.affine:
            return slope, torch.zeros_like(slope)
        # The warp u + a (√(1 + u²) − 1) has slope below 1 + a and curvature a (1 + u²)^{−3/2} at most a.
        std = torch.as_tensor(self.observer.state_std, dtype=slope.dtype)
        return (1 + WARP_SKEW) * slope, WARP_SKEW * slope.square() / std


def draw_cases(system: ToySystem, count: int, generator: torch.Generator) -> PlanningCases:
    """Draw ``count`` planning cases near the data.

    x ~ N(0, Σ); p = 0.6 x + B a with a ~ N(0, I), a conditional-mean outcome the data holds; the direction is uniform
    on the circle and the goal lies at distance 1 from p on one side of the line or the other.
    """
    check_count(count, "lines")
    normal = torch.randn(count, 4, generator=generator)
    angle = torch.rand(count, generator=generator) * (2 * math.pi)
    state = normal[:, :2] * torch.tensor(system.state_std)
    point = system.conditional_mean(state, normal[:, 2:])
    direction = torch.stack((angle.cos(), angle.sin()), dim=1)
    # A uniform angle over the whole circle makes both sides equally likely.
    goal = point + torch.stack((-direction[:, 1], direction[:, 0]), dim=1)
    return PlanningCases(state, point, direction, goal)


def encoder_inputs(system: ToySystem, cases: PlanningCases) -> LineInputs:
    """What the encoder of J_enc sees along each line: the observation of the outcome y."""
    return LineInputs(cases.point, cases.direction, system)


def predictor_inputs(system: ToySystem, encoder: StackedMLP, cases: PlanningCases) -> LineInputs:
    """What the predictor of J_pred sees along each line: the current latent, and the action whose outcome is y."""
    latent = encoder(system.observe(cases.state)[None])[0]
    action = system.action_for(cases.state, cases.point)
    slope = system.solve_gain(cases.direction)
    return LineInputs(torch.cat((latent, action), 1), torch.cat((torch.zeros_like(latent), slope), 1))


def grid_positions(index: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Positions s of grid indices 0..1200 on [−3, 3]."""
    return (index.to(dtype) - (GRID_POINTS - 1) / 2) * (2 * HALF_LENGTH / (GRID_POINTS - 1))


def dense_search(network: StackedMLP, inputs: LineInputs, target: Tensor) -> Tensor:
    """Grid index (n,) of least ‖network(inputs(s)) − target‖ on each line, by trying every point; lowest index wins.

    ``network`` is a stack of one; ``target`` is (n, D). :func:`line_search` finds the same index sooner.
    """
    index = torch.arange(GRID_POINTS)
    best = []
    for line in range(target.shape[0]):
        gap = _gaps(network, inputs, target, torch.full_like(index, line), index)
        best.append(gap.square().sum(1).argmin())
    return torch.stack(best)


@torch.no_grad()
def line_search(network: StackedMLP, inputs: LineInputs, target: Tensor) -> Tensor:
    """The index that :func:`dense_search` returns, coarse to fine, skipping cells that cannot hold it.

    On a cell of length Δ, a curve with ‖f''‖ ≤ H stays within HΔ²/8 of its chord, so its distance to the target is at
    least that of the chord, less HΔ²/8. A cell whose bound exceeds the best distance found so far holds no better
    point and is dropped; the others are split. H comes from the weights (:func:`curvature_bound`) and holds on the
    whole line, so no minimum is lost, however folded the encoder (up to the rounding of its outputs).
    """
    lines, dtype = target.shape[0], target.dtype
    bound = curvature_bound(network, inputs)
    scale = target.square().sum(1).sqrt() + 1
    slack = 64 * torch.finfo(dtype).eps * scale
    step = _SPLITS[0]
    count = (GRID_POINTS - 1) // step + 1
    index = torch.arange(count).mul_(step).repeat(lines)
    line = torch.arange(lines).repeat_interleave(count)
    gap = _gaps(network, inputs, target, line, index)
    best = _Best(lines, dtype)
    best.update(line, index, gap)
    gap = gap.view(lines, count, -1)
    left, right = gap[:, :-1].flatten(0, 1), gap[:, 1:].flatten(0, 1)
    start = index.view(lines, count)[:, :-1].flatten()
    line = line.view(lines, count)[:, :-1].flatten()
    for finer in _SPLITS[1:]:
        length = step * 2 * HALF_LENGTH / (GRID_POINTS - 1)
        floor = _chord_distance(left, right) - (bound[line] * (length**2 / 8) + slack[line])
        keep = (floor <= best.value.sqrt()[line]).nonzero()[:, 0]
        left, right, start, line = left[keep], right[keep], start[keep], line[keep]
        parts = step // finer
        offsets = torch.arange(1, parts) * finer
        inner_line = line.repeat_interleave(parts - 1)
        inner_index = (start[:, None] + offsets).flatten()
        inner = _gaps(network, inputs, target, inner_line, inner_index)
        best.update(inner_line, inner_index, inner)
        chain = torch.cat((left[:, None], inner.view(len(line), parts - 1, -1), right[:, None]), dim=1)
        left, right = chain[:, :-1].flatten(0, 1), chain[:, 1:].flatten(0, 1)
        start = (start[:, None] + torch.arange(parts) * finer).flatten()
        line = line.repeat_interleave(parts)
        step = finer
    return best.index


def curvature_bound(network: StackedMLP, inputs: LineInputs) -> Tensor:
    """Upper bound H (n,) on ‖d²/ds² network(inputs(s))‖ along each line, from the weights.

    With preactivations h₁ = W₁ᵀx + b₁ and h₂ = W₂ᵀ GELU(h₁) + b₂, in absolute values, by the chain rule:
    |h₁'| ≤ |W₁|ᵀ|x'|, |h₂'| ≤ ‖W₂‖ · g |h₁'| (Euclidean norm of each column), |h₂''| ≤ |W₂|ᵀ (b |h₁'|² + g |h₁''|),
    |f''| ≤ |A|ᵀ|x''| + |W₃|ᵀ (b |h₂'|² + g |h₂''|), g = max |GELU'| and b = max |GELU''|.
    """
    first, second = inputs.derivative_bounds()
    total = second @ network.skip[0].abs()
    if network.hidden:
        weight_in, weight_mid = network.weight_in[0].abs(), network.weight_mid[0]
        # x is affine in s on all lines but warped ones; the sign of its slope then tightens the bound.
        slope = (inputs.slope @ network.weight_in[0]).abs() if inputs.affine else first @ weight_in
        bend = second @ weight_in
        slope_mid = _GELU_SLOPE * slope.norm(dim=1, keepdim=True) * weight_mid.norm(dim=0)
        bend_mid = (_GELU_BEND * slope.square() + _GELU_SLOPE * bend) @ weight_mid.abs()
        total = total + (_GELU_BEND * slope_mid.square() + _GELU_SLOPE * bend_mid) @ network.weight_out[0].abs()
    return total.norm(dim=1)


class _Best:
    """Least squared distance and its lowest grid index, for each line."""

    def __init__(self, lines: int, dtype: torch.dtype) -> None:
        self.value = torch.full((lines,), math.inf, dtype=dtype)
        self.index = torch.full((lines,), GRID_POINTS)

    def update(self, line: Tensor, index: Tensor, gap: Tensor) -> None:
        cost = gap.square().sum(1)
        previous = self.value.clone()
        self.value.scatter_reduce_(0, line, cost, "amin")
        self.index[self.value < previous] = GRID_POINTS
        hit = (cost == self.value[line]).nonzero()[:, 0]
        self.index.scatter_reduce_(0, line[hit], index[hit], "amin")


def _chord_distance(left: Tensor, right: Tensor) -> Tensor:
    """Distance (m,) from the origin to the segments from ``left`` to ``right`` (m, D)."""
    chord = right - left
    squared = chord.square().sum(1).clamp_min(torch.finfo(left.dtype).tiny)
    fraction = (-(left * chord).sum(1) / squared).clamp(0, 1)
    return torch.addcmul(left, fraction[:, None], chord).norm(dim=1)


def _gaps(network: StackedMLP, inputs: LineInputs, target: Tensor, line: Tensor, index: Tensor) -> Tensor:
    """network(inputs) − target (m, D) at grid points ``index`` of lines ``line``."""
    pieces = []
    for rows, points in zip(line.split(_CHUNK_ROWS), index.split(_CHUNK_ROWS), strict=True):
        position = grid_positions(points, target.dtype)
        pieces.append(network(inputs.at(rows, position)[None])[0] - target[rows])
    return torch.cat(pieces) if pieces else target.new_zeros(0, target.shape[1])
