"""A run's folder: what is trained, every event, checkpoints, and whether it is alive.

    run.json                what is trained on what; written once
    prompts.jsonl           the prompts, as they were when the run began
    events.jsonl            one line an update and a check
    status.json             state, pid, how far
    request                 a word from outside: pause, go, save or stop
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
from typing import Any, Literal, Self

import psutil

from finetune.config import FinetuneConfig

VERSION = 1
STATES_KEPT = 2
"""Two, so that one damaged by a power failure leaves another to go on from."""

State = Literal["new", "running", "paused", "stopped", "done", "failed", "interrupted"]
Request = Literal["pause", "go", "save", "stop"]
_REQUESTS = ("pause", "go", "save", "stop")
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
    def create(cls, path: str | Path, info: RunInfo, prompts: str) -> Self:
        """Make the folder with what a run needs to begin. Raises RunError, OSError."""
        folder = cls(path)
        if folder.path.exists() and any(folder.path.iterdir()):
            raise RunError(f"{path} is not empty; name another folder, or use --resume {path}.")
        folder.path.mkdir(parents=True, exist_ok=True)
        write_text(folder.path / "prompts.jsonl", prompts)
        data = asdict(info) | {"version": VERSION, "config": info.config.to_dict()}
        write_json(folder.path / "run.json", data)
        folder.write_status(Status(updates=info.config.updates))
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
            return RunInfo(**data)
        except FileNotFoundError as error:
            raise RunError(f"{self.path} is not a run: it has no run.json.") from error
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path} is damaged ({error}); start a new run.") from error

    # --- status and requests -----------------------------------------------------------------

    def status(self) -> Status:
        """As written; a running one whose process is gone is "interrupted"."""
        try:
            data = json.loads((self.path / "status.json").read_text(encoding="utf-8"))
            status = Status(**data)
        except (OSError, ValueError, TypeError):
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
            raise RunError(f"{self.name} is not running, so there is nothing to {word}.")
        write_text(self.path / "request", word)

    def take_request(self) -> Request | None:
        """What was asked for, once."""
        path = self.path / "request"
        try:
            word = path.read_text(encoding="utf-8").strip()
            path.unlink()
        except OSError:
            return None
        return word if word in _REQUESTS else None  # type: ignore[return-value]

    # --- events ------------------------------------------------------------------------------

    def events(self) -> list[dict[str, Any]]:
        """All whole lines; one that a kill cut short, or that is no event, is left out."""
        try:
            text = (self.path / "events.jsonl").read_text(encoding="utf-8")
        except OSError:
            return []
        found = []
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and {"kind", "done"} <= event.keys():
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


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder that appears at `path`, in place of any before, only when the body succeeds."""
    part = path.with_name(path.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        for file in part.iterdir():
            _sync(file)
        shutil.rmtree(path, ignore_errors=True)
        os.replace(part, path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Replace a file by JSON, whole or not at all."""
    write_text(path, json.dumps(data, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a file, whole or not at all."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text, encoding="utf-8")
        _sync(part)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
