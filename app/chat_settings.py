"""What one chat decides for itself: how it is decoded and its system prompt."""

import json
from dataclasses import dataclass, fields
from typing import Any

from pydantic import ValidationError

from app.settings import Settings, first_fault


@dataclass(frozen=True)
class ChatSettings:
    """Settings of one chat; None means as the settings file has it. Names, ranges and units as in
    `Settings`.

    Raises:
        ValueError: a value is not allowed, as a sentence.
    """

    preset: str | None = None
    threshold: float | None = None
    editing_threshold: float | str | None = None
    temperature: float | None = None
    seed: int | None = None
    max_new_tokens: int | None = None
    system: str | None = None

    def __post_init__(self) -> None:
        changes = self.changes()
        if not changes:  # as nearly every chat; a check takes a millisecond, which adds up
            return
        try:
            checked = Settings(**changes)
        except ValidationError as error:
            raise ValueError(first_fault(error, "The setting")) from error
        # Settings reads its values from text too, where "0.5" is a number; here only 0.5 is one.
        for name, value in changes.items():
            kinds = (type(value), type(getattr(checked, name)))
            if kinds[0] is not kinds[1] and kinds != (int, float):
                raise ValueError(f"The setting {name} cannot be {value!r}.")

    def changes(self) -> dict[str, Any]:
        """What this chat decides, by name."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in values if value is not None}

    def over(self, settings: Settings) -> Settings:
        """`settings` as they hold in this chat. A preset of the chat brings its own thresholds:
        those of the file belong to the file's preset."""
        changes = self.changes()
        if "preset" in changes:
            changes = {"threshold": None, "editing_threshold": None, **changes}
        return settings.model_copy(update=changes)

    def to_json(self) -> str | None:
        """For the store; None when nothing is decided."""
        changes = self.changes()
        return json.dumps(changes) if changes else None

    @classmethod
    def from_json(cls, stored: str | None) -> "ChatSettings":
        """What the store holds; a value that is not allowed (any more) costs that value only."""
        try:
            values = json.loads(stored or "{}")
        except ValueError:
            return cls()
        names = {field.name for field in fields(cls)}
        good: dict[str, Any] = {}
        for name in names & set(values if isinstance(values, dict) else {}):
            try:
                cls(**{name: values[name]})
            except (ValueError, TypeError):
                continue
            good[name] = values[name]
        return cls(**good)
