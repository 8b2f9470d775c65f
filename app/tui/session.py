"""One window's chat with one engine, as a state machine without a screen: what the user does.

What the engine says stands in `answering`. At most one answer is written at a time; another chat
can be opened while it goes on.
"""

from collections.abc import Sequence

from app.chat_settings import ChatSettings
from app.protocol import Stop
from app.settings import Settings, SettingsFile
from app.store import Store
from app.store_schema import StoreError
from app.tui import conversation as conversations
from app.tui.answering import Answering
from app.tui.conversation import Conversation, Entry
from app.tui.figures import number
from app.tui.state import Part, Turn, View


class ChatSession(Answering):
    """The chat of one window."""

    def __init__(self, store: Store, file: SettingsFile, view: View) -> None:
        super().__init__(store, file, view)
        self.asked: list[str] = []
        """Every prompt of this window, of whatever chat."""

    @property
    def turn_here(self) -> Turn | None:
        """The turn of the conversation on screen."""
        turn = self.turn
        return turn if turn is not None and turn.conversation is self.conversation else None

    @property
    def settings_here(self) -> Settings:
        """The settings as they hold in the chat on screen."""
        return self.conversation.settings.over(self.settings)

    def set_chat_settings(self, settings: ChatSettings) -> None:
        """What the chat on screen decides for itself, from its next answer on."""
        self.conversation.settings = settings
        self.keeper.chat_settings(self.conversation)
        self.view.conversation_changed()

    @property
    def shown_turn(self) -> Turn | None:
        """The turn whose figures belong on screen: the running one here, else the last, if its
        answer is still the newest here."""
        last = self.last
        kept = last if last is not None and last.answer is self.conversation.last_answer else None
        return self.turn_here or kept

    def ask(self, text: str, *, fit: bool = False) -> str | None:
        """Send `text`; None, or why it was not sent (the text is then still the user's). With
        `fit` as many of the oldest messages are left out as it takes."""
        if not text.strip():
            return "Type a message first."
        if self.turn is not None:
            return self._busy()
        self.asked.append(text)
        talk, edited = self.conversation, self.conversation.editing
        if talk.unsent is not None and (edited is not None or talk.unsent_aside):
            self.keeper.moved(talk.unsent)
            talk.unsent = None
        talk.unsent_aside = False
        question = talk.unsent or Entry("user", text)
        question.content, question.reason, talk.unsent = text, None, None
        question.version = question.versions = 1  # one that was not sent was none
        if not talk.title:
            talk.title = conversations.title_of(text)
        replaced = self._replace(talk.index(edited)) if edited is not None else []
        if edited is not None:
            question.version = question.versions = edited.versions + 1
        talk.entries.append(question)
        self.keeper.question(talk, question, version_of=edited)
        talk.editing = None
        self._answer(question, asked=True, replaced=replaced, fit=fit)
        return None

    def edit(self, entry: Entry | None) -> str | None:
        """Let the next message be a new version of the question that `entry` is or answers (None:
        the last one)."""
        talk = self.conversation
        question = talk.question_of(entry) if entry is not None else talk.last_question
        if self.turn_here is not None:
            return self._busy()
        if question is None:
            return "There is no message to edit."
        talk.editing = question
        return None

    def again(self, entry: Entry | None = None, *, fit: bool = False) -> str | None:
        """Answer the question that `entry` is or answers (None: the last one) once more, as a new
        version. What followed stays with the version that it followed."""
        if self.turn is not None:
            return self._busy()
        talk = self.conversation
        question = talk.question_of(entry) if entry is not None else talk.last_question
        if question is None:
            return "There is no question to answer again."
        place = talk.index(question) + 1
        earlier = talk.entries[place] if place < len(talk.entries) else None
        answer = Entry("assistant", "")
        replaced: list[Entry] = []
        if earlier is not None and earlier.role == "assistant" and earlier.id is not None:
            answer.version = answer.versions = earlier.versions + 1
            replaced = self._replace(place)
        self._answer(question, answer, replaced=replaced, fit=fit)
        return None

    def leaf(self, entry: Entry, step: int) -> str | None:
        """Show the version before (-1) or after (+1) `entry`, with what followed it."""
        if self.turn_here is not None:
            return self._busy()
        talk = self.conversation
        if entry.id is None or talk.id is None or entry.versions < 2:
            return "There is only one version of this message."
        try:
            ids = [version.id for version in self.store.versions(entry.id)]
            place = ids.index(entry.id) + step
            if not 0 <= place < len(ids):
                return "This is the newest version." if step > 0 else "This is the first version."
            self.store.choose_version(ids[place])
            conversations.reload(self.store, talk)
        except (StoreError, ValueError) as error:
            return str(error) if isinstance(error, StoreError) else "This version is gone."
        talk.editing = None
        self.view.conversation_changed()
        return None

    def _replace(self, place: int) -> list[Entry]:
        """Take what stands from `place` on off the path: a new version comes there."""
        talk = self.conversation
        replaced = talk.entries[place:]
        del talk.entries[place:]
        if any(entry is talk.editing for entry in replaced):
            talk.editing = None
        return replaced

    def go_on(self, *, fit: bool = False) -> str | None:
        """Continue the last answer where it was cut short."""
        if self.turn is not None:
            return self._busy()
        talk = self.conversation
        answer, question = talk.last_answer, talk.last_question
        if answer is None or question is None:
            return "There is no answer to continue."
        if (refusal := conversations.why_complete(answer)) is not None:
            return refusal
        self._answer(question, answer, part=Part.of(answer), fit=fit)
        return None

    def fit(self, text: str) -> str | None:
        """Do what the context had no room for without the oldest messages; `text` is what the user
        has by now in place of a question that did not fit."""
        refusal = self.refusal
        if refusal is None or refusal.turn.conversation is not self.conversation:
            return "There is nothing that has to be fitted."
        if self.turn is not None:
            return self._busy()
        if refusal.turn.question is self.conversation.unsent:
            return self.ask(self._returned(text), fit=True)
        if refusal.turn.answer is self.conversation.last_answer:
            return self.go_on(fit=True)
        return self.again(refusal.turn.question, fit=True)

    def move(self, text: str) -> str | None:
        """Ask in a new chat what the context had no room for."""
        talk = self.conversation
        if self.turn is not None:
            return self._busy()
        text = self._returned(text)
        if talk.unsent is None:
            text = talk.last_question.content if talk.last_question is not None else ""
        elif text.strip():
            self.keeper.moved(talk.unsent)
            talk.unsent = talk.editing = None
        self.new_chat()
        return self.ask(text)

    def _returned(self, text: str) -> str:
        """The message that did not fit: what became of it in the field, `text`, or as it was where
        the field held something else."""
        talk = self.conversation
        aside, talk.unsent_aside = talk.unsent_aside, False
        return talk.unsent.content if aside and talk.unsent is not None else text

    def _answer(
        self,
        question: Entry,
        answer: Entry | None = None,
        *,
        fit: bool,
        asked: bool = False,
        part: Part | None = None,
        replaced: Sequence[Entry] = (),
    ) -> None:
        """Begin a turn: a new answer to `question`, or the rest of `answer`."""
        talk = self.conversation
        turn = Turn(
            talk,
            question,
            answer or Entry("assistant", ""),
            self.settings_here.decoding(),
            part=part,
            asked=asked,
            replaced=list(replaced),
            fitting=fit,
        )
        if part is not None:  # as it was begun
            turn.left_out = int(number(part.stats or {}, "left_out") or 0)
        if fit and self.refusal is not None:
            turn.left_out = self._leave_out(turn, self._messages(turn), self.refusal.counts)
        self._begin(turn)

    def stop(self) -> bool:
        """End the running answer and keep its text; False when nothing runs here."""
        turn = self.turn_here
        if turn is None or turn.stopping:
            return False
        if turn.sent:
            turn.stopping = True
            self.send(Stop(turn.id))
            self.view.live_changed(turn)
        else:
            self._end(turn, "stopped")
        return True

    def new_chat(self) -> None:
        """An empty conversation; an answer that is being written goes on in its own."""
        self.conversation = Conversation()
        self.view.conversation_changed()

    def open_chat(self, chat_id: int, title: str, at: int | None = None) -> None:
        """Show a chat of the store, on a path with the message `at`. Raises StoreError."""
        turn = self.turn
        if turn is not None and turn.conversation.id == chat_id:
            self.conversation = turn.conversation
        else:
            self.conversation = conversations.load(self.store, chat_id, title, at)
        self.view.conversation_changed()

    def rename(self, chat_id: int, title: str) -> None:
        """Rename a chat of the store. Raises StoreError."""
        self.store.rename_chat(chat_id, title)
        for talk in self._open_conversations():
            if talk.id == chat_id:
                talk.title = title
                self.view.conversation_changed()

    def delete(self, chat_id: int) -> None:
        """Delete a chat; an answer being written in it is stopped. Raises StoreError."""
        turn = self.turn
        if turn is not None and turn.conversation.id == chat_id:
            self.send(Stop(turn.id))
            self._end(turn, "stopped")
        self.store.delete_chat(chat_id)
        if self.conversation.id == chat_id:
            self.new_chat()

    def set_block_view(self, mode: str) -> None:
        """Off, live or slow; the engine waits between forwards in slow motion only."""
        self.keeper.settings(block_view=mode)
        self.send_pace()

    def close(self) -> None:
        """The window closes: what was written so far is the answer."""
        if self.turn is not None:
            self._end(self.turn, "stopped")

    def _busy(self) -> str:
        turn = self.turn
        assert turn is not None
        if turn.conversation is not self.conversation:
            return f"An answer is still being written in “{turn.conversation.title}”."
        if not turn.sent:
            return "A message already waits for the engine: Esc takes it back."
        return "An answer is being written: Esc stops it."

    def _open_conversations(self) -> list[Conversation]:
        return [self.conversation, *([self.turn.conversation] if self.turn is not None else [])]
