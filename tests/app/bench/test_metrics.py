"""Every metric on traces written by hand: one block, a cut, edits, overlap, a stop."""

import math
from dataclasses import replace

import pytest

from app.bench.figures import METRICS, Spread, figures
from app.bench.recorded import counted, replayed
from app.bench.sample import Sample
from app.trace import RecordedAnswer, Recording
from tests.app.bench.traces import Told, recorded, sample, stats

ONE = [Told(20, 3, 3, 0, 0.06)]
TWO_APART = [Told(32, 3, 4, 1, 0.08), Told(32, 2, 2, 0, 0.04)]
TWO_JOINED = [Told(32, 3, 3, 1, 0.06), Told(32, 2, 2, 0, 0.05)]
EDITED = [Told(32, 3, 3, 1, 0.06, edits=(0, 2, 1)), Told(10, 2, 2, 0, 0.04, edits=(0, 4))]


def own(answer: RecordedAnswer) -> Sample:
    """The sample that a trace of this one answer gives, whose parts must agree."""
    found = replayed(Recording(None, [answer]), "t.gz")
    assert found.doubts == ()
    ((only,),) = [run.samples for run in found.result.runs]
    return only


def test_an_answer_of_one_block_has_decode_time() -> None:
    told = own(recorded(ONE)).stats
    assert counted(recorded(ONE)).tokens_per_second == pytest.approx(20 / 0.06)
    assert told.tokens_per_second == pytest.approx(20 / 0.06)
    assert told.tokens_per_second_whole == pytest.approx(20 / 0.10)
    assert (told.tpf, told.tpf_steps) == (20 / 3, 20 / 3)
    assert told.forwards_per_second == pytest.approx(3 / 0.06)
    assert told.first_block_seconds == pytest.approx(0.10)


def test_what_comes_after_the_end_token_is_no_speed() -> None:
    """The second block was computed whole; the user sees five tokens of it."""
    answer = recorded([Told(32, 3, 3, 1, 0.06), Told(5, 2, 2, 0, 0.04)], waste=27)
    told = own(answer)
    assert told.stats.tokens == 37
    assert told.stats.tokens_per_second == pytest.approx(37 / 0.1)
    assert told.stats.tpf == 37 / 5
    assert figures([told]).waste_tokens == 27


def test_edits_are_counted_and_are_no_tokens() -> None:
    told = own(recorded(EDITED))
    assert counted(recorded(EDITED)).edits == told.stats.edits == 7
    assert told.stats.tokens == 42
    assert figures([told]).edits == 7


@pytest.mark.parametrize(("blocks", "fused"), [(TWO_APART, 0), (TWO_JOINED, 1)])
def test_overlap_changes_forwards_and_not_steps(blocks: list[Told], fused: int) -> None:
    told = own(recorded(blocks)).stats
    assert counted(recorded(blocks)).fused == told.fused == fused
    assert told.forwards == told.steps + told.commits - fused == 6 - fused
    assert told.tpf == 64 / (6 - fused)
    assert told.tpf_steps == 64 / 5


def test_a_stopped_answers_time_lasts_until_the_stop() -> None:
    answer = recorded(TWO_JOINED, reason="stopped", until=0.24)
    told = own(answer)
    assert told.reason == "stopped"
    assert told.stats.decode_seconds == pytest.approx(0.20)
    assert counted(answer).decode_seconds == pytest.approx(0.20)
    assert told.stats.tokens_per_second == pytest.approx(64 / 0.20)
    assert figures([told]).cut == {"stopped": 1}


def test_an_answer_without_its_end_has_the_figures_of_its_blocks() -> None:
    found = replayed(Recording(None, [recorded(TWO_JOINED, reason=None)]), "t.gz")
    (run,) = found.result.runs
    assert run.samples[0].stats == counted(recorded(TWO_JOINED))
    assert run.samples[0].reason == "cut"
    assert "Answer 1: its end is missing" in found.doubts[0]


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        ({"tokens": 640}, "tokens 640 at its end, 64 by its blocks"),
        ({"forwards": 1}, "forwards 1 at its end, 5 by its blocks"),
        ({"decode_seconds": 0.01}, "decoded for 0.0100 s by its end, 0.1100 s by its blocks"),
    ],
)
def test_a_trace_that_contradicts_itself_is_told(changes: dict, doubt: str) -> None:
    found = replayed(Recording(None, [recorded(TWO_JOINED, changes=changes)]), "t.gz")
    assert doubt in found.doubts[0]


def test_figures_that_are_none_are_counted_from_the_blocks() -> None:
    answer = recorded(TWO_JOINED, changes={"tokens": None})
    ((only,),) = [r.samples for r in replayed(Recording(None, [answer]), "t").result.runs]
    assert only.stats == counted(answer)


def test_answers_of_a_trace_by_preset_and_question() -> None:
    answers = [
        recorded(ONE),
        recorded(ONE),
        recorded(ONE, question="Why?"),
        recorded(ONE, changes={"preset": "quality"}),
        RecordedAnswer(None, []),
    ]
    found = replayed(Recording(None, answers), "t.gz")
    speed, quality = found.result.runs
    assert (speed.label, quality.label) == ("speed", "quality")
    assert [s.repetition for s in speed.samples] == [0, 1, 0]
    assert len({s.prompt for s in speed.samples}) == 2
    assert found.doubts == ("Answer 5 broke off before its first block; it is left out.",)
    with pytest.raises(ValueError, match="no figures"):
        replayed(Recording(None, answers[-1:]), "t.gz")


# --- over many answers ----------------------------------------------------------------------------


def test_a_spread_is_over_answers() -> None:
    assert Spread.of([float(n) for n in range(11)]) == Spread(1.0, 5.0, 9.0, 10.0, 11)
    assert Spread.of([3.0]) == Spread(3.0, 3.0, 3.0, 3.0, 1)
    assert Spread.of([1.0, 3.0]) == Spread(1.2, 2.0, 2.8, 3.0, 2)
    third = 1 / 3 + 1 / 7
    assert Spread.of([third] * 4) == Spread(third, third, third, third, 4)


def test_pooled_is_all_of_one_over_all_of_the_other() -> None:
    """A long slow answer weighs as much as its work."""
    own = figures([sample("a", tokens=90, forwards=9, seconds=3.0), sample("b", 10, 1, 0.1)])
    assert own.pooled["tokens_per_second"] == pytest.approx(100 / 3.1)
    assert own.spreads["tokens_per_second"].p50 == pytest.approx((30 + 100) / 2)
    assert own.pooled["tpf"] == pytest.approx(100 / 10)
    assert own.pooled["forwards_per_second"] == pytest.approx(10 / 3.1)
    assert own.steps_per_block == (5.0, 1, 9)
    assert set(own.spreads) == {metric.name for metric in METRICS}


def test_slow_motion_gives_counts_and_no_rates() -> None:
    own = figures([sample("a", timed=False)])
    assert set(own.spreads) == {"tpf", "tpf_steps"}
    assert own.untimed == 1


def test_a_server_has_no_tpf_and_an_empty_answer_no_rate() -> None:
    server = replace(stats([Told(40, 0, 0, 0, 0.5)]), blocks=())
    assert not {"tpf", "tpf_steps", "forwards_per_second"} & set(
        figures([sample("a", stats=server)]).spreads
    )
    nothing = replace(
        server, tokens=0, decode_seconds=0.0, whole_seconds=0.0, first_block_seconds=0
    )
    assert figures([sample("a", stats=nothing)]).spreads == {}
    with pytest.raises(ValueError, match="nothing to tell"):
        figures([])


def test_repeating_does_not_narrow_the_interval() -> None:
    once = [sample("a", right=True), sample("b", right=False), sample("c")]
    again = [replace(s, repetition=1, right=True) for s in once]
    accuracy = figures([*again, *once]).accuracy
    assert accuracy is not None
    assert (accuracy.right, accuracy.n) == (2, 3)  # c was verified in its second answer only
    first = figures(once).accuracy
    assert first is not None
    assert (first.right, first.n) == (1, 2)
    low, high = first.interval
    assert 0 < low < 0.5 < high < 1
    assert figures([sample("a")]).accuracy is None


def test_a_busy_machine_shows_in_the_pace_of_forwards() -> None:
    steady = [sample(str(n), seconds=0.5) for n in range(8)]
    assert figures(steady).unsteadiness == pytest.approx(1.0)
    busy = [sample(str(n), seconds=0.5 if n % 2 else 2.0) for n in range(8)]
    assert figures(busy).unsteadiness == pytest.approx(4.0)
    assert figures(busy[:7]).unsteadiness == 1.0


def test_a_sample_survives_being_saved() -> None:
    before = sample("a", right=False, why="no", counted="usage", repetition=3)
    data = before.to_json()
    assert math.isclose(data["tpf"], 8.0)
    after = Sample.from_json(data)
    assert after.to_json() == data
    for broken in ({}, {**data, "tokens": "many"}, {**data, "blocks": 1}):
        with pytest.raises(ValueError, match="no usable"):
            Sample.from_json(broken)
