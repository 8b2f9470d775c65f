"""The process that judges answers where a judgement may hang, crash or print: it reads requests and
writes verdicts, one JSON object a line.

What is judged prints into nothing and reads nothing. The parent kills this process when it takes
too long; when there is no parent any more, an alarm does.
"""

import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from finetune.isolation import interpreter
from finetune.jail import calls, landlock, namespaces
from finetune.judges import JUDGES, Judgement

OVERTIME = 10.0
MEMORY = 4 << 30
_NEEDED = {"math": ("math_verify",), "json": ("jsonschema.validators", "jsonschema_specifications")}
LOADING_SECONDS = 120.0

Function = Callable[..., object]


class _VerifierError(Exception):
    """The verifier is at fault, not the answer; the message is a clause."""


def main() -> None:
    requests, verdicts = _apart(0, "rb"), _apart(1, "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    process, functions = os.getpid(), _Functions()
    for line in requests:
        request = json.loads(line)
        _set_alarm(request.get("seconds", LOADING_SECONDS) + OVERTIME)
        verdict = _answer(request, functions)
        if os.getpid() != process:  # a fork of the user's that came back
            os._exit(0)
        _set_alarm(0)
        verdicts.write(json.dumps(verdict).encode() + b"\n")
        verdicts.flush()


def _apart(stream: int, mode: str) -> BinaryIO:
    copy = os.dup(stream)
    os.set_inheritable(copy, False)
    return os.fdopen(copy, mode)  # type: ignore[return-value]


def _set_alarm(seconds: float) -> None:
    """Be killed then, whatever this process is busy with."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _answer(request: Mapping[str, Any], functions: "_Functions") -> dict[str, Any]:
    try:
        passed, reason = _judge(request, functions)
    except _VerifierError as error:
        return {"passed": False, "reason": str(error), "error": True}
    except BaseException as error:
        return {"passed": False, "reason": _told(error), "error": True}
    return {"passed": passed, "reason": "" if passed else reason, "error": False}


def _judge(request: Mapping[str, Any], functions: "_Functions") -> Judgement:
    kind = request["kind"]
    if kind == "import":  # which it was before, as everything is
        return True, ""
    if kind == "load":
        functions.load(request)
        if not request["foreign"]:
            _lock_in()
        return True, ""
    if kind != "function":
        return JUDGES[kind](request["options"], request["text"], request["answer"])
    function, with_row = functions.load(request)
    arguments = (request["prompt"], request["text"], request["row"])
    value = function(*arguments) if with_row else function(*arguments[:2])
    if isinstance(value, bool):
        return value, "the function says no"
    try:
        number = float(value)  # type: ignore[arg-type]  # numpy's numbers too
    except (TypeError, ValueError):
        raise _VerifierError(
            f"the function must return true, false or a number, not {type(value).__name__}"
        ) from None
    least = request["options"].get("at_least", 1.0)
    return number >= least, f"the function says {number:g}, and {least:g} is needed"


def _lock_in() -> None:
    """Nothing but computing from now on, where the kernel can see to it: libraries of mathematics
    evaluate parts of what a model wrote as Python."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        if landlock.version():
            landlock.allow_only(namespaces.visible(interpreter()), None, [os.devnull])
        calls.refuse(outside=True, forks=False)


class _Functions:
    """The user's functions, each imported once."""

    def __init__(self) -> None:
        self._loaded: dict[str, tuple[Function, bool]] = {}

    def load(self, request: Mapping[str, Any]) -> tuple[Function, bool]:
        """The function, and whether it takes the row. Does the slow imports of judges too."""
        for module in _NEEDED.get(request.get("of", ""), ()):
            importlib.import_module(module)
        named = request["function"]
        if named and named not in self._loaded:
            function = _find(named, Path(request["folder"]))
            self._loaded[named] = (function, _takes_row(function))
        return self._loaded.get(named, (bool, False))


def _find(named: str, folder: Path) -> Function:
    module_name, _, name = named.rpartition(":")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        if module_name.endswith(".py"):
            module: Any = _from_file(folder / Path(module_name).expanduser())
        else:
            module = importlib.import_module(module_name)
    except _VerifierError:
        raise
    except BaseException as error:
        raise _VerifierError(f"{module_name} cannot be imported: {_told(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise _VerifierError(f"{module_name} has no function {name}")
    return function


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise _VerifierError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _takes_row(function: Function) -> bool:
    try:
        inspect.signature(function).bind("prompt", "answer", {})
    except (TypeError, ValueError):
        return False
    return True


def _told(error: BaseException) -> str:
    """The error and where in the user's file it was raised, on one line."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in last)
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"


if __name__ == "__main__":
    main()
