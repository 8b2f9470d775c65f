"""Judgements in processes of their own, each with a time limit: for what may hang, crash or print.

A process is kept and used again; one that hangs is killed with its children and replaced. As many
as there are threads that ask.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from finetune.judge_child import LOADING_SECONDS

LONGEST_VERDICT = 1 << 20
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from finetune.judge_child import main; main()"
)
_ROOT = str(Path(__file__).resolve().parents[1])

Use = tuple[str, str, str]
"""kind, function, folder"""

Verdict = tuple[bool, str, bool]
"""passed, reason, error"""


class JudgingProcesses:
    """For several threads at once. `close` ends all processes."""

    def __init__(self) -> None:
        self._idle: dict[Use, list[_Child]] = defaultdict(list)
        self._lock = threading.Lock()
        self._closed = False

    def judge(self, request: Mapping[str, Any], seconds: float) -> Verdict:
        """A child's verdict on a request (see `judge_child.py`). Never raises for what it does."""
        use = (request["kind"], request["function"], request["folder"])
        child = self._take(use)
        if not child.loaded:  # imports are slow, and not the answer's fault
            load = {**request, "kind": "load", "of": request["kind"], "seconds": LOADING_SECONDS}
            verdict = child.ask(load, LOADING_SECONDS)
            child.loaded = not verdict[2]
            if verdict[2]:
                child.kill()
                return verdict
        verdict = child.ask({**request, "seconds": seconds}, seconds)
        self._give_back(use, child)
        return verdict

    def close(self) -> None:
        """End every process."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, defaultdict(list)
        for children in idle.values():
            for child in children:
                child.kill()

    def _take(self, use: Use) -> "_Child":
        with self._lock:
            if idle := self._idle[use]:
                return idle.pop()
        return _Child()

    def _give_back(self, use: Use, child: "_Child") -> None:
        with self._lock:
            if child.usable and not self._closed:
                self._idle[use].append(child)
                return
        child.kill()


class _Child:
    """One process. It does one kind of judgement, since what it has seen may have changed it."""

    def __init__(self) -> None:
        self.loaded, self.usable = False, True
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, _ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill(self) -> None:
        """End it, and the children that a verifier may have started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                continue
        self._process.wait()

    def ask(self, request: Mapping[str, Any], seconds: float) -> Verdict:
        """Its verdict. After an end or a silence it is not `usable` any more."""
        assert self._process.stdin is not None
        self.usable = False
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._line(time.monotonic() + seconds)
        except BrokenPipeError:
            line = b""
        except TimeoutError:
            return False, f"the verifier took longer than {seconds:g} s", True
        if not line.endswith(b"\n"):
            return False, f"the verifier {self._end()}", True
        self.usable = True
        verdict = json.loads(line)
        return verdict["passed"], verdict["reason"], verdict["error"]

    def _line(self, deadline: float) -> bytes:
        """The reply, or what there was of it when the process ended. Raises TimeoutError."""
        assert self._process.stdout is not None
        pipe, line = self._process.stdout.fileno(), b""
        while not line.endswith(b"\n") and len(line) < LONGEST_VERDICT:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise TimeoutError
            data = os.read(pipe, 1 << 16)
            if not data:
                break
            line += data
        return line

    def _end(self) -> str:
        try:
            code = self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return "closed its streams"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
