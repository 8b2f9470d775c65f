"""One question and its answer, as every task makes them.

A task is a function from a random generator to a `Turn`. Its answer is a fixed function of the
question (one template per kind of question); `wording.py` says the same in other words
afterwards. The final result is the last **bold** span.

`key` names what is being asked (operands, list, phrase); a stable hash of it decides once and for
all whether training may ever see it. Where the answers are a closed list that no one could guess
(small talk, facts, exact quotients), a held-out key still is in training, but only in half of its
forms: `form` is the wording as typed.
"""

import hashlib
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

HELD_OUT_SHARE = 0.1
SPLIT = "b"  # names the split; this one trains on the commonest greetings and on 6 x 7
_BOLD = re.compile(r"\*\*(.+?)\*\*", re.DOTALL)


@dataclass(frozen=True)
class Turn:
    """A user's message and the answer that the demo model should give."""

    task: str
    key: str
    prompt: str
    answer: str
    value: int | None = None  # a number that a follow-up may go on from
    items: tuple[str, ...] = ()  # a list that a follow-up may go on from
    form: str = ""

    @property
    def held_out(self) -> bool:
        return is_held_out(self.key) and (not self.form or _share(f"{self.key} {self.form}") < 0.5)

    def check(self, text: str) -> bool:
        """Right when the last bold span agrees; without one, when the words do."""
        expected = final_answer(self.answer)
        if expected is None:
            return " ".join(text.split()) == " ".join(self.answer.split())
        return final_answer(text) == expected


Task = Callable[[random.Random], Turn]


def final_answer(text: str) -> str | None:
    """The last bold span of a Markdown text, or None."""
    spans = _BOLD.findall(text)
    return " ".join(spans[-1].split()) if spans else None


def is_held_out(key: str) -> bool:
    """A property of the key alone: no list to keep, nothing to leak."""
    return _share(key) < HELD_OUT_SHARE


def _share(text: str) -> float:
    """A number in [0, 1) that depends on the text alone."""
    digest = hashlib.sha256(f"{SPLIT} {text}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


def pick(rng: random.Random, items: Sequence[T]) -> T:
    return items[rng.randrange(len(items))]


def steps(*lines: str) -> str:
    """A Markdown list of worked steps."""
    return "\n".join(f"- {line}" for line in lines)


def reword(rng: random.Random, prompt: str) -> str:
    """The same question as different people type it: case, end punctuation, a polite frame."""
    text = prompt
    if rng.random() < 0.12:
        text = pick(rng, ("Please tell me: ", "Hi, ", "Hey, ", "Quick question: ", "Okay, ")) + text
    if rng.random() < 0.35 and text[-1] in "?.!":
        text = text[:-1] + pick(rng, ("", "", "", " ?", "??", ".", "?"))
    if rng.random() < 0.05 and text and text[-1].isalnum():
        text += pick(rng, (" please", ", please"))
    roll = rng.random()
    if roll < 0.22:
        text = text.lower()
    elif roll < 0.25:
        text = text.upper()
    elif roll < 0.28:
        text = text[:1].lower() + text[1:]
    return text
