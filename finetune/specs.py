"""What `verify` may say in a prompt: which verifier, and its options. Checked when read, so that a
mistake is told with its line number before anything is loaded."""

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PARTS = ("all", "last line", "bold", "boxed", "code")
"""Where in an answer to look; or "after TEXT": what stands behind the last TEXT."""

AFTER = "after "
SECONDS = 5.0
"""How long a verifier in a process of its own may take."""

MOST_SECONDS = 600.0
CHOICES = "ABCDEFGHIJ"

_FUNCTION = re.compile(r"(?P<module>.+):(?P<name>[A-Za-z_]\w*)")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_OURS = "finetune."

_OPTIONS: dict[str, tuple[str, ...]] = {
    "exact": ("take", "ignore_case"),
    "contains": ("take", "ignore_case"),
    "regex": ("take", "ignore_case", "pattern", "seconds"),
    "number": ("take", "tolerance"),
    "choice": ("take", "choices"),
    "json": ("take", "schema", "seconds"),
    "math": ("take", "seconds"),
    "python": ("take", "tests", "seconds"),
    "function": ("take", "at_least", "seconds"),
}
_NEED_ANSWER = ("exact", "contains", "number", "choice", "math")


@dataclass(frozen=True)
class Spec:
    """A verifier with its options, checked.

    Attributes:
        kind: "exact", "contains", "regex", "number", "choice", "json", "math", "python" or
            "function".
        function: "module:function" or "file.py:function" of a "function".
    """

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    function: str = ""

    @property
    def take(self) -> str:
        return self.options.get("take", "code" if self.kind == "python" else "all")

    @property
    def seconds(self) -> float:
        return self.options.get("seconds", SECONDS)

    @property
    def runs_code(self) -> bool:
        """Whether it runs code that came with the prompts or from the model."""
        return self.kind == "python" or (
            self.kind == "function" and not self.function.startswith(_OURS)
        )


def parse_spec(verify: object, answer: str | None) -> Spec:
    """The verifier that `verify` names, for a prompt with this answer.

    Raises:
        ValueError: a clause that goes on "line 7 ...".
    """
    options = {"kind": verify} if isinstance(verify, str) else verify
    if not isinstance(options, dict):
        raise ValueError("has a `verify` that is neither a name nor an object")
    options = dict(options)
    named = options.pop("kind", None)
    if not isinstance(named, str) or not named:
        raise ValueError("has a `verify` without the `kind` of verifier")
    kind, function = named, ""
    if _FUNCTION.fullmatch(named):
        kind, function = "function", _function(named)
    if kind not in _OPTIONS or (kind == "function" and not function):
        raise ValueError(f"names the verifier {named!r}, which there is not{_near(named)}")
    _check_options(kind, options)
    if answer is None and kind in _NEED_ANSWER:
        raise ValueError(f"has no `answer`, which the verifier {kind!r} compares with")
    if kind == "json" and answer is None and "schema" not in options:
        raise ValueError("has neither an `answer` nor a `schema` for the verifier 'json'")
    return Spec(kind, options, function)


def _near(named: str) -> str:
    kinds = [kind for kind in _OPTIONS if kind != "function"]
    near = difflib.get_close_matches(named, kinds, 1)
    return (
        f"; did you mean {near[0]!r}?"
        if near
        else f"; there are {', '.join(kinds)}, or module:function"
    )


def _function(named: str) -> str:
    module, _, _ = named.rpartition(":")
    if not module.endswith(".py") and not _MODULE.fullmatch(module):
        raise ValueError(f"names the function {named!r}; write module:function or file.py:function")
    return named


def _check_options(kind: str, options: dict[str, Any]) -> None:
    for name in options:
        if name not in _OPTIONS[kind]:
            known = ", ".join(_OPTIONS[kind])
            raise ValueError(f"gives {kind!r} the option {name!r}, which it lacks; it has {known}")
    for name, check in _CHECKS.items():
        if name in options and (wrong := check(options[name])):
            raise ValueError(f"has a `{name}` that {wrong}")
    for name, of in (("pattern", "regex"), ("tests", "python")):
        if kind == of and name not in options:
            raise ValueError(f"has no `{name}` for the verifier {kind!r}")


def _take(value: Any) -> str | None:
    if value in PARTS or (isinstance(value, str) and value.startswith(AFTER) and value[6:].strip()):
        return None
    return f"is none of {', '.join(PARTS)} or {AFTER}TEXT"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "is neither true nor false"


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def _not_negative(value: Any) -> str | None:
    return None if _is_number(value) and value >= 0 else "is no number from 0"


def _seconds(value: Any) -> str | None:
    if _is_number(value) and 0 < value <= MOST_SECONDS:
        return None
    return f"is no number from 0 to {MOST_SECONDS:g}"


def _pattern(value: Any) -> str | None:
    if not isinstance(value, str):
        return "is no text"
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is no regular expression ({error})"
    return None


def _choices(value: Any) -> str | None:
    items = list(value) if isinstance(value, str | list) else []
    if len(items) < 2 or not all(isinstance(item, str) and item.strip() for item in items):
        return 'is no list of at least two, like "ABCD" or ["yes", "no"]'
    return None if len({item.casefold() for item in items}) == len(items) else "names one twice"


def _schema(value: Any) -> str | None:
    if not isinstance(value, dict | bool):
        return "is no JSON schema"
    if isinstance(value, dict) and not isinstance(value.get("$schema", ""), str):
        return "is no JSON schema (its `$schema` is no text)"
    try:
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for
    except ImportError:  # an extra; its absence is told when a verifier is made
        return None
    try:
        validator_for(value).check_schema(value)
    except SchemaError as error:
        return f"is no JSON schema ({' '.join(error.message.split())[:100]})"
    except RecursionError:
        return "is nested too deeply"
    return None


def _tests(value: Any) -> str | None:
    lines = [value] if isinstance(value, str) else value
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        return "is neither text nor a list of texts"
    try:
        compile("\n".join(lines), "tests", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        return f"is no Python ({error})"
    return None if "".join(lines).strip() else "is empty"


_CHECKS = {
    "take": _take,
    "ignore_case": _flag,
    "pattern": _pattern,
    "tolerance": _not_negative,
    "choices": _choices,
    "schema": _schema,
    "tests": _tests,
    "at_least": lambda value: None if _is_number(value) else "is no number",
    "seconds": _seconds,
}
