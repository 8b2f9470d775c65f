"""What the session knows, and whom it tells: the engine's state, a turn, a problem, the view."""

import uuid
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, Self

from app.protocol import Error, Gpu, Loading, Ready
from app.tui.conversation import Conversation, Entry
from app.tui.live import Live


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


@dataclass
class Turn:
    """An answer being written, or waiting for the engine."""

    conversation: Conversation
    question: Entry
    answer: Entry
    config: dict[str, Any]
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    live: Live = field(default_factory=Live)
    sent_at: float | None = None
    """When it was sent, by the monotonic clock; None while it waits."""
    stopping: bool = False

    @property
    def sent(self) -> bool:
        """Whether the engine has the question."""
        return self.sent_at is not None


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
    def too_long(cls, error: Error) -> Self:
        """A message that does not fit, with its counts, and where its text is now."""
        prompt, context = error.counts.get("prompt"), error.counts.get("context")
        message = error.message
        if prompt is not None and context is not None:
            message = (
                f"With this chat it is {prompt:,} tokens long; the context holds {context:,}, and "
                "the answer needs room too. Nothing was cut: your text is back in the field."
            )
        return cls("This message does not fit", message, error.hint)


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
