"""What the fast renderer draws: a description that loads no simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Camera:
    """What the fast renderer draws.

    Attributes
    ----------
    name
        Name or number of the model's camera; ``None`` is the free camera that OGBench's mazes define.
    collision_shapes
        Whether collision shapes (geometry group 3) stand in for visual meshes (group 2).
    colors
        Colour (red, green, blue in [0, 1]) of collision shapes, by a part of the name of their body; the last match
        counts.
    hidden
        Parts of the names of geometries that are not drawn.
    """

    name: str | int | None
    collision_shapes: bool = False
    colors: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
