"""A recorded answer for other programs: every picture and every figure as JSON."""

import json
from typing import Any

from app.tui.film import Film, Frame

FORMAT = 1


def as_json(film: Film) -> str:
    """The film as one JSON object; the README's numbers, by the names of `ask --json`."""
    answer = "".join(block.text for block in film.blocks)
    return json.dumps(
        {
            "replay": FORMAT,
            "question": film.question,
            "answer": film.done.text if film.done is not None else answer,
            "source": film.source,
            "note": film.note,
            "stats": film.done.stats if film.done is not None else {},
            "blocks": [_block(film, index) for index in range(len(film.blocks))],
        },
        indent=1,
    )


def _block(film: Film, index: int) -> dict[str, Any]:
    block = film.blocks[index]
    frames = [frame for frame in film.frames if frame.block == block.index and not frame.final]
    return {
        "block": block.index + 1,
        "text": block.text,
        "tokens": block.tokens,
        "steps": block.steps,
        "forwards": block.forwards,
        "commits": block.commits,
        "seconds": block.seconds,
        "measured": block.measured,
        "unmasked_per_step": block.unmasked_per_step,
        "edits_per_step": block.edits_per_step,
        "pictures": [_picture(frame) for frame in frames],
    }


def _picture(frame: Frame) -> dict[str, Any]:
    """A slot is [token id, text, confidence, state], with the states of the protocol."""
    return {"step": frame.step, "seconds": frame.seconds, "slots": [list(s) for s in frame.slots]}
