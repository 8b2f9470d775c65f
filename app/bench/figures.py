"""Figures over many answers: the spread of each, and the pooled value.

A spread is over answers: p10, median, p90 and the greatest, always together, so that no peak can
be shown without its median. A pooled figure is all of one over all of the other (tokens over
forwards, tokens over seconds), so that long answers weigh as much as their work.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from app.bench.sample import Sample
from finetune.intervals import wilson


@dataclass(frozen=True)
class Metric:
    """A figure of one answer, and what it is divided by: its weight when answers are pooled."""

    name: str
    value: Callable[[Sample], float]
    weight: Callable[[Sample], float]
    timed: bool = True

    def of(self, sample: Sample) -> tuple[float, float] | None:
        """(value, weight); None where this answer has no such figure."""
        if self.timed and not sample.timed:
            return None
        value, weight = self.value(sample), self.weight(sample)
        return (value, weight) if weight > 0 else None


LEAST_ANSWERS = 8

METRICS = (
    Metric(
        "tokens_per_second", lambda s: s.stats.tokens_per_second, lambda s: s.stats.decode_seconds
    ),
    Metric(
        "tokens_per_second_whole",
        lambda s: s.stats.tokens_per_second_whole,
        lambda s: s.stats.whole_seconds,
    ),
    Metric("tpf", lambda s: s.stats.tpf, lambda s: s.stats.forwards, timed=False),
    Metric("tpf_steps", lambda s: s.stats.tpf_steps, lambda s: s.stats.steps, timed=False),
    Metric(
        "forwards_per_second",
        lambda s: s.stats.forwards_per_second,
        lambda s: s.stats.decode_seconds if s.stats.forwards else 0.0,
    ),
    Metric(
        "first_block_seconds",
        lambda s: s.stats.first_block_seconds,
        lambda s: float(s.stats.first_block_seconds > 0),
    ),
    Metric(
        "characters_per_second", lambda s: s.characters_per_second, lambda s: s.stats.whole_seconds
    ),
)


@dataclass(frozen=True)
class Spread:
    """A figure over answers; `n` is how many have it."""

    p10: float
    p50: float
    p90: float
    peak: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Of at least one value; between two of them it is interpolated."""
        p10, p50, p90 = (quantile(values, share) for share in (0.1, 0.5, 0.9))
        return cls(p10, p50, p90, max(values), len(values))


@dataclass(frozen=True)
class Accuracy:
    """How many of n prompts were answered right. Of a prompt that was measured several times the
    first answer counts: repeating must not make the interval narrower."""

    right: int
    n: int

    @property
    def share(self) -> float:
        return self.right / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval, over prompts."""
        return wilson(self.right, self.n)


@dataclass(frozen=True)
class Figures:
    """Everything about one setting's answers. A metric that no answer has is in neither dict.

    Attributes:
        cut: answers that did not end by themselves, by why.
        untimed: answers whose times do not count, since they were slowed.
        steps_per_block: mean, least and most; None without blocks.
    """

    answers: int
    tokens: int
    spreads: dict[str, Spread]
    pooled: dict[str, float]
    cut: dict[str, int]
    untimed: int
    edits: int
    waste_tokens: int
    steps_per_block: tuple[float, int, int] | None
    accuracy: Accuracy | None

    @property
    def unsteadiness(self) -> float:
        """p90 over p10 of the forwards per second, which one model on a quiet machine hardly
        changes; 1 where too few answers tell."""
        rate = self.spreads.get("forwards_per_second")
        if rate is None or rate.n < LEAST_ANSWERS or rate.p10 <= 0:
            return 1.0
        return rate.p90 / rate.p10

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        data = asdict(self)
        if self.accuracy is not None:
            data["accuracy"] |= {
                "share": self.accuracy.share,
                "interval": list(self.accuracy.interval),
            }
        return data


def figures(samples: Sequence[Sample]) -> Figures:
    """The figures of these answers. Raises ValueError without any."""
    if not samples:
        raise ValueError("there is nothing to tell: no answer was measured")
    steps = [block.steps for sample in samples for block in sample.stats.blocks]
    found = {metric.name: _values(metric, samples) for metric in METRICS}
    found = {name: pairs for name, pairs in found.items() if pairs}
    reasons = Counter(sample.reason for sample in samples if sample.reason != "end")
    return Figures(
        answers=len(samples),
        tokens=sum(sample.stats.tokens for sample in samples),
        spreads={name: Spread.of([v for v, _ in pairs]) for name, pairs in found.items()},
        pooled={name: pooled(pairs) for name, pairs in found.items()},
        cut=dict(reasons),
        untimed=sum(not sample.timed for sample in samples),
        edits=sum(sample.stats.edits for sample in samples),
        waste_tokens=sum(sample.stats.waste_tokens for sample in samples),
        steps_per_block=(statistics.fmean(steps), min(steps), max(steps)) if steps else None,
        accuracy=_accuracy(samples),
    )


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie. Equal values give exactly that value, which
    `statistics.quantiles` does not."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = ordered[int(place)]
    high = ordered[min(int(place) + 1, len(ordered) - 1)]
    return low + (high - low) * (place - int(place))


def pooled(pairs: Iterable[tuple[float, float]]) -> float:
    """The mean of values by their weights, which must not all be 0."""
    pairs = list(pairs)
    return sum(value * weight for value, weight in pairs) / sum(weight for _, weight in pairs)


def _values(metric: Metric, samples: Sequence[Sample]) -> list[tuple[float, float]]:
    pairs = (metric.of(sample) for sample in samples)
    return [pair for pair in pairs if pair is not None]


def _accuracy(samples: Sequence[Sample]) -> Accuracy | None:
    verdicts: dict[str, bool] = {}
    for sample in sorted(samples, key=lambda sample: sample.repetition):
        if sample.right is not None:
            verdicts.setdefault(sample.prompt, sample.right)
    return Accuracy(sum(verdicts.values()), len(verdicts)) if verdicts else None
