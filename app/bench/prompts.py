"""What a benchmark asks: plain lines, JSON Lines of prompts, or rows in the form of GSM8K or
HumanEval. A prompt without a verifier is timed only."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from finetune.prompts import Problem, Prompt, PromptSet, prompt_id, read_prompts, split

MOST_TEXT = 64 << 20
GSM8K_MARK = "####"
ASK_NUMBER = "\n\nGive the answer as a number in the last line."
ASK_FUNCTION = (
    "Complete this Python function. Answer with the whole function and its imports in one block "
    "of code.\n\n```python\n{prompt}\n```"
)
TEST_SECONDS = 10.0


@dataclass(frozen=True)
class BenchSet:
    """Prompts under a name; `folder` is where the functions of their verifiers are looked for."""

    name: str
    prompts: tuple[Prompt, ...]
    problems: tuple[Problem, ...] = ()
    folder: Path = Path()

    @property
    def verified(self) -> list[Prompt]:
        """The prompts whose answers can be verified."""
        return [prompt for prompt in self.prompts if prompt.verify]

    @property
    def digest(self) -> str:
        """A hash of what is asked and how it is judged, in the order asked."""
        rows = [[prompt.id, prompt.answer, prompt.verify] for prompt in self.prompts]
        return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:12]

    def some(self, n: int) -> "BenchSet":
        """n of the prompts: a choice that depends on what they ask and not on their order."""
        if n >= len(self.prompts):
            return self
        return replace(self, prompts=tuple(split(self.prompts, n, seed=0)[1]))


def read_set(path: str | Path, name: str | None = None) -> BenchSet:
    """The prompts of a file, whichever form it has. What is wrong with lines becomes problems.

    Raises:
        OSError: the file cannot be opened or read.
    """
    path = Path(path)
    lines = _plain_lines(path)
    if lines is None:
        found = read_prompts(path, shape=_shaped, unverified=True)
    else:
        found = PromptSet(_unique(lines), ())
    return BenchSet(
        name=name or path.name,
        prompts=found.prompts,
        problems=found.problems,
        folder=path.resolve().parent,
    )


def _plain_lines(path: Path) -> list[str] | None:
    """The lines of plain text; None for what is, or should be, JSON Lines."""
    if path.suffix.lower() in (".jsonl", ".ndjson", ".json"):
        return None
    with open(path, "rb") as file:
        data = file.read(MOST_TEXT)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    if "\0" in text or text.lstrip()[:1] in ("{", "["):
        return None
    return text.splitlines()


def _unique(lines: Sequence[str]) -> tuple[Prompt, ...]:
    prompts: dict[str, Prompt] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            messages = ({"role": "user", "content": line.strip()},)
            id = prompt_id(messages)
            prompts.setdefault(id, Prompt(messages, None, "", number, id))
    return tuple(prompts.values())


def _shaped(row: dict[str, Any]) -> dict[str, Any]:
    """A row as `finetune.prompts` has it. Raises ValueError, a clause."""
    if {"prompt", "test", "entry_point"} <= set(row):
        return _human_eval(row)
    if {"question", "answer"} <= set(row) and not {"prompt", "messages", "verify"} & set(row):
        return _gsm8k(row)
    return row


def _gsm8k(row: dict[str, Any]) -> dict[str, Any]:
    question, answer = row["question"], row["answer"]
    if not isinstance(question, str) or not isinstance(answer, str):
        raise ValueError("has a `question` or an `answer` that is no text")
    _, mark, number = answer.rpartition(GSM8K_MARK)
    if not mark or not number.strip():
        raise ValueError(f"has an `answer` without {GSM8K_MARK} and a number")
    return {"prompt": question.rstrip() + ASK_NUMBER, "answer": number.strip(), "verify": "number"}


def _human_eval(row: dict[str, Any]) -> dict[str, Any]:
    """Tests run behind the answer. What the prompt defines before the function to be written
    stands before the tests, which may call it."""
    prompt, test, entry = row["prompt"], row["test"], row["entry_point"]
    if not all(isinstance(text, str) and text.strip() for text in (prompt, test, entry)):
        raise ValueError("has a `prompt`, `test` or `entry_point` that is empty or no text")
    preamble, found, _ = prompt.rpartition(f"def {entry}(")
    if not found:
        raise ValueError("has a `prompt` that does not begin the function `entry_point`")
    tests = [preamble, test, f"check({entry})"]
    return {
        "prompt": ASK_FUNCTION.format(prompt=prompt.strip()),
        "verify": {"kind": "python", "tests": tests, "seconds": TEST_SECONDS},
    }
