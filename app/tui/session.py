"""One window's chat with one engine, as a state machine without a screen: what the user does.

What the engine says stands in `answering`. At most one answer is written at a time; another chat
can be opened while it goes on.
"""

from app.protocol import Stop
from app.settings import SettingsFile
from app.store import Store
from app.tui import conversation as conversations
from app.tui.answering import Answering
from app.tui.conversation import Conversation, Entry
from app.tui.state import Part, Turn, View


class ChatSession(Answering):
    """The chat of one window."""

    def __init__(self, store: Store, file: SettingsFile, view: View) -> None:
        super().__init__(store, file, view)
        self.conversation = Conversation()
        self.asked: list[str] = []
        """Every prompt of this window, of whatever chat."""

    @property
    def turn_here(self) -> Turn | None:
        """The turn of the conversation on screen."""
        turn = self.turn
        return turn if turn is not None and turn.conversation is self.conversation else None

    @property
    def shown_turn(self) -> Turn | None:
        """The turn whose figures belong on screen: the running one here, else the last here."""
        last = self.last
        kept = last if last is not None and last.conversation is self.conversation else None
        return self.turn_here or kept

    def ask(self, text: str, *, fit: bool = False) -> str | None:
        """Send `text`; None, or why it was not sent (the text is then still the user's). With
        `fit` as many of the oldest messages are left out as it takes."""
        if not text.strip():
            return "Type a message first."
        if self.turn is not None:
            return self._busy()
        self.asked.append(text)
        talk = self.conversation
        question = talk.unsent or Entry("user", text)
        question.content, question.reason, talk.unsent = text, None, None
        if not talk.title:
            talk.title = conversations.title_of(text)
        talk.entries.append(question)
        self.keeper.question(talk, question)
        self._answer(question, fit=fit)
        return None

    def again(self, *, fit: bool = False) -> str | None:
        """Answer the last question once more; the earlier answer stays above the new one."""
        if self.turn is not None:
            return self._busy()
        question = self.conversation.last_question
        if question is None:
            return "There is no question to answer again."
        self._answer(question, fit=fit)
        return None

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
        self._answer(question, answer, fit=fit)
        return None

    def fit(self, text: str) -> str | None:
        """Do what the context had no room for without the oldest messages; `text` is what the user
        has by now in place of a question that did not fit."""
        refusal = self.refusal
        if refusal is None or refusal.turn.conversation is not self.conversation:
            return "There is nothing that has to be fitted."
        if refusal.turn.question is self.conversation.unsent:
            return self.ask(text, fit=True)
        if refusal.turn.answer is self.conversation.last_answer:
            return self.go_on(fit=True)
        return self.again(fit=True)

    def move(self, text: str) -> str | None:
        """Ask in a new chat what the context had no room for."""
        talk = self.conversation
        if self.turn is not None:
            return self._busy()
        if talk.unsent is None:
            text = talk.last_question.content if talk.last_question is not None else ""
        elif text.strip():
            self.keeper.moved(talk.unsent)
            talk.unsent = None
        self.new_chat()
        return self.ask(text)

    def _answer(self, question: Entry, answer: Entry | None = None, *, fit: bool) -> None:
        """Begin a turn: a new answer to `question`, or the rest of `answer`."""
        part = Part.of(answer) if answer is not None else None
        answer = answer or Entry("assistant", "")
        config = self.settings.decoding()
        turn = Turn(self.conversation, question, answer, config, part=part, fitting=fit)
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

    def open_chat(self, chat_id: int, title: str) -> None:
        """Show a chat of the store. Raises StoreError."""
        turn = self.turn
        if turn is not None and turn.conversation.id == chat_id:
            self.conversation = turn.conversation
        else:
            self.conversation = conversations.load(self.store, chat_id, title)
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
            self.turn = None
        self.store.delete_chat(chat_id)
        if self.conversation.id == chat_id:
            self.new_chat()

    def set_block_view(self, mode: str) -> None:
        """Off, live or slow; the engine waits between forwards in slow motion only."""
        self.keeper.settings(block_view=mode)
        self.send_pace()

    def close(self) -> None:
        """The window closes: what was written so far is the answer."""
        turn, self.turn = self.turn, None
        if turn is not None:
            turn.answer.reason = "stopped"
            self.keeper.answer(turn.conversation, turn.answer)

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
