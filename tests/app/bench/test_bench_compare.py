"""Two results side by side: ratios, intervals, and the conditions that differ."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.bench.compare import compare
from app.bench.report import compared_text
from app.bench.result import Result, ResultError, Run, read_result, write_result
from app.bench.sample import Sample
from tests.app.bench.traces import sample

HERE = {"model": "demo", "device": "cpu", "date": "today", "threads": 1}


def result(*samples: Sample, label: str = "speed", **conditions: Any) -> Result:
    return Result({**HERE, **conditions}, (Run(label, {"preset": label}, samples),))


def many(count: int, prefix: str = "", **changes: Any) -> list[Sample]:
    return [
        sample(f"{prefix}{n}", tokens=20 + n, forwards=4 + n % 3, **changes) for n in range(count)
    ]


def ratios(a: Result, b: Result) -> dict[str, Any]:
    (pairing,) = compare(a, b).pairings
    return {ratio.metric: ratio for ratio in pairing.ratios}


def test_twice_as_fast_is_twice_as_fast_whatever_prompts_are_drawn() -> None:
    found = ratios(result(*many(12, seconds=1.0)), result(*many(12, seconds=0.5)))
    rate = found["tokens_per_second"]
    assert rate.ratio == pytest.approx(2.0)
    assert rate.interval == pytest.approx((2.0, 2.0))
    assert found["tpf"].ratio == pytest.approx(1.0)


def test_an_interval_is_as_wide_as_the_prompts_differ() -> None:
    """Half of the prompts are faster: the ratio lies between, and the interval holds it."""
    mixed = [replace_seconds(s, 0.5 if n % 2 else 1.0) for n, s in enumerate(many(40))]
    rate = ratios(result(*many(40, seconds=1.0)), result(*mixed))["tokens_per_second"]
    low, high = rate.interval
    assert 1.0 < low < rate.ratio < high < 2.0
    again = ratios(result(*many(40, seconds=1.0)), result(*mixed))["tokens_per_second"]
    assert again.interval == rate.interval


def replace_seconds(own: Sample, seconds: float) -> Sample:
    return replace(own, stats=replace(own.stats, decode_seconds=seconds))


def test_only_prompts_in_common_are_compared() -> None:
    slow = [sample("only here", seconds=100.0)]
    a, b = result(*many(6), *slow), result(*many(6), sample("only there", seconds=0.001))
    (pairing,) = compare(a, b).pairings
    assert (pairing.prompts, pairing.paired) == (6, True)
    assert all(ratio.ratio == pytest.approx(1.0) for ratio in pairing.ratios)


def test_without_prompts_in_common_it_is_not_paired() -> None:
    a, b = result(*many(20, "a")), result(*many(20, "b"))
    (pairing,) = compare(a, b).pairings
    assert not pairing.paired
    rate = next(r for r in pairing.ratios if r.metric == "tokens_per_second")
    assert rate.ratio == pytest.approx(1.0)
    assert rate.interval is not None
    assert rate.interval[0] < 1.0 < rate.interval[1]
    assert pairing.change is None


def test_few_prompts_have_no_interval() -> None:
    found = ratios(result(*many(4)), result(*many(4)))
    assert all(ratio.interval is None for ratio in found.values())


def test_accuracy_is_a_paired_difference() -> None:
    a = [replace(s, right=n < 5) for n, s in enumerate(many(10))]
    b = [replace(s, right=n >= 2) for n, s in enumerate(many(10))]
    (pairing,) = compare(result(*a), result(*b)).pairings
    change = pairing.change
    assert change is not None
    assert (change.fixed, change.broken, change.n) == (5, 2, 10)
    assert (change.a, change.b, change.gained) == (0.5, 0.8, pytest.approx(0.3))
    assert change.interval[0] < 0.3 < change.interval[1]


def test_conditions_that_differ_are_listed_and_dates_are_not() -> None:
    a, b = result(*many(5)), result(*many(5), date="now", threads=2, card="RTX")
    found = compare(a, b)
    assert found.differing == {"threads": (1, 2), "card": (None, "RTX")}
    text = compared_text(found, "a.json", "b.json")
    assert "threads           1  |  2" in text
    assert "card              \u2013  |  RTX" in text
    assert "The conditions are the same." in compared_text(compare(a, a), "a", "a")


def test_another_pace_of_the_same_machine_is_told() -> None:
    a, b = result(*many(5, seconds=1.0)), result(*many(5, seconds=0.5))
    assert compare(a, b).other_pace
    assert "so much of the ratios is the machine's" in " ".join(
        compared_text(compare(a, b), "a", "b").split()
    )
    assert not compare(a, a).other_pace
    elsewhere = result(*many(5, seconds=0.5), device="cuda:0")
    assert not compare(a, elsewhere).other_pace


def test_which_rows_belong_together() -> None:
    speed, careful = result(*many(5)), result(*many(5), label="careful")
    both = Result(HERE, (*speed.runs, *careful.runs))
    assert [(p.a, p.b) for p in compare(both, both).pairings] == [
        ("speed", "speed"), ("careful", "careful"),
    ]  # fmt: skip
    server = result(*many(5), label="endpoint")
    assert [(p.a, p.b) for p in compare(both, server).pairings] == [
        ("speed", "endpoint"), ("careful", "endpoint"),
    ]  # fmt: skip
    others = Result(HERE, (replace(speed.runs[0], label="x"), replace(speed.runs[0], label="y")))
    with pytest.raises(ResultError, match="share no row \\(speed, careful and x, y\\)"):
        compare(both, others)


def test_saved_and_read_again(tmp_path: Path) -> None:
    before = result(*many(6, right=True))
    write_result(before, tmp_path / "a.json")
    assert read_result(tmp_path / "a.json").to_json() == before.to_json()
    with pytest.raises(ResultError, match="cannot be written: "):
        write_result(before, tmp_path / "none" / "a.json")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is no result"),
        ("{}", "is no result"),
        ("[1]", "is no result"),
        ('{"bench": 9, "runs": []}', "format 9"),
        ('{"bench": 1, "runs": [{}], "conditions": {}, "interrupted": false}', "damaged"),
        ('{"bench": 1, "runs": 5, "conditions": {}, "interrupted": false}', "damaged"),
        (json.dumps({"bench": 1, "conditions": {}, "interrupted": False,
                     "runs": [{"label": "a", "conditions": {}, "answers": [{}]}]}), "damaged"),
    ],
)  # fmt: skip
def test_what_is_no_result_is_a_sentence(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(ResultError, match=why):
        read_result(path)
    with pytest.raises(ResultError, match="cannot be read: No such file"):
        read_result(tmp_path / "none.json")
