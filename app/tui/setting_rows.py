"""The settings as the tab shows them: a name, what it means, and what it may be."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from app.settings import PREFIX, Settings
from engine.config import PRESETS


@dataclass(frozen=True)
class SettingRow:
    """One setting. With `choices` Enter takes the next one, else a value is typed.

    `unset` is what holds while nothing is set; None where the default is a value like any other.
    """

    name: str
    label: str
    words: str
    choices: tuple[str, ...] = ()
    unset: str | None = None


@dataclass(frozen=True)
class Group:
    """Settings under one heading."""

    title: str
    rows: tuple[SettingRow, ...]


_BY_PRESET = "as the preset"
GROUPS: Sequence[Group] = (
    Group("Decoding", (
        SettingRow("preset", "preset", "Sets both thresholds: speed dares more, careful checks "
                   "more. Lower thresholds mean more tokens a forward.", tuple(PRESETS)),
        SettingRow("threshold", "threshold", "A masked position is decided when the model gives "
                   "its token more than this probability, 0 to 1.", unset=_BY_PRESET),
        SettingRow("editing_threshold", "editing threshold", "A decided token is replaced when the "
                   "model is surer of another than this; off: never.", unset=_BY_PRESET),
        SettingRow("temperature", "temperature", "0 takes the likeliest token; above 0 samples, "
                   "and 1 is the model's own distribution."),
        SettingRow("top_k", "top k", "Sample among the k likeliest tokens only.", unset="all"),
        SettingRow("top_p", "top p", "Sample among the likeliest tokens that make up this share "
                   "of probability.", unset="all"),
        SettingRow("seed", "seed", "The same seed gives the same answer when sampling.",
                   unset="new every time"),
        SettingRow("max_new_tokens", "longest answer", "Tokens after which an answer is ended."),
        SettingRow("system", "system prompt", "Said to the model before every chat.", unset="none"),
    )),
    Group("Look", (
        SettingRow("block_view", "block view", "The open block while it is denoised: at the "
                   "model's speed, slowed so that steps are seen, or hidden.",
                   ("live", "slow", "off")),
        SettingRow("slow_steps_per_second", "slow motion", "Steps a second in slow motion."),
        SettingRow("block_layout", "block layout", "A grid whose words do not move, running text, "
                   "or what the width has room for.", ("auto", "grid", "text")),
        SettingRow("confidence_colours", "confidence colours", "Colour new tokens by how sure the "
                   "model was. The marks stay.", ("true", "false")),
        SettingRow("theme", "theme", "The colours; Ctrl+P, Theme shows them as you choose."),
        SettingRow("ascii", "ASCII only", "Draw with plain characters, from the next start on.",
                   ("false", "true")),
        SettingRow("mouse", "mouse", "Off leaves it to the terminal, from the next start on.",
                   ("true", "false")),
    )),
    Group("Network and code", (
        SettingRow("offline", "offline", "Never go online: only what is here is used.",
                   ("false", "true")),
        SettingRow("endpoint", "endpoint", "Where models come from, a URL; HF_ENDPOINT wins over "
                   "it.", unset="huggingface.co"),
        SettingRow("run_code", "run code", "Code in verifiers: ask first, run it where it can be "
                   "isolated, or run it anywhere.", ("ask", "isolated", "anywhere")),
    )),
)  # fmt: skip


def value_words(row: SettingRow, settings: Settings) -> str:
    """The value in force."""
    value = getattr(settings, row.name)
    if value is None or value == "":
        return row.unset or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def origin(row: SettingRow, settings: Settings) -> str:
    """Where it comes from; nothing for a default."""
    variable = PREFIX + row.name.upper()
    if os.environ.get(variable):
        return f"from {variable}"
    return "set" if row.name in settings.model_fields_set and not _is_default(row, settings) else ""


def next_choice(row: SettingRow, settings: Settings) -> str:
    """The choice after the one in force."""
    value = getattr(settings, row.name)
    now = str(value).lower() if isinstance(value, bool) else str(value)
    at = row.choices.index(now) if now in row.choices else -1
    return row.choices[(at + 1) % len(row.choices)]


def _is_default(row: SettingRow, settings: Settings) -> bool:
    default = Settings.model_fields[row.name].default
    return bool(getattr(settings, row.name) == default)
