"""From pixels: LeWM (κ = 1) against AnisoWM (κ > 1) on simulated tasks, recorded, trained, planned and diagnosed.

Submodules load on first use, so that ``import visual`` costs nothing. From data to figures:

- :mod:`visual.tasks`: one specification per task, and how far a state is from a goal
- :mod:`visual.environments`: simulators of a task: opened, seeded, set to a state, drawn, closed
- :mod:`visual.recording`, :mod:`visual.replay`: record episodes, resumably; replay them
- :mod:`visual.manifest`: what a recording holds, its split by episode, its planning pairs
- :mod:`visual.reading`, :mod:`visual.data`: recordings read with every check; clips of them for training
- :mod:`visual.model`, :mod:`visual.training`: the world model and how it is trained
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

_SUBMODULES = tuple(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))

__all__ = list(_SUBMODULES)


def __getattr__(name: str) -> ModuleType:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES})
