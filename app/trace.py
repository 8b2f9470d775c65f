"""Recorded answers: every step of them, as gzip JSON lines, written while they happen.

The first line is a header, `{"trace": 1, "version": "0.1.0"}`; each further line is a protocol
message with `t`, seconds since the request. An answer begins with its `chat` request. Steps stand
there as they were, or (in the chat's own recordings) with their final block alone, as what they
changed: whoever reads a recording gets them as messages either way. A file that ends in the middle
(a killed process, a full disk) is read up to there. Plain JSON lines are read too, so that a trace
can be written by hand.
"""

import contextlib
import gzip
import io
import json
import queue
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.protocol import (
    MAX_LINE,
    Block,
    Chat,
    Done,
    EngineMessage,
    Error,
    ProtocolError,
    Ready,
    Request,
    Step,
    decode_engine,
    decode_request,
    encode,
)
from app.steps import unfold
from app.version import VERSION

FORMAT = 1
MAX_BYTES = 1 << 30
"""A trace stops growing here (uncompressed); at 3 KB a step that is some hours of answers."""

Message = EngineMessage | Request


class TraceError(Exception):
    """A trace that cannot be written or read; the message is a sentence for the user."""


@dataclass(frozen=True)
class Timed:
    """A message and when it came, in seconds since the request."""

    seconds: float
    message: Message


@dataclass(frozen=True)
class RecordedAnswer:
    """The request (None where the file does not tell) and everything it led to."""

    request: Chat | None
    messages: list[Timed] = field(default_factory=list)


@dataclass(frozen=True)
class Recording:
    """A whole trace: the model it was made with, and its answers."""

    ready: Ready | None
    answers: list[RecordedAnswer]


class TraceWriter:
    """Writes in a thread of its own. Raises TraceError at once when the file cannot be made; what
    goes wrong later is kept in `problem`, and the answer goes on."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.problem: str | None = None
        try:
            self._raw = open(self.path, "wb")  # noqa: SIM115 - closed by the thread
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise TraceError(f"The trace {path} cannot be written: {why}.") from error
        self._queue: queue.SimpleQueue[tuple[float, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="trace", daemon=True)
        self._thread.start()

    def put(self, seconds: float, message: Message | Callable[[], Message]) -> None:
        """Record a message, or one that is still to be built, at `seconds` since the request."""
        self._queue.put((seconds, message))

    def close(self, timeout: float = 10.0) -> None:
        """Write what is queued and finish the file."""
        self._queue.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            with self._raw, gzip.GzipFile(fileobj=self._raw, mode="wb", compresslevel=5) as file:
                self._write(file)
        except OSError as error:
            self.problem = f"The trace {self.path} is not whole: {error.strerror or error}."

    def _write(self, file: gzip.GzipFile) -> None:
        file.write(json.dumps({"trace": FORMAT, "version": VERSION}).encode() + b"\n")
        size = 0
        while (item := self._queue.get()) is not None:
            seconds, message = item
            if size > MAX_BYTES:
                self.problem = f"The trace {self.path} was cut at {MAX_BYTES >> 20} MiB."
                continue
            message = message() if callable(message) else message
            line = encode(message)
            size += file.write(b'{"t":%.6f,' % seconds + line[1:])
            if isinstance(message, Block | Done | Chat):
                file.flush()


def read_trace(path: str | Path) -> Iterator[Timed]:
    """The messages of a trace; lines that cannot be read are left out.

    Raises:
        TraceError: no such file, no trace, or one of a newer format.
    """
    lines = _lines(Path(path))
    try:
        header = json.loads(next(lines, b""))
        format = header["trace"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise TraceError(f"{path} is no trace: its first line is not a trace header.") from error
    if format != FORMAT:
        raise TraceError(f"{path} is a trace of format {format}; this version reads {FORMAT}.")
    for line in lines:
        with contextlib.suppress(ProtocolError):
            yield _timed(line)


def read_recording(path: str | Path) -> Recording:
    """A trace by answers. Raises TraceError as `read_trace` does, and when it holds no answer."""
    ready, answers = None, _Answers()
    for timed in read_trace(path):
        if isinstance(timed.message, Ready):
            ready = timed.message
        else:
            answers.add(timed)
    if not answers.found:
        raise TraceError(f"{path} holds no answer.")
    return Recording(ready, answers.found)


def play(
    messages: Iterable[Timed], wait: Callable[[float], bool], speed: float = 1.0
) -> Iterator[EngineMessage]:
    """The messages with their timing. `wait(seconds)` waits and tells whether to stop; the
    iteration then ends early. An infinite speed plays without waiting."""
    before = 0.0
    for timed in messages:
        if wait(max(0.0, timed.seconds - before) / speed):
            return
        before = max(before, timed.seconds)
        yield timed.message  # type: ignore[misc]  # only engine messages are kept in an answer


def with_steps(before: Sequence[Timed], timed: Timed) -> list[Timed]:
    """What `timed` adds to an answer: a block brings its steps, unless they stand `before` it."""
    block = timed.message
    if not isinstance(block, Block) or not block.changes:
        return [timed]
    tokens = 0
    for earlier in reversed(before):
        message = earlier.message
        if isinstance(message, Step) and message.block == block.index:
            return [timed]
        tokens += message.tokens if isinstance(message, Block) else 0
    return [*(Timed(step.seconds, step) for step in unfold(block, tokens)), timed]


class _Answers:
    """Gathers messages into answers by their id."""

    def __init__(self) -> None:
        self.found: list[RecordedAnswer] = []
        self._open: dict[str, RecordedAnswer] = {}

    def add(self, timed: Timed) -> None:
        message = timed.message
        id = getattr(message, "id", None)
        if not isinstance(id, str):
            return
        if isinstance(message, Chat):
            self._begin(id, message)
        else:
            answer = self._open.get(id) or self._begin(id, None)
            answer.messages.extend(with_steps(answer.messages, timed))
            if isinstance(message, Done | Error):
                del self._open[id]

    def _begin(self, id: str, request: Chat | None) -> RecordedAnswer:
        answer = self._open[id] = RecordedAnswer(request)
        self.found.append(answer)
        return answer


def _lines(path: Path) -> Iterator[bytes]:
    """Whole lines up to where the file ends or breaks."""
    try:
        raw = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise TraceError(f"The trace {path} cannot be read: {error.strerror}.") from error
    with raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        file: io.BufferedIOBase | gzip.GzipFile = gzip.GzipFile(fileobj=raw) if packed else raw
        try:
            while (line := file.readline(MAX_LINE)).endswith(b"\n"):
                yield line
        except (EOFError, zlib.error, OSError):
            return


def _timed(line: bytes) -> Timed:
    """One line. Raises ProtocolError."""
    try:
        data = json.loads(line)
        seconds = float(data.pop("t"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ProtocolError("not a line of a trace") from error
    bare = json.dumps(data).encode()
    if data.get("type") == Chat.type:
        return Timed(seconds, decode_request(bare))
    return Timed(seconds, decode_engine(bare))
