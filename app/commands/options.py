"""Decode options typed on the command line, laid over the settings."""

from typing import Any

from app.commands.running import CommandError


def over_settings(settings: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Options over settings. A preset on the command line is the preset, not the thresholds that
    the settings put in its place."""
    decoding = dict(settings)
    given = {name: value for name, value in options.items() if value is not None}
    if "preset" in given:
        for name in ("threshold", "editing_threshold"):
            decoding.pop(name, None)
    editing = given.get("editing_threshold")
    if editing is not None:
        given["editing_threshold"] = _editing_threshold(editing)
    return {**decoding, **given}


def _editing_threshold(text: str) -> float | None:
    if text == "off":
        return None
    try:
        return float(text)
    except ValueError:
        raise CommandError(f"--editing-threshold takes a number or off, got {text!r}.") from None
