"""One window's chat with one engine, as a state machine without a screen.

Requests go out through `send`, the engine's messages come in through `handle`, and whoever draws
implements `View`. At most one answer is written at a time. It belongs to its conversation, not to
what is on screen. Text is saved when sent and after each block.
"""

import time
from collections.abc import Callable

from app.client import EngineDied
from app.protocol import (
    Block,
    Chat,
    Done,
    EngineMessage,
    Error,
    Gpu,
    Hello,
    Loading,
    Pace,
    Prefill,
    Ready,
    Request,
    Step,
    Stop,
)
from app.settings import Settings, SettingsFile
from app.store import Store
from app.tui import conversation as conversations
from app.tui.conversation import Conversation, Entry
from app.tui.keeper import Keeper
from app.tui.recordings import Recordings
from app.tui.state import EngineState, Phase, Problem, Turn, View


class ChatSession:
    """The chat of one window."""

    def __init__(self, store: Store, file: SettingsFile, view: View) -> None:
        self.store = store
        self.file = file
        self.view = view
        self.keeper = Keeper(store, file, view.problem)
        self.recordings = Recordings(store)
        self.send: Callable[[Request], None] = lambda request: None
        self.engine = EngineState()
        self.conversation = Conversation()
        self.turn: Turn | None = None
        self.asked: list[str] = []
        """Every prompt of this window, of whatever chat."""
        self.last: Turn | None = None
        self.before: Turn | None = None
        """The newest turn that ended, for the figures that stay on screen, and the one before."""

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.file.settings

    # --- what the user does -------------------------------------------------------------------

    @property
    def turn_here(self) -> Turn | None:
        """The turn of the conversation on screen."""
        turn = self.turn
        return turn if turn is not None and turn.conversation is self.conversation else None

    @property
    def shown_turn(self) -> Turn | None:
        """The turn whose figures belong on screen: the running one here, else the last here."""
        mine = self.last is not None and self.last.conversation is self.conversation
        return self.turn_here or (self.last if mine else None)

    def ask(self, text: str) -> str | None:
        """Send `text`; None, or why it was not sent (the text is then still the user's)."""
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
        self._begin(question)
        return None

    def again(self) -> str | None:
        """Answer the last question once more; the earlier answer stays above the new one."""
        if self.turn is not None:
            return self._busy()
        question = self.conversation.last_question
        if question is None:
            return "There is no question to answer again."
        self._begin(question)
        return None

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

    def send_pace(self) -> None:
        """Tell the engine the pace in force; a fresh engine runs at full speed."""
        slow = self.settings.block_view == "slow"
        self.send(Pace(1.0 / self.settings.slow_steps_per_second if slow else 0.0))

    def close(self) -> None:
        """The window closes: what was written so far is the answer."""
        turn, self.turn = self.turn, None
        if turn is not None:
            turn.answer.reason = "stopped"
            self.keeper.answer(turn.conversation, turn.answer)

    # --- what the engine says -----------------------------------------------------------------

    def handle(self, message: EngineMessage | EngineDied) -> None:
        """Take one message of the engine; those of an answer that is over are dropped."""
        match message:
            case Hello() | Loading() | Ready() | Gpu():
                self._engine(message)
            case Prefill() | Step() | Block() | Done():
                if self.turn is not None and message.id == self.turn.id:
                    self._progress(self.turn, message)
            case Error():
                self._error(message)
            case EngineDied():
                self._died(message)

    def engine_starting(self) -> None:
        """A new engine process is on its way; what the one before was writing is cut short."""
        self.engine = EngineState()
        if self.turn is not None and self.turn.sent:
            self._end(self.turn, "error")
        self.view.engine_changed()

    def _engine(self, message: Hello | Loading | Ready | Gpu) -> None:
        match message:
            case Loading():
                self.engine.phase, self.engine.loading = Phase.LOADING, message
            case Ready():
                self.engine = EngineState(Phase.READY, ready=message, gpu=self.engine.gpu)
                self.send_pace()
                self._send_waiting()
            case Gpu():
                self.engine.gpu = message
        self.view.engine_changed()

    def _progress(self, turn: Turn, message: Prefill | Step | Block | Done) -> None:
        match message:
            case Prefill():
                turn.live.prefill(message)
                self.view.live_changed(turn)
            case Step():
                turn.live.advance(message)
                self.view.live_changed(turn)
            case Block():
                turn.live.close_block(message)
                turn.answer.content += message.text
                self.keeper.answer(turn.conversation, turn.answer)
                self.view.text_added(turn, message.text)
                self.view.live_changed(turn)
            case Done():
                turn.live.finish(message)
                turn.answer.content = message.text or turn.answer.content
                turn.answer.stats = turn.live.stats
                self._end(turn, message.reason)

    def _error(self, error: Error) -> None:
        turn = self.turn
        if turn is not None and error.id == turn.id:
            self._turn_failed(turn, error)
        elif error.kind in ("load", "memory") and not self.engine.usable:
            self.engine = EngineState(Phase.FAILED)
            self.view.engine_changed()
            self._tell("The model could not be loaded", error, ("restart",))
        elif error.id is None:
            self._tell("The engine reports a problem", error)

    def _turn_failed(self, turn: Turn, error: Error) -> None:
        if error.kind == "prompt_too_long":
            self._unsend(turn)
            self.view.problem(Problem.too_long(error))
        else:
            self._end(turn, "error")
            self._tell("The answer could not be finished", error, ("again",))

    def _tell(self, title: str, error: Error, actions: tuple[str, ...] = ()) -> None:
        self.view.problem(Problem.of(title, error, actions))

    def _died(self, death: EngineDied) -> None:
        self.engine = EngineState(Phase.DEAD)
        if self.turn is not None and self.turn.sent:
            self._end(self.turn, "error")
        self.view.engine_changed()
        kept = "What was written is kept. Restart the engine to go on with this chat."
        card = Problem("The engine stopped", death.message, kept, death.detail, ("restart",))
        self.view.problem(card)

    # --- one turn -----------------------------------------------------------------------------

    def _begin(self, question: Entry) -> None:
        answer = Entry("assistant", "")
        self.conversation.entries.append(answer)
        turn = self.turn = Turn(self.conversation, question, answer, self.settings.decoding())
        self.view.turn_began(turn)
        self._send_waiting()
        if not self.engine.usable and not self.engine.coming:
            self.view.engine_wanted()

    def _send_waiting(self) -> None:
        turn = self.turn
        if turn is None or turn.sent or not self.engine.usable:
            return
        talk, system = turn.conversation, self.settings.system
        messages = conversations.request_messages(talk.entries[:-1], system)
        turn.sent_at = time.monotonic()
        self.send(Chat(turn.id, messages, turn.config))
        self.view.live_changed(turn)

    def _end(self, turn: Turn, reason: str) -> None:
        turn.answer.reason = reason
        if turn.answer.stats is None:
            turn.answer.stats = turn.live.counts()
        self.turn, self.last, self.before = None, turn, self.last
        self.keeper.answer(turn.conversation, turn.answer)
        self.recordings.keep(turn, self.engine.ready)
        self.view.turn_ended(turn)

    def _unsend(self, turn: Turn) -> None:
        """Take the question out of the conversation; in the store it waits as "unsent"."""
        talk, question = turn.conversation, turn.question
        talk.entries = [e for e in talk.entries if e is not turn.answer]
        self.turn = None
        if talk.entries and talk.entries[-1] is question:
            talk.entries.pop()
            talk.unsent = question
            self.keeper.unsent(question)
        self.view.turn_unsent(turn)

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
