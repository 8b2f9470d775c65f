"""A run's folder: what is trained, every event, checkpoints, and whether it is alive.

    run.json                what is trained on what; written once
    prompts.jsonl           the prompts, as they were when the run began
    events.jsonl            one line an update and a check
    status.json             state, pid, how far
    request                 words from outside, one a line: pause, go, save or stop
    state/000012/           all that the next update needs, made after every update
    checkpoints/000010/     an adapter (or a whole model) and its held-out check

Files appear whole or not at all; a folder is written beside its place and renamed. So a kill at
any moment loses at most the update in progress. There is no random state to save: whatever is
random follows from the seed and the number of the update.

Left out: several trainers on one run; databases.
"""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

import psutil

from finetune.config import FinetuneConfig
from finetune.files import whole_folder, write_bytes, write_json, write_text

VERSION = 1
STATES_KEPT = 2
"""Two, so that one damaged by a power failure leaves another to go on from."""

State = Literal["new", "running", "paused", "stopped", "done", "failed", "interrupted"]
Request = Literal["pause", "go", "save", "stop"]
_LIVE = ("running", "paused")


class RunError(Exception):
    """A run folder cannot be used; the message is a sentence with the next move."""


@dataclass(frozen=True)
class RunInfo:
    """What run.json says.

    Attributes:
        model: what the user called the base; `base` is its folder, `revision` its content's name.
        prompts: the file that was copied; its verifiers' own functions stand beside it.
        held_out: ids of the prompts that are never trained on.
    """

    name: str
    model: str
    base: str
    revision: str
    prompts: str
    config: FinetuneConfig
    held_out: tuple[str, ...]


@dataclass(frozen=True)
class Status:
    """Where a run stands. `started` is the process's start, which tells it from a later process
    of the same pid; `best` is the best checkpoint's update."""

    state: State = "new"
    pid: int | None = None
    started: float | None = None
    update: int = 0
    updates: int = 0
    best: int | None = None
    message: str = ""
    changed: float = 0.0

    def check(self) -> None:
        """Raises ValueError for what no run writes."""
        whole = (self.update, self.updates, *(n for n in (self.pid, self.best) if n is not None))
        if not (
            self.state in get_args(State)
            and isinstance(self.message, str)
            and isinstance(self.started, int | float | None)
            and all(isinstance(number, int) and 0 <= number < 1 << 31 for number in whole)
        ):
            raise ValueError("this is no run's status")

    @property
    def alive(self) -> bool:
        """Whether the process that wrote this still runs, and trains."""
        if self.pid is None or self.state not in _LIVE:
            return False
        try:
            process = psutil.Process(self.pid)
            # Where nobody collects what a killed process leaves, its pid stays taken.
            over = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
            return not over and abs(process.create_time() - (self.started or 0.0)) < 1.0
        except psutil.Error:
            return False


class RunFolder:
    """One run on disk. Reading never fails for a run that is being written."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | Path, info: RunInfo, prompts: bytes) -> Self:
        """Make the folder with what a run needs to begin, whole or not at all; `prompts` is the
        file's content. Raises RunError, OSError."""
        folder = cls(path)
        if folder.path.exists() and any(folder.path.iterdir()):
            raise RunError(f"{path} is not empty; name another folder, or use --resume {path}.")
        folder.path.mkdir(parents=True, exist_ok=True)
        try:
            write_bytes(folder.path / "prompts.jsonl", prompts)
            data = asdict(info) | {"version": VERSION, "config": info.config.to_dict()}
            write_json(folder.path / "run.json", data)
            folder.write_status(Status(updates=info.config.updates))
        except BaseException:
            shutil.rmtree(folder.path, ignore_errors=True)
            raise
        return folder

    @property
    def name(self) -> str:
        """The folder's name is the run's."""
        return self.path.resolve().name

    @property
    def prompts(self) -> Path:
        return self.path / "prompts.jsonl"

    def info(self) -> RunInfo:
        """Raises RunError for a folder that is no run, or one from a newer version."""
        path = self.path / "run.json"
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            version = data["version"]
            if version > VERSION:
                raise RunError(
                    f"{self.path} was written by a newer version of orl-chat "
                    f"(format {version}, this one knows {VERSION}); update orl-chat."
                )
            del data["version"]
            data["config"] = FinetuneConfig.from_dict(data["config"])
            data["held_out"] = tuple(data["held_out"])
            info = RunInfo(**data)
            texts = (info.name, info.model, info.base, info.revision, info.prompts, *info.held_out)
            if not all(isinstance(text, str) for text in texts):
                raise TypeError("a text is none")
            return info
        except FileNotFoundError as error:
            raise RunError(f"{self.path} is not a run: it has no run.json.") from error
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror}.") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(f"{path} is damaged ({error}); start a new run.") from error

    # --- status and requests -----------------------------------------------------------------

    def status(self) -> Status:
        """As written; a running one whose process is gone is "interrupted"."""
        try:
            data = json.loads((self.path / "status.json").read_text(encoding="utf-8"))
            status = Status(**data)
            status.check()
        except (OSError, ValueError, TypeError, RecursionError):
            return Status()
        if status.state in _LIVE and not status.alive:
            return replace(status, state="interrupted", message="Its process ended unexpectedly.")
        return status

    def write_status(self, status: Status) -> None:
        """Replace status.json. Raises OSError."""
        write_json(self.path / "status.json", asdict(replace(status, changed=time.time())))

    def request(self, word: Request) -> None:
        """Ask the run's process for something. Raises RunError when there is none."""
        if not self.status().alive:
            raise RunError(f"The run {self.name} is not running, so nothing can be asked of it.")
        with (self.path / "request").open("a", encoding="utf-8") as file:
            file.write(f"{word}\n")

    def take_requests(self) -> tuple[Request, ...]:
        """What was asked for since the last time, in that order."""
        path, taken = self.path / "request", self.path / "request.part"
        try:
            os.replace(path, taken)  # so that a word that comes meanwhile is not lost
            words = taken.read_text(encoding="utf-8", errors="replace").split()
            taken.unlink()
        except OSError:
            return ()
        return tuple(word for word in words if word in get_args(Request))  # type: ignore[misc]

    # --- events ------------------------------------------------------------------------------

    def events(self) -> list[dict[str, Any]]:
        """All whole lines; one that a kill cut short, or that is no event, is left out."""
        try:
            data = (self.path / "events.jsonl").read_bytes()
        except OSError:
            return []
        found = []
        for line in data.splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                event = json.loads(line)
                known = isinstance(event, dict) and "kind" in event
                if known and isinstance(event.get("done"), int):
                    found.append(event)
        return found

    def add_event(self, event: dict[str, Any]) -> None:
        """Append a line. Raises OSError."""
        with (self.path / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(event, allow_nan=False) + "\n")

    def keep_events(self, done: int) -> None:
        """Drop what belongs to updates beyond the first `done`: they will be made again."""
        kept = [event for event in self.events() if event["done"] <= done]
        text = "".join(json.dumps(event) + "\n" for event in kept)
        write_text(self.path / "events.jsonl", text)

    # --- state and checkpoints ---------------------------------------------------------------

    def states(self) -> list[Path]:
        """Whole states, the newest first."""
        return _numbered(self.path / "state")[::-1]

    def checkpoints(self) -> list[Path]:
        """Whole checkpoints in the order of their updates."""
        return _numbered(self.path / "checkpoints")

    def checkpoint(self, done: int) -> Path:
        """Where the checkpoint after `done` updates belongs."""
        return self.path / "checkpoints" / f"{done:06}"

    def best(self) -> Path | None:
        """The best checkpoint, or the newest where none was called best; None without any."""
        best = self.status().best
        if best is not None and self.checkpoint(best).is_dir():
            return self.checkpoint(best)
        every = self.checkpoints()
        return every[-1] if every else None

    @contextlib.contextmanager
    def new_state(self, done: int) -> Iterator[Path]:
        """A folder to write the state after `done` updates into; older ones are dropped."""
        with whole_folder(self.path / "state" / f"{done:06}") as folder:
            yield folder
        for old in self.states()[STATES_KEPT:]:
            shutil.rmtree(old, ignore_errors=True)

    def prune(self, keep: int, best: int | None) -> None:
        """Drop all checkpoints but the last `keep` and the best."""
        every = self.checkpoints()
        for old in every[: max(0, len(every) - keep)]:
            if int(old.name) != best:
                shutil.rmtree(old, ignore_errors=True)


def _numbered(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.isdigit() and path.is_dir())


def own_status(**fields: Any) -> Status:
    """A status of this very process."""
    process = psutil.Process()
    return Status(pid=process.pid, started=process.create_time(), **fields)
