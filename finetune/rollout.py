"""Answers from the weights as they are now, each with its trajectory and its verdict.

The decoder is the engine's own, so a rollout takes the very steps that a chat would. A verifier
may be slow (it runs programs), so several answers are verified at once.
"""

import hashlib
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from engine.config import DecodeConfig
from engine.decode.trajectory import Trajectory
from engine.events import FinishEvent
from engine.generate import Engine
from finetune.config import FinetuneConfig
from finetune.prompts import Prompt
from finetune.verifiers import Verdict

VERIFY_AT_ONCE = 8


Check = Callable[[Prompt, str], Verdict]
"""What judges an answer: a `Verifier`, or anything else that is called like one."""


class TimedCheck:
    """A check that knows from when to when it was at work; several threads may ask it at once."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._spans: list[tuple[float, float]] = []

    def __call__(self, prompt: Prompt, text: str) -> Verdict:
        begin = time.perf_counter()
        try:
            return self._check(prompt, text)
        finally:
            self._spans.append((begin, time.perf_counter()))

    @property
    def seconds(self) -> float:
        """From the first question to the last verdict, since all are asked in a row."""
        begins, ends = zip(*self._spans, strict=True) if self._spans else ((0.0,), (0.0,))
        return max(ends) - min(begins)


@dataclass(frozen=True)
class Rollout:
    """One answer. Only `kept` ones teach anything: right, and ended by themselves."""

    prompt: Prompt
    finish: FinishEvent
    verdict: Verdict

    @property
    def kept(self) -> bool:
        return self.verdict.passed and self.finish.reason == "end"

    @property
    def trajectory(self) -> Trajectory:
        assert self.finish.trajectory is not None
        return self.finish.trajectory


def roll_out(
    engine: Engine,
    prompts: Sequence[Prompt],
    verifier: Check,
    config: FinetuneConfig,
    update: int,
    *,
    stop: Callable[[], bool] | None = None,
) -> list[Rollout]:
    """`config.answers` answers to each prompt, in order. Raises ValueError for a prompt that the
    engine cannot take."""
    asked = [prompt for prompt in prompts for _ in range(config.answers)]
    return answer_prompts(
        engine,
        asked,
        verifier,
        config.decode(),
        rows=config.rows,
        seeds=[answer_seed(config.seed, update, index) for index in range(len(asked))],
        record=True,
        stop=stop,
    )


def answer_prompts(
    engine: Engine,
    prompts: Sequence[Prompt],
    verifier: Check,
    decode: DecodeConfig,
    *,
    rows: int,
    seeds: Sequence[int] | None = None,
    record: bool = False,
    stop: Callable[[], bool] | None = None,
) -> list[Rollout]:
    """One answer to each prompt with its verdict."""
    ids = [prompt_ids(engine, prompt) for prompt in prompts]
    ends = engine.generate_many(ids, decode, record=record, seeds=seeds, rows=rows, stop=stop)
    with ThreadPoolExecutor(VERIFY_AT_ONCE) as pool:
        verdicts = list(pool.map(verifier, prompts, (end.text for end in ends)))
    return [Rollout(*row) for row in zip(prompts, ends, verdicts, strict=True)]


def prompt_ids(engine: Engine, prompt: Prompt) -> list[int]:
    """The prompt as the checkpoint's chat template writes it."""
    assert engine.tokenizer is not None
    return engine.tokenizer.encode_chat(list(prompt.messages))


def answer_seed(seed: int, update: int, index: int) -> int:
    """The sampler's seed of an update's index-th answer: nothing to store, nothing repeats."""
    digest = hashlib.sha256(f"answer {seed} {update} {index}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def prompts_of(update: int, count: int, per_update: int, seed: int) -> list[int]:
    """Which of `count` prompts update 0, 1, ... takes: a new shuffle each time all were seen.

    A function of its arguments alone, so that a resumed run goes on in the same order.
    """
    per_update = min(per_update, count)  # twice in one update would be the same answer twice
    orders: dict[int, list[int]] = {}
    chosen = []
    for place in range(update * per_update, (update + 1) * per_update):
        epoch, index = divmod(place, count)
        if epoch not in orders:
            orders[epoch] = list(range(count))
            random.Random(f"prompts {seed} {epoch}").shuffle(orders[epoch])
        chosen.append(orders[epoch][index])
    return chosen
