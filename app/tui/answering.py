"""One answer at a time from one engine: what the engine says becomes text, figures and problems.

Requests go out through `send`, the engine's messages come in through `handle`, and whoever draws
implements `View`. An answer belongs to its conversation, not to what is on screen. Text is saved
when sent and after each block.
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
)
from app.settings import Settings, SettingsFile
from app.store import Store
from app.tui import conversation as conversations
from app.tui import fitting
from app.tui.conversation import Conversation
from app.tui.fitting import Counts
from app.tui.keeper import Keeper
from app.tui.recordings import Recordings
from app.tui.state import EngineState, Phase, Problem, Refusal, Turn, View, new_id

MANY_CHARACTERS = 500
"""Of a request, from which its tokens tell how many others will have."""


class Answering:
    """The engine as the window knows it, and the turn it is busy with."""

    def __init__(self, store: Store, file: SettingsFile, view: View) -> None:
        self.store = store
        self.file = file
        self.view = view
        self.keeper = Keeper(store, file, view.problem)
        self.recordings = Recordings(store)
        self.conversation = Conversation()
        """What is on screen."""
        self.send: Callable[[Request], None] = lambda request: None
        self.engine = EngineState()
        self.turn: Turn | None = None
        self.last: Turn | None = None
        self.before: Turn | None = None
        """The newest turn that ended, for the figures that stay on screen, and the one before."""
        self.refusal: Refusal | None = None
        """The newest turn that the context had no room for, while the user has a choice."""
        self.tokens_per_character: float | None = None
        """As last counted by the engine; only it can count."""

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.file.settings

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
                if turn.characters >= MANY_CHARACTERS:
                    self.tokens_per_character = message.prompt / turn.characters
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
                if message.text:
                    turn.answer.content = turn.start + message.text
                self._end(turn, message.reason)

    def _error(self, error: Error) -> None:
        turn = self.turn
        if error.kind == "device":
            self._card_failed(error)
        elif turn is not None and error.id == turn.id:
            self._turn_failed(turn, error)
        elif error.kind in ("load", "memory") and not self.engine.usable:
            self.engine = EngineState(Phase.FAILED)
            self.view.engine_changed()
            self._tell("The model could not be loaded", error, ("restart", "models"))
        elif error.id is None:
            self._tell("The engine reports a problem", error)

    def _turn_failed(self, turn: Turn, error: Error) -> None:
        prompt, context = error.counts.get("prompt"), error.counts.get("context")
        if error.kind == "prompt_too_long" and prompt is not None and context is not None:
            self._too_long(turn, Counts(prompt, context))
        else:
            self._end(turn, "error")
            self._tell_of(turn, Problem.of("The answer could not be finished", error, ("again",)))

    def _card_failed(self, error: Error) -> None:
        """Only a new process can use the card again; the next message starts one, if nobody does
        before."""
        self.engine = EngineState(Phase.DEAD)
        if self.turn is not None and self.turn.sent:
            self._end(self.turn, "error")
        self.view.engine_changed()
        self._tell("The engine cannot go on", error, ("restart",))

    def _tell(self, title: str, error: Error, actions: tuple[str, ...] = ()) -> None:
        self.view.problem(Problem.of(title, error, actions))

    def _tell_of(self, turn: Turn, problem: Problem) -> None:
        """Say what went wrong with a turn. In another chat than its own the choices would be about
        the chat on screen."""
        talk = turn.conversation
        here = talk is self.conversation
        self.view.problem(problem if here else problem.elsewhere(talk.title))

    def _died(self, death: EngineDied) -> None:
        self.engine = EngineState(Phase.DEAD)
        if self.turn is not None and self.turn.sent:
            self._end(self.turn, "error")
        self.view.engine_changed()
        kept = "What was written is kept. Restart the engine to go on with this chat."
        self.view.problem(
            Problem("The engine stopped", death.message, kept, death.detail, ("restart",))
        )

    def send_pace(self) -> None:
        """Tell the engine the pace in force; a fresh engine runs at full speed."""
        slow = self.settings.block_view == "slow"
        self.send(Pace(1.0 / self.settings.slow_steps_per_second if slow else 0.0))

    # --- one turn -----------------------------------------------------------------------------

    def _begin(self, turn: Turn) -> None:
        """Let `turn` be the one that is answered."""
        talk, answer = turn.conversation, turn.answer
        answer.content, answer.reason = turn.start, None
        answer.stats = {"left_out": turn.left_out} if turn.left_out else None
        if turn.part is None:
            talk.entries.append(answer)
        self.turn, self.refusal = turn, None
        self.view.turn_began(turn)
        self._send_waiting()
        if not self.engine.usable and not self.engine.coming:
            self.view.engine_wanted()

    def _send_waiting(self) -> None:
        turn = self.turn
        if turn is None or turn.sent or not self.engine.usable:
            return
        messages = fitting.without_oldest(self._messages(turn), turn.left_out)
        turn.sent_at = time.monotonic()
        turn.characters = len(turn.start) + sum(len(m["content"]) for m in messages)
        self.send(Chat(turn.id, messages, turn.config, turn.start))
        self.view.live_changed(turn)

    def _messages(self, turn: Turn) -> list[dict[str, str]]:
        """All that the answer is asked with, up to its question."""
        talk = turn.conversation
        entries = talk.entries[: talk.index(turn.question) + 1]
        return conversations.request_messages(entries, talk.settings.over(self.settings).system)

    def _too_long(self, turn: Turn, counts: Counts) -> None:
        """Leave out more of a turn whose old messages may be left out, else give it back."""
        messages = self._messages(turn)
        alone = turn.left_out >= fitting.droppable(messages)
        if turn.fitting and not alone and not turn.stopping:
            turn.left_out = self._leave_out(turn, messages, counts)
            turn.answer.stats = {"left_out": turn.left_out}
            turn.id, turn.sent_at = new_id(), None
            self._send_waiting()
            return
        self.refusal = Refusal(turn, counts)
        self._unsend(turn)
        self._tell_of(turn, Problem.too_long(self.refusal, alone=alone))

    def _leave_out(self, turn: Turn, messages: list[dict[str, str]], counts: Counts) -> int:
        most = int(turn.config["max_new_tokens"])
        return fitting.leave_out(
            messages, turn.left_out, counts, start=turn.start, max_new_tokens=most
        )

    def _end(self, turn: Turn, reason: str) -> None:
        answer, part = turn.answer, turn.part
        nothing = part is not None and answer.content == part.text
        if part is not None and nothing and reason in ("stopped", "error"):
            answer.reason, answer.stats = part.reason, part.stats
        else:
            answer.reason, answer.stats = reason, turn.figures()
        self.turn, self.last, self.before = None, turn, self.last
        self.keeper.answer(turn.conversation, answer)
        self.recordings.keep(turn, self.engine.ready)
        self.view.turn_ended(turn)
        if reason == "context" and turn.live.context is not None:
            counts = Counts(turn.live.context, turn.live.context)
            self.refusal = Refusal(turn, counts)
            self._tell_of(turn, Problem.full(counts))

    def _unsend(self, turn: Turn) -> None:
        """Take the question out of the conversation; in the store it waits as "unsent". Of a
        question that was answered before, only the new answer is taken out; an answer that was to
        be continued is as it was. What the turn replaced stands there again."""
        talk, question, part = turn.conversation, turn.question, turn.part
        self.turn = None
        if part is not None:
            turn.answer.content, turn.answer.reason = part.text, part.reason
            turn.answer.stats = part.stats
        else:
            del talk.entries[talk.index(turn.answer) :]
            if turn.asked:
                del talk.entries[talk.index(question) :]
                talk.unsent, talk.editing = question, next(iter(turn.replaced), None)
                self.keeper.unsent(question, instead=talk.editing)
            talk.entries += turn.replaced
        self.view.turn_unsent(turn)
