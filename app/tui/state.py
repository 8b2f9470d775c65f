"""What the session knows, and whom it tells: the engine's state, a turn, a problem, the view."""

import uuid
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol, Self

from app.protocol import Error, Gpu, Loading, Ready
from app.tui.conversation import Conversation, Entry
from app.tui.fitting import Counts
from app.tui.live import Live


def new_id() -> str:
    """A name for a request."""
    return uuid.uuid4().hex[:12]


class Phase(StrEnum):
    """What the engine is doing, as far as the window knows."""

    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    """The process lives, the model could not be loaded."""
    DEAD = "dead"


@dataclass
class EngineState:
    """The engine as the window knows it."""

    phase: Phase = Phase.STARTING
    loading: Loading | None = None
    ready: Ready | None = None
    gpu: Gpu | None = None

    @property
    def usable(self) -> bool:
        """Whether a message can be sent now."""
        return self.phase is Phase.READY

    @property
    def coming(self) -> bool:
        """Whether it will be usable without anybody's help."""
        return self.phase in (Phase.STARTING, Phase.LOADING)


@dataclass(frozen=True)
class Part:
    """An answer as it was before it was continued."""

    text: str
    reason: str | None
    stats: dict[str, Any] | None

    @classmethod
    def of(cls, answer: Entry) -> Self:
        """What is there; half a character at the end, which a stop leaves, is not gone on from."""
        return cls(answer.content.rstrip("\ufffd"), answer.reason, answer.stats)

    def figures(self) -> list[dict[str, Any]]:
        """The figures of this part and of those before it, each with why it ended and without what
        is kept of single blocks."""
        stats = dict(self.stats or {})
        before = stats.pop("earlier", None)
        stats.pop("blocks", None)
        return [*(before if isinstance(before, list) else []), {**stats, "reason": self.reason}]


@dataclass
class Turn:
    """An answer being written, or waiting for the engine."""

    conversation: Conversation
    question: Entry
    answer: Entry
    config: dict[str, Any]
    part: Part | None = None
    """What was written of the answer before this turn, when it is continued."""
    asked: bool = False
    """Whether the question came with this turn; else it stood there before."""
    replaced: list[Entry] = field(default_factory=list)
    """What stood on screen in place of this turn's new version, and after it."""
    fitting: bool = False
    """Whether the user chose to leave out old messages rather than not to be answered."""
    left_out: int = 0
    """How many of the oldest messages are not sent."""
    id: str = field(default_factory=new_id)
    live: Live = field(default_factory=Live)
    sent_at: float | None = None
    """When it was sent, by the monotonic clock; None while it waits."""
    characters: int = 0
    """Of all that was sent."""
    stopping: bool = False

    @property
    def sent(self) -> bool:
        """Whether the engine has the question."""
        return self.sent_at is not None

    @property
    def start(self) -> str:
        """The text that this turn goes on from."""
        return self.part.text if self.part is not None else ""

    def figures(self) -> dict[str, Any] | None:
        """The answer's figures as they are kept. Those of a continued answer are of its last part
        alone; the parts before it follow as they were, so that no rate mixes two measurements."""
        more: dict[str, Any] = {"context": self.live.context, "left_out": self.left_out}
        if self.part is not None:
            more["earlier"] = self.part.figures()
        figures = self.live.stats or self.live.counts() or {}
        return {**figures, **{name: value for name, value in more.items() if value}} or None


@dataclass(frozen=True)
class Refusal:
    """A turn that the context has no room for."""

    turn: Turn
    counts: Counts


_CHOICE = (
    "Leave out the oldest messages for this answer (they stay in the chat), ask in a new chat, or "
    "dismiss this."
)


@dataclass(frozen=True)
class Problem:
    """Something to say in a card: what happened, the next move, details, and what can be done."""

    title: str
    message: str
    hint: str = ""
    detail: str = ""
    actions: tuple[str, ...] = ()

    @classmethod
    def of(cls, title: str, error: Error, actions: tuple[str, ...] = ()) -> Self:
        """An engine's error as it is."""
        return cls(title, error.message, error.hint, error.detail, actions)

    @classmethod
    def too_long(cls, refusal: Refusal, *, alone: bool) -> Self:
        """A message that does not fit: its counts, where its text is now, and the choice. There is
        none when it does not fit `alone` either."""
        turn, counts = refusal.turn, refusal.counts
        title = "This message does not fit" if turn.part is None else "There is no room to go on"
        begin = "It is" if alone else "With this chat it is"
        message = (
            f"{begin} {counts.prompt:,} tokens long; the context holds {counts.context:,}, and "
            "the answer needs room too. Nothing was cut."
        )
        if alone:
            return cls(title, message, "Make it shorter and send it again.")
        back = turn.question is turn.conversation.unsent
        hint = f"Your text is back in the field. {_CHOICE}" if back else _CHOICE
        return cls(title, message, hint, actions=("fit", "move"))

    def elsewhere(self, chat: str) -> Self:
        """The same, told in another chat than `chat`, which it is about: what can be done about it
        is done there."""
        return replace(
            self,
            message=f"In “{chat}”: {self.message}",
            hint="Open that chat to go on with it.",
            actions=(),
        )

    @classmethod
    def full(cls, counts: Counts) -> Self:
        """An answer that ended because the context did."""
        message = f"The answer stopped where the context of {counts.context:,} tokens ends."
        return cls("The context is full", message, _CHOICE, actions=("fit", "move"))


class View(Protocol):
    """What the session tells whoever draws."""

    def engine_changed(self) -> None:
        """The engine's state, its load stage or the device's figures changed."""

    def conversation_changed(self) -> None:
        """Another conversation is on screen, or its title changed."""

    def turn_began(self, turn: Turn) -> None:
        """A question was asked; its answer is empty."""

    def text_added(self, turn: Turn, text: str) -> None:
        """A block's text is final."""

    def live_changed(self, turn: Turn) -> None:
        """The figures or the open block moved."""

    def turn_ended(self, turn: Turn) -> None:
        """The answer is complete, or all there will be."""

    def turn_unsent(self, turn: Turn) -> None:
        """The question did not fit and left the conversation; its text is the user's again."""

    def engine_wanted(self) -> None:
        """A message waits and no engine is on its way."""

    def problem(self, problem: Problem) -> None:
        """Something went wrong."""
