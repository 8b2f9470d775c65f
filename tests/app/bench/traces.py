"""Recorded answers written by hand, and samples for the figures over them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.answer import Conditions, answer_figures
from app.bench.sample import Sample
from app.protocol import Block, Chat, Done, Prefill
from app.trace import RecordedAnswer, Timed
from engine.events import BlockStats, Stats


@dataclass(frozen=True)
class Told:
    """A block by hand."""

    tokens: int
    steps: int
    forwards: int
    commits: int
    seconds: float
    edits: Sequence[int] = ()


def stats(blocks: Sequence[Told], *, prefill: float = 0.04, waste: int = 0) -> Stats:
    """What the engine would say of an answer with these blocks."""
    steps, commits, forwards = (
        sum(getattr(block, name) for block in blocks) for name in ("steps", "commits", "forwards")
    )
    decode = sum(block.seconds for block in blocks)
    return Stats(
        tokens=sum(block.tokens for block in blocks),
        forwards=forwards, steps=steps, commits=commits, fused=steps + commits - forwards,
        edits=sum(sum(block.edits) for block in blocks), waste_tokens=waste,
        prefill_tokens=32, cached_tokens=0, prefill_seconds=prefill, decode_seconds=decode,
        whole_seconds=prefill + decode,
        first_block_seconds=prefill + blocks[0].seconds if blocks else 0.0,
        blocks=tuple(
            BlockStats(b.tokens, b.steps, b.forwards, b.commits, b.seconds) for b in blocks
        ),
    )  # fmt: skip


def recorded(
    blocks: Sequence[Told],
    *,
    reason: str | None = "end",
    prefill: float = 0.04,
    waste: int = 0,
    until: float | None = None,
    question: str = "How?",
    changes: dict[str, Any] | None = None,
) -> RecordedAnswer:
    """The answer as a trace has it. `until` is when it was stopped, `reason` None an answer whose
    end is missing, `changes` what its end says instead of the truth."""
    messages: list[Timed] = [Timed(prefill, Prefill("a", 32, 32, 0, prefill, prompt=40))]
    now = prefill
    for index, block in enumerate(blocks):
        now += block.seconds
        told = Block(
            "a", index, f"block {index} ", block.tokens, block.steps, block.forwards,
            block.commits, block.seconds, now,
            unmasked_per_step=[1] * block.steps, edits_per_step=list(block.edits),
        )  # fmt: skip
        messages.append(Timed(now, told))
    if reason is not None:
        own = stats(blocks, prefill=prefill, waste=waste)
        end = own.whole_seconds if until is None else until
        text = "".join(f"block {index} " for index in range(len(blocks)))
        figures = answer_figures(text, reason, own, Conditions("demo", "cpu", "speed"))
        figures |= {"decode_seconds": end - prefill}
        messages.append(Timed(end, Done("a", reason, text, {**figures, **(changes or {})})))
    return RecordedAnswer(Chat("a", [{"role": "user", "content": question}]), messages)


def sample(
    prompt: str, tokens: int = 40, forwards: int = 5, seconds: float = 0.5, **changes: Any
) -> Sample:
    """One answer of a single block."""
    own = stats([Told(tokens, forwards, forwards, 0, seconds)])
    fields: dict[str, Any] = {"text": "x" * 4 * tokens, "reason": "end", "stats": own}
    return Sample(prompt, **(fields | changes))
