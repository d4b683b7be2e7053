"""SIGReg and ΛReg as PyTorch modules: a regulariser whose target covariance is learned under a condition bound."""

from __future__ import annotations

from theory.regularizer.lambda_reg import LambdaReg
from theory.regularizer.optim import attach_target
from theory.regularizer.sigreg import SIGReg, draw_slices, effective_weight
from theory.regularizer.target import FullTarget, LambdaTarget

__all__ = ["FullTarget", "LambdaReg", "LambdaTarget", "SIGReg", "attach_target", "draw_slices", "effective_weight"]
