"""Which form an answer's loop takes, on a runtime that only acts as if: made once for a shape, told
in a sentence, and an answer in any case."""

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from engine.config import DecodeConfig
from engine.decode.denoise import Denoiser
from engine.decode.graph import GraphUnavailableError, run_on_host
from engine.decode.loop import answer_program
from engine.decode.loop_answer import LoopAnswer
from engine.decode.loops import AHEAD, NOT_AHEAD, STEPWISE, WHOLE, Loops
from engine.events import Event, FinishEvent, StepEvent
from engine.generate import Engine
from engine.kernels.loop_state import BLOCKS, NEVER, LoopState, Mailbox
from tests.engine.fake_graphs import Device, FakeRuntime
from tests.engine.loop_work import TorchWork
from tests.engine.test_loop import assert_same, without_times

PROMPT = [3, 141, 59, 26, 5, 35, 89, 79, 32, 38]
CONFIG = DecodeConfig(max_new_tokens=24, block_length=8, mask_id=500, stop_ids=[497])


class RunningRuntime(FakeRuntime):
    """A fake whose graphs do something when they are launched: what their nodes stand for."""

    def __init__(self, fails: tuple[str, int] | None = None) -> None:
        super().__init__(fails)
        self.does: dict[str, Callable[[], None]] = {}
        self.launches = 0

    def cudaGraphInstantiate(self, graph: str, flags: int) -> tuple[Any, ...]:
        status, _ = super().cudaGraphInstantiate(graph, flags)
        return status, self.captured.pop("main")

    def cudaGraphLaunch(self, executable: list[str], stream: int) -> tuple[Any, ...]:
        self.launches += 1
        for name in executable:
            self.does[name.split()[0]]()
        return (0,)


class FakeCard(Device):
    """Makes loops whose pieces are captured by name and run by plain torch."""

    def __init__(
        self, *, loops: bool = True, fails: tuple[str, int] | None = None,
        broken: str | None = None, pause: int = NEVER, ahead: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(broken=broken)
        self.runtime = self.maker.runtime = RunningRuntime(fails)
        self.maker.ahead = ahead
        self.built: list[Any] = []
        self.loops = Loops(
            self.build, lambda denoiser: denoiser.config.block_length, self.maker, loops=loops,
            current=self.new_stream, pause=pause, ahead=ahead,
        )  # fmt: skip

    def new_stream(self) -> SimpleNamespace:
        stream = super().new_stream()
        stream.query = lambda: True
        stream.synchronize = lambda: None
        stream.wait_stream = lambda other: None
        return stream

    def build(self, denoiser: Denoiser) -> Any:
        length = denoiser.config.block_length
        state = LoopState.empty(length, denoiser.model.embedding_table.device)
        mailbox = Mailbox.empty(length, denoiser.cache.capacity, pinned=False)
        work = TorchWork(denoiser, state, mailbox)
        built = SimpleNamespace(state=state, mailbox=mailbox, work=work)
        built.begin = lambda denoiser: setattr(work, "denoiser", denoiser)
        for name in ("narrow", "wide", "advance", "mix"):
            setattr(built, name, self.piece(name, getattr(work, name)))
        whole = answer_program(state, work)
        self.runtime.does["while"] = lambda: run_on_host(whole)
        self.built.append(built)
        return built

    def piece(self, name: str, run: Callable[[], None]) -> Callable[[], None]:
        self.runtime.does[name] = run
        return lambda: self.launch(name) if self.runtime.captures else run()


def answer(card: FakeCard, engine: Engine, config: DecodeConfig = CONFIG) -> list[Event]:
    plan, denoiser = engine._prepare(PROMPT, config, False, None)
    assert card.loops.takes(plan, denoiser)
    begin = card.loops.begin
    return list(LoopAnswer(plan, denoiser, None, None, time.perf_counter(), begin).events())


@pytest.fixture
def wanted(golden_engine: Engine) -> list[Event]:
    events = list(golden_engine.generate(PROMPT, CONFIG))
    golden_engine.reset_cache()
    return events


def test_a_whole_answer_is_one_launch(golden_engine: Engine, wanted: list[Event]) -> None:
    card = FakeCard()
    assert_same(answer(card, golden_engine), wanted)
    assert card.runtime.launches == 1
    assert card.loops.how == WHOLE
    # The next one needs no capture.
    said = len(card.runtime.log)
    golden_engine._cache.keep_prefix([], 8)
    assert_same(answer(card, golden_engine), wanted)
    assert (card.runtime.launches, len(card.built)) == (2, 1)
    assert not any("Capture" in line for line in card.runtime.log[said:])


@pytest.mark.parametrize(
    ("fails", "said"), [(None, AHEAD), (("cudaGraphRemoveDependencies", 0), NOT_AHEAD)]
)
def test_whether_kernels_are_launched_ahead_is_said(
    golden_engine: Engine, wanted: list[Event], fails: tuple[str, int] | None, said: str
) -> None:
    card = FakeCard(ahead=True, fails=fails)
    assert_same(answer(card, golden_engine), wanted)
    assert card.loops.how == WHOLE + said


def test_where_nothing_is_seen_of_a_running_graph_a_launch_is_a_block(
    golden_engine: Engine, wanted: list[Event]
) -> None:
    card = FakeCard(pause=BLOCKS)
    assert_same(answer(card, golden_engine), wanted)
    finish = wanted[-1]
    assert isinstance(finish, FinishEvent)
    assert card.runtime.launches == len(finish.stats.blocks)


def test_without_loops_in_graphs_each_piece_is_one(
    golden_engine: Engine, wanted: list[Event]
) -> None:
    card = FakeCard(loops=False)
    assert_same(answer(card, golden_engine), wanted)
    assert card.loops.how == STEPWISE
    assert card.runtime.bodies == 0
    finish = wanted[-1]
    assert isinstance(finish, FinishEvent)
    assert card.runtime.launches == 2 * finish.stats.forwards  # a forward, and what follows from it


@pytest.mark.parametrize(
    "trouble",
    [
        {"broken": "narrow"},
        {"broken": "advance"},
        {"fails": ("cudaGraphAddNode", 0)},
        {"fails": ("cudaGraphInstantiate", 0), "loops": False},
    ],
)
def test_a_failed_capture_costs_no_answer(
    golden_engine: Engine, wanted: list[Event], trouble: dict[str, Any]
) -> None:
    card = FakeCard(**trouble)
    assert_same(answer(card, golden_engine), wanted)
    assert card.loops.how.startswith("Without a CUDA graph, step by step: CUDA graphs are off")
    plan, denoiser = golden_engine._prepare(PROMPT, CONFIG, False, None)
    assert not card.loops.takes(plan, denoiser)
    with pytest.raises(GraphUnavailableError):
        card.loops.begin(plan, denoiser)


def test_another_shape_and_moved_memory_are_captured_anew(golden_engine: Engine) -> None:
    card = FakeCard()
    answer(card, golden_engine)
    answer(card, golden_engine, replace(CONFIG, threshold=0.9))
    assert len(card.built) == 1
    answer(card, golden_engine, replace(CONFIG, block_length=4))
    assert len(card.built) == 2
    golden_engine.reset_cache()
    answer(card, golden_engine)
    assert len(card.built) == 3


def test_answers_that_the_host_must_look_at_are_not_for_a_loop(golden_engine: Engine) -> None:
    card = FakeCard()
    for changes, record in (
        ({"stop_ids": list(range(9))}, False),
        ({"max_post_steps": 5000}, False),
        ({}, True),
    ):
        config = replace(CONFIG, **changes)
        plan, denoiser = golden_engine._prepare(PROMPT, config, record, None)
        assert not card.loops.takes(plan, denoiser)


def test_the_engine_takes_the_loop_where_it_can(
    own_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = list(own_engine.generate(PROMPT, CONFIG))
    own_engine.reset_cache()
    card = FakeCard()
    monkeypatch.setattr(own_engine, "_loops", card.loops)
    assert_same(list(own_engine.generate(PROMPT, CONFIG)), wanted)
    assert card.runtime.launches == 1
    assert own_engine.how == WHOLE
    own_engine.reset_cache()
    steps = list(own_engine.generate(PROMPT, CONFIG, stepwise=True))
    assert [without_times(e) for e in steps] == [without_times(e) for e in wanted]
    own_engine.reset_cache()
    recorded = list(own_engine.generate(PROMPT, CONFIG, record=True))
    assert any(isinstance(e, StepEvent) for e in recorded)
    assert card.runtime.launches == 1
