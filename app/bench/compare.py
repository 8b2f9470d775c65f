"""Two results side by side: ratios with intervals, and what was different about the conditions.

A ratio is of pooled figures. Its interval comes from drawing the prompts anew (bootstrap); where
both results asked the same prompts, each draw takes a prompt's answers from both. It holds for the
choice of prompts, and not for what else changes between two sittings at a machine.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.bench.conditions import Conditions
from app.bench.figures import METRICS, Metric, pooled
from app.bench.result import Result, ResultError, Run
from app.bench.sample import Sample
from finetune.intervals import paired_change

DRAWS = 2000
AT_ONCE = 1 << 19
"""Drawn prompts that are held in memory together."""
SEED = 0
LEAST_PROMPTS = 5
"""Of fewer prompts an interval would only seem to say something."""

PACE = 1.05
_PACE = "forwards_per_second"
_MACHINE = ("model", "revision", "device", "card", "processor", "threads", "torch")
_OF_THE_SITTING = ("date", "prompt_count")


@dataclass(frozen=True)
class Ratio:
    """B over A of one figure; `interval` is None for too few prompts."""

    metric: str
    a: float
    b: float
    interval: tuple[float, float] | None

    @property
    def ratio(self) -> float:
        return self.b / self.a if self.a else 0.0


@dataclass(frozen=True)
class Change:
    """Accuracy of B minus that of A on the prompts that both verified, with its interval."""

    a: float
    b: float
    gained: float
    interval: tuple[float, float]
    fixed: int
    broken: int
    n: int


@dataclass(frozen=True)
class Pairing:
    """One row of A beside one of B. `paired`: over the `prompts` that both asked."""

    a: str
    b: str
    prompts: int
    paired: bool
    ratios: tuple[Ratio, ...]
    change: Change | None
    differing: dict[str, tuple[Any, Any]]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        data = asdict(self)
        data["ratios"] = [{**asdict(ratio), "ratio": ratio.ratio} for ratio in self.ratios]
        return data


@dataclass(frozen=True)
class Compared:
    """Everything that two results tell together."""

    differing: dict[str, tuple[Any, Any]]
    pairings: tuple[Pairing, ...]

    @property
    def other_pace(self) -> bool:
        """Whether the same model on the same machine ran at another pace: what both measured in
        seconds then differs by that, whatever was decoded."""
        if set(_MACHINE) & set(self.differing):
            return False
        paces = [r.ratio for p in self.pairings for r in p.ratios if r.metric == _PACE]
        return any(not 1 / PACE <= pace <= PACE for pace in paces)

    def to_json(self) -> dict[str, Any]:
        """Plain data; conditions as [of A, of B]."""
        return {
            "differing": self.differing,
            "comparisons": [pairing.to_json() for pairing in self.pairings],
        }


def compare(a: Result, b: Result) -> Compared:
    """Rows of the same name side by side; where none are, and one of the two has a single row,
    that one with each of the other's.

    Raises:
        ResultError: it is not clear what should be compared with what.
    """
    rows_a, rows_b = ({run.label: run for run in result.measured().runs} for result in (a, b))
    pairs = [(rows_a[label], rows_b[label]) for label in rows_a if label in rows_b]
    if not pairs and 1 in (len(rows_a), len(rows_b)):
        pairs = [(one, other) for one in rows_a.values() for other in rows_b.values()]
    if not pairs:
        names = " and ".join(", ".join(rows) or "nothing" for rows in (rows_a, rows_b))
        raise ResultError(f"The results share no row ({names}); measure the same presets.")
    return Compared(
        differing=differences(a.conditions, b.conditions),
        pairings=tuple(_pairing(one, other) for one, other in pairs),
    )


def differences(a: Conditions, b: Conditions) -> dict[str, tuple[Any, Any]]:
    """Conditions that are not the same, as (of A, of B); None where one does not tell."""
    names = [name for name in dict.fromkeys([*a, *b]) if name not in _OF_THE_SITTING]
    return {name: (a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)}


def _pairing(a: Run, b: Run) -> Pairing:
    asked_a, asked_b = _by_prompt(a.samples), _by_prompt(b.samples)
    common = [prompt for prompt in asked_a if prompt in asked_b]
    if common:
        asked_a, asked_b = ({p: asked[p] for p in common} for asked in (asked_a, asked_b))
    ratios = (_ratio(m, asked_a, asked_b, paired=bool(common)) for m in METRICS)
    return Pairing(
        a=a.label,
        b=b.label,
        prompts=len(common) or min(len(asked_a), len(asked_b)),
        paired=bool(common),
        ratios=tuple(ratio for ratio in ratios if ratio is not None),
        change=_change(asked_a, asked_b, common),
        differing=differences(a.conditions, b.conditions),
    )


Asked = dict[str, list[Sample]]


def _by_prompt(samples: Sequence[Sample]) -> Asked:
    found: Asked = defaultdict(list)
    for sample in samples:
        found[sample.prompt].append(sample)
    return dict(found)


def _ratio(metric: Metric, a: Asked, b: Asked, *, paired: bool) -> Ratio | None:
    """None where one side has no such figure."""
    sums_a, sums_b = _sums(metric, a), _sums(metric, b)
    if paired:  # a prompt without the figure on one side is left out on both
        common = [prompt for prompt in sums_a if prompt in sums_b]
        sums_a, sums_b = ({p: sums[p] for p in common} for sums in (sums_a, sums_b))
    if not sums_a or not sums_b:
        return None
    value_a, value_b = (pooled([(v / w, w) for v, w in s.values()]) for s in (sums_a, sums_b))
    if not value_a:
        return None
    rows_a, rows_b = list(sums_a.values()), list(sums_b.values())
    interval = None
    if min(len(rows_a), len(rows_b)) >= LEAST_PROMPTS:
        interval = _bootstrap(rows_a, rows_b, paired=paired)
    return Ratio(metric.name, value_a, value_b, interval)


def _sums(metric: Metric, asked: Asked) -> dict[str, tuple[float, float]]:
    """A prompt's (value times weight, weight), over its repetitions."""
    found = {}
    for prompt, samples in asked.items():
        pairs = [pair for sample in samples if (pair := metric.of(sample)) is not None]
        if pairs:
            found[prompt] = (sum(v * w for v, w in pairs), sum(w for _, w in pairs))
    return found


def _bootstrap(
    a: Sequence[tuple[float, float]], b: Sequence[tuple[float, float]], *, paired: bool
) -> tuple[float, float]:
    import numpy as np

    rng = np.random.default_rng(SEED)
    table_a, table_b = np.array(a), np.array(b)
    at_once = max(min(AT_ONCE // max(len(a), len(b)), DRAWS), 1)
    ratios: list[float] = []
    while len(ratios) < DRAWS:
        rows_a = rng.integers(0, len(a), (at_once, len(a)))
        rows_b = rows_a if paired else rng.integers(0, len(b), (at_once, len(b)))
        sums_a, sums_b = table_a[rows_a].sum(1), table_b[rows_b].sum(1)  # [at_once, 2]
        known = sums_a[:, 0] > 0
        pace_a, pace_b = (sums[known, 0] / sums[known, 1] for sums in (sums_a, sums_b))
        ratios += (pace_b / pace_a).tolist()
    low, high = np.quantile(ratios[:DRAWS], (0.025, 0.975))
    return float(low), float(high)


def _change(a: Asked, b: Asked, common: Sequence[str]) -> Change | None:
    verdicts = [(_verdict(a[prompt]), _verdict(b[prompt])) for prompt in common]
    known = [(was, now) for was, now in verdicts if was is not None and now is not None]
    if not known:
        return None
    n = len(known)
    fixed = sum(now and not was for was, now in known)
    broken = sum(was and not now for was, now in known)
    gained, low, high = paired_change(fixed, broken, n)
    before, after = (sum(side) / n for side in zip(*known, strict=True))
    return Change(before, after, gained, (low, high), fixed, broken, n)


def _verdict(samples: Sequence[Sample]) -> bool | None:
    """Of the first repetition, as accuracy counts."""
    return min(samples, key=lambda sample: sample.repetition).right
