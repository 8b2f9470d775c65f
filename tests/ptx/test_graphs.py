"""Whole answers as one graph, captured once and started for each, of compiled kernels on the
emulated card: the golden model's tokens in its steps, and the next answer's from the same graph."""

import json
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from engine.config import DecodeConfig
from engine.decode.loops import AHEAD, WHOLE
from engine.events import FinishEvent, StepEvent
from engine.generate import Engine
from tests.engine.conftest import Golden
from tests.ptx.library import can_build

pytestmark = [
    pytest.mark.skipif(find_spec("triton") is None, reason="needs triton"),
    pytest.mark.skipif(not can_build(), reason="needs g++"),
    pytest.mark.slow,
]

DATA = Path(__file__).parents[1] / "data" / "llada2_tiny"
META = json.loads((DATA / "golden_meta.json").read_text())
RUNS = [(run, True) for run in sorted(META["generate"])]
RUNS += [("s_mode_post0_b32", False), ("eos_stop_aligned_prompt_b8", False)]
SHORT = DecodeConfig(
    max_new_tokens=12, block_length=4, threshold=0.4, mask_id=500, stop_ids=[497], stop_at_end=False
)


@pytest.fixture
def golden() -> Golden:
    return Golden(DATA, load_file(DATA / "golden.safetensors"), META["forwards"], META["generate"])


@pytest.fixture(scope="module")
def card() -> Iterator[Any]:
    """One for all, so that kernels are loaded once."""
    from tests.ptx.card import Card, emulated

    with emulated(Card("sm_90", finds_races=False)) as card:
        yield card


@pytest.fixture
def engine(card: Any) -> Any:
    """An engine on the emulated card, and its runtime as an attribute."""
    from tests.ptx.graphs import make_loops, make_maker

    made: Any = Engine.load(DATA, device="cpu", dtype=torch.float32)
    maker, made.runtime = make_maker(card)
    stream = made.runtime.new_stream()
    made._loops = make_loops(card, maker, stream)
    return made


def answer(engine: Engine, prompt: list[int], config: DecodeConfig, **options: Any) -> FinishEvent:
    engine.reset_cache()
    *_, finish = engine.generate(prompt, config, **options)
    assert isinstance(finish, FinishEvent)
    assert finish.error is None
    return finish


def counts(finish: FinishEvent) -> tuple[int, ...]:
    stats = finish.stats
    return stats.tokens, stats.forwards, stats.steps, stats.commits, stats.fused, stats.edits


@pytest.mark.parametrize(("run", "overlap"), RUNS)
def test_a_golden_answer_is_one_launch(
    engine: Any, golden: Golden, run: str, overlap: bool
) -> None:
    prompt, want = golden.tokens(f"gen_{run}_prompt"), golden.tokens(f"gen_{run}_out")
    finish = answer(engine, prompt, golden.config(run, overlap=overlap))
    assert engine.how == WHOLE + AHEAD
    assert engine.runtime.early > 0
    assert engine.runtime.launches == 1
    assert list(finish.token_ids) == (want[:-1] if finish.reason == "end" else want)
    assert finish.stats.steps == META["generate"][run]["forwards"]


def test_one_graph_makes_answers_that_differ(engine: Any) -> None:
    """Prompt, length, thresholds, overlap and stop ids are numbers on the card."""
    asked = [
        ([5, 6, 7, 8, 9], SHORT),
        ([11, 3], replace(SHORT, threshold=0.9, max_new_tokens=6, overlap=False)),
        ([5, 6, 7, 8, 9, 4, 4, 8, 1], replace(SHORT, min_unmask=2, stop_ids=[3], stop_at_end=True)),
        ([5, 6, 7, 8, 9], SHORT),
    ]
    answers = [answer(engine, *one) for one in asked]
    assert engine.runtime.launches == len(asked)
    assert len(engine._loops._made) == 1
    for one, found in zip(asked, answers, strict=True):
        wanted = answer(engine, *one, stepwise=True)
        assert found.token_ids == wanted.token_ids
        assert counts(found) == counts(wanted)
    assert answers[0].token_ids == answers[3].token_ids


def test_a_graph_that_runs_is_followed_and_can_be_stopped(engine: Any) -> None:
    config = replace(SHORT, max_new_tokens=400, threshold=1.0)
    engine.reset_cache()
    seen: list[Any] = []
    for event in engine.generate([1, 2, 3], config, stop=lambda: len(seen) > 3):
        seen.append(event)
    assert isinstance(seen[0], StepEvent)
    finish = seen[-1]
    assert finish.reason == "stopped"
    assert finish.stats.tokens < 400
    again, wanted = (
        answer(engine, [1, 2, 3], replace(config, max_new_tokens=4), stepwise=by_host)
        for by_host in (False, True)
    )
    assert again.token_ids == wanted.token_ids
