"""What the figures of the visual runs share: colours of tasks, methods and bounds, and how a gap is shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: κ = 1 and κ = 2 wherever the two are compared, in the paper's blue and red.
LEWM, ANISOWM = "#0072B2", "#D55E00"
TASK_COLORS = {"tworoom": "#0072B2", "reacher": "#D55E00", "pusht": "#009E73", "cube": "#CC79A7"}
TASK_MARKERS = {"tworoom": "o", "reacher": "s", "pusht": "^", "cube": "D"}
#: Bounds of the paper's sweep, and κ = 1.
KAPPAS = (1.0, 1.25, 2.0, 4.0, 8.0, 16.0)
#: A published number: an open mark, whatever the figure.
PUBLISHED: dict[str, Any] = {"mfc": "white", "mec": style.THEORY, "mew": 1.0, "ls": "none"}


def kappa_color(kappa: float) -> Any:
    """Colour of a bound, from dark (1) to light (16), ordered by lightness for every form of colour vision."""
    import matplotlib as mpl
    import numpy as np

    place = float(np.clip(np.log(kappa) / np.log(KAPPAS[-1]), 0.0, 1.0))
    return mpl.colormaps["viridis"](0.84 * place)


def say_not_run(axes: Axes, text: str = "not run") -> None:
    """Write in the middle of an empty panel that there is nothing to draw."""
    box = {"fc": "white", "ec": "none", "pad": 1.5}
    look: dict[str, Any] = {"ha": "center", "va": "center", "color": style.FAINT, "fontsize": 7.5, "bbox": box}
    axes.text(0.5, 0.62, text, transform=axes.transAxes, **look)


def kappa_axis(axes: Axes, kappas: Iterable[float] = KAPPAS) -> None:
    """A logarithmic axis of bounds with a tick at each whole one."""
    values = sorted({*kappas, *KAPPAS})
    whole = [value for value in values if value == int(value)]
    axes.set_xscale("log")
    axes.set_xticks(whole, [f"{value:g}" for value in whole])
    axes.set_xticks([value for value in values if value not in whole], [], minor=True)
    axes.set_xlim(values[0] / 1.2, values[-1] * 1.2)
