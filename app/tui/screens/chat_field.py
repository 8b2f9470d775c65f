"""What is typed in the chat and not sent: the draft, the files that go along, a message that is
edited, earlier prompts.
"""

from typing import TYPE_CHECKING, cast

from app.attachment import join, split
from app.store_schema import StoreError
from app.tui.conversation import Entry
from app.tui.screens.chat_frame import ChatFrame
from app.tui.session import ChatSession
from app.tui.widgets.attachments import Attachments
from app.tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from app.tui.app import OrlChat

EDITING = "Edit, and send as a new version (esc: leave it as it was)"
MOST_PROMPTS = 200
"""Of earlier windows that Up brings back."""


class ChatField(ChatFrame):
    """The field below the conversation and what is in it."""

    _typed: str = ""
    """What was in the field when editing an earlier message began."""
    _offered: Entry | None = None
    """The newest message that did not fit and was given back."""

    @property
    def program(self) -> "OrlChat":
        """The app, by its own type."""
        return cast("OrlChat", self.app)

    @property
    def draft(self) -> str:
        """What is typed and not sent, with the files that were to go along."""
        return join(self.query_one(Prompt).text, self.query_one(Attachments).files)

    @draft.setter
    def draft(self, message: str) -> None:
        """Put it into the field, unless somebody types already."""
        if message and not self.draft:
            text, files = split(message)
            self.query_one(Prompt).put(text)
            self.query_one(Attachments).add(*files)

    @property
    def unfinished(self) -> str:
        """What the user would miss: the draft, or what waits while a message is edited."""
        return self._typed or self.draft

    @property
    def session(self) -> ChatSession:
        """The chat behind this screen."""
        return self.program.session

    def _offer_draft(self) -> None:
        """A message that did not fit is the user's again, once. Where something else is typed it
        stays aside."""
        talk = self.session.conversation
        if self._typed and talk.editing is None:
            self.bring_back()  # another chat: what was edited is left there
        unsent = talk.unsent if talk.unsent is not self._offered else None
        if unsent is not None:
            self._offered = unsent
            if talk.editing is not None:
                self.begin_editing(unsent.content)
            else:
                talk.unsent_aside = self.draft not in ("", unsent.content)
                self.draft = unsent.content
        self._show_editing()

    def begin_editing(self, message: str) -> None:
        """The field holds `message`, to be sent as a version; what was typed waits."""
        if not self.query_one(Prompt).border_title:
            self._typed = self.draft
        self._fill(message)
        self.query_one(Prompt).focus()

    def leave_editing(self) -> bool:
        """What was typed before is in the field again; False when nothing is edited."""
        talk = self.session.conversation
        if talk.editing is None:
            return False
        talk.editing = None
        self.bring_back()
        return True

    def bring_back(self) -> None:
        """What was edited is sent or left: the field holds what was typed before."""
        typed, self._typed, self._offered = self._typed, "", None
        self._fill(typed)

    def _fill(self, message: str) -> None:
        text, files = split(message)
        attachments, prompt = self.query_one(Attachments), self.query_one(Prompt)
        attachments.take_all()
        attachments.add(*files)
        prompt.put(text)
        self._show_editing()

    def _show_editing(self) -> None:
        editing = self.session.conversation.editing is not None
        self.query_one(Prompt).border_title = EDITING if editing else ""

    def _history(self) -> list[str]:
        """Prompts of earlier windows, of this chat and of this window, each once, the latest
        last."""
        try:
            said = self.session.store.questions(MOST_PROMPTS)
        except StoreError:
            said = []
        said += [*self.session.conversation.prompts, *self.session.asked]
        prompts = [text for text in (split(message)[0] for message in said) if text.strip()]
        return list(dict.fromkeys(reversed(prompts)))[::-1]
