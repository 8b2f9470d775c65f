"""A block's steps on the device against the host's `Denoiser.decide`, exactly: same predictions in,
same tokens, flags and state out, to the block's end."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.config import DecodeConfig
from engine.decode import unmasking
from engine.decode.canvas import Canvas
from engine.decode.denoise import Denoiser
from engine.kernels.triton_unmask import STATE, Block, BlockRules, step_launch

CPU = torch.device("cpu")
MASK = 11
STOPS = frozenset({3, 7})


def denoiser(config: DecodeConfig) -> Denoiser:
    model: Any = SimpleNamespace(residual_adapter=None)
    cache: Any = None
    return Denoiser(
        model, cache, config, mask_id=MASK, stop_ids=STOPS, seed=config.seed or 0, first_start=0,
        overlap=True, record=False, stop=lambda: False,
    )  # fmt: skip


def state_of(block: Block) -> dict[str, int]:
    return dict(zip(STATE, block.state.tolist(), strict=True))


def step_device(block: Block, logits: Tensor, config: DecodeConfig, rules: BlockRules) -> None:
    state = state_of(block)
    p = unmasking.predict(
        unmasking.suppress_mask(logits, MASK), config, seed=config.seed or 0,
        start=state["start"], step=state["step"],
    )  # fmt: skip
    step_launch(block, p.tokens, p.confidence, p.best, p.best_probability, rules).run()


def run_both(config: DecodeConfig, length: int, prompt: list[int], scale: float, seed: int) -> int:
    """Whole blocks on logits that lean towards what stands there, rounded so that equal
    confidences are common; the number of steps taken."""
    torch.manual_seed(seed)
    host, rules = denoiser(config), BlockRules.of(config, STOPS, MASK, CPU)
    canvas = Canvas.open(64, length, prompt, MASK, CPU)
    block = Block.open(64, length, prompt, MASK, CPU)
    for steps in range(1, 80):
        logits = (scale * torch.randn(length, 13)).round()
        logits += 4.0 * torch.nn.functional.one_hot(canvas.tokens, 13)
        result = host.decide(canvas, logits)
        step_device(block, logits, config, rules)
        canvas, state = result.canvas, state_of(block)
        assert torch.equal(block.tokens, canvas.tokens)
        assert torch.equal(block.undecided.bool(), canvas.undecided)
        assert block.unmasked.bool().tolist() == list(result.unmasked)
        assert block.edited.bool().tolist() == list(result.edited)
        end = host.end_position(result)
        own = result.token_ids[len(prompt) :]
        assert state == {
            "start": 64,
            "prompt_tokens": len(prompt),
            "step": canvas.step,
            "post_steps": canvas.post_steps,
            "filled": canvas.filled,
            "settled": result.settled,
            "final": host.is_final(canvas),
            "finite": 1,
            "holds_stop": not STOPS.isdisjoint(own),
            "end": -1 if end is None else end,
            "unmasked": sum(result.unmasked),
            "edited": sum(result.edited),
        }
        if result.settled or state["final"]:
            return steps
    raise AssertionError("the block did not end")


@pytest.mark.parametrize(
    "config",
    [
        DecodeConfig(threshold=0.5, editing_threshold=0.0, max_post_steps=4),
        DecodeConfig(threshold=0.9, editing_threshold=0.5, max_post_steps=2, min_unmask=3),
        DecodeConfig(threshold=1.0, editing_threshold=None, min_unmask=2),
        DecodeConfig(threshold=0.0, editing_threshold=0.3, max_post_steps=0),
        DecodeConfig(threshold=1.0, editing_threshold=1.5, min_unmask=100, max_post_steps=3),
        DecodeConfig(threshold=0.3, editing_threshold=0.2, temperature=1.5, seed=9, top_k=6),
    ],
)
@pytest.mark.parametrize(("length", "prompt"), [(8, []), (8, [1, 3, 3]), (13, [2] * 12), (32, [5])])
def test_whole_blocks(config: DecodeConfig, length: int, prompt: list[int]) -> None:
    assert run_both(config, length, prompt, scale=1.5, seed=length) >= 1


def test_a_block_that_is_all_prompt_settles_at_once() -> None:
    config = DecodeConfig(editing_threshold=0.0)
    block = Block.open(0, 4, [1, 2, 5, 6], MASK, CPU)
    block.state[4] = 1
    step_device(block, torch.randn(4, 13), config, BlockRules.of(config, STOPS, MASK, CPU))
    assert block.tokens.tolist() == [1, 2, 5, 6]
    assert state_of(block)["settled"] == 1


def test_equal_confidences_go_in_their_order() -> None:
    config = DecodeConfig(threshold=1.0, min_unmask=3, editing_threshold=None)
    block = Block.open(0, 6, [1], MASK, CPU)
    step_device(block, torch.zeros(6, 13), config, BlockRules.of(config, STOPS, MASK, CPU))
    assert block.undecided.tolist() == [0, 0, 0, 0, 1, 1]


def test_one_confidence_that_is_no_number_changes_nothing() -> None:
    config = DecodeConfig(threshold=0.0, editing_threshold=0.0)
    rules = BlockRules.of(config, STOPS, MASK, CPU)
    block = Block.open(32, 4, [1], MASK, CPU)
    before = block.tokens.clone()
    ids = torch.tensor([2, 2, 2, 2])
    sure = torch.tensor([0.5, 0.9, float("nan"), 0.9])
    step_launch(block, ids, sure, ids, sure, rules).run()
    assert torch.equal(block.tokens, before)
    state = state_of(block)
    assert (state["finite"], state["step"], state["unmasked"], state["settled"]) == (0, 0, 0, 0)


def test_rules_may_change_between_launches() -> None:
    config = DecodeConfig(threshold=0.9, min_unmask=1, editing_threshold=None)
    rules = BlockRules.of(config, (), MASK, CPU)
    block = Block.open(0, 4, [], MASK, CPU)
    ids, sure = torch.tensor([1, 2, 3, 4]), torch.tensor([0.5, 0.6, 0.7, 0.8])
    rules.thresholds[0] = 0.55
    step_launch(block, ids, sure, ids, sure, rules).run()
    assert block.tokens.tolist() == [MASK, 2, 3, 4]
    assert state_of(block)["holds_stop"] == 0
