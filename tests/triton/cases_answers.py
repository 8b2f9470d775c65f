"""Whole answers on Triton kernels, every forward and every decision of them: the golden tiny
model's tokens in its steps, with overlap and without.

The goldens leave room around every decision (`smallest_margin`), a hundred times what float32 sums
in another order move; so equality is exact. The prompt's whole blocks are the reference's here:
`cases_forward.py` holds a forward over them.
"""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from engine.config import DecodeConfig
from engine.decode.denoise import Denoiser
from engine.decode.loop import answer_program
from engine.decode.loop_answer import AnswerLoop, LoopAnswer
from engine.decode.loop_launches import LoopLaunches
from engine.decode.plan import Plan
from engine.events import Event, StepEvent
from engine.generate import Engine
from engine.model.residual import ResidualAdapter
from tests.engine.conftest import Golden
from tests.engine.loop_work import HostRunner
from tests.engine.test_loop import assert_same

DATA = Path(__file__).parents[1] / "data" / "llada2_tiny"
META = json.loads((DATA / "golden_meta.json").read_text())
GOLDEN = Golden(DATA, load_file(DATA / "golden.safetensors"), META["forwards"], META["generate"])


def begin(plan: Plan, denoiser: Denoiser) -> AnswerLoop:
    launches = LoopLaunches(denoiser, (8, 0), pinned=False)
    program = answer_program(launches.state, launches)
    loop = AnswerLoop(launches.state, launches.mailbox, HostRunner(program))
    assert loop.takes(plan, denoiser)
    launches.begin(denoiser)
    loop.begin(plan, denoiser)
    return loop


def answer(engine: Engine, prompt: list[int], config: DecodeConfig) -> list[Event]:
    engine.reset_cache()
    plan, denoiser = engine._prepare(prompt, config, False, None)
    answer = LoopAnswer(plan, denoiser, engine.tokenizer, None, time.perf_counter(), begin)
    return list(answer.events())


def load() -> Engine:
    return Engine.load(DATA, device="cpu", dtype=torch.float32)


def assert_told_alike(found: list[Event], wanted: list[Event]) -> None:
    """The same events; confidences to what float32 sums in another order leave alone."""
    bare, sure = [], []
    for events in (found, wanted):
        steps = [e for e in events if isinstance(e, StepEvent)]
        sure.append(torch.tensor([e.confidences for e in steps]))
        bare.append([replace(e, confidences=()) if e in steps else e for e in events])
    assert_same(*bare)
    torch.testing.assert_close(*sure, rtol=0, atol=1e-3)


RUNS = [
    ("s_mode_post0_b32", True),
    ("eos_stop_aligned_prompt_b8", True),
    ("eos_stop_aligned_prompt_b8", False),
]


@pytest.mark.parametrize(("run", "overlap"), RUNS)
def test_golden_answers(run: str, overlap: bool) -> None:
    engine, config = load(), GOLDEN.config(run, overlap=overlap)
    prompt, want = GOLDEN.tokens(f"gen_{run}_prompt"), GOLDEN.tokens(f"gen_{run}_out")
    events = answer(engine, prompt, config)
    finish: Any = events[-1]
    assert list(finish.token_ids) == (want[:-1] if finish.reason == "end" else want)
    assert finish.stats.steps == META["generate"][run]["forwards"]
    engine.reset_cache()
    assert_told_alike(events, list(engine.generate(prompt, config)))


def test_a_sampled_answer_with_residual_context() -> None:
    torch.manual_seed(2)
    engine = load()
    adapter = ResidualAdapter(engine.config.hidden_size, 48, 1e-6)
    torch.nn.init.normal_(adapter.down_proj.weight, std=0.05)
    engine.model.residual_adapter = adapter
    config = DecodeConfig(
        max_new_tokens=6, block_length=4, temperature=0.7, top_k=30, top_p=0.9, seed=3,
        threshold=0.4, mask_id=500, stop_ids=[497],
    )  # fmt: skip
    prompt = [5, 6, 7, 8, 9]
    events = answer(engine, prompt, config)
    engine.reset_cache()
    assert_told_alike(events, list(engine.generate(prompt, config)))
