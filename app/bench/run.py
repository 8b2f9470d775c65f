"""The order in which answers are measured, and the measuring itself.

What answers is a function: the engine in this process, a server, or the terminal program's engine
process. Settings take turns, a few prompts each: what makes a machine slow for a while then slows
all of them, and whoever stops early has as much of one as of the other. After a change of setting
an answer is thrown away, in case the engine had to prepare for it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from app.bench.sample import Sample
from engine.config import DecodeConfig
from finetune.prompts import Prompt
from finetune.verifiers import Verdict

Answer = Callable[[Prompt, DecodeConfig], Sample]
"""Answers one prompt; a stopped answer has the reason "stopped"."""

ROUND = 8
"""Prompts that one setting answers before the next has its turn."""

Judge = Callable[[Prompt, str], Verdict]


@dataclass(frozen=True)
class Setting:
    """What a row of the table stands for."""

    label: str
    config: DecodeConfig


@dataclass(frozen=True)
class Turn:
    """One answer to be made. A warm-up's is thrown away."""

    setting: Setting
    prompt: Prompt
    repetition: int = 0
    warm_up: bool = False

    @property
    def config(self) -> DecodeConfig:
        """How it is decoded: where answers are sampled, each repetition has a seed of its own."""
        config = self.setting.config
        if config.temperature == 0 or config.seed is None:
            return config
        return replace(config, seed=(config.seed + self.repetition) % (1 << 64))


def plan(
    prompts: Sequence[Prompt], settings: Sequence[Setting], *, repeat: int = 1, warm_up: int = 2
) -> list[Turn]:
    """Every answer in order. Raises ValueError for numbers that make no sense, or no prompts."""
    if not prompts:
        raise ValueError("There is no prompt to measure; name a set or a file that has one.")
    if repeat < 1 or warm_up < 0:
        raise ValueError("--repeat must be at least 1 and --warmup at least 0.")
    asked = [(prompt, number) for number in range(repeat) for prompt in prompts]
    turns = []
    for first in range(0, len(asked), ROUND):
        again = min(warm_up, 1) if len(settings) > 1 else 0
        warm = [prompts[i % len(prompts)] for i in range(again if first else warm_up)]
        for setting in settings:
            turns += [Turn(setting, prompt, warm_up=True) for prompt in warm]
            turns += [Turn(setting, *one) for one in asked[first : first + ROUND]]
    return turns


def measure(
    turns: Sequence[Turn],
    answer: Answer,
    judge: Judge | None = None,
    *,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Turn, Sample]]:
    """Each answer as it was measured, with its verdict where there is a judge; ends early, without
    the answer that was cut, when `stop` says so. Raises what `answer` does."""
    for turn in turns:
        if stop():
            return
        sample = answer(turn.prompt, turn.config)
        if sample.reason == "stopped":
            return
        if not turn.warm_up:
            yield turn, judged(turn, replace(sample, repetition=turn.repetition), judge)


def judged(turn: Turn, sample: Sample, judge: Judge | None) -> Sample:
    """`sample` with its verdict: right when it passed and ended by itself. An answer on which the
    verifier failed has none."""
    if judge is None or not turn.prompt.verify:
        return sample
    verdict = judge(turn.prompt, sample.text)
    if verdict.error:
        return replace(sample, why=verdict.reason)
    ended = sample.reason == "end"
    why = verdict.reason or ("" if ended else f"ended: {sample.reason}")
    return replace(sample, right=verdict.passed and ended, why=why)
