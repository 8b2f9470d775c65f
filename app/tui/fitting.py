"""Leaving out the oldest messages of a chat that no longer fits: only ever because the user chose.

The window has no tokenizer. The engine says how many tokens a request has, characters tell how they
are shared out, and a guess that is still too long is followed by a larger one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

ANSWER_SHARE = 4
"""An answer is given a quarter of the context at most when room is made for it."""


@dataclass(frozen=True)
class Counts:
    """A request that did not fit: its tokens, and how many the context holds."""

    prompt: int
    context: int


def droppable(messages: Sequence[dict[str, str]]) -> int:
    """How many messages stand before the one that is to be answered; the system prompt stays."""
    return max(0, len(_said(messages)) - 1)


def leave_out(
    messages: Sequence[dict[str, str]],
    already: int,
    counts: Counts,
    *,
    start: str = "",
    max_new_tokens: int,
) -> int:
    """How many of the oldest `messages` to leave out, so that the others and an answer fit.

    `counts` are those of the messages without the first `already` and of `start`, the part of the
    answer that is written. At least one more is left out than before where there is one, and what
    remains begins with a user's message.
    """
    said = _said(messages)
    last = len(said) - 1
    room = min(max_new_tokens, counts.context // ANSWER_SHARE)
    sizes = [len(message["content"]) + 1 for message in said]
    kept = len(start) + sum(sizes[already:])
    budget = (counts.context - room) / max(1, counts.prompt) * kept
    number = already
    while number < last and (number == already or kept > budget or said[number]["role"] != "user"):
        kept -= sizes[number]
        number += 1
    return number


def without_oldest(messages: Sequence[dict[str, str]], number: int) -> list[dict[str, str]]:
    """`messages` without the `number` oldest ones that are no system prompt."""
    said = _said(messages)
    return [*messages[: len(messages) - len(said)], *said[number:]]


def _said(messages: Sequence[dict[str, str]]) -> Sequence[dict[str, str]]:
    return messages[1:] if messages and messages[0]["role"] == "system" else messages
