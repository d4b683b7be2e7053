"""Variants of a preset: every combination of some settings' values, each with a name of its own.

A variant's models lie in folders with its name, beside those of the preset, and are judged on the preset's recording
and stored candidates, so that their rows can be paired with those of any other model.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Of the target alone: κ = 1 has none to move, so its models are the same at every value.
TARGET_SETTINGS = ("target_lr_multiplier",)


@dataclass(frozen=True)
class Variant:
    """One combination of settings.

    Attributes
    ----------
    preset
        Name of the preset that is changed.
    settings
        Changed settings with their values; none for the preset itself.
    first
        Whether it has the first value of each setting in :data:`TARGET_SETTINGS`.
    """

    preset: str
    settings: tuple[tuple[str, int | float], ...] = ()
    first: bool = True

    @property
    def name(self) -> str:
        """``<preset>-<setting><value>-…``: what folders and rows call it."""
        return "-".join([self.preset, *(f"{name}{value:g}" for name, value in self.settings)])

    @property
    def arguments(self) -> tuple[str, ...]:
        """What a command of ``python -m visual`` is told beside ``preset=<preset>``."""
        if not self.settings:
            return ()
        return (f"preset.name={self.name}", *(f"preset.{name}={value}" for name, value in self.settings))

    def applies(self, kappa: float) -> bool:
        """Whether it is a model of its own at this κ."""
        return kappa > 1 or self.first


def variants(preset: str, changes: Mapping[str, Sequence[int | float]]) -> list[Variant]:
    """Every combination of the listed values, the last setting varying fastest; of no settings, the preset itself.

    Parameters
    ----------
    preset
        Name of a preset.
    changes
        Values by setting.

    Raises
    ------
    ValueError
        If a setting is no number of the preset's, its list is empty or names a value twice, or a combination is not
        valid.
    """
    from visual.model import load_preset

    known = load_preset(preset).to_mapping()
    for name, values in changes.items():
        if not _is_number(known.get(name)):
            numbers = ", ".join(key for key, value in known.items() if _is_number(value))
            raise ValueError(f"changes can name the numbers of a preset, {numbers}; got {name!r}.")
        if not values or len(set(values)) != len(values) or not all(_is_number(value) for value in values):
            raise ValueError(f"changes.{name} must list numbers, at least one and none twice; got {list(values)}.")
    found = []
    for values in itertools.product(*changes.values()):
        settings = tuple(zip(changes, values, strict=True))
        load_preset(preset, **dict(settings))
        first = all(changes[name][0] == value for name, value in settings if name in TARGET_SETTINGS)
        found.append(Variant(preset, settings, first))
    names = [variant.name for variant in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"changes has values that are too close: two share the name {name}.")
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
