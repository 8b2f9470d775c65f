"""Whole answers on the card: the golden model's tokens, by one graph and step by step, the same."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from engine.config import DecodeConfig
from engine.decode.loops import AHEAD, WHOLE
from engine.events import Event, FinishEvent, StepEvent
from engine.generate import Engine
from engine.kernels.plans import launches_ahead
from tests.gpu.card import DEVICE, TIMES, capability, needs_card

pytestmark = needs_card

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "llada2_tiny"
RUNS: dict[str, Any] = json.loads((DATA / "golden_meta.json").read_text())["generate"]


@pytest.fixture(scope="module")
def arrays() -> dict[str, torch.Tensor]:
    return load_file(DATA / "golden.safetensors")


@pytest.fixture(scope="module", params=[False, True], ids=["in_order", "ahead"])
def golden_engine(request: pytest.FixtureRequest) -> Engine:
    """Its kernels one after the other, and launched ahead of time."""
    if request.param and not launches_ahead(capability()):
        pytest.skip("this card launches nothing ahead of time")
    engine = Engine.load(DATA, device=DEVICE, dtype=torch.float32)
    engine.use_graph(ahead=request.param)
    return engine


def config_of(run: str, overlap: bool) -> DecodeConfig:
    args = RUNS[run]
    return DecodeConfig(
        max_new_tokens=args["gen_length"], block_length=args["block_length"],
        threshold=args["threshold"], editing_threshold=args["editing_threshold"],
        max_post_steps=args["max_post_steps"], min_unmask=args["num_to_transfer"],
        stop_at_end=args["eos_early_stop"], stop_ids=[args["eos_id"]], mask_id=args["mask_id"],
        overlap=overlap,
    )  # fmt: skip


def answer(
    engine: Engine, prompt: list[int], config: DecodeConfig, *, graph: bool
) -> tuple[list[Event], FinishEvent]:
    engine.reset_cache()
    events = list(engine.generate(prompt, config, stepwise=not graph))
    finish = events[-1]
    assert isinstance(finish, FinishEvent)
    assert finish.error is None
    return events, finish


def counts(finish: FinishEvent) -> tuple[int, ...]:
    stats = finish.stats
    return stats.tokens, stats.forwards, stats.steps, stats.commits, stats.fused, stats.edits


def test_the_whole_answer_is_one_graph(
    golden_engine: Engine, request: pytest.FixtureRequest
) -> None:
    """Fails in words where it is not, so that the other tests do not pass for nothing."""
    answer(golden_engine, [1, 2, 3], DecodeConfig(max_new_tokens=8, mask_id=500), graph=True)
    ahead = request.node.callspec.params["golden_engine"]
    assert golden_engine.how == WHOLE + (AHEAD if ahead else "")


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("run", sorted(RUNS))
def test_golden_answers(
    golden_engine: Engine, arrays: dict[str, torch.Tensor], run: str, overlap: bool
) -> None:
    prompt = arrays[f"gen_{run}_prompt"].tolist()
    want = arrays[f"gen_{run}_out"].tolist()
    config = config_of(run, overlap)
    _, by_graph = answer(golden_engine, prompt, config, graph=True)
    _, by_host = answer(golden_engine, prompt, config, graph=False)
    assert by_graph.token_ids == by_host.token_ids
    assert counts(by_graph) == counts(by_host)
    assert list(by_graph.token_ids) == (want[:-1] if by_graph.reason == "end" else want)
    assert by_graph.stats.steps == RUNS[run]["forwards"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_demo(dtype: torch.dtype, temperature: float) -> None:
    engine = Engine.load(ROOT / "assets" / "demo", device=DEVICE, dtype=dtype)
    assert engine.tokenizer is not None
    config = DecodeConfig(max_new_tokens=96, temperature=temperature, top_p=0.9, seed=1)
    for text in ("What is 47 + 38?", "Sort 9, 4, 31"):
        ids = engine.tokenizer.encode_chat([{"role": "user", "content": text}])
        _, by_graph = answer(engine, ids, config, graph=True)
        _, by_host = answer(engine, ids, config, graph=False)
        assert by_graph.text == by_host.text
        assert counts(by_graph) == counts(by_host)


def test_kernels_that_are_launched_ahead_find_what_they_need() -> None:
    """The same answer again and again: a kernel that did not wait would differ now and then."""
    engine = Engine.load(ROOT / "assets" / "demo", device=DEVICE, dtype=torch.bfloat16)
    assert engine.tokenizer is not None
    ids = engine.tokenizer.encode_chat([{"role": "user", "content": "What is 47 + 38?"}])
    config = DecodeConfig(max_new_tokens=96, temperature=0.8, top_p=0.9, seed=1)
    _, wanted = answer(engine, ids, config, graph=True)
    if not launches_ahead(capability()):
        pytest.skip("this card launches nothing ahead of time")
    engine.use_graph(ahead=True)
    for _ in range(max(TIMES // 10, 1)):
        _, found = answer(engine, ids, config, graph=True)
        assert found.token_ids == wanted.token_ids
    assert engine.how == WHOLE + AHEAD


def test_steps_are_seen_while_the_graph_runs(golden_engine: Engine) -> None:
    config = DecodeConfig(
        max_new_tokens=512, threshold=1.0, mask_id=500, stop_ids=[497], stop_at_end=False
    )
    events, finish = answer(golden_engine, [1, 2, 3], config, graph=True)
    steps = [e for e in events if isinstance(e, StepEvent)]
    assert 0 < len(steps) <= finish.stats.steps


def test_a_stop_reaches_the_graph(golden_engine: Engine) -> None:
    config = DecodeConfig(
        max_new_tokens=4096, threshold=1.0, mask_id=500, stop_ids=[497], stop_at_end=False
    )
    golden_engine.reset_cache()
    seen: list[Event] = []
    for event in golden_engine.generate([1, 2, 3], config, stop=lambda: len(seen) > 3):
        seen.append(event)
    finish = seen[-1]
    assert isinstance(finish, FinishEvent)
    assert finish.reason == "stopped"
    assert finish.stats.tokens < 4096
    # The next answer begins from a clean state.
    short = replace(config, max_new_tokens=32)
    _, again = answer(golden_engine, [1, 2, 3], short, graph=True)
    _, by_host = answer(golden_engine, [1, 2, 3], short, graph=False)
    assert again.token_ids == by_host.token_ids
