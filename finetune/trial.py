"""A trial before a run: what the model can do on these prompts, and what the verifiers say.

A run learns from answers that pass, so prompts that are never answered right teach nothing, and
prompts that always are teach speed only. Every answer is decoded as a chat would.
"""

import hashlib
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.config import DecodeConfig
from engine.generate import Engine
from finetune.prompts import Prompt
from finetune.rollout import Check, Rollout, answer_prompts

MANY_ERRORS = 0.1
MANY_CUT = 0.2
ROWS = 16
"""Answers made together; progress is told after so many."""


@dataclass(frozen=True)
class Trial:
    """All answers with their verdicts, at least one; every figure is derived from them. What
    counts as passed is what a run would keep: right, and ended by itself."""

    attempts: tuple[Rollout, ...]

    @property
    def passed(self) -> int:
        return sum(attempt.kept for attempt in self.attempts)

    @property
    def pass_rate(self) -> float:
        return self.passed / len(self.attempts)

    @property
    def by_prompt(self) -> list[list[Rollout]]:
        """The attempts at each prompt, in the order of the file."""
        groups: dict[str, list[Rollout]] = defaultdict(list)
        for attempt in self.attempts:
            groups[attempt.prompt.id].append(attempt)
        return list(groups.values())

    @property
    def never_passed(self) -> list[Prompt]:
        """Prompts without a right answer."""
        return [g[0].prompt for g in self.by_prompt if not any(a.kept for a in g)]

    @property
    def always_passed(self) -> list[Prompt]:
        return [g[0].prompt for g in self.by_prompt if all(a.kept for a in g)]

    @property
    def errors(self) -> list[Rollout]:
        """Attempts of which nothing is known, since the verifier failed."""
        return [attempt for attempt in self.attempts if attempt.verdict.error]

    @property
    def cut(self) -> int:
        """Answers that did not end by themselves."""
        return sum(attempt.finish.reason != "end" for attempt in self.attempts)

    @property
    def verifier_seconds(self) -> tuple[float, float]:
        """Median and longest."""
        seconds = [attempt.verdict.seconds for attempt in self.attempts]
        return statistics.median(seconds), max(seconds)

    @property
    def tokens(self) -> float:
        """Median length of an answer."""
        return statistics.median(attempt.finish.stats.tokens for attempt in self.attempts)

    def advice(self) -> list[str]:
        """What these figures mean for a run, a sentence each."""
        count, told = len(self.attempts), []
        if len(self.errors) > MANY_ERRORS * count:
            told.append(
                f"The verifier failed on {len(self.errors)} of {count} answers: mend it first "
                f"({self.errors[0].verdict.reason})."
            )
        if not self.passed:
            told.append(
                "No answer passed, so a run would learn nothing: use easier prompts, or look at "
                "what the verifier expects."
            )
        elif len(self.always_passed) == len(self.by_prompt):
            told.append("Every answer passed: a run can make answers faster, not better.")
        elif self.never_passed:
            told.append(
                f"{len(self.never_passed)} of {len(self.by_prompt)} prompts were never answered "
                "right; a run learns nothing from those."
            )
        if self.cut > MANY_CUT * count:
            told.append(
                f"{self.cut} of {count} answers were cut at the longest length allowed, and count "
                "as wrong."
            )
        return told


def try_prompts(
    engine: Engine,
    prompts: Sequence[Prompt],
    verifier: Check,
    config: DecodeConfig,
    k: int,
    *,
    progress: Callable[[Rollout], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Trial | None:
    """Answer each prompt k times with seeds of `config.seed`, `ROWS` answers at a time.

    With `stop`, answers that it cut are left out; None when that leaves none.

    Raises:
        ValueError: no prompts, or one that the engine cannot take.
    """
    if not prompts:
        raise ValueError("There is no prompt to try.")
    asked = [(prompt, number) for prompt in prompts for number in range(k)]
    found: list[Rollout] = []
    for first in range(0, len(asked), ROWS):
        if stop is not None and stop():
            break
        chunk = asked[first : first + ROWS]
        seeds = [_seed(config.seed or 0, *one) for one in chunk]
        own = [prompt for prompt, _ in chunk]
        answers = answer_prompts(engine, own, verifier, config, rows=ROWS, seeds=seeds, stop=stop)
        for answer in answers:
            if answer.finish.reason != "stopped":
                found.append(answer)
                if progress is not None:
                    progress(answer)
    return Trial(tuple(found)) if found else None


def _seed(seed: int, prompt: Prompt, number: int) -> int:
    digest = hashlib.sha256(f"trial {seed} {prompt.id} {number}".encode()).digest()
    return int.from_bytes(digest[:8], "big")
