"""Accuracy and tokens per forward on held-out prompts, with an interval.

An answer counts as right when it ended by itself and passes its check. TPF is pooled: all tokens
over all forwards, so long answers weigh as much as their work. Everything is decoded one prompt
at a time by the engine's own loop, so the figures are those of a chat.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from engine.config import DecodeConfig
from engine.events import FinishEvent, Stats
from engine.generate import Engine
from finetune.config import FinetuneConfig
from finetune.intervals import paired_change, wilson
from finetune.prompts import Prompt
from finetune.rollout import Check, answer_prompts


class Item(Protocol):
    """A chat that ends with a question, and whether a text answers it."""

    @property
    def messages(self) -> Sequence[Mapping[str, str]]: ...

    @property
    def task(self) -> str: ...

    def check(self, text: str) -> bool: ...


@dataclass(frozen=True)
class Result:
    """One item's answer and verdict."""

    task: str
    text: str
    right: bool
    stats: Stats


@dataclass(frozen=True)
class Evaluation:
    """Verdicts and counts; every figure is derived from them."""

    results: tuple[Result, ...]

    @property
    def n(self) -> int:
        return len(self.results)

    @property
    def right(self) -> int:
        return sum(result.right for result in self.results)

    @property
    def accuracy(self) -> float:
        return self.right / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the accuracy, over items only."""
        return wilson(self.right, self.n)

    @property
    def tokens(self) -> int:
        return sum(result.stats.tokens for result in self.results)

    @property
    def tpf(self) -> float:
        """Pooled tokens per forward."""
        return self.tokens / max(sum(result.stats.forwards for result in self.results), 1)

    @property
    def tpf_steps(self) -> float:
        """Pooled tokens per decision; overlap does not change it."""
        return self.tokens / max(sum(result.stats.steps for result in self.results), 1)

    @property
    def steps_per_block(self) -> float:
        """Pooled decisions per block, the settling ones included."""
        blocks = sum(len(result.stats.blocks) for result in self.results)
        return sum(result.stats.steps for result in self.results) / max(blocks, 1)

    @property
    def tokens_per_second(self) -> float:
        """Pooled, while decoding."""
        seconds = sum(result.stats.decode_seconds for result in self.results)
        return self.tokens / seconds if seconds else 0.0

    @property
    def per_task(self) -> dict[str, "Evaluation"]:
        """The same figures for each task, by name."""
        tasks: dict[str, list[Result]] = defaultdict(list)
        for result in self.results:
            tasks[result.task].append(result)
        return {task: Evaluation(tuple(tasks[task])) for task in sorted(tasks)}

    @property
    def wrong(self) -> tuple[Result, ...]:
        return tuple(result for result in self.results if not result.right)


def answer(engine: Engine, item: Item, config: DecodeConfig) -> Result:
    """Decode one item and judge it."""
    assert engine.tokenizer is not None
    ids = engine.tokenizer.encode_chat([dict(message) for message in item.messages])
    finish: FinishEvent | None = None
    for event in engine.generate(ids, config):
        if isinstance(event, FinishEvent):
            finish = event
    assert finish is not None
    right = finish.reason == "end" and item.check(finish.text)
    return Result(item.task, finish.text, right, finish.stats)


def evaluate(
    engine: Engine,
    items: Iterable[Item],
    config: DecodeConfig,
    *,
    progress: Callable[[Result], None] | None = None,
) -> Evaluation:
    """Answer every item; `progress` is told each result.

    Raises:
        ValueError: no items.
    """
    results = []
    for item in items:
        results.append(answer(engine, item, config))
        if progress is not None:
            progress(results[-1])
    if not results:
        raise ValueError("there is nothing to evaluate: no items were given.")
    return Evaluation(tuple(results))


@dataclass(frozen=True)
class Comparison:
    """The same items answered before and after a change."""

    before: Evaluation
    after: Evaluation

    @property
    def fixed(self) -> tuple[int, ...]:
        """Items that were wrong and are right."""
        return self._items(False, True)

    @property
    def broken(self) -> tuple[int, ...]:
        """Items that were right and are wrong."""
        return self._items(True, False)

    def _items(self, was: bool, now: bool) -> tuple[int, ...]:
        rows = zip(self.before.results, self.after.results, strict=True)
        return tuple(i for i, (a, b) in enumerate(rows) if (a.right, b.right) == (was, now))

    @property
    def change(self) -> tuple[float, float, float]:
        """Accuracy gained, and its 95 % interval: of a paired difference, over items only."""
        return paired_change(len(self.fixed), len(self.broken), self.after.n)

    @property
    def speedup(self) -> float:
        """TPF after over TPF before."""
        return self.after.tpf / self.before.tpf if self.before.tpf else 0.0


def evaluate_prompts(
    engine: Engine,
    prompts: Sequence[Prompt],
    verifier: Check,
    config: FinetuneConfig,
) -> Evaluation:
    """Greedy answers with the rollouts' thresholds, many at a time; counts are those of a chat,
    overlap included, times are not. Raises ValueError without prompts."""
    if not prompts:
        raise ValueError("there is nothing to evaluate: no prompts were held out.")
    decode = replace(config.decode(), temperature=0.0, overlap=True)
    rollouts = answer_prompts(engine, prompts, verifier, decode, rows=config.rows)
    return Evaluation(tuple(Result("", r.finish.text, r.kept, r.finish.stats) for r in rollouts))
