"""Settings check themselves when they are made, and say what is wrong with which."""

import json
import math
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest

from engine.config import (
    PRESETS,
    CheckpointError,
    DecodeConfig,
    ModelConfig,
    PromptTooLongError,
    ResidualConfig,
    read_json,
)

WRONG = [
    ("max_new_tokens", 0, "must be a whole number >= 1, got 0"),
    ("max_new_tokens", 1.5, "must be a whole number >= 1, got 1.5"),
    ("max_new_tokens", True, "must be a whole number"),
    ("block_length", 0, "must be a whole number >= 1, got 0"),
    ("block_length", -32, "must be a whole number >= 1, got -32"),
    ("min_unmask", 0, "must be a whole number >= 1, got 0"),
    ("min_unmask", None, "must be a whole number"),
    ("max_post_steps", -1, "must be a whole number >= 0, got -1"),
    ("threshold", 1.4, r"must be in \[0, 1\], got 1.4"),
    ("threshold", -0.1, r"must be in \[0, 1\], got -0.1"),
    ("threshold", math.nan, r"must be in \[0, 1\], got nan"),
    ("threshold", None, r"must be in \[0, 1\]"),
    ("threshold", "0.5", r"must be in \[0, 1\], got '0.5'"),
    ("editing_threshold", -0.5, "must be at least 0, got -0.5"),
    ("editing_threshold", math.nan, "must be at least 0, got nan"),
    ("editing_threshold", math.inf, "must be at least 0, got inf"),
    ("temperature", -1.0, r"must be in \[0, 100\], got -1.0"),
    ("temperature", 101, r"must be in \[0, 100\], got 101"),
    ("temperature", 1e-9, "must be 0 or at least 0.001, got 1e-09"),
    ("temperature", 10**400, r"must be in \[0, 100\]"),
    ("top_k", 0, "must be a whole number >= 1, got 0"),
    ("top_k", 2.0, "must be a whole number >= 1, got 2.0"),
    ("top_p", 1.1, r"must be in \[0, 1\], got 1.1"),
    ("seed", -1, r"must be a whole number in \[0, 2\*\*64\), got -1"),
    ("seed", 1 << 64, r"must be a whole number in \[0, 2\*\*64\)"),
    ("seed", 1.0, r"must be a whole number in \[0, 2\*\*64\), got 1.0"),
    ("stop_strings", "STOP", "must be a sequence of texts that are not empty"),
    ("stop_strings", ["a", ""], "must be a sequence of texts that are not empty"),
    ("stop_strings", [7], "must be a sequence of texts that are not empty"),
    ("stop_ids", [1, -1], "stop or mask id must be a whole number >= 0, got -1"),
    ("stop_ids", [1.5], "stop or mask id must be a whole number >= 0, got 1.5"),
    ("mask_id", -1, "stop or mask id must be a whole number >= 0, got -1"),
    ("mask_id", "500", "stop or mask id must be a whole number >= 0, got '500'"),
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_decode_settings_that_are_wrong(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        DecodeConfig(**{name: value})
    assert name in str(error.value) or name in ("stop_ids", "mask_id")
    with pytest.raises(ValueError, match=message):
        replace(DecodeConfig(), **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", 0),
        ("threshold", 1),
        ("editing_threshold", 0),
        ("editing_threshold", 2.0),
        ("editing_threshold", None),
        ("max_post_steps", 0),
        ("temperature", 0),
        ("temperature", 0.001),
        ("top_p", 0.0),
        ("seed", (1 << 64) - 1),
        ("stop_ids", ()),
        ("mask_id", 0),
        ("max_new_tokens", 10**9),
    ],
)
def test_decode_settings_at_their_limits(name: str, value: Any) -> None:
    assert getattr(DecodeConfig(**{name: value}), name) == value


def test_presets() -> None:
    assert PRESETS == {
        "speed": (0.5, 0.0),
        "quality": (0.7, 0.5),
        "careful": (0.95, 0.9),
    }
    for name, (threshold, editing) in PRESETS.items():
        config = DecodeConfig.preset(name, max_new_tokens=7)
        assert (config.threshold, config.editing_threshold) == (threshold, editing)
        assert config.max_new_tokens == 7
    default = DecodeConfig()
    assert (default.threshold, default.editing_threshold) == PRESETS["quality"]
    assert DecodeConfig.preset("speed", threshold=0.9).threshold == 0.9
    with pytest.raises(ValueError, match="preset must be one of speed, quality, careful, got 'x'"):
        DecodeConfig.preset("x")


def test_an_editing_threshold_of_zero_is_not_off() -> None:
    assert DecodeConfig(editing_threshold=0.0).edits
    assert not DecodeConfig(editing_threshold=None).edits


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        DecodeConfig().threshold = 0.1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"form": "linear"}, "form must be 'gated_mlp', got 'linear'"),
        ({"alpha": math.nan}, "alpha must be a number, got nan"),
        ({"alpha": "1"}, "alpha must be a number, got '1'"),
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
        ({"temperature": math.inf}, "temperature must be above 0, got inf"),
        ({"top_k": 0}, "top_k must be a whole number >= 1, got 0"),
        ({"top_k": 2.5}, "top_k must be a whole number >= 1, got 2.5"),
    ],
)
def test_residual_settings_that_are_wrong(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"residual {message}"):
        ResidualConfig(**settings)


def test_the_model_in_numbers(golden: Any) -> None:
    config = ModelConfig.from_pretrained(golden.folder)
    assert config.rotary_dim == 16
    assert config.qkv_size == 256
    assert config.residual is None
    assert config.rope_theta == 600000


def test_a_config_names_where_it_came_from(golden: Any) -> None:
    data = json.loads((golden.folder / "config.json").read_text())
    with pytest.raises(CheckpointError, match=r"^the moon lacks vocab_size, head_dim;"):
        ModelConfig.from_dict(data | {"vocab_size": None, "head_dim": None}, source="the moon")
    residual = {"form": "gated_mlp", "alpha": 0.5, "temperature": 1.0, "top_k": None}
    config = ModelConfig.from_dict(data | {"residual": residual})
    assert config.residual == ResidualConfig(alpha=0.5)


def test_a_prompt_that_is_too_long_says_both_numbers() -> None:
    error = PromptTooLongError(40_000, 32_768, 32)
    assert isinstance(error, ValueError)
    assert (error.prompt_tokens, error.context_length) == (40_000, 32_768)
    assert "40,000 tokens" in str(error)
    assert "32,768" in str(error)
    assert "block of 32" in str(error)


def test_json_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_json(tmp_path)
    with pytest.raises(CheckpointError, match="is missing"):
        read_json(tmp_path / "config.json")
