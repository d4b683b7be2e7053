"""Claims about checkpoints.

1. A checkpoint folder holds exactly ``weights.pt`` and ``config.json``; it opens here and with stable-worldmodel's
   ``load_pretrained`` to the same function, and what ``save_pretrained`` writes opens here.
2. The released layout, whose configuration names stable-pretraining's ViT builder, opens (random weights).
3. A configuration that names anything else is refused before it is called, also when the name starts inside an allowed
   package and leads out of it.
4. Damage, another architecture, pickled objects and non-finite weights end in one sentence.
5. The target's logits and the card lie beside the folder; sizes and hashes in the card are checked.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from visual_models import DiskClips, tiny_preset

from theory.regularizer import LambdaReg
from visual.checkpoint import (
    instantiate,
    load_checkpoint,
    load_target,
    resolve_target,
    save_card,
    save_checkpoint,
    save_target,
)
from visual.model import build_model, model_config, normalize_pixels

PRESET = tiny_preset()
CONFIG = model_config(PRESET, 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path, build_model(PRESET, 2, seed=0), CONFIG)
    return tmp_path


def features(model: Any) -> torch.Tensor:
    pixels, actions = DiskClips().sample(0, 0, 4)
    with torch.no_grad():
        encoded = model.eval().encode({"pixels": normalize_pixels(pixels), "action": actions})
        predicted: torch.Tensor = model.predict(encoded["emb"][:, :3], encoded["act_emb"][:, :3])
    return predicted


def test_round_trip_with_stable_worldmodel(folder: Path) -> None:
    """Claim 1. Mutation: write class names of this project, or the target's logits, into the folder."""
    from stable_worldmodel.wm.utils import load_pretrained, save_pretrained

    assert sorted(path.name for path in (folder / "checkpoint").iterdir()) == ["config.json", "weights.pt"]
    expected = features(build_model(PRESET, 2, seed=0))
    for path in (folder, folder / "checkpoint", folder / "checkpoint/weights.pt"):
        ours = load_checkpoint(path)
        torch.testing.assert_close(features(ours.model), expected, atol=0, rtol=0)
    theirs = load_pretrained(str(folder / "checkpoint"))
    torch.testing.assert_close(features(theirs), expected, atol=0, rtol=0)
    save_pretrained(theirs, "again", OmegaConf.create(CONFIG), cache_dir=str(folder))
    torch.testing.assert_close(features(load_checkpoint(folder / "checkpoints/again").model), expected, atol=0, rtol=0)
    assert (ours.image_size, ours.history, ours.latent_dim, ours.action_width) == (16, 3, 8, 10)
    assert not any(parameter.requires_grad for parameter in ours.model.parameters())


def test_the_released_layout_opens(tmp_path: Path) -> None:
    """Claim 2. Mutation: take the builder out of BUILDERS."""
    released = dict(CONFIG)
    released["encoder"] = {
        "_target_": "stable_pretraining.backbone.utils.vit_hf",
        "size": "tiny",
        "patch_size": 14,
        "image_size": 28,
        "pretrained": False,
        "use_mask_token": False,
    }
    released["projector"] = {**CONFIG["projector"], "input_dim": 192}
    released |= {"embed_dim": 8, "history_size": 3}
    torch.manual_seed(0)
    save_checkpoint(tmp_path, instantiate(released), released)
    found = load_checkpoint(tmp_path)
    assert found.image_size == 28
    assert found.model.encoder.config.num_hidden_layers == 12
    assert found.action_mean is None


FOREIGN = [
    "os.system",
    "builtins.eval",
    "torch.load",
    "torch.hub.load",
    "torch.nn.modules.module.torch.load",
    "stable_worldmodel.wm.utils.torch.load",
    "stable_worldmodel.wm.utils.Path",
    "stable_worldmodel.wm.utils.load_pretrained",
    "stable_worldmodel_evil.Module",
    "transformers.AutoModel.from_pretrained",
    "transformers.pipeline",
    "hydra.utils.get_method",
    "torch.nn",
    "torch.nn.Nothing",
    "torch.nn.functional.relu",
    "",
]


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_names_are_refused(name: str) -> None:
    """Claim 3. Mutation: check the prefix of the name only."""
    with pytest.raises(ValueError, match=r"config.json names '"):
        resolve_target(name)


def test_a_foreign_configuration_calls_nothing(folder: Path) -> None:
    """Claim 3. Mutation: instantiate with Hydra."""
    marker = folder / "called"
    config = {**CONFIG, "projector": {"_target_": "os.mkdir", "path": str(marker)}}
    (folder / "checkpoint/config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ValueError, match=r"names 'os.mkdir', which is outside"):
        load_checkpoint(folder)
    assert not marker.exists()
    with pytest.raises(ValueError, match="uses '_args_'"):
        instantiate({"_target_": "torch.nn.Linear", "_args_": [1, 2]})
    with pytest.raises(ValueError, match="gives Linear arguments it does not take"):
        instantiate({"_target_": "torch.nn.Linear", "size": 3})


class Payload:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (self.path,)


def test_damage_ends_in_one_sentence(folder: Path) -> None:
    """Claim 4. Mutation: load with weights_only=False, or with strict=False."""
    weights, config = folder / "checkpoint/weights.pt", folder / "checkpoint/config.json"
    whole, state = weights.read_bytes(), torch.load(weights, weights_only=True)

    def refused(message: str) -> None:
        with pytest.raises(ValueError, match=message) as caught:
            load_checkpoint(folder)
        assert "\n" not in str(caught.value)

    weights.write_bytes(whole[: len(whole) // 2])
    refused("truncated or not a PyTorch file")
    torch.save({"x": Payload(str(folder / "called"))}, weights)
    refused("objects are never unpickled")
    assert not (folder / "called").exists()
    torch.save([1, 2], weights)
    refused("must hold a state dict of tensors")
    torch.save({name: value for name, value in state.items() if "pos_embedding" not in name}, weights)
    refused("1 tensors are missing and 0 unknown, for example 'predictor.pos_embedding'")
    torch.save({**state, "extra": torch.zeros(1)}, weights)
    refused("0 tensors are missing and 1 unknown, for example 'extra'")
    torch.save({**state, "predictor.pos_embedding": torch.zeros(1, 4, 8)}, weights)
    refused(r"another architecture than config.json: 'predictor.pos_embedding' has shape \(1, 4, 8\)")
    torch.save({**state, "predictor.pos_embedding": torch.full((1, 3, 8), torch.nan)}, weights)
    refused("non-finite values in 'predictor.pos_embedding'")
    weights.write_bytes(whole)
    config.write_text("{", encoding="utf-8")
    refused("not readable JSON")
    config.write_text("[]", encoding="utf-8")
    refused("must hold a JSON object")
    config.write_text(
        json.dumps({"_target_": "torch.nn.Linear", "in_features": 1, "out_features": 1}), encoding="utf-8"
    )
    refused("another architecture")
    config.unlink()
    refused("config.json is missing")
    (folder / "checkpoint/second.pt").write_bytes(whole)
    refused("exactly one .pt file and config.json, but it has 2")


def test_a_module_that_is_not_lewm_is_refused(tmp_path: Path) -> None:
    """Claim 4. Mutation: return the model without reading its sizes."""
    config = {"_target_": "torch.nn.Linear", "in_features": 1, "out_features": 1}
    save_checkpoint(tmp_path, torch.nn.Linear(1, 1), config)
    with pytest.raises(ValueError, match="not a LeWM-style model"):
        load_checkpoint(tmp_path)


def test_card_and_target_lie_beside(folder: Path) -> None:
    """Claim 5. Mutation: skip the comparison of hashes or sizes."""
    regularizer = LambdaReg(8, 4.0)
    regularizer.target.logits.data[:3] = 0.5
    save_target(folder / "target_logits.pt", regularizer.target)
    stored = load_target(folder)
    assert torch.equal(stored["logits"], regularizer.target.logits.detach())
    assert float(stored["kappa"]) == 4.0
    files = save_checkpoint(folder, build_model(PRESET, 2, seed=0), CONFIG)
    card = {"history": 3, "action_mean": [0.0, 1.0], "action_std": [1.0, 2.0], "files": files}
    save_card(folder / "model.json", card)
    found = load_checkpoint(folder)
    assert found.action_std is not None
    assert found.action_std.tolist() == [1.0, 2.0]
    save_card(folder / "model.json", {**card, "history": 4})
    with pytest.raises(ValueError, match=r"says history = 4, but the model has 3"):
        load_checkpoint(folder)
    save_checkpoint(folder, build_model(PRESET, 2, seed=1), CONFIG)
    with pytest.raises(ValueError, match=r"not the file that model\.json describes"):
        load_checkpoint(folder)
    with pytest.raises(ValueError, match=r"target_logits.pt is missing"):
        load_target(folder / "checkpoint")
