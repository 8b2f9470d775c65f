"""Keeps conversations in the store and settings in their file, and never lets either end a chat.

A write that fails is told once in the store's or the file's own words; the conversation goes on in
memory.
"""

from collections.abc import Callable
from typing import Any

from app.settings import SettingsError, SettingsFile
from app.store import Store
from app.store_schema import StoreError
from app.tui.conversation import UNSENT, Conversation, Entry
from app.tui.state import Problem


class Keeper:
    """The one place that writes for a session."""

    def __init__(self, store: Store, file: SettingsFile, tell: Callable[[Problem], None]) -> None:
        self.store = store
        self.file = file
        self._tell = tell
        self._told = {store.notice}

    def question(self, talk: Conversation, question: Entry) -> None:
        """Save a message that is being sent; the first one makes the chat."""

        def save() -> None:
            if talk.id is None:
                talk.id = self.store.create_chat(talk.title)
            if question.id is None:
                question.id = self.store.add_message(talk.id, "user", question.content)
            else:
                question.id = self.store.resend(question.id, question.content)

        self._saving(save)

    def answer(self, talk: Conversation, answer: Entry) -> None:
        """Save an answer as it stands."""

        def save() -> None:
            if talk.id is None:
                return
            if answer.id is None:
                answer.id = self.store.add_message(
                    talk.id, answer.role, answer.content, after=talk.asked_by(answer)
                )
            self.store.update_message(
                answer.id, content=answer.content, reason=answer.reason, stats=answer.stats
            )

        self._saving(save)

    def unsent(self, question: Entry) -> None:
        """Mark a message that did not fit."""
        if (id := question.id) is not None:
            self._saving(lambda: self.store.update_message(id, reason=UNSENT))

    def settings(self, **changes: Any) -> None:
        """Let settings hold, and save them."""
        try:
            self.file.set(**changes)
        except SettingsError as error:
            self._once("This setting is not saved", str(error))

    def _saving(self, save: Callable[[], None]) -> None:
        notice: str | None
        try:
            save()
            notice = self.store.notice
        except StoreError as error:
            notice = str(error)
        if notice:
            self._once("This chat is not saved", notice)

    def _once(self, title: str, notice: str) -> None:
        if notice not in self._told:
            self._told.add(notice)
            self._tell(Problem(title, notice))
