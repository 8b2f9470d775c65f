"""What the tests of the sandbox share: run hostile code, and see that nothing of it is left."""

import time
from collections.abc import Mapping
from textwrap import dedent

import psutil

from finetune.isolation import Isolation
from finetune.sandbox import Limits, SandboxResult, run_python


def attack(
    code: str,
    way: Isolation,
    given: Mapping[str, object] | None = None,
    then: str = "",
    **limits: float,
) -> SandboxResult:
    """Run `code` with the variables `given`, and `start`, the time it began; `then` follows it."""
    variables = "".join(f"{name} = {value!r}\n" for name, value in (given or {}).items())
    whole = f"import time as _; start = _.time()\n{variables}{dedent(code)}{then}"
    return run_python(whole, isolation=way, limits=Limits(**{"seconds": 10, **limits}))  # type: ignore[arg-type]


def is_refused(result: SandboxResult, way: Isolation) -> bool:
    """A process was to be started where none may be."""
    return not way.forks and result.stderr.splitlines()[-1].startswith("PermissionError")


def assert_gone(mark: str) -> None:
    """No process with this word in its command line is left."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        running = psutil.process_iter(["cmdline"])
        left = [process.pid for process in running if mark in (process.info["cmdline"] or [])]
        if not left:
            return
        time.sleep(0.05)
    raise AssertionError(f"{left} are still there")
