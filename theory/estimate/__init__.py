"""Covariances and metrics from data: logged transitions, and states with the latents that an encoder gives them.

:func:`estimate_covariances` returns the Σ and Σ_w that the closed forms ask for, and :func:`estimate_metric` the metric
that a trained encoder really induces and what it costs, both with bootstrap intervals. :func:`estimate_local_metrics`
looks around single states, where a nonlinear encoder's metric differs from place to place.
"""

from __future__ import annotations

from theory.estimate.covariances import CovarianceEstimate, estimate_covariances
from theory.estimate.metrics import MetricEstimate, estimate_metric
from theory.estimate.neighborhoods import LocalMetrics, estimate_local_metrics

__all__ = [
    "CovarianceEstimate",
    "LocalMetrics",
    "MetricEstimate",
    "estimate_covariances",
    "estimate_local_metrics",
    "estimate_metric",
]
