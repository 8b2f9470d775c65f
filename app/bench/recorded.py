"""Figures over recorded answers: a trace's own, and a count of what the trace shows.

An answer that ended has its figures in its last message, and those are told. They are also counted
again from its blocks, so that a trace whose parts contradict each other is not taken at its word;
an answer whose end is missing has only the count.
"""

import math
from collections import Counter, defaultdict
from dataclasses import dataclass

from app.bench.conditions import Conditions, ready_conditions
from app.bench.result import Result, Run
from app.bench.sample import Sample
from app.protocol import Block, Done, Prefill
from app.trace import RecordedAnswer, Recording
from engine.events import BlockStats, Stats
from finetune.prompts import prompt_id

CUT = "cut"
"""Why an answer ended whose end the trace does not hold."""


@dataclass(frozen=True)
class Replayed:
    """The figures of a trace, and what in it does not add up, in sentences."""

    result: Result
    doubts: tuple[str, ...]


def replayed(recording: Recording, name: str) -> Replayed:
    """The figures of `recording`, the trace called `name`. Raises ValueError when no answer of it
    has any."""
    runs: dict[str, list[Sample]] = defaultdict(list)
    doubts: list[str] = []
    asked: Counter[tuple[str, str]] = Counter()
    for number, answer in enumerate(recording.answers, start=1):
        if not any(isinstance(timed.message, Block | Done) for timed in answer.messages):
            doubts.append(f"Answer {number} broke off before its first block; it is left out.")
            continue
        preset, prompt = _preset(answer), _prompt(answer, number)
        runs[preset].append(_sample(answer, prompt, asked[preset, prompt]))
        asked[preset, prompt] += 1
        doubts += [f"Answer {number}: {doubt}." for doubt in _doubts(answer)]
    if not runs:
        raise ValueError(f"No answer in {name} has a block, so there are no figures.")
    result = Result(
        _conditions(recording, name),
        tuple(Run(preset, {"preset": preset}, tuple(own)) for preset, own in runs.items()),
    )
    return Replayed(result, tuple(doubts))


def counted(answer: RecordedAnswer) -> Stats:
    """What the blocks of an answer add up to. A stopped answer's decode time lasts until its end,
    which a trace gives to the microsecond; every other's until its last block's last forward."""
    blocks = [timed.message for timed in answer.messages if isinstance(timed.message, Block)]
    done = _done(answer)
    prefill = _last_prefill(answer)
    seconds = prefill.seconds if prefill is not None else 0.0
    decode = sum(block.seconds for block in blocks)
    if done is not None and done.reason == "stopped":
        decode = max(answer.messages[-1].seconds - seconds, 0.0)
    steps, commits, forwards = (
        sum(getattr(block, name) for block in blocks) for name in ("steps", "commits", "forwards")
    )
    return Stats(
        tokens=sum(block.tokens for block in blocks),
        forwards=forwards,
        steps=steps,
        commits=commits,
        fused=steps + commits - forwards,
        edits=sum(sum(block.edits_per_step) for block in blocks),
        waste_tokens=0,
        prefill_tokens=prefill.total if prefill is not None else 0,
        cached_tokens=prefill.cached if prefill is not None else 0,
        prefill_seconds=seconds,
        decode_seconds=decode,
        whole_seconds=seconds + decode,
        first_block_seconds=blocks[0].elapsed if blocks else 0.0,
        blocks=tuple(map(_block_stats, blocks)),
    )


def _sample(answer: RecordedAnswer, prompt: str, repetition: int) -> Sample:
    stats, done = counted(answer), _done(answer)
    if done is not None:
        try:
            first = Sample.of_done(prompt, done, stats.first_block_seconds)
        except ValueError:  # figures that another program or a hand wrote
            first = Sample(prompt, done.text, done.reason, stats, timed=done.measured)
    else:
        blocks = [timed.message for timed in answer.messages if isinstance(timed.message, Block)]
        text = "".join(block.text for block in blocks)
        first = Sample(prompt, text, CUT, stats, timed=all(block.measured for block in blocks))
    return Sample(**{**vars(first), "repetition": repetition})


def _doubts(answer: RecordedAnswer) -> list[str]:
    """Where the blocks and the end of an answer disagree."""
    done = _done(answer)
    if done is None:
        return ["its end is missing, so its figures are those of its blocks"]
    count = counted(answer)
    told = [
        f"{name.replace('_', ' ')} {done.stats[name]} at its end, {getattr(count, name)} by its "
        "blocks"
        for name in ("tokens", "steps", "commits", "forwards", "edits")
        if name in done.stats and done.stats[name] != getattr(count, name)
    ]
    return told + _time_doubt(answer, done, count)


def _time_doubt(answer: RecordedAnswer, done: Done, count: Stats) -> list[str]:
    """A stopped answer's blocks do not last until its end, which came when its last message did;
    when exactly its prefill ended only its figures tell."""
    seconds, prefill = (done.stats.get(f"{part}_seconds") for part in ("decode", "prefill"))
    if not isinstance(seconds, float) or not isinstance(prefill, float):
        return []
    counted_seconds = count.decode_seconds
    if done.reason == "stopped":
        counted_seconds = answer.messages[-1].seconds - prefill
    if math.isclose(seconds, counted_seconds, rel_tol=0.01, abs_tol=1e-5):
        return []
    return [f"it decoded for {seconds:.4f} s by its end, {counted_seconds:.4f} s by its blocks"]


def _conditions(recording: Recording, name: str) -> Conditions:
    told = {} if recording.ready is None else ready_conditions(recording.ready)
    return {"trace": name, **told}


def _preset(answer: RecordedAnswer) -> str:
    done = _done(answer)
    if done is not None and isinstance(done.stats.get("preset"), str):
        return str(done.stats["preset"])
    asked = answer.request.config.get("preset") if answer.request is not None else None
    return asked if isinstance(asked, str) else "recorded"


def _prompt(answer: RecordedAnswer, number: int) -> str:
    if answer.request is None or not answer.request.messages:
        return f"answer {number}"
    try:
        return prompt_id(answer.request.messages)
    except KeyError:
        return f"answer {number}"


def _done(answer: RecordedAnswer) -> Done | None:
    last = answer.messages[-1].message if answer.messages else None
    return last if isinstance(last, Done) else None


def _last_prefill(answer: RecordedAnswer) -> Prefill | None:
    found = [timed.message for timed in answer.messages if isinstance(timed.message, Prefill)]
    return found[-1] if found else None


def _block_stats(block: Block) -> BlockStats:
    return BlockStats(
        tokens=block.tokens,
        steps=block.steps,
        forwards=block.forwards,
        commits=block.commits,
        seconds=block.seconds,
        unmasked_per_step=tuple(block.unmasked_per_step),
        edits_per_step=tuple(block.edits_per_step),
    )
