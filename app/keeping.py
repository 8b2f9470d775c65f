"""A personal set of verified prompts, kept out of chats: guess a verifier, check it, append.

The guess is only a start: it is shown and can be changed before anything is kept. Whatever is
guessed passes on the answer that it was guessed from.
"""

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finetune.files import write_text
from finetune.judges import JUDGES, chosen, last_number
from finetune.prompts import prompt_id
from finetune.specs import parse_spec
from finetune.taking import squeeze, take

KINDS = ("number", "exact", "contains", "choice", "json")
PARTS = ("all", "bold", "last line", "boxed", "code")
LONGEST_EXACT = 80
_OPTION = re.compile(r"(?m)^\s*\(?([A-J])[).:]\s+\S")
_DIGITS = re.compile(r"[-+\u2212]?\d[\d,\u00a0\u202f]*(?:\.\d+)?(?:\s*/\s*\d+)?%?")


class KeepingError(Exception):
    """A prompt cannot be kept; the message is a sentence for the user."""


@dataclass(frozen=True)
class Guess:
    """How to tell a right answer: the verifier, where in an answer it looks, the reference."""

    kind: str
    take: str
    answer: str

    @property
    def verify(self) -> dict[str, str] | str:
        """As a line of a prompts file has it."""
        return self.kind if self.take == "all" else {"kind": self.kind, "take": self.take}


def guess(question: str, answer: str) -> Guess:
    """The likeliest verifier of `answer`, which passes on it."""
    for found in _guesses(question, answer):
        if found.answer.strip() and verdict(found, answer)[0]:
            return found
    return Guess("exact", "all", squeeze(answer))


def _guesses(question: str, answer: str) -> Iterator[Guess]:
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(take("code", answer) or "")
        if isinstance(value, dict | list):
            yield Guess("json", "all", json.dumps(value, ensure_ascii=False))
    options = list(dict.fromkeys(_OPTION.findall(question)))
    if len(options) > 1 and (letter := chosen(options, answer)):
        yield Guess("choice", "all", letter)
    for part in ("boxed", "bold"):
        text = take(part, answer)
        if text and len(text) <= LONGEST_EXACT:
            whole_number = _DIGITS.fullmatch(text.strip()) is not None
            yield Guess("number" if whole_number else "exact", part, squeeze(text))
    lines = answer.strip().splitlines()
    short = len(lines) == 1 and len(answer.strip()) <= LONGEST_EXACT
    if last_number(answer) is not None and (short or last_number(lines[-1]) is not None):
        yield Guess("number", "all", _DIGITS.findall(answer)[-1].strip())
    if short:
        yield Guess("exact", "all", squeeze(answer))
    yield Guess("contains", "all", squeeze(lines[-1] if lines else "")[:LONGEST_EXACT])


def verdict(how: Guess, answer: str) -> tuple[bool, str]:
    """Whether `answer` passes, and why not. Text alone is compared; nothing is run."""
    try:
        spec = parse_spec(how.verify, how.answer)
        text = take(spec.take, answer)
        if text is None:
            return False, f"there is no part {spec.take!r} in the answer"
        part = take(spec.take, how.answer)
        reference = how.answer if part is None else part
        return JUDGES[spec.kind](spec.options, text, reference)
    except (ValueError, RecursionError) as error:
        return False, f"the verifier cannot be used: {error}"


def keep(path: Path, messages: Sequence[dict[str, str]], how: Guess) -> int:
    """Add a prompt to the file at `path`, in place of one that asks the same; how many it holds.

    The file is replaced as a whole, so nothing that stood there can be lost.

    Raises:
        KeepingError: the verifier cannot be used, or the file cannot be written.
    """
    if not how.answer.strip():
        raise KeepingError("Type what a right answer holds first.")
    try:
        parse_spec(how.verify, how.answer)
    except ValueError as error:
        raise KeepingError(f"This prompt {error}.") from error
    row = {**_asked(messages), "answer": how.answer, "verify": how.verify}
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        same = prompt_id(messages)
        kept = [line for line in lines if line.strip() and _id(line) != same]
        kept.append(json.dumps(row, ensure_ascii=False))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_text(path, "\n".join(kept) + "\n")
    except OSError as error:
        raise KeepingError(f"{path} cannot be written: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise KeepingError(f"{path} is no text; rename it, and a new one is begun.") from error
    return len(kept)


def _asked(messages: Sequence[dict[str, str]]) -> dict[str, Any]:
    if len(messages) == 1:
        return {"prompt": messages[0]["content"]}
    return {"messages": [dict(message) for message in messages]}


def _id(line: str) -> str | None:
    """What a line asks, by its id; None for a line that is no prompt."""
    try:
        row = json.loads(line)
        messages = row.get("messages") or [{"role": "user", "content": row["prompt"]}]
        return prompt_id(messages)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
