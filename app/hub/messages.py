"""The messages between whoever wants a download and the download process.

One JSON object a line (`app/wire.py`). Every number of bytes is an int of bytes, every time a
float of seconds. `done` in these messages never gets smaller, neither of a file nor in total: when
bytes have to be thrown away, a `notice` says why and the bar waits.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from app.protocol import Error
from app.wire import decode_line, encode_line

State = Literal["waiting", "fetching", "retrying", "checking", "checked"]
"""What happens to a file. "waiting" is also what a file that another program fetches does."""


# --- from the download process --------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """First line: the process is alive and asks the hub."""

    type: ClassVar[str] = "started"
    version: str
    pid: int


@dataclass(frozen=True)
class Planned:
    """What will be fetched, before the first byte is.

    `files` holds {"path", "size", "kept", "state"}: `kept` bytes are on this machine already.
    `need` is what the disk must still take, `free` what it has. `path` is the folder that `ready`
    will name. `token` says where the token came from ("HF_TOKEN", "token file", "given"; "" is
    none), never what it is; `proxy` is shown without its user and password. `online` is false when
    the plan is the recorded one because the hub cannot be reached.
    """

    type: ClassVar[str] = "plan"
    repo: str
    revision: str
    commit: str
    path: str
    files: list[dict[str, Any]]
    total: int
    kept: int
    need: int
    free: int
    endpoint: str
    proxy: str = ""
    token: str = ""
    licence: str = ""
    access: str = "public"
    online: bool = True


@dataclass(frozen=True)
class Progress:
    """A few times a second. `done` and `checked` of `total`; `speed` in bytes a second is the mean
    of the last 10 s, and 0 while `stalled` (seconds since the last byte) is not 0. `left` is in
    seconds, null while unknown. `files` holds {"path", "state", "done", "checked", "speed"} of
    those that something happens to."""

    type: ClassVar[str] = "progress"
    done: int
    checked: int
    total: int
    speed: float
    stalled: float
    left: float | None
    elapsed: float
    reconnects: int
    files: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class FileState:
    """A file's state changed."""

    type: ClassVar[str] = "file"
    path: str
    state: State
    done: int
    size: int


@dataclass(frozen=True)
class Notice:
    """A line for the log under the bar: what was kept, thrown away, moved, and why."""

    type: ClassVar[str] = "notice"
    text: str
    path: str | None = None


@dataclass(frozen=True)
class Retry:
    """The connection failed and is tried again in `wait` seconds; `path` null means the plan."""

    type: ClassVar[str] = "retry"
    reason: str
    wait: float
    attempt: int
    path: str | None = None


@dataclass(frozen=True)
class Paused:
    """No byte is asked for until `resume`."""

    type: ClassVar[str] = "paused"


@dataclass(frozen=True)
class Resumed:
    """It goes on."""

    type: ClassVar[str] = "resumed"


@dataclass(frozen=True)
class Cancelled:
    """Last line after `cancel`: `kept` bytes of `total` stay for the next time."""

    type: ClassVar[str] = "cancelled"
    kept: int
    total: int


@dataclass(frozen=True)
class Ready:
    """Last line of a download that worked: every file is at `path`, of right size and hash.
    `fetched` bytes came over the network this time."""

    type: ClassVar[str] = "ready"
    repo: str
    revision: str
    commit: str
    path: str
    total: int
    fetched: int
    elapsed: float


# --- to the download process ----------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """The first line. `revision` is a branch, a tag or a commit.

    `only_plan` ends the process after `plan`; `recheck` reads and hashes again what was checked
    before. `limits` replaces fields of `app.hub.limits.Limits` by name. `token` wins over the
    environment's; with `keep_token` huggingface_hub stores it, as `hf auth login` does, once the
    hub answered to it.
    """

    type: ClassVar[str] = "start"
    repo: str
    revision: str = "main"
    only_plan: bool = False
    recheck: bool = False
    limits: dict[str, float] = field(default_factory=dict)
    token: str | None = field(default=None, repr=False)
    keep_token: bool = False


@dataclass(frozen=True)
class Pause:
    """Ask for no more bytes; what came stays."""

    type: ClassVar[str] = "pause"


@dataclass(frozen=True)
class Resume:
    """Go on after a pause."""

    type: ClassVar[str] = "resume"


@dataclass(frozen=True)
class Cancel:
    """End; what came stays for the next time."""

    type: ClassVar[str] = "cancel"


Event = (
    Started | Planned | Progress | FileState | Notice | Retry | Paused | Resumed | Cancelled
    | Ready | Error
)  # fmt: skip
Request = Start | Pause | Resume | Cancel


def encode(message: Event | Request) -> bytes:
    """One line, newline included."""
    return encode_line(message)


def decode_event(line: bytes) -> Event:
    """A line from the download process. Raises ProtocolError."""
    return decode_line(line, _EVENTS)


def decode_request(line: bytes) -> Request:
    """A line to the download process. Raises ProtocolError."""
    return decode_line(line, _REQUESTS)


_EVENTS: dict[str, type] = {kind.type: kind for kind in get_args(Event)}
_REQUESTS: dict[str, type] = {kind.type: kind for kind in get_args(Request)}
