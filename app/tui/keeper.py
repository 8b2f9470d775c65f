"""Keeps conversations in the store and settings in their file, and never lets either end a chat.

A write that fails is told once in the store's or the file's own words; the conversation goes on in
memory.
"""

from collections.abc import Callable
from typing import Any

from app.settings import SettingsError, SettingsFile
from app.store import Store
from app.store_schema import StoreError
from app.tui.conversation import MOVED, UNSENT, Conversation, Entry
from app.tui.state import Problem


class Keeper:
    """The one place that writes for a session."""

    def __init__(self, store: Store, file: SettingsFile, tell: Callable[[Problem], None]) -> None:
        self.store = store
        self.file = file
        self._tell = tell
        self._told = {store.notice}

    def question(
        self, talk: Conversation, question: Entry, version_of: Entry | None = None
    ) -> None:
        """Save a message that is being sent: at the end, or as a version of another one.
        The first one makes the chat."""

        def save() -> None:
            if talk.id is None:
                talk.id = self.store.create_chat(talk.title, talk.settings)
            edited = version_of.id if version_of is not None else None
            if edited is not None:
                question.id = self.store.add_version(edited, question.content)
            elif question.id is None:
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

    def unsent(self, question: Entry, instead: Entry | None = None) -> None:
        """Mark a message that did not fit; the version `instead` is the chosen one again."""

        def save() -> None:
            if question.id is not None:
                self.store.update_message(question.id, reason=UNSENT)
                if instead is not None and instead.id is not None:
                    self.store.choose_version(instead.id)

        self._saving(save)

    def moved(self, question: Entry) -> None:
        """Mark a message that did not fit and was asked in another chat."""
        if (id := question.id) is not None:
            self._saving(lambda: self.store.update_message(id, reason=MOVED))

    def chat_settings(self, talk: Conversation) -> None:
        """Save what a chat decides for itself; a new chat's are saved with its first message."""
        if (id := talk.id) is not None:
            self._saving(lambda: self.store.set_chat_settings(id, talk.settings))

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
