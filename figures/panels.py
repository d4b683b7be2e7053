"""The state plane, drawn the same way in every notebook: level sets of metrics, training data, planning cases."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from figures import style
from theory.spd import check_array, check_count, check_scale, check_spd, check_vector

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from theory.regret import PlanningRegret

LINE_REACH = 50.0
#: Colours of a notebook's picture: line drawings lose nothing visible, and a stored picture shrinks fourfold.
PALETTE = 128


def set_up_notebook() -> None:
    """Use the style sheet in the running notebook, and store its pictures with a palette.

    Raises
    ------
    RuntimeError
        If no notebook is running.
    """
    import matplotlib.style
    from IPython.core.getipython import get_ipython
    from matplotlib.figure import Figure

    shell = get_ipython()
    if shell is None or shell.display_formatter is None:
        raise RuntimeError("There is no running notebook to set up.")
    matplotlib.style.use(["default", style.SHEET])
    shell.display_formatter.formatters["image/png"].for_type(Figure, palette_png)


def palette_png(figure: Figure, colors: int = PALETTE) -> bytes:
    """The figure as a PNG of at most ``colors`` colours, cut to what is drawn; equal figures give equal bytes."""
    from PIL import Image

    plain, small = io.BytesIO(), io.BytesIO()
    figure.savefig(plain, format="png", dpi=figure.dpi, bbox_inches="tight", metadata={"Software": None})
    image = Image.open(plain).convert("RGB").quantize(colors, dither=Image.Dither.NONE)
    image.save(small, "PNG", optimize=True)
    return small.getvalue()


def level_set(metric: ArrayLike, radius: float = 1.0, center: ArrayLike = (0.0, 0.0), count: int = 181) -> NDArray:
    """Closed curve {x : (x − c)ᵀM(x − c) = r²} in the plane.

    Parameters
    ----------
    metric
        M, SPD (2, 2). The covariance ellipse of Σ at r standard deviations is the level set of M = Σ⁻¹.
    radius
        r > 0, a distance in M.
    center
        c, shape (2,).
    count
        Points of the curve; the first and the last coincide.

    Returns
    -------
    numpy.ndarray
        Rows of points, shape (count, 2).

    Raises
    ------
    ValueError
        If M is not SPD, a shape does not fit or r is not positive.
    """
    factor = np.linalg.cholesky(check_spd(metric, "metric", 2))
    angle = np.linspace(0.0, 2.0 * np.pi, check_count(count, "count", 3))
    circle = check_scale(radius, "radius") * np.stack([np.cos(angle), np.sin(angle)])
    return np.asarray(check_vector(center, "center", 2) + np.linalg.solve(factor.T, circle).T)


def draw_level_sets(
    axes: Axes, metric: ArrayLike, radii: Iterable[float] = (1.0,), center: ArrayLike = (0.0, 0.0), **look: Any
) -> None:
    """Draw :func:`level_set` for each radius; a label is given to the first curve only."""
    curves: dict[str, Any] = {"lw": 1.4, "color": style.LATENT, **look}
    for radius in radii:
        axes.plot(*level_set(metric, radius, center).T, **curves)
        curves.pop("label", None)


def draw_states(axes: Axes, states: ArrayLike, **look: Any) -> None:
    """Draw rows of states (m, 2) as a faint cloud."""
    states = check_array(states, "states", shape=(None, 2))
    cloud: dict[str, Any] = {"marker": ".", "ls": "none", "ms": 2, "mew": 0, "color": style.FAINT, "alpha": 0.5, **look}
    axes.plot(*states.T, **cloud)


def draw_case(
    axes: Axes,
    regret: PlanningRegret,
    goal: ArrayLike,
    metric: ArrayLike,
    task_metric: ArrayLike | None = None,
    rings: Iterable[float] = (0.5, 1.0, 1.5),
) -> None:
    """Draw one planning case: around the goal the costs of the task and of the planner, and the outcome each prefers.

    Rings are level sets of the two costs, in multiples of the distance at that cost's own choice, which lies on the
    bold ring; it is there that a convex reachable set touches.

    Parameters
    ----------
    axes
        Where to draw.
    regret
        What :func:`theory.regret.planning_regret` returned for the case.
    goal, metric, task_metric
        g (2,), M and Q, SPD (2, 2), as given there; ``None`` is Q = I.
    rings
        The multiples; that of the bold ring is 1.

    Raises
    ------
    ValueError
        If a metric is not SPD, a shape does not fit, or the goal is reachable, so that there are no rings.
    """
    goal = check_vector(goal, "goal", 2)
    task = np.eye(2) if task_metric is None else check_spd(task_metric, "task_metric", 2)
    # The task's marker is the larger one, so that both are seen where the choices agree.
    for name, matrix, choice, color, dashes, size in (
        ("task", task, regret.optimal, style.TASK, (0, (3, 1.6)), 9.0),
        ("latent", check_spd(metric, "metric", 2), regret.chosen, style.LATENT, "solid", 5.5),
    ):
        distance = float(np.sqrt((choice - goal) @ matrix @ (choice - goal)))
        if distance == 0.0:
            raise ValueError("goal must not be reachable: there is nothing to compare.")
        for ring in rings:
            bold = ring == 1.0
            draw_level_sets(
                axes,
                matrix,
                [ring * distance],
                goal,
                color=color,
                ls=dashes,
                lw=1.4 if bold else 0.6,
                alpha=1.0 if bold else 0.45,
            )
        marker: dict[str, Any] = {"marker": "o", "ms": size, "color": color, "mec": "white", "mew": 0.8}
        axes.plot(*choice, ls="none", zorder=5, **marker)
        axes.plot([], [], ls=dashes, lw=1.4, label=f"{name} cost and its choice", **marker)
    draw_goal(axes, goal)


def draw_goal(axes: Axes, goal: ArrayLike, label: str = "goal") -> None:
    """Mark the goal (2,) with a star."""
    look: dict[str, Any] = {"ms": 11, "color": "black", "mec": "white", "mew": 0.8, "ls": "none", "zorder": 5}
    axes.plot(*check_vector(goal, "goal", 2), marker="*", label=label, **look)


def draw_line(axes: Axes, point: ArrayLike, direction: ArrayLike, label: str = "reachable line") -> None:
    """Draw the line through ``point`` along ``direction``, both (2,), across the whole panel."""
    point, direction = check_vector(point, "point", 2), check_vector(direction, "direction", 2)
    ends = point + np.array([[-LINE_REACH], [LINE_REACH]]) * direction / np.linalg.norm(direction)
    axes.plot(*ends.T, color="black", lw=1.4, zorder=3, label=label, scalex=False, scaley=False)


def frame_plane(axes: Axes, half: float, center: ArrayLike = (0.0, 0.0), ratio: float = 1.0) -> None:
    """Show the plane around ``center`` (2,) from −half to half, ``ratio`` times that vertically, at equal scales."""
    x, y = check_vector(center, "center", 2)
    axes.set_xlim(x - half, x + half)
    axes.set_ylim(y - ratio * half, y + ratio * half)
    axes.set_aspect("equal", adjustable="box")
    axes.set_xlabel("state $x_1$")
    axes.set_ylabel("state $x_2$")
