"""The answer's loop as a program of its own, driven by the host: the plain loop's events, one by
one, and its counts, on every golden run and beside them where goldens do not reach."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from engine.config import DecodeConfig
from engine.decode.loop_answer import LoopAnswer
from engine.events import BlockEvent, Event, FinishEvent, StepEvent
from engine.generate import Engine
from engine.kernels.loop_state import BLOCKS, NEVER, RING, ROUNDS
from engine.model.residual import ResidualAdapter
from tests.engine.loop_work import begin_on_host
from tests.engine.test_golden_generate import FEW_FORWARDS, META_DATA, RUNS


def loop_events(
    engine: Engine, prompt: list[int], config: DecodeConfig, pause: int = ROUNDS,
    stop: Callable[[], bool] | None = None,
) -> list[Event]:  # fmt: skip
    plan, denoiser = engine._prepare(prompt, config, False, stop)
    begin = partial(begin_on_host, pause=pause)
    answer = LoopAnswer(plan, denoiser, engine.tokenizer, None, time.perf_counter(), begin)
    return list(answer.events())


def without_times(event: Event) -> Event:
    if isinstance(event, StepEvent):
        return replace(event, seconds=0.0)
    if isinstance(event, BlockEvent):
        return replace(event, seconds=0.0, stats=replace(event.stats, seconds=0.0))
    stats = replace(
        event.stats, prefill_seconds=0.0, decode_seconds=0.0, whole_seconds=0.0,
        first_block_seconds=0.0, prefill_tokens=0, cached_tokens=0, model_seconds=None,
        pick_seconds=None, commit_seconds=None,
        blocks=tuple(replace(b, seconds=0.0) for b in event.stats.blocks),
    )  # fmt: skip
    return replace(event, stats=stats)


def assert_same(found: list[Event], wanted: list[Event]) -> None:
    assert [without_times(e) for e in found] == [without_times(e) for e in wanted]


def both(engine: Engine, prompt: list[int], config: DecodeConfig, **options: Any) -> list[Event]:
    wanted = list(engine.generate(prompt, config))
    committed = list(engine._cache._ids)
    engine.reset_cache()
    found = loop_events(engine, prompt, config, **options)
    assert_same(found, wanted)
    assert engine._cache._ids == committed
    return found


def shorter_ones() -> list[Any]:
    """Every golden run both ways; the longer ones are left to the slow tests."""
    forwards = {name: run["forwards"] for name, run in META_DATA["generate"].items()}
    return [
        pytest.param(
            run, overlap, marks=[] if forwards[run] <= FEW_FORWARDS else [pytest.mark.slow]
        )
        for run in RUNS for overlap in (False, True)
    ]  # fmt: skip


@pytest.mark.parametrize(("run", "overlap"), shorter_ones())
def test_the_loop_is_the_plain_one(
    golden_engine: Engine, golden: Any, run: str, overlap: bool
) -> None:
    prompt, want = golden.tokens(f"gen_{run}_prompt"), golden.tokens(f"gen_{run}_out")
    events = both(golden_engine, prompt, golden.config(run, overlap=overlap))
    finish = events[-1]
    assert isinstance(finish, FinishEvent)
    assert list(finish.token_ids) == (want[:-1] if finish.reason == "end" else want)
    assert finish.stats.steps == META_DATA["generate"][run]["forwards"]


PROMPT = [3, 141, 59, 26, 5, 35, 89, 79, 32, 38]
SAMPLED = DecodeConfig(
    max_new_tokens=30, block_length=8, temperature=0.8, top_k=40, top_p=0.95, seed=5, threshold=0.5,
    stop_ids=[497], mask_id=500, max_post_steps=3,
)  # fmt: skip


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"editing_threshold": None},
        {"editing_threshold": None, "stop_ids": [17, 201, 360, 40, 401, 88]},
        {"editing_threshold": 0.0, "max_post_steps": 0, "stop_at_end": False},
        {"editing_threshold": 0.0, "max_post_steps": 1, "min_unmask": 9},
        {"stop_ids": list(range(0, 490, 7)), "threshold": 0.1},
    ],
)
def test_sampled_answers_and_every_way_a_block_ends(
    golden_engine: Engine, changes: dict[str, Any], overlap: bool
) -> None:
    both(golden_engine, PROMPT, replace(SAMPLED, overlap=overlap, **changes))


@pytest.mark.parametrize("top_k", [None, 20])
def test_residual_context_reaches_the_next_step(own_engine: Engine, top_k: int | None) -> None:
    torch.manual_seed(2)
    model = own_engine.model
    adapter = ResidualAdapter(model.config.hidden_size, 48, 1e-6)
    torch.nn.init.normal_(adapter.down_proj.weight, std=0.05)
    model.residual_adapter, model.residual = adapter, replace(model.residual, top_k=top_k)
    config = DecodeConfig(max_new_tokens=24, block_length=8, mask_id=500, stop_ids=[497])
    with_z = both(own_engine, PROMPT, config)
    model.residual_adapter = None
    own_engine.reset_cache()
    assert [without_times(e) for e in with_z] != [
        without_times(e) for e in own_engine.generate(PROMPT, config)
    ]


@pytest.mark.parametrize("pause", [NEVER, BLOCKS])
def test_where_the_loop_pauses_changes_nothing(golden_engine: Engine, pause: int) -> None:
    config = DecodeConfig(max_new_tokens=24, block_length=8, mask_id=500, stop_ids=[497])
    both(golden_engine, PROMPT, config, pause=pause)


def test_steps_that_nobody_read_in_time_are_counted(golden_engine: Engine) -> None:
    """More steps than the ring holds, in one go: the first events are lost, and nothing else."""
    config = DecodeConfig(
        max_new_tokens=80, block_length=8, threshold=1.0, mask_id=500, stop_ids=[497],
        stop_at_end=False, max_post_steps=2,
    )  # fmt: skip
    wanted = list(golden_engine.generate(PROMPT, config))
    golden_engine.reset_cache()
    found = loop_events(golden_engine, PROMPT, config, NEVER)
    steps = [e for e in wanted if isinstance(e, StepEvent)]
    kept = [e for e in found if isinstance(e, StepEvent)]
    assert len(steps) > RING > len(kept) > 0
    assert [without_times(e) for e in kept] == [without_times(e) for e in steps[-len(kept) :]]
    others = [[e for e in events if not isinstance(e, StepEvent)] for events in (found, wanted)]
    assert_same(*others)


def test_a_stop_costs_one_more_forward(golden_engine: Engine) -> None:
    config = DecodeConfig(max_new_tokens=64, block_length=8, mask_id=500, stop_ids=[497])
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 5

    events = loop_events(golden_engine, PROMPT, config, stop=stop)
    finish = events[-1]
    assert isinstance(finish, FinishEvent)
    assert finish.reason == "stopped"
    golden_engine.reset_cache()
    whole = [e for e in golden_engine.generate(PROMPT, config) if isinstance(e, StepEvent)]
    steps = [e for e in events if isinstance(e, StepEvent)]
    assert 0 < len(steps) < len(whole)
    assert [without_times(e) for e in steps] == [without_times(e) for e in whole[: len(steps)]]


def test_a_stop_before_the_first_forward(golden_engine: Engine) -> None:
    config = DecodeConfig(max_new_tokens=8, block_length=16, mask_id=500, stop_ids=[497])
    events = loop_events(golden_engine, PROMPT, config, stop=lambda: True)
    assert_same(events, list(golden_engine.generate(PROMPT, config, stop=lambda: True)))


def test_what_is_not_a_number_ends_the_answer(own_engine: Engine) -> None:
    config = DecodeConfig(max_new_tokens=24, block_length=8, mask_id=500, stop_ids=[497])
    for parameter in own_engine.model.lm_head.parameters():
        parameter.data[7] = float("nan")
    finish = both(own_engine, PROMPT, config)[-1]
    assert isinstance(finish, FinishEvent)
    assert finish.reason == "error"


def test_an_answer_left_alone_leaves_the_loop(golden_engine: Engine) -> None:
    config = DecodeConfig(max_new_tokens=64, block_length=8, mask_id=500, stop_ids=[497])
    plan, denoiser = golden_engine._prepare(PROMPT, config, False, None)
    loops = []

    def begin(*arguments: Any) -> Any:
        loops.append(begin_on_host(*arguments))
        return loops[0]

    events = LoopAnswer(plan, denoiser, None, None, time.perf_counter(), begin).events()
    next(events)
    events.close()
    assert int(loops[0].mailbox.stop) == 1
