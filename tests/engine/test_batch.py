"""Many answers at once are the answers one at a time: tokens, steps, counts and trajectories."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import DecodeConfig, PromptTooLongError, ResidualConfig
from engine.events import FinishEvent, Stats
from engine.generate import Engine
from engine.model.residual import ResidualAdapter

# The products of a batch have more rows, and a masked attention sums in another order; z carries
# each step's rounding into the next.
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def engine(tiny_checkpoint: Path) -> Engine:
    return Engine.load(tiny_checkpoint, device="cpu")


@pytest.fixture
def adapted(tiny_checkpoint: Path) -> Engine:
    engine = Engine.load(tiny_checkpoint, device="cpu")
    generator = torch.Generator().manual_seed(3)
    adapter = ResidualAdapter(engine.config.hidden_size, 48, engine.config.rms_norm_eps)
    with torch.no_grad():
        for weight in (adapter.gate_proj.weight, adapter.up_proj.weight, adapter.down_proj.weight):
            weight.copy_(torch.randn(weight.shape, generator=generator) / weight.shape[1] ** 0.5)
    engine.model.residual_adapter = adapter.requires_grad_(False)
    engine.model.residual = ResidualConfig(alpha=0.25)
    return engine


def prompts(count: int, longest: int = 60) -> list[list[int]]:
    """Of many lengths: some shorter than a block, some that end at a border."""
    generator = torch.Generator().manual_seed(0)
    lengths = [1, 8, 16, *range(3, longest, 7)][:count]
    return [torch.randint(256, (n,), generator=generator).tolist() for n in lengths]


def one_at_a_time(
    engine: Engine, prompts: list[list[int]], config: DecodeConfig, **options: Any
) -> list[FinishEvent]:
    ends = []
    for prompt in prompts:
        engine.reset_cache()
        *_, last = engine.generate(prompt, config, **options)
        assert isinstance(last, FinishEvent)
        ends.append(last)
    return ends


def counts(stats: Stats) -> Stats:
    """Without the times, and without what a cache of its own would have kept."""
    blocks = tuple(replace(block, seconds=0.0) for block in stats.blocks)
    return replace(
        stats, blocks=blocks, cached_tokens=0, prefill_seconds=0.0, decode_seconds=0.0,
        whole_seconds=0.0, first_block_seconds=0.0, model_seconds=None, pick_seconds=None,
        commit_seconds=None,
    )  # fmt: skip


SETTINGS: dict[str, dict[str, Any]] = {
    "quality": {},
    "plain": {"overlap": False},
    "no editing": {"editing_threshold": None},
    "few post steps": {"max_post_steps": 1, "editing_threshold": 0.0},
    "one post step": {"max_post_steps": 0},
    "sampled": {"temperature": 0.8, "seed": 7, "top_k": 9},
    "whole budget": {"stop_at_end": False},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_equals_one_at_a_time(engine: Engine, settings: dict[str, Any]) -> None:
    config = DecodeConfig(
        **{"max_new_tokens": 28, "block_length": 8, "threshold": 0.6, "editing_threshold": 0.4}
        | settings
    )
    asked = prompts(6)  # more than rows: some begin while others are under way
    alone = one_at_a_time(engine, asked, config)
    together = engine.generate_many(asked, config, rows=3)
    for mine, other in zip(together, alone, strict=True):
        assert mine.token_ids == other.token_ids
        assert (mine.text, mine.reason) == (other.text, other.reason)
        assert counts(mine.stats) == counts(other.stats)


@pytest.mark.parametrize("overlap", [False, True])
def test_records_the_same_trajectory(adapted: Engine, overlap: bool) -> None:
    config = DecodeConfig(
        max_new_tokens=30, block_length=8, threshold=0.6, editing_threshold=0.4, overlap=overlap
    )
    asked = prompts(7)
    alone = one_at_a_time(adapted, asked, config, record=True)
    together = adapted.generate_many(asked, config, record=True, rows=5)
    with_z = 0
    for mine, other in zip(together, alone, strict=True):
        assert mine.trajectory is not None
        assert other.trajectory is not None
        assert mine.trajectory.prompt_ids == other.trajectory.prompt_ids
        assert mine.trajectory.final_ids == other.trajectory.final_ids
        for a, b in zip(mine.trajectory.steps, other.trajectory.steps, strict=True):
            assert (a.block, a.step, a.start) == (b.block, b.step, b.start)
            assert torch.equal(a.canvas, b.canvas)
            assert torch.equal(a.undecided, b.undecided)
            assert a.entropy == pytest.approx(b.entropy, abs=TOLERANCE)
            assert (a.z is None) == (b.z is None)
            if a.z is not None and b.z is not None:
                torch.testing.assert_close(a.z, b.z, atol=TOLERANCE, rtol=0)
                with_z += 1
    assert with_z > 20


def test_each_answer_has_its_seed(engine: Engine) -> None:
    config = DecodeConfig(max_new_tokens=20, block_length=8, temperature=1.0)
    seeds = [5, 6, 5]
    together = engine.generate_many([[1, 2, 3]] * 3, config, seeds=seeds)
    assert together[0].token_ids == together[2].token_ids != together[1].token_ids
    assert [end.stats.seed for end in together] == seeds
    alone = one_at_a_time(engine, [[1, 2, 3]], replace(config, seed=6))
    assert alone[0].token_ids == together[1].token_ids


def test_the_chat_s_cache_stays(engine: Engine) -> None:
    config = DecodeConfig(max_new_tokens=8, block_length=8)
    prompt = list(range(30))
    list(engine.generate(prompt, config))
    engine.generate_many(prompts(3), config)
    *_, last = engine.generate(prompt, config)
    assert isinstance(last, FinishEvent)
    assert last.stats.prefill_tokens == 0


def test_a_stop_ends_every_answer_and_keeps_what_is_decided(engine: Engine) -> None:
    config = DecodeConfig(max_new_tokens=200, block_length=8, stop_at_end=False)
    ended: list[int] = []
    calls = 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return calls > 40

    ends = engine.generate_many(
        prompts(6), config, rows=3, stop=stop, progress=lambda i, _: ended.append(i)
    )
    assert {end.reason for end in ends} == {"stopped"}
    assert any(end.token_ids for end in ends)
    assert sorted(ended) == list(range(6))


def test_output_that_is_not_numbers_ends_its_answer_in_words(tiny_checkpoint: Path) -> None:
    engine = Engine.load(tiny_checkpoint, device="cpu")
    with torch.no_grad():
        engine.model.lm_head.weight[3] = float("nan")
    (end,) = engine.generate_many([[1, 2]], DecodeConfig(max_new_tokens=8))
    assert end.reason == "error"
    assert "not numbers" in str(end.error)


def test_everything_is_checked_before_anything_is_computed(engine: Engine) -> None:
    config = DecodeConfig()
    assert engine.generate_many([], config) == []
    with pytest.raises(PromptTooLongError):
        engine.generate_many([[1], [2] * 600], config)
    with pytest.raises(ValueError, match="outside the vocabulary"):
        engine.generate_many([[1], [5000]], config)
