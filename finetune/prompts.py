"""Prompts with verifiable answers, from JSON Lines: read, checked, and split.

Every line is an object with `prompt` (text) or `messages` (a chat that ends with the user),
`verify` (see `specs.py`) and mostly `answer`; other fields are for the user's own verifiers. A bad
line costs that line and is told by its number; nothing here needs a model.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from finetune.specs import parse_spec

ROLES = ("system", "user", "assistant")
MOST_PROMPTS = 200_000
MOST_PROBLEMS = 10_000
LONGEST_LINE = 4 << 20
HOPELESS = 1000
"""So many bad lines and no good one: the file is something else."""

_OTHER_FORMATS = (
    (b"\xff\xfe", "is UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16 text; save it as UTF-8"),
    (b"\x1f\x8b", "is compressed (gzip); unpack it first"),
    (b"PK\x03\x04", "is a zip file; unpack it first"),
    (b"PAR1", "is a Parquet file; write it as JSON Lines"),
    (b"SQLite", "is a database; write it as JSON Lines"),
)

T = TypeVar("T", bound="Prompt")
Shape = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes a line of this form out of a line of another; raises ValueError, a clause."""


@dataclass(frozen=True)
class Prompt:
    """A chat that ends with a question, and how to tell a right answer.

    Attributes:
        answer: the reference; JSON text where the verifier is "json".
        verify: the verifier's name, or an object with its `kind` and options; "" without one.
        line: where it stands in the file, from 1.
        id: the same for the same messages, in every file.
        extra: the line's other fields.
    """

    messages: tuple[dict[str, str], ...]
    answer: str | None
    verify: dict[str, Any] | str
    line: int
    id: str
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def question(self) -> str:
        """What the user asks last."""
        return self.messages[-1]["content"]


@dataclass(frozen=True)
class Problem:
    """Why a line cannot be used. `text` is the same for lines with the same mistake."""

    line: int
    text: str
    detail: str = ""

    def __str__(self) -> str:
        return f"line {self.line:,} {self.text}{self.detail}"


@dataclass(frozen=True)
class PromptSet:
    """The usable prompts of a file, and what is wrong with the rest, in the file's order."""

    prompts: tuple[Prompt, ...]
    problems: tuple[Problem, ...]

    def grouped(self) -> dict[str, list[int]]:
        """Each mistake with its lines."""
        lines: dict[str, list[int]] = defaultdict(list)
        for problem in self.problems:
            lines[problem.text].append(problem.line)
        return dict(lines)


def read_prompts(
    path: str | Path, *, shape: Shape | None = None, unverified: bool = False
) -> PromptSet:
    """Read a file of prompts. What is wrong with it becomes problems.

    Args:
        shape: applied to each line's object first.
        unverified: take lines without `verify` too.

    Raises:
        OSError: the file cannot be opened or read.
    """
    with open(path, "rb") as file:
        return _Reader(file, shape or (lambda row: row), unverified).read()


def split(prompts: Sequence[T], held_out: int, seed: int) -> tuple[list[T], list[T]]:
    """(training, held-out) prompts. Which are held out depends on what they ask and the seed, not
    on their order. Raises ValueError where nothing would be left to train on."""
    if held_out < 0 or (held_out and held_out >= len(prompts)):
        raise ValueError(
            f"{held_out} of {len(prompts)} prompts cannot be held out; at least one must be left."
        )
    order = sorted(prompts, key=lambda prompt: _digest(f"held out {seed} {prompt.id}"))
    held = {prompt.id for prompt in order[:held_out]}
    train = [prompt for prompt in prompts if prompt.id not in held]
    return train, [prompt for prompt in prompts if prompt.id in held]


def prompt_id(messages: Sequence[dict[str, str]]) -> str:
    """A name for what is asked, stable between runs and machines."""
    return _digest(json.dumps([[m["role"], m["content"]] for m in messages]))[:16]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class _Reader:
    """Goes through a file once."""

    def __init__(self, file: IO[bytes], shape: Shape, unverified: bool) -> None:
        self._file = file
        self._shape, self._unverified = shape, unverified
        self._prompts: list[Prompt] = []
        self._problems: list[Problem] = []
        self._seen: dict[str, Prompt] = {}

    def read(self) -> PromptSet:
        for number, line in self._lines():
            try:
                self._take(number, line)
            except _OtherFormatError as error:
                self._problems.append(Problem(number, str(error)))
                break
            except ValueError as error:
                self._problems.append(Problem(number, *error.args[:2]))
            if told := self._hopeless():
                self._problems.append(Problem(number, told))
                break
        if not self._prompts and not self._problems:
            self._problems.append(Problem(1, "is missing: the file is empty"))
        return PromptSet(tuple(self._prompts), tuple(self._problems))

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        number = 0
        while line := self._file.readline(LONGEST_LINE + 1):
            number += 1
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            whole = line.endswith(b"\n") or len(line) <= LONGEST_LINE
            if line.strip():
                yield number, line
            while not whole:
                rest = self._file.readline(LONGEST_LINE)
                whole = rest.endswith(b"\n") or not rest

    def _hopeless(self) -> str | None:
        """Why reading on is no use."""
        if not self._prompts and len(self._problems) >= HOPELESS:
            return "is the last one read: nothing up to it is usable"
        if len(self._prompts) >= MOST_PROMPTS or len(self._problems) >= MOST_PROBLEMS:
            return "is the last one read: the file is too large"
        return None

    def _take(self, number: int, line: bytes) -> None:
        """Add the prompt of one line. Raises ValueError(text) or ValueError(text, detail)."""
        row = self._shape(_row(number, line))
        messages = _messages(row)
        bare = self._unverified and row.get("verify") is None
        verify = "" if bare else _present(row, "verify")
        answer = None if bare else _answer(row)
        if not bare:
            parse_spec(verify, answer)
        known = ("prompt", "messages", "answer", "verify")
        prompt = Prompt(
            messages=messages,
            answer=answer,
            verify=verify,
            line=number,
            id=prompt_id(messages),
            extra={name: value for name, value in row.items() if name not in known},
        )
        self._check_new(prompt)
        self._prompts.append(prompt)

    def _check_new(self, prompt: Prompt) -> None:
        first = self._seen.setdefault(prompt.id, prompt)
        if first is prompt:
            return
        if (first.answer, first.verify) == (prompt.answer, prompt.verify):
            raise ValueError("is a duplicate", f" of line {first.line:,}")
        raise ValueError(
            "asks what another line asks, with another answer or verifier",
            f" (line {first.line:,})",
        )


class _OtherFormatError(ValueError):
    """The file is no JSON Lines at all."""


def _check_format(line: bytes) -> None:
    for start, told in _OTHER_FORMATS:
        if line.startswith(start):
            raise _OtherFormatError(told)
    if line.lstrip().startswith(b"["):
        raise _OtherFormatError("begins a JSON list; write JSON Lines, one object a line")


def _row(number: int, line: bytes) -> dict[str, Any]:
    if number == 1:
        _check_format(line)
    if len(line) > LONGEST_LINE:
        raise ValueError(f"is longer than {LONGEST_LINE >> 20} MB")
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8 text", f" (byte {error.start + 1})") from error
    except json.JSONDecodeError as error:
        raise ValueError("is not JSON", f" ({error.msg}, column {error.colno})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError("is JSON that cannot be read", f" ({error})") from error
    if not isinstance(row, dict):
        raise ValueError("is not a JSON object")
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("holds half a character (a lone surrogate)") from error
    return row


def _present(row: dict[str, Any], name: str) -> Any:
    if row.get(name) is None:
        raise ValueError(f"has no `{name}`")
    return row[name]


def _messages(row: dict[str, Any]) -> tuple[dict[str, str], ...]:
    if row.get("messages") is None:
        prompt = _present(row, "prompt")
        if not isinstance(prompt, str) or not prompt.strip():
            raise ValueError("has a `prompt` that is empty or no text")
        return ({"role": "user", "content": prompt},)
    if row.get("prompt") is not None:
        raise ValueError("has both `prompt` and `messages`")
    messages = row["messages"]
    if not isinstance(messages, list) or not messages:
        raise ValueError("has `messages` that are empty or no list")
    checked = tuple(map(_message, messages))
    if checked[-1]["role"] != "user":
        raise ValueError("has `messages` that do not end with the user's")
    return checked


def _message(message: Any) -> dict[str, str]:
    if not isinstance(message, dict) or set(message) != {"role", "content"}:
        raise ValueError("has a message without exactly `role` and `content`")
    if message["role"] not in ROLES:
        raise ValueError(f"has a message whose role is none of {', '.join(ROLES)}")
    if not isinstance(message["content"], str) or not message["content"].strip():
        raise ValueError("has a message that is empty or no text")
    return {"role": message["role"], "content": message["content"]}


def _answer(row: dict[str, Any]) -> str | None:
    answer = row.get("answer")
    verify = row["verify"]
    kind = verify.get("kind") if isinstance(verify, dict) else verify
    if kind == "json" and "answer" in row and not isinstance(answer, str):
        return json.dumps(answer, ensure_ascii=False)
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        return str(answer)
    if answer is not None and not (isinstance(answer, str) and answer.strip()):
        raise ValueError("has an `answer` that is empty or neither text nor a number")
    return answer
