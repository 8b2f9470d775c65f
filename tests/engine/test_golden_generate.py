"""Whole answers against the reference's generate(): the same tokens in the same steps, and with
overlap the same again in fewer forwards."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import DecodeConfig
from engine.events import BlockEvent, FinishEvent, StepEvent
from engine.generate import Engine

META = Path(__file__).parents[1] / "data" / "llada2_tiny" / "golden_meta.json"
META_DATA = json.loads(META.read_text())
RUNS = sorted(META_DATA["generate"])
FEW_FORWARDS = 42
MASK, END = 500, 497

# A probability near 0.5 moves by a quarter of a logit's error (2e-4 at most, see
# test_golden_forward.py); the mask token, which we rule out and the reference merely never picks,
# takes less than 1e-5 of it.
PROBABILITY_TOLERANCE = 1e-4


def answer(
    engine: Engine, prompt: list[int], config: DecodeConfig, *, record: bool = False
) -> tuple[list[StepEvent], list[BlockEvent], FinishEvent]:
    events = list(engine.generate(prompt, config, record=record))
    steps = [e for e in events if isinstance(e, StepEvent)]
    blocks = [e for e in events if isinstance(e, BlockEvent)]
    assert isinstance(events[-1], FinishEvent)
    return steps, blocks, events[-1]


def blocks_of(golden: Any, run: str) -> list[tuple[int, bool]]:
    """Per block of a run: how many mask-free forwards it took, and whether the last one settled."""
    numbers, before = golden[f"gen_{run}_step_block"], golden[f"gen_{run}_step_before"]
    after = golden[f"gen_{run}_step_after"]
    blocks = []
    for number in numbers.unique():
        own = numbers == number
        free = (before[own] != MASK).all(-1)
        settled = bool(free[-1]) and torch.equal(before[own][-1], after[own][-1])
        blocks.append((int(free.sum()), settled))
    return blocks


def runs_both_ways() -> list[Any]:
    """Every run with overlap; the longer ones without it are left to the slow tests."""
    forwards = {name: run["forwards"] for name, run in META_DATA["generate"].items()}
    return [
        pytest.param(
            run, overlap, id=f"{run}-{'overlap' if overlap else 'plain'}",
            marks=[] if overlap or forwards[run] <= FEW_FORWARDS else [pytest.mark.slow],
        )
        for run in RUNS for overlap in (False, True)
    ]  # fmt: skip


@pytest.mark.parametrize(("run", "overlap"), runs_both_ways())
def test_tokens_steps_and_forwards(
    golden_engine: Engine, golden: Any, run: str, overlap: bool
) -> None:
    prompt, want = golden.tokens(f"gen_{run}_prompt"), golden.tokens(f"gen_{run}_out")
    calls: list[int] = []
    hook = golden_engine.model.model.layers[0].register_forward_hook(
        lambda _, args, __: calls.append(args[0].shape[-2])
    )
    steps, blocks, finish = answer(golden_engine, prompt, golden.config(run, overlap=overlap))
    hook.remove()
    stats = finish.stats

    ended = want[-1] == END
    assert list(finish.token_ids) == (want[:-1] if ended else want)
    assert finish.reason == ("end" if ended else "length")

    # Every step, in order: which block, the tokens after it, and how sure it was.
    first = len(prompt) // golden.runs[run]["block_length"]
    numbers = golden.tokens(f"gen_{run}_step_block")
    assert [s.block + first for s in steps] == numbers
    assert [list(s.token_ids) for s in steps] == golden.tokens(f"gen_{run}_step_after")
    assert [[s.unmasked, s.edited] for s in steps] == golden.tokens(f"gen_{run}_step_nmask_nedit")
    confidences = torch.tensor([s.confidences for s in steps])
    torch.testing.assert_close(
        confidences, golden[f"gen_{run}_step_prob"], atol=PROBABILITY_TOLERANCE, rtol=0
    )

    # Steps are the reference's forwards. A commit is due for each block but the last that ran
    # into the limit; a fused forward saves the commit, or the settling step where that was one of
    # the first two mask-free ones, which the next block's first step then shares.
    shape = blocks_of(golden, run)
    commits = sum(not settled for _, settled in shape[:-1])
    fused = commits + sum(settled and free <= 2 for free, settled in shape[:-1])
    assert stats.steps == len(steps) == golden.runs[run]["forwards"]
    assert stats.commits == commits
    assert stats.fused == (fused if overlap else 0)
    assert stats.forwards == stats.steps + stats.commits - stats.fused
    assert stats.tpf_steps == stats.tokens / golden.runs[run]["forwards"]

    # What it says it did is what it did: the model was called for the prompt's whole blocks at
    # once, and then once a forward; only with overlap for two blocks together.
    prefills = 1 if first else 0
    length = golden.runs[run]["block_length"]
    assert sum(calls[:prefills]) == stats.prefill_tokens == first * length
    assert len(calls) - prefills == stats.forwards
    assert set(calls[prefills:]) <= ({length, 2 * length} if overlap else {length})

    # Blocks add up to the whole.
    assert tuple(b.stats for b in blocks) == stats.blocks
    per_block = {int(k): v for k, v in golden.runs[run]["forwards_per_block"].items()}
    assert {b.block + first: b.stats.steps for b in blocks} == per_block
    for name in ("tokens", "steps", "forwards", "commits"):
        assert sum(getattr(b, name) for b in stats.blocks) == getattr(stats, name), name
    assert sum(sum(b.edits_per_step) for b in stats.blocks) == stats.edits
    assert [n for b in stats.blocks for n in b.unmasked_per_step] == [s.unmasked for s in steps]
    assert sum(b.seconds for b in stats.blocks) == pytest.approx(stats.decode_seconds)
    assert [t for b in blocks for t in b.token_ids] == list(finish.token_ids)
    assert steps[-1].forwards == stats.forwards


def test_the_goldens_try_every_ending(golden: Any) -> None:
    """Settled early, settled late, ended by the limit: all must occur before a last block, or the
    tests above say less than they seem to."""
    shapes = [block for run in RUNS for block in blocks_of(golden, run)[:-1]]
    assert any(settled and free <= 2 for free, settled in shapes)
    assert any(settled and free > 2 for free, settled in shapes)
    assert any(not settled and free for free, settled in shapes)
    assert any(not settled and not free for free, settled in shapes)


@pytest.mark.parametrize("run", ["q_mode_b8", "s_mode_post2_b32"])
@pytest.mark.parametrize("overlap", [False, True])
def test_the_trajectory_is_what_the_steps_read(
    golden_engine: Engine, golden: Any, run: str, overlap: bool
) -> None:
    prompt = golden.tokens(f"gen_{run}_prompt")
    config = golden.config(run, overlap=overlap)
    _, _, finish = answer(golden_engine, prompt, config, record=True)
    trajectory = finish.trajectory
    assert trajectory is not None
    assert [s.canvas.tolist() for s in trajectory.steps] == golden.tokens(f"gen_{run}_step_before")
    length = config.block_length
    numbers = golden.tokens(f"gen_{run}_step_block")
    assert [s.start // length for s in trajectory.steps] == numbers
    assert all(torch.equal(s.undecided, s.canvas == MASK) for s in trajectory.steps)
    assert all(s.z is None for s in trajectory.steps)
    assert trajectory.final_ids[: len(prompt)] == trajectory.prompt_ids == tuple(prompt)
    assert len(trajectory.final_ids) == (numbers[-1] + 1) * length
    last = golden.tokens(f"gen_{run}_step_after")[-1]
    assert list(trajectory.final_ids[-length:]) == last
