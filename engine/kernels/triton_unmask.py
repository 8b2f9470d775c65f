"""A step's decisions for one block on the device: unmask, edit, settle, and what follows from them.

The rules are those of `engine/decode/unmasking.py` and `denoise.py`; this is one small program, so
that a captured loop can go on without asking the host. The block's state is a row of int64 numbers
that the next launch reads (`STATE` names them).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.config import DecodeConfig
from engine.kernels.launch import Launch
from engine.kernels.triton_ahead import wait_for_inputs

STATE = (
    "start",  # position of the block's first token
    "prompt_tokens",  # how many of the first positions are protected
    "step",  # steps taken
    "post_steps",  # mask-free steps taken
    "filled",  # nothing is undecided
    "settled",  # the last step's input was final: nothing undecided, no edit proposed
    "final",  # filled, and no further step may change it
    "finite",  # no confidence of the last step was not a number; 0: nothing was changed by it
    "holds_stop",  # a stop id stands at an unprotected position
    "end",  # the first stop id that nothing undecided precedes, as an index; -1: none
    "unmasked",  # positions decided by the last step
    "edited",  # positions edited by the last step
)


@triton.jit
def decide(
    at, old, open_, chosen, confidence, best, best_probability, prompt_tokens, was_filled,
    post_steps, thresholds, counts, stop_ids, stops, mask_id,
    LENGTH: tl.constexpr, BLOCK: tl.constexpr, STOPS: tl.constexpr, EDITS: tl.constexpr,
):  # fmt: skip
    """A step's decisions in registers: tokens, what is undecided, unmasked and edited after it
    [BLOCK]; then filled, post_steps, settled, final, finite, holds_stop and end, as in STATE.

    `old` and `open_` [BLOCK] are from before it; the predictions are pointers to [B].
    """
    real = at < LENGTH
    sure = tl.load(confidence + at, mask=real, other=0.0)
    finite = tl.sum((sure != sure).to(tl.int32), 0) == 0
    least, number = tl.load(thresholds), tl.load(counts)
    passing = open_ & (sure > least)
    # A rank counts who comes before: the surer, and among equals the earlier.
    rank_of = tl.where(open_, sure, -1.0)
    ahead = (rank_of[None, :] > rank_of[:, None]) | (
        (rank_of[None, :] == rank_of[:, None]) & (at[None, :] < at[:, None])
    )
    rank = tl.sum((ahead & real[None, :]).to(tl.int32), 1)
    enough = tl.sum(passing.to(tl.int32), 0) >= number
    new = tl.where(enough, passing.to(tl.int32), (open_ & (rank < number)).to(tl.int32)) != 0
    new = new & finite
    own = real & (at >= prompt_tokens)
    argmax = tl.load(best + at, mask=real, other=0)
    changed = at < 0
    if EDITS:
        surer = tl.load(best_probability + at, mask=real, other=0.0) > tl.load(thresholds + 1)
        changed = own & (open_ == 0) & surer & (argmax != old) & finite
    after = tl.where(new, tl.load(chosen + at, mask=real, other=0), old)
    after = tl.where(changed, argmax, after)
    still_open = open_ & (new == 0)
    filled = tl.sum(still_open.to(tl.int32), 0) == 0
    settled = finite & (was_filled != 0) & (tl.sum(changed.to(tl.int32), 0) == 0)
    taken = post_steps + finite.to(tl.int64) * was_filled
    limit = tl.load(counts + 1)
    if EDITS == 0:
        limit = limit * 0
    stop = at < 0
    for i in tl.static_range(STOPS):
        stop = stop | ((after == tl.load(stop_ids + i)) & (i < tl.load(stops)))
    stop = stop & own
    first_stop = tl.min(tl.where(stop, at, BLOCK), 0)
    # As the host tells it: by the mask token itself.
    first_open = tl.min(tl.where(own & (after == mask_id), at, BLOCK), 0)
    end = tl.where(first_stop < first_open, first_stop, -1)
    final = filled & (taken >= limit)
    return (
        after, still_open, new, changed,
        filled, taken, settled, final, finite, first_stop < BLOCK, end,
    )  # fmt: skip


@triton.jit
def step_kernel(
    tokens, undecided, chosen, confidence, best, best_probability, unmasked, edited, state,
    thresholds, counts, stop_ids, stops, mask_id,
    LENGTH: tl.constexpr, BLOCK: tl.constexpr, STOPS: tl.constexpr, EDITS: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """One program. tokens, undecided, unmasked, edited [B] int64 and int32, changed in place;
    thresholds float32 [2] (unmasking, editing); counts int64 [2] (min_unmask, max_post_steps)."""
    wait_for_inputs(AHEAD)
    at = tl.arange(0, BLOCK)
    real = at < LENGTH
    old = tl.load(tokens + at, mask=real, other=0)
    open_ = (tl.load(undecided + at, mask=real, other=0) != 0) & real
    after, still, new, changed, filled, taken, settled, final, finite, holds_stop, end = decide(
        at, old, open_, chosen, confidence, best, best_probability,
        tl.load(state + 1), tl.load(state + 4), tl.load(state + 3),
        thresholds, counts, stop_ids, stops, mask_id, LENGTH, BLOCK, STOPS, EDITS,
    )  # fmt: skip
    tl.store(tokens + at, after, mask=real)
    tl.store(undecided + at, still.to(tl.int32), mask=real)
    tl.store(unmasked + at, new.to(tl.int32), mask=real)
    tl.store(edited + at, changed.to(tl.int32), mask=real)
    tl.store(state + 2, tl.load(state + 2) + finite.to(tl.int64))
    tl.store(state + 3, taken)
    tl.store(state + 4, filled.to(tl.int64))
    tl.store(state + 5, settled.to(tl.int64))
    tl.store(state + 6, final.to(tl.int64))
    tl.store(state + 7, finite.to(tl.int64))
    tl.store(state + 8, holds_stop.to(tl.int64))
    tl.store(state + 9, end.to(tl.int64))
    tl.store(state + 10, tl.sum(new.to(tl.int64), 0))
    tl.store(state + 11, tl.sum(changed.to(tl.int64), 0))


@dataclass(frozen=True)
class BlockRules:
    """A DecodeConfig's rules on the device, where they may change between launches.

    thresholds float32 [2], counts int64 [2], stop_ids int64 [n >= 1] and how many of them count,
    int64 [1]. Whether decided positions may be edited at all is fixed.
    """

    thresholds: Tensor
    counts: Tensor
    stop_ids: Tensor
    stops: Tensor
    mask_id: int
    edits: bool

    @classmethod
    def of(
        cls,
        config: DecodeConfig,
        stop_ids: Collection[int],
        mask_id: int,
        device: torch.device,
        most_stops: int = 1,
    ) -> "BlockRules":
        """The rules of `config`, with the stop and mask ids in use, and room for `most_stops`."""
        rules = cls(
            torch.empty(2, device=device),
            torch.empty(2, dtype=torch.int64, device=device),
            torch.empty(max(len(stop_ids), most_stops), dtype=torch.int64, device=device),
            torch.empty(1, dtype=torch.int64, device=device),
            mask_id,
            config.edits,
        )
        rules.set(config, stop_ids)
        return rules

    def set(self, config: DecodeConfig, stop_ids: Collection[int]) -> None:
        """Take a config's numbers and stop ids, of which there must be room."""
        assert config.edits == self.edits
        assert len(stop_ids) <= len(self.stop_ids)
        editing = config.editing_threshold
        thresholds = [config.threshold, 2.0 if editing is None else editing]
        self.thresholds.copy_(torch.tensor(thresholds))
        self.counts.copy_(torch.tensor([config.min_unmask, config.max_post_steps]))
        ids = sorted(stop_ids) + [-1] * (len(self.stop_ids) - len(stop_ids))
        self.stop_ids.copy_(torch.tensor(ids))
        self.stops.fill_(len(stop_ids))


@dataclass(frozen=True)
class Block:
    """An open block on the device, all [B] but for state: tokens int64; undecided, and what the
    last step did (unmasked, edited) int32; state int64 [len(STATE)]."""

    tokens: Tensor
    undecided: Tensor
    unmasked: Tensor
    edited: Tensor
    state: Tensor

    @classmethod
    def open(
        cls, start: int, length: int, prompt: list[int], mask_id: int, device: torch.device
    ) -> "Block":
        """A fresh block that begins with the `prompt` tokens that fall into it."""
        tokens = torch.tensor(prompt + [mask_id] * (length - len(prompt)), device=device)
        undecided = (torch.arange(length, device=device) >= len(prompt)).to(torch.int32)
        state = torch.zeros(len(STATE), dtype=torch.int64, device=device)
        state[0], state[1], state[7], state[9] = start, len(prompt), 1, -1
        return cls(
            tokens, undecided, torch.zeros_like(undecided), torch.zeros_like(undecided), state
        )


def step_launch(
    block: Block,
    chosen: Tensor,
    confidence: Tensor,
    best: Tensor,
    best_probability: Tensor,
    rules: BlockRules,
) -> Launch:
    """Decides and edits `block` in place by predictions [B] (int64 and float32, as in
    `triton_sampling.Predictions`)."""
    length = block.tokens.shape[0]
    arguments: dict[str, Any] = {
        "tokens": block.tokens, "undecided": block.undecided, "chosen": chosen,
        "confidence": confidence, "best": best, "best_probability": best_probability,
        "unmasked": block.unmasked, "edited": block.edited, "state": block.state,
        "thresholds": rules.thresholds, "counts": rules.counts, "stop_ids": rules.stop_ids,
        "stops": rules.stops, "mask_id": rules.mask_id,
    }  # fmt: skip
    constants = {
        "LENGTH": length, "BLOCK": triton.next_power_of_2(length),
        "STOPS": rules.stop_ids.shape[0], "EDITS": rules.edits,
    }  # fmt: skip
    warps = 1 if length <= 32 else 4
    return Launch("decide", step_kernel, (1,), arguments, constants, warps)
