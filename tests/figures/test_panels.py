"""The state plane of the notebooks.

1. A level set lies on its ellipse, encloses the area that the metric says, and is closed.
2. A planning case is drawn with both bold rings through the choices; a goal that can be reached is refused.
3. Equal figures give equal palette pictures, small and without a machine's name in them.
"""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from PIL import Image

from figures import panels, style
from theory.reachable import AffineSet
from theory.regret import planning_regret


@given(ratio=st.floats(1, 1e4), angle=st.floats(0, np.pi), radius=st.floats(1e-3, 1e3))
def test_level_set_lies_on_its_ellipse(ratio: float, angle: float, radius: float) -> None:
    """Points satisfy (x − c)ᵀM(x − c) = r², and the polygon's area is close to π r²/√det M.

    Mutation: solve with the Cholesky factor instead of its transpose.
    """
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    metric = turn @ np.diag([1.0, ratio]) @ turn.T
    metric = (metric + metric.T) / 2
    center = np.array([2.0, -3.0])
    points = panels.level_set(metric, radius, center, count=721) - center
    np.testing.assert_allclose(np.einsum("mi,ij,mj->m", points, metric, points), radius**2, rtol=1e-6)
    np.testing.assert_allclose(points[0], points[-1], atol=1e-9 * radius)
    area = 0.5 * abs(np.sum(points[:-1, 0] * points[1:, 1] - points[1:, 0] * points[:-1, 1]))
    np.testing.assert_allclose(area, np.pi * radius**2 / np.sqrt(ratio), rtol=1e-4)


def test_covariance_ellipse_reaches_one_standard_deviation() -> None:
    points = panels.level_set(np.linalg.inv(np.diag([9.0, 4.0])), count=361)
    np.testing.assert_allclose(np.abs(points).max(axis=0), [3.0, 2.0], rtol=1e-12)


def test_case_draws_rings_through_the_choices() -> None:
    """Each bold ring passes through the choice of its cost, and touches the reachable line from one side."""
    metric, goal = np.diag([0.25, 1.0]), np.array([0.5, -0.2])
    direction = np.array([0.8, 0.6])
    line = AffineSet(goal + np.array([-0.6, 0.8]), direction[:, None])
    regret = planning_regret(line, goal, metric)
    with style.sheet():
        axes = Figure().add_subplot()
        panels.draw_case(axes, regret, goal, metric)
    bold = [artist for artist in axes.lines if artist.get_linewidth() == 1.4 and len(artist.get_xdata()) > 3]
    assert [artist.get_color() for artist in bold] == [style.TASK, style.LATENT]
    for artist, choice in zip(bold, (regret.optimal, regret.chosen), strict=True):
        points = artist.get_xydata()
        assert np.linalg.norm(points - choice, axis=1).min() < 0.05
        side = (points - line.point) @ np.array([-0.6, 0.8])
        assert side.max() < 1e-3
    _, labels = axes.get_legend_handles_labels()
    assert labels == ["task cost and its choice", "latent cost and its choice", "goal"]


def test_reachable_goal_is_refused() -> None:
    line = AffineSet(np.zeros(2), np.array([[1.0], [0.0]]))
    goal = np.array([2.0, 0.0])
    axes = Figure().add_subplot()
    with pytest.raises(ValueError, match=r"^goal must not be reachable: there is nothing to compare\.$"):
        panels.draw_case(axes, planning_regret(line, goal, np.eye(2)), goal, np.eye(2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0, 0.0], [0.0, 0.0]],), "metric"),
        ((np.eye(3),), "metric"),
        ((np.eye(2), 0.0), "radius"),
        ((np.eye(2), 1.0, (0.0, 0.0, 0.0)), "center"),
    ],
)
def test_bad_level_sets_are_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message} "):
        panels.level_set(*arguments)


def test_line_crosses_the_panel_without_moving_its_limits() -> None:
    axes = Figure().add_subplot()
    panels.frame_plane(axes, 2.0, ratio=0.5)
    panels.draw_line(axes, [0.0, 0.5], [3.0, 4.0])
    assert axes.get_xlim() == (-2.0, 2.0)
    assert axes.get_ylim() == (-1.0, 1.0)
    assert np.ptp(axes.lines[0].get_xdata()) > 4.0


def test_palette_picture_is_small_and_repeats() -> None:
    def draw() -> Figure:
        with style.sheet():
            figure = Figure(figsize=(3, 2))
            panels.draw_level_sets(figure.add_subplot(), np.diag([1.0, 4.0]))
            return figure

    first, second = panels.palette_png(draw()), panels.palette_png(draw())
    assert first == second
    image = Image.open(io.BytesIO(first))
    assert image.mode == "P"
    assert not image.info.keys() & {"Software", "Creation Time"}
    colors = image.convert("RGB").getcolors()
    assert colors is not None
    assert len(colors) <= panels.PALETTE
    assert (255, 255, 255) in {color for _, color in colors}
    assert len(first) < 20_000


def test_set_up_needs_a_notebook() -> None:
    with pytest.raises(RuntimeError, match="no running notebook"):
        panels.set_up_notebook()
