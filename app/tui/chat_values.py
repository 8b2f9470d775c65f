"""What one chat decides for itself, in the form that a list of settings shows and changes, and the
small library of system prompts."""

from typing import Any

from pydantic import ValidationError

from app.chat_settings import ChatSettings
from app.settings import Settings, SettingsError, first_fault
from app.store_rows import Prompt
from app.tui.session import ChatSession
from app.tui.setting_rows import GROUPS, Group, SettingRow

NAMES = (
    "preset", "threshold", "editing_threshold", "temperature", "seed", "max_new_tokens",
)  # fmt: skip
CHAT_GROUPS = (
    Group("This chat", tuple(r for group in GROUPS for r in group.rows if r.name in NAMES)),
)

BUILT_IN = (
    Prompt("Brief", "Answer in as few words as possible."),
    Prompt("Step by step", "Work step by step and end with the result on a line of its own."),
    Prompt("Programmer", "Answer a programmer: code first, then what is not obvious about it."),
    Prompt("JSON only", "Answer with one JSON value and nothing else."),
)
"""Prompts that are there from the start; one of the user's by the same name stands in its place."""

LONGEST_NAME = 40


class ChatValues:
    """The settings of the chat on screen; those it does not decide are the file's."""

    def __init__(self, session: ChatSession) -> None:
        self._session = session
        self.settings = session.settings_here
        """As they hold in this chat; another object whenever they change."""

    @property
    def system(self) -> str:
        """The system prompt that holds in this chat."""
        return self.settings.system

    def set(self, **changes: Any) -> Settings:
        """Let values hold in this chat; texts are read as in the settings file. Raises
        SettingsError."""
        try:
            checked = Settings(**changes)
            read = {name: getattr(checked, name) for name in changes}
            self._decide({**self._own, **read})
        except ValidationError as error:
            raise SettingsError(first_fault(error, "The setting")) from error
        except ValueError as error:
            raise SettingsError(str(error)) from error
        return self.settings

    def reset(self, name: str) -> Settings:
        """Let the file decide again."""
        self._decide({key: value for key, value in self._own.items() if key != name})
        return self.settings

    def set_system(self, text: str) -> None:
        """A system prompt of this chat's own, also an empty one; the file's own text is none."""
        if text == self.system:
            return
        if text == self._session.settings.system:
            self.reset("system")
        else:
            self._decide({**self._own, "system": text})

    def origin(self, row: SettingRow, settings: Settings) -> str:
        """What this chat decides itself."""
        return "this chat" if row.name in self._own else ""

    @property
    def _own(self) -> dict[str, Any]:
        return self._session.conversation.settings.changes()

    def _decide(self, values: dict[str, Any]) -> None:
        self._session.set_chat_settings(ChatSettings(**values))
        self.settings = self._session.settings_here


def library(own: list[Prompt]) -> list[Prompt]:
    """The user's prompts, then those that are there from the start."""
    names = {prompt.name for prompt in own}
    return [*own, *(prompt for prompt in BUILT_IN if prompt.name not in names)]


def name_of(text: str) -> str:
    """The name under which a prompt is kept: how it begins."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_NAME else line[: LONGEST_NAME - 1].rstrip() + "…"
