"""The download process: `python -m app.downloader`, requests in on stdin, events out on stdout.

One process is one download; what it leaves on the disk is all that the next one needs, so it may
be killed at any time. It ends by itself when its stdin does and when its parent does. Only events
reach the real stdout: file descriptor 1 is turned to stderr before anything is imported that might
print, and stderr (the log) is rid of tokens and signed links on the way.

Exit codes: 0 ready (or planned, when only that was asked for), 1 failed, 130 cancelled.
"""

import contextlib
import faulthandler
import io
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO, NoReturn, TextIO

from app.hub.control import Control, Stopped
from app.hub.faults import Asked, Failure, FailureError, classify
from app.hub.job import Job, Order
from app.hub.limits import Limits
from app.hub.messages import (
    Cancel,
    Cancelled,
    Event,
    Pause,
    Paused,
    Ready,
    Request,
    Resume,
    Resumed,
    Start,
    Started,
    decode_request,
    encode,
)
from app.hub.planning import Planner
from app.hub.secret import Secret, environment_token, scrub
from app.logs import log_to_stderr
from app.protocol import Error
from app.version import VERSION
from app.wire import MAX_LINE, ProtocolError

log = logging.getLogger(__name__)

PARENT_SECONDS = 1.0
FAILED, CANCELLED = 1, 130


def main() -> None:
    """Serve one download; does not return."""
    stdin, stdout = _own_pipes()
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    faulthandler.enable(sys.stderr)
    process = Process(stdin, Sender(stdout))
    sys.stderr = sys.stdout = ScrubbedStream(sys.stderr, process.scrub)
    log_to_stderr()
    threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
    process.serve()


class Sender:
    """Writes events, one whole line after the other, from any thread."""

    def __init__(self, stdout: BinaryIO) -> None:
        self._stdout = stdout
        self._lock = threading.Lock()
        self._closed = False

    def send(self, event: Event) -> None:
        """Write `event`; ends the process when nobody reads any more."""
        with self._lock:
            if not self._closed:
                self._write(event)

    def close(self, event: Event | None) -> None:
        """Write the last event; what other threads still say is dropped."""
        with self._lock:
            if event is not None and not self._closed:
                self._write(event)
            self._closed = True

    def _write(self, event: Event) -> None:
        try:
            self._stdout.write(encode(event))
            self._stdout.flush()
            self._closed = isinstance(event, Ready)  # the last word, whatever another thread has
        except (OSError, ValueError):
            os._exit(FAILED)


class Process:
    """One download and whoever steers it."""

    def __init__(self, stdin: BinaryIO, sender: Sender) -> None:
        self.stdin = stdin
        self.sender = sender
        self.control = Control()
        self.token: Secret | None = None
        self.job: Job | None = None

    def serve(self) -> NoReturn:
        """Read the order, do it, tell how it ended, and end the process."""
        self.sender.send(Started(VERSION, os.getpid()))
        start: Start | None = None
        try:
            start = self._read_start()
            self._prepare(start)
            threading.Thread(target=self._read_requests, name="requests", daemon=True).start()
            self._run()
        except Stopped:
            self._end_cancelled()
        except BaseException as error:
            self._end(self._failure(error, start), FAILED)
        self._end(None, 0)

    def _prepare(self, start: Start) -> None:
        limits = _limits(start.limits)
        order = Order(start.repo, start.revision, start.only_plan, start.recheck)
        planner = Planner(
            start.repo,
            start.revision,
            self.token,
            keep_token=start.keep_token,
            limits=limits,
            control=self.control,
            emit=self.sender.send,
        )
        self.job = Job(order, planner, limits=limits, control=self.control, emit=self.sender.send)

    def _run(self) -> None:
        assert self.job is not None
        done = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(self.job, done), daemon=True)
        ticker.start()
        try:
            self.job.run()
        finally:
            done.set()

    def _tick(self, job: Job, done: threading.Event) -> None:
        """Progress, a few times a second, while there is some."""
        last = None
        while not done.wait(1 / job.limits.rate):
            if job.tally is None or not job.working or self.control.paused:
                continue
            progress = job.tally.snapshot()
            state = (progress.done, progress.checked, progress.stalled, progress.files)
            if state != last:
                self.sender.send(progress)
            last = state

    def _read_start(self) -> Start:
        request = self._read()
        if request is None:
            raise Stopped
        if not isinstance(request, Start):
            raise ProtocolError("the first request must be start")
        if request.token:
            self.token = Secret(request.token)
        return request

    def _read_requests(self) -> None:
        """Steer until stdin ends, which is a cancel."""
        while True:
            try:
                request = self._read()
            except ProtocolError as error:
                log.warning("request refused: %s", error)
                continue
            if isinstance(request, Pause):
                if self.control.pause():
                    self.sender.send(Paused())
            elif isinstance(request, Resume):
                self._resume()
            elif request is None or isinstance(request, Cancel):
                self.control.cancel()
                self._end_cancelled()

    def _resume(self) -> None:
        if self.control.paused:
            if self.job is not None and self.job.tally is not None:
                self.job.tally.restart()
            self.sender.send(Resumed())
            self.control.resume()

    def _read(self) -> Request | None:
        """The next request, None at the end. Raises ProtocolError."""
        line = self.stdin.readline(MAX_LINE)
        return decode_request(line) if line else None

    def _failure(self, error: BaseException, start: Start | None) -> Error:
        """`error` as the last event; the traceback of what nobody expected goes to the log."""
        if isinstance(error, ProtocolError):
            failure = Failure("protocol", "The download process could not read its order.")
        elif isinstance(error, FailureError):
            failure = error.failure
        else:
            repo, revision = (start.repo, start.revision) if start is not None else ("", "")
            failure = classify(error, Asked(repo, revision, "https://huggingface.co"))
            log.error("the download fails", exc_info=error)
        log.info("failed (%s): %s", failure.kind, failure.message)
        return Error(
            failure.kind,
            self.scrub(failure.message),
            self.scrub(failure.hint),
            self.scrub(f"{type(error).__name__}: {error}"),
            counts=failure.counts,
        )

    def scrub(self, text: str) -> str:
        """`text` without the tokens that are known here, and without what looks like one."""
        return scrub(text, self.token, environment_token())

    def _end_cancelled(self) -> NoReturn:
        tally = self.job.tally if self.job is not None else None
        kept, total = (tally.kept, tally.total) if tally is not None else (0, 0)
        self._end(Cancelled(kept, total), CANCELLED)

    def _end(self, event: Event | None, code: int) -> NoReturn:
        """Without waiting for threads that hang in a connection: what they wrote is on the disk."""
        self.control.cancel()
        self.sender.close(event)
        os._exit(code)


def _limits(changes: dict[str, float]) -> Limits:
    try:
        return Limits.of(changes)
    except ValueError as error:
        raise FailureError(Failure("bad_request", f"{error}.")) from error


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The two ends of the protocol; whatever else reads or prints gets nothing and stderr."""
    stdin, stdout = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return open(stdin, "rb"), open(stdout, "wb")


class ScrubbedStream(io.TextIOBase):
    """A stderr without secrets, whoever writes to it: our log, other libraries' own handlers,
    warnings, the interpreter's tracebacks."""

    def __init__(self, file: TextIO, clean: Callable[[str], str]) -> None:
        super().__init__()
        self._file = file
        self._clean = clean
        self._rest = ""
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        """Keep back what is no whole line yet: a secret may come in two pieces."""
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
            for line in lines:
                self._file.write(self._clean(line) + "\n")
            self._file.flush()
        return len(text)

    def flush(self) -> None:
        """Whole lines were written already."""


def _watch_parent(parent: int) -> None:
    """Ends the process when it gets another parent, should its stdin be held open elsewhere."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    with contextlib.suppress(Exception):
        log.info("the parent is gone")
    os._exit(CANCELLED)


if __name__ == "__main__":
    main()
