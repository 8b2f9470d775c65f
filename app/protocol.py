"""The messages between the terminal process and the engine process: one JSON object a line.

Every message is a dataclass here and is encoded and decoded here. A line that is malformed or
unknown raises `ProtocolError`, which the reader turns into an `error`; it never ends a process.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

from app.wire import MAX_LINE as MAX_LINE
from app.wire import ProtocolError as ProtocolError
from app.wire import decode_line, encode_line

# --- engine to terminal ---------------------------------------------------------------------


@dataclass(frozen=True)
class Hello:
    """First line: the process is alive. Sent before torch is imported (`torch` then is "")."""

    type: ClassVar[str] = "hello"
    version: str
    pid: int
    torch: str = ""


@dataclass(frozen=True)
class Loading:
    """Progress of a load: `stage` in words ("importing torch", "reading weights", "warming up"),
    `done` of `total` bytes (0 of 0 when unknown)."""

    type: ClassVar[str] = "load"
    stage: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Ready:
    """A model can answer. `memory` in bytes; `context_length` and `block_length` in tokens."""

    type: ClassVar[str] = "ready"
    model: str
    path: str
    device: str
    adapter: str | None
    memory: int
    context_length: int
    block_length: int
    parameters: int
    dtype: str
    load_seconds: float


@dataclass(frozen=True)
class Prefill:
    """The prompt has `prompt` tokens, whose whole blocks are read before decoding: `total` tokens,
    of which `cached` were kept from before and `tokens` have been computed so far."""

    type: ClassVar[str] = "prefill"
    id: str
    tokens: int
    total: int
    cached: int
    seconds: float
    prompt: int = 0


@dataclass(frozen=True)
class Step:
    """The open block after a step. A slot is [token id, text, confidence, state] with state one
    of "u" undecided, "n" new, "s" set, "e" edited, "p" prompt. At most 15 a second are sent while
    live; in slow motion every step is. `tokens` counts tokens decided so far in the answer (an
    estimate until the block ends); `measured` is false while the pace is slowed."""

    type: ClassVar[str] = "step"
    id: str
    block: int
    step: int
    slots: list[list[Any]]
    unmasked: int
    edited: int
    tokens: int
    forwards: int
    seconds: float
    measured: bool = True


@dataclass(frozen=True)
class Block:
    """A final block and the text it adds; the figures are `engine.events.BlockStats`. `changes`
    tells every one of its steps, over `positions` slots; `app/steps.py` writes and reads it."""

    type: ClassVar[str] = "block"
    id: str
    index: int
    text: str
    tokens: int
    steps: int
    forwards: int
    commits: int
    seconds: float
    elapsed: float
    unmasked_per_step: list[int] = field(default_factory=list)
    edits_per_step: list[int] = field(default_factory=list)
    measured: bool = True
    positions: int = 0
    changes: list[list[Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Done:
    """The answer ended. `text` is the whole answer; `stats` is what `ask --json` prints of it, and
    `inspected` what is stored beside it for a closer look, by the same names."""

    type: ClassVar[str] = "done"
    id: str
    reason: str
    text: str
    stats: dict[str, Any]
    measured: bool = True
    inspected: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Gpu:
    """Device figures by NVML, null where the driver does not tell."""

    type: ClassVar[str] = "gpu"
    memory_used: int | None = None
    memory_total: int | None = None
    power_watts: float | None = None
    temperature_c: float | None = None
    utilisation: float | None = None
    throttle: str | None = None


@dataclass(frozen=True)
class Error:
    """A failure in one sentence (`message`) with the next move (`hint`); `detail` is for the log.

    `kind`: "load", "prompt_too_long", "bad_request", "memory", "protocol", "internal".
    `id` names the chat request it ends, null when it ends none. `counts` carries numbers that a
    choice needs, such as {"prompt": 2100, "context": 2048}.
    """

    type: ClassVar[str] = "error"
    kind: str
    message: str
    hint: str = ""
    detail: str = ""
    id: str | None = None
    counts: dict[str, int] = field(default_factory=dict)


# --- terminal to engine ---------------------------------------------------------------------


@dataclass(frozen=True)
class LoadModel:
    """Load a checkpoint folder (or "demo"), replacing the one in memory. `allow_spill` loads it
    although it will not fit into free memory."""

    type: ClassVar[str] = "load"
    model: str
    device: str = "auto"
    adapter: str | None = None
    allow_spill: bool = False


@dataclass(frozen=True)
class Unload:
    """Drop the model and give its memory back."""

    type: ClassVar[str] = "unload"


@dataclass(frozen=True)
class Chat:
    """Answer `messages` ([{"role", "content"}, ...]); `config` holds `DecodeConfig` fields by
    name, and "preset". `continue_text` is the start of the answer that is already written."""

    type: ClassVar[str] = "chat"
    id: str
    messages: list[dict[str, str]]
    config: dict[str, Any] = field(default_factory=dict)
    continue_text: str = ""
    trace: str | None = None


@dataclass(frozen=True)
class Stop:
    """End the answer `id` after at most one more forward; what was said stays."""

    type: ClassVar[str] = "stop"
    id: str


@dataclass(frozen=True)
class Pace:
    """Slow motion: wait this long before each forward after prefill; 0 is full speed."""

    type: ClassVar[str] = "pace"
    seconds_per_step: float


@dataclass(frozen=True)
class SetAdapter:
    """Use another adapter folder (null: none) on the loaded model."""

    type: ClassVar[str] = "set_adapter"
    adapter: str | None


@dataclass(frozen=True)
class Quit:
    """End the process."""

    type: ClassVar[str] = "quit"


EngineMessage = Hello | Loading | Ready | Prefill | Step | Block | Done | Gpu | Error
Request = LoadModel | Unload | Chat | Stop | Pace | SetAdapter | Quit


def encode(message: EngineMessage | Request) -> bytes:
    """One line, newline included."""
    return encode_line(message)


def decode_engine(line: bytes) -> EngineMessage:
    """A line from the engine. Raises ProtocolError."""
    return decode_line(line, _ENGINE)


def decode_request(line: bytes) -> Request:
    """A line from the terminal. Raises ProtocolError."""
    return decode_line(line, _REQUESTS)


_ENGINE: dict[str, type] = {kind.type: kind for kind in get_args(EngineMessage)}
_REQUESTS: dict[str, type] = {kind.type: kind for kind in get_args(Request)}
