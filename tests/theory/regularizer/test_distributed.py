"""Several processes (gloo, float64): what one process sees on the concatenated batch.

1. Loss, encoder gradient and target gradient after DistributedDataParallel's averaging equal those of one process, for
   2 and 4 processes with uneven batches, whether the regulariser lies inside the wrapped module or outside, for a
   diagonal and a full target.
2. All processes project on the first one's slices, whatever their seeds; the group is looked up at call time and may be
   a part of the world; ``distributed=False`` keeps to the local batch.
3. A second derivative is refused in one sentence.
4. The spectrum tracker sees the global batch.
5. Public failure modes, each beside the right variant on the same data: local batch only, an all-reduce without a
   gradient (off by the number of processes), an all-reduce whose result is dropped, slices of each process's own.
6. Public failure mode: a device written into the code.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from sketched_formula import relative_error

from theory.regularizer import SIGReg, draw_slices

WORKER = Path(__file__).with_name("distributed_worker.py")
ROOT = Path(__file__).resolve().parents[3]
TOLERANCE = 1e-6


def load_worker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("distributed_worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


worker = load_worker()


@pytest.fixture(scope="module", params=[2, 4])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process saw."""
    folder = tmp_path_factory.mktemp(f"world-{request.param}")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    if sys.platform == "linux":
        # A host name that resolves to nothing must not matter.
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    processes = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), str(request.param), str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(request.param)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert not any(process.returncode for process in processes), "\n".join(outputs)
    return [torch.load(folder / f"seen-{rank}.pt", weights_only=True) for rank in range(request.param)]


def one_process(statistic: Any, world: int, even: bool = False) -> dict[str, Any]:
    """Loss and gradients on the concatenated batch."""
    model = worker.encoder()
    shares = [worker.inputs(rank) for rank in range(world)]
    x = torch.cat([share[:, : min(worker.SHARES)] if even else share for share in shares], dim=1)
    loss = statistic(model(x))
    loss.backward()
    return {"loss": loss.detach(), "encoder": [parameter.grad for parameter in model.parameters()]}


def gap(got: dict[str, Any], want: dict[str, Any], key: str) -> float:
    """Relative error of a loss or of a list of gradients."""
    if key == "loss":
        return relative_error(got["loss"], want["loss"])
    return relative_error(
        torch.cat([part.flatten() for part in got[key]]), torch.cat([part.flatten() for part in want[key]])
    )


@pytest.mark.parametrize("variant", ["sigreg", "inside", "outside", "full"])
def test_equals_one_process_on_the_whole_batch(seen: list[dict[str, Any]], variant: str) -> None:
    """Claim 1. Mutation: divide by the local number of samples; or leave out the factor ``processes``."""
    module = SIGReg(worker.SLICES) if variant == "sigreg" else worker.lambda_reg(full=variant == "full")
    want = one_process(lambda z: module(z, slices=worker.slices()), len(seen))
    if variant != "sigreg":
        want["target"] = [parameter.grad for parameter in module.target.parameters()]
    for process in seen:
        for key, value in want.items():
            assert gap(process[variant], want, key) < TOLERANCE, key
            assert key == "loss" or all(part.abs().max() > 1e-3 for part in value), key


def test_the_first_process_draws_for_all(seen: list[dict[str, Any]]) -> None:
    """Claim 2."""
    drawn = worker.lambda_reg()
    for variant, statistic in (
        ("drawn", drawn),
        ("generator", lambda z: SIGReg(worker.SLICES)(z, generator=torch.Generator().manual_seed(50))),
    ):
        want = one_process(statistic, len(seen))
        for process in seen:
            assert gap(process[variant], want, "loss") < TOLERANCE
            assert gap(process[variant], want, "encoder") < TOLERANCE


def test_groups_and_local_batches(seen: list[dict[str, Any]]) -> None:
    module, encoder = SIGReg(worker.SLICES), worker.encoder()
    for rank, process in enumerate(seen):
        first = rank - rank % 2
        pair = torch.cat([worker.inputs(first), worker.inputs(first + 1)], dim=1)
        assert relative_error(process["pairs"]["loss"], module(encoder(pair), slices=worker.slices())) < TOLERANCE
        mine = module(encoder(worker.inputs(rank)), slices=worker.slices())
        assert relative_error(process["alone"]["loss"], mine) < TOLERANCE


def test_each_process_gets_its_rows_of_the_gradient(seen: list[dict[str, Any]]) -> None:
    """Times the number of processes, which the average over them takes out again."""
    encoder = worker.encoder()
    z = torch.cat([encoder(worker.inputs(rank)).detach() for rank in range(len(seen))], dim=1).requires_grad_()
    (want,) = torch.autograd.grad(worker.lambda_reg()(z, slices=worker.slices()), z)
    got = torch.cat([process["local rows"]["gradient"] for process in seen], dim=1)
    assert relative_error(got, len(seen) * want) < TOLERANCE


def test_a_second_derivative_is_refused(seen: list[dict[str, Any]]) -> None:
    """Claim 3."""
    for process in seen:
        assert "no second derivative over several processes" in process["second derivative"]["message"]


def test_the_tracker_sees_the_global_batch(seen: list[dict[str, Any]]) -> None:
    """Claim 4."""
    encoder = worker.encoder()
    rows = torch.cat([encoder(worker.inputs(rank)).detach().reshape(-1, worker.DIM) for rank in range(len(seen))])
    for process in seen:
        assert relative_error(process["tracker"]["covariance"], torch.cov(rows.mT, correction=0)) < TOLERANCE


@pytest.mark.parametrize("wrong", ["local_only", "reduce_without_gradient", "drop_the_result", "own_slices"])
def test_public_failure_modes(seen: list[dict[str, Any]], wrong: str) -> None:
    """Claim 5. On even batches, so that nothing but the named fault is to blame."""
    module, world = SIGReg(worker.SLICES), len(seen)
    want = one_process(lambda z: module(z, slices=worker.slices()), world, even=True)
    for process in seen:
        assert gap(process["right, even"], want, "loss") < TOLERANCE
        assert gap(process["right, even"], want, "encoder") < TOLERANCE
        assert gap(process[wrong], want, "encoder") > 0.03
        if wrong == "reduce_without_gradient":
            # The loss is right, which is why nobody noticed.
            assert gap(process[wrong], want, "loss") < TOLERANCE
            scaled = {"encoder": [world * part for part in process[wrong]["encoder"]]}
            assert gap(scaled, want, "encoder") < TOLERANCE
        else:
            assert gap(process[wrong], want, "loss") > 0.01


def test_a_device_written_into_the_code() -> None:
    """Claim 6: the wrong variant fails wherever the features are not on that device."""

    class OnCuda(SIGReg):
        def forward(self, z: torch.Tensor, **options: Any) -> torch.Tensor:
            slices = draw_slices(z.shape[-1], self.num_slices, torch.Generator("cuda"))
            return (z @ slices).mean()

    z = torch.randn(20, 3)
    assert torch.isfinite(SIGReg(8)(z))
    with pytest.raises((RuntimeError, AssertionError)):
        OnCuda(8)(z)
