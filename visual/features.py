"""What features look like: spectra, effective rank, linear probes; and batch normalisation before they are read.

Batch normalisation in the projectors makes the running statistics part of the model. While the learning rate is high
they lag, and evaluation-mode losses are many times those of training. So features are read either with the statistics
of the batch itself (:func:`batch_statistics`, during training) or after the running statistics were estimated anew
(:func:`reestimate_batchnorm`, before evaluation).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

if TYPE_CHECKING:
    from stable_worldmodel.wm.lewm import LeWM

#: Also the synchronised kind, and what Lightning turns it into when a data-parallel run ends.
_NORM = nn.modules.batchnorm._BatchNorm


def feature_spectrum(features: Tensor) -> Tensor:
    """Eigenvalues of the centred sample covariance (D,), largest first, of features (N, D).

    Raises
    ------
    ValueError
        If there are fewer than two samples.
    """
    flat = features.detach().reshape(-1, features.shape[-1]).cpu().double()
    if len(flat) < 2:
        raise ValueError("features must hold at least two samples.")
    return torch.linalg.eigvalsh(torch.cov(flat.mT).reshape(flat.shape[1], -1)).flip(0).clamp_min(0.0)


def effective_rank(spectrum: Tensor) -> float:
    """exp(−Σ p_i ln p_i), p = spectrum/Σ spectrum: between 1 and D; 0 if the spectrum is zero.

    References
    ----------
    Roy and Vetterli, "The effective rank", EUSIPCO 2007.
    """
    total = spectrum.sum()
    if total <= 0:
        return 0.0
    share = spectrum / total
    return float(torch.exp(-torch.special.xlogy(share, share).sum()))


def linear_probe(
    features: ArrayLike, states: ArrayLike, test_features: ArrayLike, test_states: ArrayLike, ridge: float = 1e-6
) -> NDArray[np.float64]:
    """Held-out R² per state coordinate (k,) of the affine map from features that fits the training states best.

        R² = 1 − Σ (s − ŝ)² / Σ (s − s̄)²,   sums over the test set, s̄ its mean.

    Parameters
    ----------
    features, states
        Training set, (N, D) and (N, k).
    test_features, test_states
        Test set, (M, D) and (M, k).
    ridge
        Weight of the squared coefficients, relative to the mean feature variance: it matters only for features that
        do not fill their space.

    Raises
    ------
    ValueError
        If shapes disagree, or there are fewer training samples than coefficients, or fewer than two test samples.

    Notes
    -----
    A coordinate that does not vary over the test set has no R²; it is ``nan``.
    """
    inputs, targets = np.asarray(features, dtype=np.float64), np.asarray(states, dtype=np.float64)
    test_inputs = np.asarray(test_features, dtype=np.float64)
    test_targets = np.asarray(test_states, dtype=np.float64)
    if inputs.ndim != 2 or targets.ndim != 2 or len(inputs) != len(targets):
        raise ValueError("features and states must be matrices with one row per sample.")
    if test_inputs.shape[1:] != inputs.shape[1:] or test_targets.shape != (len(test_inputs), targets.shape[1]):
        raise ValueError("the test set must have the columns of the training set and one row per sample.")
    if len(inputs) <= inputs.shape[1] or len(test_inputs) < 2:
        raise ValueError("a linear probe needs more training samples than features, and two test samples.")
    center, offset = inputs.mean(axis=0), targets.mean(axis=0)
    centered = inputs - center
    gram = centered.T @ centered / len(inputs)
    gram[np.diag_indices_from(gram)] += ridge * max(float(np.trace(gram)) / len(gram), np.finfo(float).tiny)
    coefficients = np.linalg.solve(gram, centered.T @ (targets - offset) / len(inputs))
    residual = test_targets - offset - (test_inputs - center) @ coefficients
    total = np.square(test_targets - test_targets.mean(axis=0)).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, 1 - np.square(residual).sum(axis=0) / total, np.nan)


@contextlib.contextmanager
def batch_statistics(model: nn.Module) -> Iterator[None]:
    """Within the block: evaluation mode, but batch normalisation uses the batch at hand and keeps no record of it."""
    modes = {module: module.training for module in model.modules()}
    norms = [module for module in model.modules() if isinstance(module, _NORM)]
    tracked = [module.track_running_stats for module in norms]
    model.eval()
    for module in norms:
        module.train()
        module.track_running_stats = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module, track in zip(norms, tracked, strict=True):
            module.track_running_stats = track
        for part, mode in modes.items():
            part.training = mode


@torch.no_grad()
def reestimate_batchnorm(model: nn.Module, batches: Iterable[object], forward: Callable[[object], object]) -> int:
    """Replace the running statistics of batch normalisation by their plain average over ``batches``.

    Parameters
    ----------
    model
        The model; left in evaluation mode.
    batches
        Batches of the training distribution; LeWM needs about 30.
    forward
        Called with each batch; must run the model.

    Returns
    -------
    int
        Number of batches used.

    Raises
    ------
    ValueError
        If ``batches`` is empty.
    """
    norms = [module for module in model.modules() if isinstance(module, _NORM)]
    momenta = [module.momentum for module in norms]
    model.eval()
    count = 0
    try:
        for module in norms:
            module.train()
            module.reset_running_stats()
            # Without a momentum PyTorch averages over all batches with equal weight.
            module.momentum = None
        for batch in batches:
            forward(batch)
            count += 1
    finally:
        for module, momentum in zip(norms, momenta, strict=True):
            module.momentum = momentum
        model.eval()
    if count == 0:
        raise ValueError("batch normalisation cannot be estimated from no batches.")
    return count


@torch.no_grad()
def encode_frames(model: LeWM, pixels: Tensor) -> Tensor:
    """Features (N, D) of frames (N, 3, H, W), as :func:`visual.model.normalize_pixels` returns them."""
    features: Tensor = model.encode({"pixels": pixels.unsqueeze(1)})["emb"][:, 0]
    return features
