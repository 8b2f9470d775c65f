"""Does a program pass its tests? The answer and its tests run one after the other in the sandbox.

The tests see what the answer defined. That they were run to their end is proved by a word that the
answer cannot know beforehand; `exit()` in an answer is no pass. Left out: an answer that searches
for the tests and bends them to its will. It shares their interpreter, as it must to be called.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import replace

from finetune.isolation import Isolation
from finetune.sandbox import Limits, SandboxResult, run_python

_RUNNER = """\
import os, sys
sys.path.insert(0, "")
write, flush, read = os.write, sys.stdout.flush, os.read
scope = {"__name__": "answer"}
for name in ("answer.py", "tests.py"):
    with open(name, encoding="utf-8") as file:
        exec(compile(file.read(), name, "exec"), scope)
flush()
write(1, read(0, 100))
"""
_FRAME = re.compile(r'File "(answer|tests)\.py", line (\d+)')
_LIMITS = {
    "time": "it ran longer than {seconds:g} s",
    "cpu": "it computed longer than {cpu_seconds:g} s",
    "memory": "it used more memory than allowed",
    "processes": "it started more processes than allowed",
    "disk": "it wrote more to disk than allowed",
    "output": "it printed more than allowed",
}

Judgement = tuple[bool, str, bool]
"""passed, reason, error"""


def passes_tests(
    code: str,
    tests: str | Sequence[str],
    seconds: float,
    *,
    limits: Limits,
    isolation: Isolation | None,
) -> Judgement:
    """Run `code`, then `tests`, which may take `seconds` of computing together."""
    lines = tests if isinstance(tests, str) else "\n".join(tests)
    word = secrets.token_hex(16)
    limits = replace(limits, cpu_seconds=seconds, seconds=max(2 * seconds, seconds + 5))
    result = run_python(
        _RUNNER,
        limits=limits,
        files={"answer.py": code, "tests.py": lines},
        stdin=word,
        isolation=isolation,
    )
    if result.error is not None:
        return False, result.error, True
    if result.ok and result.stdout.endswith(word):
        return True, "", False
    return False, _reason(result, limits, lines), False


def _reason(result: SandboxResult, limits: Limits, tests: str) -> str:
    if result.limit is not None:
        return _LIMITS[result.limit].format(seconds=limits.seconds, cpu_seconds=limits.cpu_seconds)
    if result.exit_code == 0:
        return "it ended before its tests did"
    complaint = result.stderr.strip().splitlines()[-1:]
    if not complaint:
        return f"it ended with exit code {result.exit_code}"
    return complaint[0][:300] + _place(result.stderr, tests)


def _place(stderr: str, tests: str) -> str:
    """Which test it was, or which line of the answer."""
    frames = _FRAME.findall(stderr)
    if not frames:
        return ""
    in_tests = [int(number) for name, number in frames if name == "tests"]
    if not in_tests:
        return f" (line {frames[-1][1]} of the answer)"
    lines = tests.splitlines()
    at = in_tests[-1]
    return f" (test: {lines[at - 1].strip()[:120]})" if at <= len(lines) else ""
