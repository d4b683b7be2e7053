"""Closed forms of planning with a regularised latent: the target covariance is the planner's metric.

Submodules load on first use, so that ``import theory`` costs nothing and never imports PyTorch:

- :mod:`theory.spd`: symmetric positive-definite helpers and input checks
- :mod:`theory.metric`: metrics that an encoder induces (T1, T2)
- :mod:`theory.target`: ΛReg's constraint set and what prediction chooses in it (T3, T4, T12)
- :mod:`theory.reachable`: linear systems and reachable sets
- :mod:`theory.regret`: planning regret: one case, mean, worst, against κ (T5–T7)
- :mod:`theory.sketch`: the sketched Epps–Pulley statistic and the joint optimum (T8, T9)
- :mod:`theory.ordering`: does a cost order outcomes? (T11)
- :mod:`theory.estimate`: covariances and metrics from logged states and latents
- :mod:`theory.symbolic`: the same statements in SymPy
- :mod:`theory.regularizer`: SIGReg and ΛReg as PyTorch modules
- :mod:`theory.claims`: the claims table
- :mod:`theory.runs`, :mod:`theory.commands`: run folders and command-line errors, shared by the other packages
"""

from __future__ import annotations

import importlib
from types import ModuleType

__version__ = "0.1.0"

_SUBMODULES = (
    "claims",
    "commands",
    "estimate",
    "metric",
    "ordering",
    "reachable",
    "regret",
    "regularizer",
    "runs",
    "sketch",
    "spd",
    "symbolic",
    "target",
)

__all__ = ["__version__", *_SUBMODULES]


def __getattr__(name: str) -> ModuleType:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_SUBMODULES])
