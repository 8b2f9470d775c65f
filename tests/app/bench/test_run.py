"""The order of answers, and what is done with each."""

from collections import Counter

import pytest

from app.bench.report import as_text
from app.bench.result import Result, Run, decode_conditions
from app.bench.run import ROUND, Setting, measure, plan
from app.bench.sample import Sample
from engine.config import DecodeConfig
from finetune.prompts import Prompt
from finetune.verifiers import Verdict
from tests.app.bench.traces import sample

SETTINGS = [Setting(name, DecodeConfig.preset(name)) for name in ("speed", "careful")]


def prompts(count: int, verify: str = "exact") -> list[Prompt]:
    return [
        Prompt(({"role": "user", "content": str(n)},), "x", verify, n, str(n)) for n in range(count)
    ]


def answer(prompt: Prompt, config: DecodeConfig) -> Sample:
    return sample(prompt.id)


def test_settings_take_turns_and_measure_the_same() -> None:
    turns = plan(prompts(ROUND + 3), SETTINGS, repeat=2, warm_up=3)
    counted = [turn for turn in turns if not turn.warm_up]
    counts = Counter((t.setting.label, t.prompt.id, t.repetition) for t in counted)
    assert set(counts.values()) == {1}
    assert len(counts) == 2 * 2 * (ROUND + 3)
    assert [t.warm_up for t in turns[:4]] == [True, True, True, False]
    labels = [t.setting.label for t in counted]
    assert labels[: 3 * ROUND] == ["speed"] * ROUND + ["careful"] * ROUND + ["speed"] * ROUND
    # The first turn warms up as asked, each later one with a single answer.
    assert Counter(t.setting.label for t in turns if t.warm_up) == {"speed": 5, "careful": 5}
    alone = plan(prompts(ROUND + 3), SETTINGS[:1], repeat=2, warm_up=3)
    assert sum(turn.warm_up for turn in alone) == 3
    assert not any(turn.warm_up for turn in plan(prompts(2), SETTINGS, warm_up=0))
    assert sum(turn.warm_up for turn in plan(prompts(2), SETTINGS[:1], warm_up=5)) == 5


def test_numbers_that_make_no_sense() -> None:
    for arguments in ({"repeat": 0}, {"warm_up": -1}):
        with pytest.raises(ValueError, match="at least"):
            plan(prompts(1), SETTINGS, **arguments)
    with pytest.raises(ValueError, match="no prompt to measure"):
        plan([], SETTINGS)


def test_sampled_repetitions_have_seeds_of_their_own() -> None:
    sampled = [Setting("s", DecodeConfig(temperature=0.8, seed=(1 << 64) - 1))]
    seeds = [turn.config.seed for turn in plan(prompts(1), sampled, repeat=2, warm_up=0)]
    assert seeds == [(1 << 64) - 1, 0]
    greedy = [Setting("s", DecodeConfig(seed=5))]
    assert [t.config.seed for t in plan(prompts(1), greedy, repeat=2, warm_up=0)] == [5, 5]


def test_warm_ups_are_answered_and_not_counted() -> None:
    asked = []

    def counting(prompt: Prompt, config: DecodeConfig) -> Sample:
        asked.append(prompt.id)
        return sample(prompt.id)

    measured = list(measure(plan(prompts(2), SETTINGS[:1], warm_up=2), counting))
    assert asked == ["0", "1", "0", "1"]
    assert [s.prompt for _, s in measured] == ["0", "1"]


def test_a_stop_keeps_what_was_measured_before() -> None:
    turns = plan(prompts(4), SETTINGS[:1], warm_up=0)

    def cut(prompt: Prompt, config: DecodeConfig) -> Sample:
        return sample(prompt.id, reason="stopped" if prompt.id == "2" else "end")

    assert [s.prompt for _, s in measure(turns, cut)] == ["0", "1"]
    found: list[str] = []
    for _, own in measure(turns, answer, stop=lambda: len(found) == 3):
        found.append(own.prompt)
    assert found == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("verdict", "reason", "right", "why"),
    [
        (Verdict(True, "", 0.0), "end", True, ""),
        (Verdict(False, "expected 4", 0.0), "end", False, "expected 4"),
        (Verdict(True, "", 0.0), "length", False, "ended: length"),
        (Verdict(False, "it crashed", 0.0, error=True), "end", None, "it crashed"),
    ],
)
def test_right_is_what_passes_and_ended_by_itself(
    verdict: Verdict, reason: str, right: bool | None, why: str
) -> None:
    turns = plan(prompts(1), SETTINGS[:1], warm_up=0)
    told = lambda prompt, config: sample(prompt.id, reason=reason)
    ((_, own),) = measure(turns, told, lambda prompt, text: verdict)
    assert (own.right, own.why) == (right, why)


def test_without_a_verifier_nothing_is_judged() -> None:
    def never(prompt: Prompt, text: str) -> Verdict:
        raise AssertionError

    turns = plan(prompts(1, verify=""), SETTINGS[:1], warm_up=0)
    ((_, own),) = measure(turns, answer, never)
    assert own.right is None


@pytest.mark.parametrize("width", [54, 76, 100])
def test_a_report_fits_the_columns_that_there_are(width: int) -> None:
    rows = tuple(
        Run(name, decode_conditions(Setting(name, DecodeConfig())), (sample("a"),))
        for name in ("speed", "quality", "careful")
    )
    lines = as_text(Result({"model": "demo", "adapter": "sums " * 30}, rows), width).splitlines()
    assert max(map(len, lines)) <= width
    assert any(line.split() == ["p10", "p50", "p90", "peak", "all"] for line in lines)
    assert not any("None" in line for line in lines)
