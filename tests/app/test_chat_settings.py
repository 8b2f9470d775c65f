"""What a chat decides for itself holds over the settings file, and is checked like it."""

from typing import Any

import pytest

from app.chat_settings import ChatSettings
from app.decoding import decode_config
from app.settings import Settings


def test_nothing_decided_changes_nothing() -> None:
    settings = Settings(preset="careful", threshold=0.6, system="From the file")
    assert ChatSettings().over(settings) == settings
    assert ChatSettings().to_json() is None
    assert ChatSettings.from_json(None) == ChatSettings()


def test_a_chat_decides_for_itself() -> None:
    chat = ChatSettings(
        threshold=0.8, editing_threshold="off", temperature=1, seed=3, max_new_tokens=64, system=""
    )
    held = chat.over(Settings(preset="speed", top_k=5, system="From the file"))
    config = decode_config(held.decoding())
    assert (config.threshold, config.editing_threshold, config.top_k) == (0.8, None, 5)
    assert (config.temperature, config.seed, config.max_new_tokens) == (1, 3, 64)
    assert held.system == ""
    assert ChatSettings.from_json(chat.to_json()) == chat


def test_a_preset_of_the_chat_brings_its_own_thresholds() -> None:
    file = Settings(preset="quality", threshold=0.99, editing_threshold=0.9)
    config = decode_config(ChatSettings(preset="speed").over(file).decoding())
    assert (config.threshold, config.editing_threshold) == (0.5, 0.0)
    config = decode_config(ChatSettings(preset="speed", threshold=0.6).over(file).decoding())
    assert (config.threshold, config.editing_threshold) == (0.6, 0.0)
    config = decode_config(ChatSettings(temperature=0.5).over(file).decoding())
    assert (config.threshold, config.editing_threshold) == (0.99, 0.9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("preset", "fastest"), ("threshold", 1.5), ("threshold", "0.5"), ("editing_threshold", -1),
        ("editing_threshold", "on"), ("temperature", float("nan")), ("seed", -1), ("seed", 1.5),
        ("max_new_tokens", 0), ("max_new_tokens", True), ("system", 5),
    ],
)  # fmt: skip
def test_a_value_that_is_not_allowed_is_a_sentence(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"The setting {name} cannot be "):
        ChatSettings(**{name: value})


@pytest.mark.parametrize(
    "stored",
    ["{", "[]", "5", '{"preset": "gone", "seed": 3, "unknown": 1}', '{"seed": 3, "system": []}'],
)
def test_what_cannot_be_read_costs_that_value_only(stored: str) -> None:
    assert ChatSettings.from_json(stored) in (ChatSettings(), ChatSettings(seed=3))
    assert ("3" in stored) == (ChatSettings.from_json(stored).seed == 3)
