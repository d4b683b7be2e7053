"""What training looks like while it runs: one log row in ``log_every`` steps; collapse and non-finite losses named."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import lightning as L
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor

from visual.features import effective_rank, feature_spectrum

if TYPE_CHECKING:
    from visual.training import LeWMTraining

#: Features whose mean variance is below this share of the target's (which is 1) have collapsed.
COLLAPSE_VARIANCE = 0.05
Probe = Callable[["LeWMTraining"], dict[str, float]]


class TrainingFailed(ValueError):
    """Training cannot go on; the message says why in one sentence."""


class Monitor(L.Callback):
    """Log rows, the held-out probe, and the two ways in which training fails.

    Parameters
    ----------
    probe
        Called every ``probe_every`` steps and after the last; returns scalars for the row.

    Attributes
    ----------
    rows
        One dictionary per log row: ``step`` (steps done), ``seconds`` (of this process), ``learning_rate``, ``loss``,
        ``prediction``, ``statistic``, ``gradient_norm``, ``wait_share`` (share of wall-clock time spent waiting for
        data since the last row), ``feature_variance`` (mean over coordinates), ``effective_rank``,
        ``target_condition``, ``target_high`` (coordinates above the mean target variance), the lists
        ``target_variances`` and ``feature_spectrum`` (largest first), and what the probe returned.
    """

    def __init__(self, probe: Probe | None = None) -> None:
        self.probe = probe
        self.rows: list[dict[str, Any]] = []
        self._waited = self._busy = 0.0
        self._clock = self._began = time.perf_counter()

    def state_dict(self) -> dict[str, Any]:
        """Rows so far, for a resumed run."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the rows of the run that is resumed."""
        self.rows = list(state_dict["rows"])

    def summary(self) -> dict[str, Any]:
        """Losses of the last row, for a progress bar."""
        if not self.rows:
            return {}
        names = ("prediction", "statistic", "effective_rank")
        return {name: f"{self.rows[-1][name]:.3g}" for name in names}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the rows of a resumed run into the new log, and start the clock."""
        for row in self.rows:
            self._log(trainer, row, only_csv=True)
        self._clock = self._began = time.perf_counter()

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """The wait for data ends."""
        now = time.perf_counter()
        self._waited += now - self._clock
        self._clock = now

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Check the loss; at a log step, write a row and look for collapse."""
        module = cast("LeWMTraining", pl_module)
        step, preset = trainer.global_step, module.preset
        now = time.perf_counter()
        self._busy += now - self._clock
        due = step % preset.log_every == 0 or step == module.total_steps
        # Reading the loss waits for an accelerator, so there it is read with the log row only.
        if due or module.device.type == "cpu":
            self._check_finite(step, outputs)
        if due:
            row = self._row(module, step, outputs)
            if self.probe is not None and (step % preset.probe_every == 0 or step == module.total_steps):
                row.update(self.probe(module))
            self.rows.append(row)
            self._log(trainer, row)
            self._waited = self._busy = 0.0
            if step >= preset.opening_steps:
                self._check_collapse(row)
        self._clock = time.perf_counter()

    def _row(self, module: LeWMTraining, step: int, outputs: dict[str, Tensor]) -> dict[str, Any]:
        spectrum = feature_spectrum(outputs["features"].flatten(0, -2))
        variances = module.regularizer.target.variances().detach().double().sort(descending=True).values
        return {
            "step": step,
            "seconds": round(time.perf_counter() - self._began, 3),
            "learning_rate": float(module.optimizers().param_groups[0]["lr"]),  # type: ignore[union-attr]
            "loss": float(outputs["loss"]),
            "prediction": float(outputs["prediction"]),
            "statistic": float(outputs["statistic"]),
            "gradient_norm": float(module.gradient_norm),
            "wait_share": self._waited / max(self._waited + self._busy, 1e-9),
            "feature_variance": float(spectrum.mean()),
            "effective_rank": effective_rank(spectrum),
            "target_condition": float(variances[0] / variances[-1]),
            "target_high": int((variances > 1 + 1e-6).sum()),
            "target_variances": [round(value, 6) for value in variances.tolist()],
            "feature_spectrum": [round(value, 6) for value in spectrum.tolist()],
        }

    def _log(self, trainer: L.Trainer, row: dict[str, Any], only_csv: bool = False) -> None:
        scalars = {name: value for name, value in row.items() if isinstance(value, (int, float)) and name != "step"}
        for name in ("target_variances", "feature_spectrum"):
            scalars.update({f"{name}_{index:03d}": value for index, value in enumerate(row[name])})
        for logger in trainer.loggers:
            if isinstance(logger, CSVLogger) or not only_csv:
                logger.log_metrics(scalars, step=row["step"])

    @staticmethod
    def _check_finite(step: int, outputs: dict[str, Tensor]) -> None:
        if not math.isfinite(float(outputs["loss"])):
            raise TrainingFailed(
                f"The loss is not finite at step {step}: prediction {float(outputs['prediction']):g}, statistic "
                f"{float(outputs['statistic']):g}; look at the data or lower the learning rate."
            )

    @staticmethod
    def _check_collapse(row: dict[str, Any]) -> None:
        if row["feature_variance"] < COLLAPSE_VARIANCE:
            raise TrainingFailed(
                f"The features collapsed: at step {row['step']} their mean variance is {row['feature_variance']:.2g} "
                f"instead of about 1 and their effective rank {row['effective_rank']:.1f}; raise the regulariser's "
                "weight or the batch size, or lower the learning rate."
            )
