"""Recordings of the window's answers: made when one ends, found again when somebody asks for it."""

from collections.abc import Mapping
from typing import Any

from app.answer_traces import AnswerTraces
from app.paths import paths
from app.protocol import Chat, Ready
from app.store import Store
from app.store_rows import Message
from app.store_schema import StoreError
from app.trace import RecordedAnswer, TraceError, read_recording, with_steps
from app.tui.conversation import Conversation, Entry
from app.tui.film import Film
from app.tui.state import Turn


class Recordings:
    """What `store`'s answers were like, step by step."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._traces = AnswerTraces(paths().traces)

    def keep(self, turn: Turn, ready: Ready | None) -> None:
        """Write an answer that ended down; one without a block has nothing to show."""
        messages = turn.live.recorded(turn.answer.reason or "stopped")
        chat_id = turn.conversation.id
        if messages and chat_id is not None and self._store.writable:
            self._traces.keep(chat_id, _request(turn), ready, messages)

    def film(
        self, talk: Conversation, answer: Entry, turn: Turn | None, ready: Ready | None
    ) -> Film | None:
        """An answer as a film: that of `turn` as far as it has come, any other from the disk. None
        where nothing was recorded, or is kept no more."""
        if turn is not None and turn.answer is answer:
            return _film_so_far(turn, ready)
        return None if talk.id is None else self._on_disk(talk.id, answer.stats)

    def stored_film(self, message: Message, turn: Turn | None, ready: Ready | None) -> Film | None:
        """As `film`, of an answer as the store has it; `turn` is the newest that ended, whose file
        may not be there yet."""
        stats = message.stats or {}
        if turn is not None and turn.id == stats.get("trace"):
            return _film_so_far(turn, ready)
        return self._on_disk(message.chat_id, stats)

    def _on_disk(self, chat_id: int, stats: Mapping[str, Any] | None) -> Film | None:
        path = self._traces.find(chat_id, (stats or {}).get("trace"))
        if path is None:
            return None
        try:
            recording = read_recording(path)
        except TraceError:
            return None
        return Film.of(recording.answers[0], recording.ready)

    def prune(self) -> None:
        """Forget the recordings of chats that are gone, and the oldest of too many. Chats that
        cannot be read are not gone."""
        if not self._store.writable or self._store.notice:
            return
        try:
            self._traces.prune(self._store.chat_ids())
        except StoreError:
            return


def _film_so_far(turn: Turn, ready: Ready | None) -> Film | None:
    recorded = _so_far(turn)
    return Film.of(recorded, ready) if recorded.messages else None


def _so_far(turn: Turn) -> RecordedAnswer:
    """An answer of this window, up to its newest final block, without a file."""
    recorded = RecordedAnswer(_request(turn))
    for timed in turn.live.recorded(turn.answer.reason or "stopped"):
        recorded.messages.extend(with_steps(recorded.messages, timed))
    return recorded


def _request(turn: Turn) -> Chat:
    """The question alone: what was said before it is in the store."""
    return Chat(turn.id, [{"role": "user", "content": turn.question.content}], turn.config)
