"""The 2-D toy: a linear–Gaussian system on which trained world models show what the closed forms say.

- :mod:`toy2d.system`: the system, and what an encoder sees of its state
- :mod:`toy2d.networks`: many small networks as one
- :mod:`toy2d.training`: every seed and setting trained at once
- :mod:`toy2d.planning`: planning on an imposed line
- :mod:`toy2d.measure`: metric, folds, prediction error and regret of a trained network
- :mod:`toy2d.example`: one planning case, drawn
- :mod:`toy2d.sweeps`: the noise, κ and over-complete sweeps, diagonal against full targets, and fresh seeds

Columns of the rows
-------------------
One row for each seed and setting. ``experiment``, ``observation``, ``sigma``, ``kappa``, ``latent_dim``, ``seed`` and
``steps`` say which; ``origin`` is "measured".

``prediction_error``
    Mean squared error of the predicted latent against the conditional mean of the next latent, held out, per latent
    coordinate; ``prediction_error_relative`` is that divided by the mean variance of a latent coordinate.
``regret_pred``, ``regret_enc``
    Mean normalised regret over the imposed lines of planning with the predicted latent and with the encoded outcome;
    ``regret_pred_median``, ``regret_enc_median`` their medians.
``metric_11``, ``metric_12``, ``metric_22``
    The encoder's mean Jacobian metric E[JᵀJ] in state coordinates; ``metric_ratio`` = metric_11/metric_22,
    ``metric_regret`` the mean regret of that metric in closed form, ``metric_deviation`` the relative Frobenius
    distance between it and Σ⁻¹, both scaled to trace 1.
``fold_share``
    Share of test states at which det J has the minority sign. For D > 2 there is no such sign: the share at which JᵀJ
    is near singular (λmin/λmax < 0.01). ``folded``: the share exceeds 0.01. Folded networks stay in every mean.
``nonlinear_share``
    Share of the feature variance that the best affine map of the state does not explain.
``target_variances``, ``target_condition``
    The learned Λ, sorted, largest first, and its condition number.
``target``, ``noise_ratio``, ``noise_angle``
    "diagonal" or "full", and the shape of the noise (:class:`toy2d.system.ToySystem`); in the diagonal sweep only.
``action_tail_share``
    Share of planned actions with a component beyond 3 standard deviations of the training actions.
``regularizer``
    The statistic's value at the last training step.
``collapsed``
    The features have a variance below 0.01 along their second principal axis (where a network in order has about 1).
"""
