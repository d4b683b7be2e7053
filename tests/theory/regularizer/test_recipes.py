"""Every snippet of docs/use-it.md runs as printed, section by section, and does what its text says.

1. All ``python`` blocks of a section run one after the other in one namespace.
2. LeWM's training step differs from stable-worldmodel's in one line, and with κ = 1 it gives the same loss.
3. The two-pass gradient accumulation is the whole batch's gradient, and plain accumulation is not.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from sketched_formula import relative_error, seeded

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "use-it.md").read_text(encoding="utf-8")


def sections() -> dict[str, str]:
    """Body by title."""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def code(body: str, side: str = "+") -> str:
    """The section's Python, with one side of its diff applied."""
    blocks = re.findall(r"^```(python|diff)\n(.*?)^```$", body, flags=re.MULTILINE | re.DOTALL)
    lines = []
    for language, text in blocks:
        if language == "python":
            lines.append(text)
        else:
            lines += [line[1:] + "\n" for line in text.splitlines() if line.startswith(side)]
    return "\n".join(lines)


def run(source: str, **names: Any) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "recipe", **names}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        exec(compile(source, "docs/use-it.md", "exec"), namespace)
    return namespace


BODIES = sections()
WITH_CODE = [title for title, body in BODIES.items() if code(body)]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def moved(names: dict[str, Any], key: str = "regularizer") -> None:
    """The loss is finite, and the target has left its start within its bounds."""
    target = names[key].target
    variances = target.variances().detach()
    assert torch.isfinite(torch.as_tensor(names["loss"])).all()
    assert bool(target.logits.detach().any())
    assert float(variances.max() / variances.min()) <= float(target.kappa) * (1 + 1e-5)


@pytest.mark.parametrize("title", [title for title in WITH_CODE if "LeWM" not in title and title != "Lightning"])
def test_snippets_run(title: str) -> None:
    """Claim 1."""
    names = run(code(BODIES[title]))
    if "optimizer" in names and "loss" in names:
        moved(names)


def test_the_sections_are_found() -> None:
    assert len(WITH_CODE) >= 8
    assert {"Plain PyTorch", "LeWM with stable-worldmodel", "A LeJEPA-style two-view loss", "Lightning"} <= set(
        WITH_CODE
    )


def test_lightning() -> None:
    names = run(code(BODIES["Lightning"]))
    module = names["module"]
    assert module.global_step == 4
    assert module.regularizer.step == 4
    assert bool(module.regularizer.target.logits.detach().any())
    assert "target/condition" in names["trainer"].callback_metrics


def test_lewm_changes_one_line() -> None:
    """Claim 2."""
    from stable_worldmodel.wm.loss import SIGReg

    body = BODIES["LeWM with stable-worldmodel"]
    names = run(code(body))
    moved(names, "sigreg")
    diff = re.findall(r"^```diff\n(.*?)^```$", body, flags=re.MULTILINE | re.DOTALL)
    assert [line[0] for text in diff for line in text.splitlines()] == ["-", "+"]

    # The other side of the diff is the published step, and with κ = 1 ours has its loss.
    published = run(code(body, "-").split("optimizer =")[0], SIGReg=SIGReg)
    ours = names["LambdaReg"](names["dim"], kappa=1.0)
    model, step = published["model"].eval(), published["training_step"]
    batch = {"pixels": torch.randn(8, 4, 3, 28, 28), "action": torch.randn(8, 4, 4)}
    torch.manual_seed(1)
    want = step(model, published["sigreg"], dict(batch))
    torch.manual_seed(1)
    drawn = torch.randn(names["dim"], 1024)
    slices = drawn / drawn.norm(p=2, dim=0)
    got = step(model, lambda z: ours(z, slices=slices), dict(batch))
    assert relative_error(got, want) < 1e-6


def test_two_passes_are_the_whole_batch() -> None:
    """Claim 3."""
    names = run(code(BODIES["Batch size, λ and gradient accumulation"]))
    encoder, regularizer, weight = names["encoder"], names["regularizer"], names["weight"]
    got = [parameter.grad.clone() for parameter in encoder.parameters()]
    got_target = regularizer.target.logits.grad.clone()

    def gradients(*batches: torch.Tensor) -> torch.Tensor:
        encoder.zero_grad()
        regularizer.zero_grad()
        for batch in batches:
            # The draw of the recipe's only call.
            generator = seeded(regularizer.seed)
            (weight * regularizer(encoder(batch), generator=generator) / len(batches)).backward()
        return torch.cat([parameter.grad.flatten() for parameter in encoder.parameters()])

    micro_batches = names["micro_batches"]
    flat = torch.cat([part.flatten() for part in got])
    assert relative_error(flat, gradients(micro_batches.flatten(0, 1))) < 1e-4
    assert relative_error(got_target, regularizer.target.logits.grad) < 1e-4
    assert relative_error(flat, gradients(*micro_batches)) > 0.3
