"""The demo's questions as a file of prompts, with an ordinary verifier each.

They come from the training half of the corpus, so that the held-out questions stay unseen.
"""

from collections.abc import Iterator
from typing import Any

from finetune.demo.corpus import DemoItem, training
from finetune.demo.turns import final_answer

PATIENCE = 5000
"""So many chats in a row that were there before: there are no others."""


def rows(n: int, seed: int) -> Iterator[dict[str, Any]]:
    """n different prompts, as lines of a file. Raises ValueError when there are not so many."""
    seen: set[str] = set()
    repeated = 0
    for item in training(seed):
        if len(seen) == n:
            return
        asked = repr(item.messages)
        repeated = repeated + 1 if asked in seen else 0
        if repeated > PATIENCE:
            raise ValueError(f"The demo has only {len(seen)} different prompts, not {n}.")
        if not repeated:
            seen.add(asked)
            yield row(item)


def row(item: DemoItem) -> dict[str, Any]:
    """The final result is the last bold span; an answer without one is right word for word."""
    chat: dict[str, Any] = {"messages": list(item.messages)}
    if len(item.messages) == 1:
        chat = {"prompt": item.messages[0]["content"]}
    result = final_answer(item.answer)
    if result is None:
        return {**chat, "answer": item.answer, "verify": "exact", "task": item.task}
    verify = {"kind": "exact", "take": "bold"}
    return {**chat, "answer": result, "verify": verify, "task": item.task}
