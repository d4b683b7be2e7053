"""World models at rest: ``weights.pt`` and ``config.json`` as stable-worldmodel reads them, opened with care.

A folder ``checkpoint/`` holds exactly these two files: the state dict of the world model alone, and a configuration of
names (``_target_``) and sizes. The target covariance and the model's card (scaling of actions, sizes, losses, hashes)
lie beside the folder. Opening a configuration from elsewhere calls only classes of the packages in :data:`PACKAGES`
that build modules or model configurations; opening weights never unpickles objects.
"""

from __future__ import annotations

import functools
import importlib
import json
import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from theory.runs import ensure_writable, write_atomic
from visual.manifest import file_sha256

if TYPE_CHECKING:
    from stable_worldmodel.wm.lewm import LeWM

    from theory.regularizer import LambdaTarget

FOLDER = "checkpoint"
WEIGHTS_FILE = "weights.pt"
CONFIG_FILE = "config.json"
CARD_FILE = "model.json"
TARGET_FILE = "target_logits.pt"
#: Packages whose classes a configuration may name.
PACKAGES = ("stable_worldmodel", "stable_pretraining", "torch.nn", "transformers")
#: Functions a configuration may name: the released LeWM checkpoints build their encoder with this one.
BUILDERS = ("stable_pretraining.backbone.utils.vit_hf",)
_RUN_NAME = re.compile(r"k[^-]+-s\d+-|simulator-|candidates-|advice-")


@dataclass(frozen=True)
class WorldModel:
    """A LeWM-style model with what planning needs to know about it.

    Attributes
    ----------
    model
        The model, in evaluation mode, gradients off.
    image_size, history, latent_dim, action_width
        Pixels per side; frames of context; D; components of a stacked action (frameskip · A).
    action_mean, action_std
        Scaling of one environment action, (A,) each, or ``None`` if the checkpoint came without a card.
    card
        Everything in the card, ``{}`` without one.
    """

    model: LeWM
    image_size: int
    history: int
    latent_dim: int
    action_width: int
    action_mean: Tensor | None = None
    action_std: Tensor | None = None
    card: dict[str, Any] = field(default_factory=dict)


def resolve_target(name: str) -> Callable[..., Any]:
    """The class or function that a ``_target_`` names.

    Raises
    ------
    ValueError
        If the name, or the object it leads to, lies outside :data:`PACKAGES`, does not exist, or builds neither a
        module nor a model configuration.
    """
    if not isinstance(name, str) or not _inside(name):
        raise ValueError(f"{CONFIG_FILE} names {name!r}, which is outside {', '.join(PACKAGES)}; it is not called.")
    parts = name.split(".")
    found: Any = None
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        break
    if found is None:
        raise ValueError(f"{CONFIG_FILE} names {name!r}, but the package {parts[0]} is not installed (extra 'lewm').")
    for part in parts[cut:]:
        found = getattr(found, part, None)
    if found is None:
        raise ValueError(f"{CONFIG_FILE} names {name!r}, which does not exist in the installed {parts[0]}.")
    # A name may lead out of its package through an import (`torch.nn.modules.module.torch.load`).
    if not _inside(f"{getattr(found, '__module__', '')}.") or not _builds_model(name, found):
        raise ValueError(
            f"{CONFIG_FILE} names {name!r}, which is not a module or model configuration; it is not called."
        )
    return found


def _inside(name: str) -> bool:
    return any(name.startswith(f"{package}.") for package in PACKAGES)


def _builds_model(name: str, found: object) -> bool:
    if name in BUILDERS:
        return callable(found)
    from transformers import PretrainedConfig

    return isinstance(found, type) and issubclass(found, (nn.Module, PretrainedConfig))


def instantiate(config: Any) -> Any:
    """Build what a configuration describes, as Hydra's ``instantiate`` does, calling only allowed names.

    Raises
    ------
    ValueError
        As :func:`resolve_target`; or if a class does not accept its arguments.
    """
    if isinstance(config, Mapping):
        values = {str(key): instantiate(value) for key, value in config.items()}
        if "_target_" not in values:
            return values
        target = resolve_target(values.pop("_target_"))
        partial = bool(values.pop("_partial_", False))
        reserved = [key for key in values if key.startswith("_") and key.endswith("_")]
        if reserved:
            raise ValueError(f"{CONFIG_FILE} uses {reserved[0]!r}, which is not supported.")
        if partial:
            return functools.partial(target, **values)
        try:
            return target(**values)
        except TypeError as error:
            raise ValueError(f"{CONFIG_FILE} gives {target.__name__} arguments it does not take: {error}.") from None
    if isinstance(config, list):
        return [instantiate(value) for value in config]
    return config


def save_checkpoint(folder: str | Path, model: nn.Module, config: Mapping[str, Any]) -> dict[str, str]:
    """Write ``checkpoint/`` in ``folder``.

    Parameters
    ----------
    folder
        The run's folder.
    model
        The world model alone.
    config
        What :func:`visual.model.model_config` returned.

    Returns
    -------
    dict
        SHA-256 of both files by name, for the card.
    """
    checkpoint = Path(folder) / FOLDER
    ensure_writable(checkpoint)
    weights = checkpoint / WEIGHTS_FILE
    temporary = checkpoint.parent / f".{WEIGHTS_FILE}.tmp"
    torch.save({name: value.detach().cpu() for name, value in model.state_dict().items()}, temporary)
    temporary.replace(weights)
    write_atomic(checkpoint / CONFIG_FILE, json.dumps(config, indent=2) + "\n")
    return {name: file_sha256(checkpoint / name) for name in (WEIGHTS_FILE, CONFIG_FILE)}


def save_target(path: Path, target: LambdaTarget) -> None:
    """Write a target's logits and bound."""
    torch.save({"logits": target.logits.detach().cpu(), "kappa": target.kappa.cpu()}, path)


def save_card(path: Path, card: Mapping[str, Any]) -> None:
    """Write a card: JSON values, with ``files`` as :func:`save_checkpoint` returned it."""
    path.write_text(json.dumps(dict(card), indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def load_checkpoint(path: str | Path) -> WorldModel:
    """Open a checkpoint: a run's folder, a folder with ``weights.pt`` and ``config.json``, or the ``.pt`` file itself.

    Raises
    ------
    ValueError
        If files are missing or damaged, if the configuration names something outside :data:`PACKAGES` or is not of a
        LeWM-style model, or if weights and configuration disagree.

    Notes
    -----
    The layout of the released LeWorldModel checkpoints, whose configuration names stable-pretraining's ViT builder
    (extra ``lewm``), is tested with random weights; the released files themselves were not tried.
    """
    folder, weights = _locate(Path(path))
    card_path = folder.parent / CARD_FILE
    card = _read_json(card_path) if folder.name == FOLDER and card_path.is_file() else {}
    config = _read_json(folder / CONFIG_FILE)
    for name, expected in card.get("files", {}).items():
        if file_sha256(folder / name) != expected:
            raise ValueError(f"{folder / name} is not the file that {CARD_FILE} describes (its SHA-256 differs).")
    model = instantiate(config)
    if not isinstance(model, nn.Module):
        raise ValueError(f"{folder / CONFIG_FILE} does not describe a module.")
    _load_weights(model, weights)
    model.eval().requires_grad_(False)
    return describe_model(model, card)


def describe_model(model: Any, card: Mapping[str, Any] | None = None) -> WorldModel:
    """Read a model's sizes off its modules and check them against its card.

    Raises
    ------
    ValueError
        If the model lacks a part that LeWM has, or the card says something else.
    """
    card = dict(card or {})
    try:
        config = model.encoder.config
        found = WorldModel(
            model=model,
            image_size=int(config.image_size),
            history=int(model.predictor.num_frames),
            latent_dim=int(getattr(model.projector, "output_dim", config.hidden_size)),
            action_width=int(model.action_encoder.input_dim),
            action_mean=_read_vector(card, "action_mean"),
            action_std=_read_vector(card, "action_std"),
            card=card,
        )
    except AttributeError as error:
        raise ValueError(f"The checkpoint is not a LeWM-style model: {error}.") from None
    for name in ("image_size", "history", "latent_dim", "action_width"):
        if name in card and card[name] != getattr(found, name):
            raise ValueError(f"{CARD_FILE} says {name} = {card[name]}, but the model has {getattr(found, name)}.")
    return found


def _read_vector(card: Mapping[str, Any], name: str) -> Tensor | None:
    return torch.tensor(card[name], dtype=torch.float32) if name in card else None


def load_target(folder: str | Path) -> dict[str, Tensor]:
    """The target's ``logits`` and ``kappa`` of a run; ``ValueError`` if the run's folder has none."""
    path = Path(folder) / TARGET_FILE
    if not path.is_file():
        raise ValueError(f"{path} is missing.")
    return _load_tensors(path)


def model_name(path: Path) -> str:
    """Name of a model for a folder: that of its run, or of the folder that holds the checkpoint."""
    path = path.resolve()
    path = path.parent if path.is_file() else path
    path = path.parent if path.name == FOLDER else path
    return path.parent.name if path.name == "train" else path.name


def foreign_name(path: Path) -> str:
    """Name of a checkpoint from elsewhere for a folder beside those of runs.

    A run of another study is called ``checkpoint-<run>``, since ``<run>`` may be one here too.
    """
    name = model_name(path)
    return f"checkpoint-{name}" if _RUN_NAME.match(name) else name


def weights_hash(path: Path) -> str:
    """SHA-256 of the weights that :func:`load_checkpoint` opens."""
    return file_sha256(_locate(path)[1])


def _locate(path: Path) -> tuple[Path, Path]:
    if path.is_file():
        return path.parent, path
    if (path / FOLDER).is_dir():
        path = path / FOLDER
    found = sorted(path.glob("*.pt")) if path.is_dir() else []
    if len(found) != 1:
        raise ValueError(
            f"{path} must be a folder with exactly one .pt file and {CONFIG_FILE}, but it has {len(found)}."
        )
    return path, found[0]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} is missing.") from None
    except (OSError, ValueError):
        raise ValueError(f"{path} is not readable JSON.") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object.")
    return content


def _load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(f"{path} holds more than tensors, and objects are never unpickled.") from None
    except (OSError, RuntimeError, EOFError, ValueError):
        raise ValueError(f"{path} is truncated or not a PyTorch file.") from None
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ValueError(f"{path} must hold a state dict of tensors.")
    return dict(content)


def _load_weights(model: nn.Module, path: Path) -> None:
    loaded = _load_tensors(path)
    own = model.state_dict()
    missing, unknown = sorted(own.keys() - loaded.keys()), sorted(loaded.keys() - own.keys())
    if missing or unknown:
        example = (missing or unknown)[0]
        raise ValueError(
            f"{path} is of another architecture than {CONFIG_FILE}: {len(missing)} tensors are missing and "
            f"{len(unknown)} unknown, for example {example!r}."
        )
    for name, value in own.items():
        if value.shape != loaded[name].shape:
            raise ValueError(
                f"{path} is of another architecture than {CONFIG_FILE}: {name!r} has shape "
                f"{tuple(loaded[name].shape)}, not {tuple(value.shape)}."
            )
        if loaded[name].is_floating_point() and not torch.isfinite(loaded[name]).all():
            raise ValueError(f"{path} holds non-finite values in {name!r}.")
    model.load_state_dict(loaded, strict=True)
