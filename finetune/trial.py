"""A trial before a run: what the model can do on these prompts, and what the verifiers say.

A run learns from answers that pass, so prompts that are never answered right teach nothing, and
prompts that always are teach speed only. Every answer is decoded as a chat would.
"""

import hashlib
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.config import DecodeConfig
from engine.events import FinishEvent
from engine.generate import Engine
from finetune.prompts import Prompt
from finetune.verifiers import Verdict, Verifier

MANY_ERRORS = 0.1
MANY_CUT = 0.2


@dataclass(frozen=True)
class Attempt:
    """One answer and its verdict."""

    prompt: Prompt
    finish: FinishEvent
    verdict: Verdict

    @property
    def passed(self) -> bool:
        """Right, and ended by itself: what a run would keep."""
        return self.verdict.passed and self.finish.reason == "end"


@dataclass(frozen=True)
class Trial:
    """All attempts; every figure is derived from them."""

    attempts: tuple[Attempt, ...]

    @property
    def passed(self) -> int:
        return sum(attempt.passed for attempt in self.attempts)

    @property
    def pass_rate(self) -> float:
        return self.passed / len(self.attempts)

    @property
    def by_prompt(self) -> list[list[Attempt]]:
        """The attempts at each prompt, in the order of the file."""
        groups: dict[str, list[Attempt]] = defaultdict(list)
        for attempt in self.attempts:
            groups[attempt.prompt.id].append(attempt)
        return list(groups.values())

    @property
    def never_passed(self) -> list[Prompt]:
        """Prompts without a right answer."""
        return [g[0].prompt for g in self.by_prompt if not any(a.passed for a in g)]

    @property
    def always_passed(self) -> list[Prompt]:
        return [g[0].prompt for g in self.by_prompt if all(a.passed for a in g)]

    @property
    def errors(self) -> list[Attempt]:
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
    verifier: Verifier,
    config: DecodeConfig,
    k: int,
    *,
    progress: Callable[[Attempt], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Trial:
    """Answer each prompt k times with seeds of `config.seed`; `stop` ends after an answer.

    Raises:
        ValueError: no prompts, or one that the engine cannot take.
    """
    if not prompts:
        raise ValueError("There is no prompt to try.")
    attempts: list[Attempt] = []
    for prompt in prompts:
        for number in range(k):
            seeded = replace(config, seed=_seed(config.seed or 0, prompt, number))
            finish = _answer(engine, prompt, seeded)
            attempts.append(Attempt(prompt, finish, verifier.check(prompt, finish.text)))
            if progress is not None:
                progress(attempts[-1])
            if stop is not None and stop():
                return Trial(tuple(attempts))
    return Trial(tuple(attempts))


def _answer(engine: Engine, prompt: Prompt, config: DecodeConfig) -> FinishEvent:
    assert engine.tokenizer is not None
    ids = engine.tokenizer.encode_chat(list(prompt.messages))
    finish: FinishEvent | None = None
    for event in engine.generate(ids, config):
        if isinstance(event, FinishEvent):
            finish = event
    assert finish is not None
    return finish


def _seed(seed: int, prompt: Prompt, number: int) -> int:
    digest = hashlib.sha256(f"trial {seed} {prompt.id} {number}".encode()).digest()
    return int.from_bytes(digest[:8], "big")
