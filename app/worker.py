"""The engine process: requests in on stdin, messages out on stdout, one JSON object a line.

The main thread loads and generates; a reader thread takes stop, pace and quit while it is busy,
and a writer thread (`app/outbox.py`) sends. Only protocol reaches the real stdout: file descriptor
1 is turned to stderr before anything is imported that might print. The process ends when stdin
does, when its parent does and when asked, even if a forward hangs.
"""

import argparse
import contextlib
import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

from app.control import Control, Work
from app.failures import explain
from app.logs import log_to_stderr
from app.outbox import Outbox
from app.protocol import (
    MAX_LINE,
    Chat,
    Error,
    Hello,
    LoadModel,
    Pace,
    ProtocolError,
    Quit,
    Request,
    SetAdapter,
    Stop,
    Unload,
    decode_request,
)
from app.version import VERSION

if TYPE_CHECKING:
    from app.backend import Backend

log = logging.getLogger(__name__)

GRACE_SECONDS = 0.25
"""How long a running forward may delay the end of the process."""
PARENT_SECONDS = 1.0
SLOWEST_PACE = 60.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until told to end; does not return."""
    options = _parse(arguments)
    stdin, stdout = _own_pipes()
    faulthandler.enable(sys.stderr)
    log_to_stderr()
    control = Control()
    outbox = Outbox(stdout, on_broken=lambda: os._exit(0))
    outbox.put(Hello(VERSION, os.getpid()))
    ended = threading.Event()
    Reader(stdin, control, outbox, ended).start()
    threading.Thread(target=_watch_parent, args=(os.getppid(), control), daemon=True).start()
    code = 0
    try:
        code = _serve(options, control, outbox)
        outbox.close(GRACE_SECONDS)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        log.exception("the engine process fails")
        code = 1
    ended.set()
    os._exit(code)  # without the seconds that an orderly end of torch takes


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="app.worker", description="The engine process.")
    parser.add_argument("--trace", help="record every answer of the session in this file")
    parser.add_argument("--replay", help="answer from this trace instead of a model")
    parser.add_argument("--speed", type=float, default=1.0, help="of the replay")
    options = parser.parse_args(arguments)
    if not options.speed > 0:
        parser.error("--speed must be above 0")
    return options


def _own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The protocol's two ends; whatever else reads or prints gets nothing and stderr."""
    stdin, stdout = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return open(stdin, "rb"), open(stdout, "wb")


def _serve(options: argparse.Namespace, control: Control, outbox: Outbox) -> int:
    """Do requests until it is time to quit; the exit code."""
    from app.backend import EngineBackend
    from app.replay import ReplayBackend
    from app.trace import TraceWriter, read_recording

    backend: Backend
    with contextlib.ExitStack() as stack:
        try:
            if options.replay:
                recording = read_recording(options.replay)
                backend = ReplayBackend(outbox, control, recording, options.speed)
            else:
                trace = TraceWriter(options.trace) if options.trace else None
                if trace is not None:
                    stack.callback(trace.close)
                backend = EngineBackend(outbox, control, trace)
        except Exception as error:
            log.exception("cannot serve")
            outbox.put(explain(error, loading=True))
            return 1
        while (work := control.next_work()) is not None:
            _do(work, backend, control, outbox)
    return 0


def _do(work: Work, backend: "Backend", control: Control, outbox: Outbox) -> None:
    """One request; whatever goes wrong in it becomes an error message."""
    id = work.id if isinstance(work, Chat) else None
    try:
        if isinstance(work, LoadModel):
            backend.load(work)
        elif isinstance(work, Unload):
            backend.unload()
        elif isinstance(work, SetAdapter):
            backend.set_adapter(work.adapter)
        else:
            backend.chat(work)
    except Exception as error:
        message = explain(error, id=id, loading=id is None)
        log.error("%s", message.detail)
        outbox.last(message)
    finally:
        if id is not None:
            control.close(id)


class Reader(threading.Thread):
    """Takes requests off stdin; at its end, ends the process."""

    def __init__(
        self, stdin: BinaryIO, control: Control, outbox: Outbox, ended: threading.Event
    ) -> None:
        super().__init__(name="reader", daemon=True)
        self._stdin = stdin
        self._control = control
        self._outbox = outbox
        self._ended = ended

    def run(self) -> None:
        """Read until the end; whatever ends the reading ends the process."""
        try:
            self._read()
        except Exception:
            log.exception("requests can no longer be read")
        finally:
            self._control.quit()
            self._ended.wait(GRACE_SECONDS)
            os._exit(0)

    def _read(self) -> None:
        while line := self._stdin.readline(MAX_LINE):
            if not line.endswith(b"\n"):
                self._skip_line()
                self._refuse("a line is too long or not ended")
                continue
            try:
                request = decode_request(line)
            except ProtocolError as error:
                self._refuse(str(error))
                continue
            if isinstance(request, Quit):
                return
            self._take(request)

    def _take(self, request: Request) -> None:
        if isinstance(request, Stop):
            self._control.stop(request.id)
        elif isinstance(request, Pace):
            if 0 <= request.seconds_per_step <= SLOWEST_PACE:
                self._control.set_pace(request.seconds_per_step)
            else:
                self._refuse(f"a pace lies between 0 and {SLOWEST_PACE:g} seconds a step")
        elif not isinstance(request, Quit) and not self._control.add(request):
            self._refuse("a chat of that id is being answered")

    def _skip_line(self) -> None:
        while (piece := self._stdin.readline(MAX_LINE)) and not piece.endswith(b"\n"):
            pass

    def _refuse(self, why: str) -> None:
        log.warning("request refused: %s", why)
        self._outbox.put(Error("protocol", "The engine could not read a request.", detail=why))


def _watch_parent(parent: int, control: Control) -> None:
    """Ends the process when it gets another parent, should its stdin be held open elsewhere."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    control.quit()
    time.sleep(GRACE_SECONDS)
    os._exit(0)


if __name__ == "__main__":
    main()
