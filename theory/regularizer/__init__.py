"""SIGReg and ΛReg as PyTorch modules: a regulariser whose target covariance is learned under a condition bound."""

from __future__ import annotations

from theory.regularizer.lambda_reg import LambdaReg
from theory.regularizer.optim import attach_target
from theory.regularizer.sigreg import SIGReg, draw_slices, effective_weight
from theory.regularizer.target import FullTarget, LambdaTarget
from theory.regularizer.tracker import Spectrum, SpectrumTracker

__all__ = [
    "FullTarget",
    "LambdaReg",
    "LambdaTarget",
    "SIGReg",
    "Spectrum",
    "SpectrumTracker",
    "attach_target",
    "draw_slices",
    "effective_weight",
]
