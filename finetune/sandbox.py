"""Runs code that a model wrote, under limits and as far from everything else as the system allows.

Best: namespaces, entered here or by bubblewrap, in which there is no network, no file but the
system's and the interpreter's (read-only), and no other process. Next: kernel filters, which
refuse sockets and files. Else only limits, and then the code could do harm; `sandbox_kind` says
which it is, and asking the user is the program's business.

Left out: bugs of the kernel itself, and code that sets out to deceive the tests it runs with.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal

import psutil

from finetune.isolation import Isolation, candidates, interpreter
from finetune.output import Output

Limit = Literal["time", "cpu", "memory", "processes", "disk", "output"]

PATIENCE = 2.0
BACKSTOP = 20.0  # seconds for what stands around the program: starting, cleaning up
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": "UTC",
    # A thread for each core would soon be more than the processes allowed.
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
}  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """What a program may use.

    Attributes:
        seconds: of wall time: more than computing takes, since the machine may be busy.
        cpu_seconds: of each process.
        memory: bytes of all its processes together.
        file, disk: bytes of one file, and of all.
        output: bytes printed; `kept` of them are returned, from the beginning and from the end.
        processes: processes and threads.
        open_files: of each process.
    """

    seconds: float = 10.0
    cpu_seconds: float = 5.0
    memory: int = 1 << 30
    file: int = 16 << 20
    disk: int = 64 << 20
    output: int = 4 << 20
    kept: int = 32 << 10
    processes: int = 32
    open_files: int = 128

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise ValueError(f"{name} must be above 0, got {value!r}")


@dataclass(frozen=True)
class SandboxResult:
    """How a program ended.

    Attributes:
        exit_code: its own, negative for a signal; None when it never ran.
        limit: the limit it ran into and was ended for.
        error: why the sandbox itself failed, a sentence; the program is not to blame.
    """

    stdout: str
    stderr: str
    exit_code: int | None
    limit: Limit | None
    seconds: float
    error: str | None = None

    @property
    def ok(self) -> bool:
        """The program ended by itself and without a complaint."""
        return self.exit_code == 0 and self.limit is None and self.error is None


def run_python(
    code: str,
    *,
    limits: Limits | None = None,
    files: Mapping[str, str] | None = None,
    stdin: str = "",
    isolation: Isolation | None = None,
) -> SandboxResult:
    """Run `code` in a fresh interpreter and folder. Never raises for what the code does.

    Args:
        files: further text files in its folder, by name.
        isolation: how to keep it in; the best there is when None.
    """
    isolation = sandbox_kind() if isolation is None else isolation
    limits = Limits() if limits is None else limits
    if isolation.name == "none":
        return SandboxResult("", "", None, None, 0.0, isolation.words)
    with tempfile.TemporaryDirectory(prefix="orl-", ignore_cleanup_errors=True) as folder:
        try:
            return _run(_Order(code, limits, dict(files or {}), stdin), isolation, folder)
        except OSError as error:
            return SandboxResult("", "", None, None, 0.0, f"The sandbox cannot start: {error}.")


@cache
def sandbox_kind() -> Isolation:
    """The best isolation that works here: each is tried with a small program, once."""
    reasons: list[str] = []
    for isolation in candidates():
        if isolation.name == "none":
            return replace(isolation, refused=tuple(reasons))
        result = run_python("print(6 * 7)", isolation=isolation, limits=Limits(seconds=20))
        if result.ok and result.stdout == "42\n":
            return replace(isolation, refused=tuple(reasons))
        why = result.error or result.stderr.strip().splitlines()[-1:] or "it does not run"
        reasons.append(f"{isolation.name}: {why if isinstance(why, str) else why[0]}")
    return Isolation("none", (f"Python programs do not run ({'; '.join(reasons)})",))


@dataclass(frozen=True)
class _Order:
    """What the launcher is told."""

    code: str
    limits: Limits
    files: dict[str, str]
    stdin: str

    def to_json(self, isolation: Isolation, folder: str, user: int | None, report: int) -> str:
        return json.dumps(
            {
                "mode": isolation.mode,
                "folder": folder,
                "readable": interpreter(),
                "user": user,
                "forks": isolation.forks,
                "running": isolation.running(),
                "limits": asdict(self.limits),
                "files": {**self.files, "main.py": self.code},
                "stdin": self.stdin,
                "argv": [sys.executable, "-I", "-B", "main.py"],
                "environment": _ENVIRONMENT,
                "report": report,
            }
        )


def _run(order: _Order, isolation: Isolation, folder: str) -> SandboxResult:
    start = time.monotonic()
    work = Path(folder, "work")
    work.mkdir()
    if (user := isolation.user()) is not None:
        os.chmod(folder, 0o711)
        os.chown(work, user, user)
    reading, writing = os.pipe()
    with open(reading, "rb") as report, tempfile.TemporaryFile(dir=folder) as told:
        try:
            told.write(order.to_json(isolation, str(work), user, writing).encode())
            told.seek(0)
            process = _start(isolation, order.limits, told, writing)
        finally:
            os.close(writing)
        with process:
            watch = _Watch(process, report, order.limits)
            try:
                watch.wait(start + order.limits.seconds + BACKSTOP)
            finally:
                if not (watch.reported and _ends(process)):
                    _kill_tree(process)
    return watch.result(time.monotonic() - start)


def _start(
    isolation: Isolation, limits: Limits, told: IO[bytes], report: int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        isolation.command(limits.disk),
        stdin=told,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(report,),
        env=_ENVIRONMENT,
        cwd="/",
        start_new_session=True,
    )


def _ends(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    """The launcher and what may be left below it; in namespaces its end is everybody's."""
    try:
        below = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGKILL)
    except (psutil.Error, ProcessLookupError, PermissionError):
        return
    for child in below:
        try:
            child.kill()
        except psutil.Error:
            continue


class _Watch:
    """Reads what a program prints and what its launcher reports, until the launcher is done."""

    def __init__(self, process: subprocess.Popen[bytes], report: IO[bytes], limits: Limits) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._limits = limits
        self._outputs = {process.stdout: Output(limits.kept), process.stderr: Output(limits.kept)}
        self._names = (process.stdout, process.stderr)
        self._report, self.reported = report, b""
        self._limit: Limit | None = None

    def wait(self, deadline: float) -> None:
        """Until the report is whole, the output too much, or the deadline past."""
        with selectors.DefaultSelector() as selector:
            for stream in (*self._outputs, self._report):
                selector.register(stream, selectors.EVENT_READ)
            while self._limit is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    self._limit = "time"
                for key, _ in selector.select(max(left, 0)):
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        selector.unregister(key.fileobj)
                        if key.fileobj is self._report:
                            self._drain()
                            return
                    self._take(key.fileobj, data)

    def _take(self, stream: Any, data: bytes) -> None:
        if stream is self._report:
            self.reported += data
            return
        self._outputs[stream].add(data)
        if sum(output.total for output in self._outputs.values()) > self._limits.output:
            self._limit = "output"

    def _drain(self) -> None:
        """What still lies in the pipes. Nobody writes any more, or nobody who may."""
        for stream in self._outputs:
            os.set_blocking(stream.fileno(), False)
            for _ in range(64):
                try:
                    data = os.read(stream.fileno(), 1 << 16)
                except BlockingIOError:
                    break
                if not data:
                    break
                self._outputs[stream].add(data)

    def result(self, seconds: float) -> SandboxResult:
        stdout, stderr = (self._outputs[stream].text() for stream in self._names)
        told: dict[str, Any] = json.loads(self.reported) if self.reported else {}
        if "error" in told:
            message = f"The sandbox cannot start: {told['error']}."
            return SandboxResult(stdout, stderr, None, None, seconds, message)
        status = told.get("status")
        code = None if status is None else os.waitstatus_to_exitcode(status)
        limit = self._limit or told.get("limit")
        if code == -signal.SIGXCPU:
            limit = limit or "cpu"
        return SandboxResult(stdout, stderr, code, limit, told.get("seconds", seconds))
