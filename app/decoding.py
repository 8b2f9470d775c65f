"""From the settings of a request, as JSON or options give them, to a checked `DecodeConfig`."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from engine.config import PRESETS, DecodeConfig

DEFAULT_PRESET = "quality"


def decode_config(settings: Mapping[str, Any]) -> DecodeConfig:
    """`settings` holds `DecodeConfig` fields by name and perhaps "preset"; what is missing is the
    preset's. Raises ValueError, a sentence, for an unknown name or a value that is not allowed."""
    changes = dict(settings)
    preset = changes.pop("preset", DEFAULT_PRESET)
    known = {field.name for field in fields(DecodeConfig)}
    if unknown := sorted(set(changes) - known):
        raise ValueError(f"there is no decoding setting called {', '.join(unknown)}")
    try:
        return DecodeConfig.preset(preset, **changes)
    except TypeError as error:
        raise ValueError(f"a decoding setting has the wrong type: {error}") from error


def preset_name(config: DecodeConfig) -> str:
    """The preset whose thresholds `config` has, "custom" when no preset has them."""
    pair = (config.threshold, config.editing_threshold)
    return next((name for name, values in PRESETS.items() if values == pair), "custom")
