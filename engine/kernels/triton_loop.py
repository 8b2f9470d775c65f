"""What follows from a forward, on the device: decisions, block borders, the mailbox, what is next.

`engine/decode/advance.py` as one small program, so that a captured loop goes on without asking the
host. Everything is read into registers first and written last, so nothing depends on the order in
which threads reach memory. The names of all numbers: `loop_state.py`.
"""

from typing import Any

import triton
import triton.language as tl

from engine.kernels import loop_state as names
from engine.kernels.launch import Launch
from engine.kernels.loop_state import LoopState, Mailbox
from engine.kernels.triton_ahead import wait_for_inputs
from engine.kernels.triton_unmask import BlockRules, decide

_COLUMNS = tl.constexpr(names.COLUMNS)
_RING = tl.constexpr(names.RING)


@triton.jit
def _write(
    log, line, wanted, kind, block, step, unmasked, edited, forwards, fused, commits, committed,
    stopped, outcome,
):  # fmt: skip
    """A record into a line of the log, where it is wanted; the number of the next line."""
    at = tl.arange(0, _COLUMNS)
    row = tl.where(at == 0, kind, 0).to(tl.int64)
    row = tl.where(at == 1, block, row)
    row = tl.where(at == 2, step, row)
    row = tl.where(at == 3, unmasked, row)
    row = tl.where(at == 4, edited, row)
    row = tl.where(at == 5, forwards, row)
    row = tl.where(at == 6, fused, row)
    row = tl.where(at == 7, commits, row)
    row = tl.where(at == 8, committed, row)
    row = tl.where(at == 9, stopped, row)
    row = tl.where(at == 10, outcome, row)
    tl.store(log + line * _COLUMNS + at, row.to(tl.int32), mask=(at >= 0) & wanted)
    return line + wanted.to(tl.int64)


@triton.jit
def _snapshot(
    tokens, confidences, marks, number, wanted, at, LENGTH: tl.constexpr, after, confidence, new,
    changed,
):  # fmt: skip
    """A block after step `number`, where it is wanted; the number of the next step."""
    line = (number % _RING) * LENGTH + at
    held = (at < LENGTH) & wanted
    tl.store(tokens + line, after, mask=held)
    tl.store(confidences + line, tl.load(confidence + at, mask=held, other=0.0), mask=held)
    tl.store(marks + line, new.to(tl.int32) + 2 * changed.to(tl.int32), mask=held)
    return number + wanted.to(tl.int64)


@triton.jit
def _publish(written, records, SYSTEM: tl.constexpr):
    """All stores of the program, then this one: across the bus, where the host's memory is."""
    tl.debug_barrier()
    if SYSTEM:
        tl.inline_asm_elementwise(
            """{
            .reg .pred first;
            .reg .u32 thread;
            mov.u32 thread, %tid.x;
            setp.eq.u32 first, thread, 0;
            @first fence.acq_rel.sys;
            @first st.release.sys.global.u64 [$1], $2;
            mov.u32 $0, 0;
            }""",
            "=r,l,l", [written.to(tl.int64), records], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        tl.store(written, records)


@triton.jit
def advance_kernel(
    tokens, undecided, states, control, flags, chosen, confidence, best, best_probability,
    thresholds, counts, stop_ids, stops, mask_id,
    written, log, box_tokens, box_confidences, box_marks, box_final, stop,
    LENGTH: tl.constexpr, BLOCK: tl.constexpr, STOPS: tl.constexpr, EDITS: tl.constexpr,
    RESIDUAL: tl.constexpr, SYSTEM: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """One program; all arguments but mask_id are pointers to what `LoopState`, `Mailbox` and
    `BlockRules` hold. Modes, kinds and outcomes are numbers here: 0 step, 1 try, 2 commit wide, 3
    commit narrow; 1 a step, 2 an end, 3 done; 0 running, 1 over, 2 stopped, 3 not finite, 4 capped.
    """
    wait_for_inputs(AHEAD)
    at = tl.arange(0, BLOCK)
    real = at < LENGTH
    mode = tl.load(control)
    block = tl.load(control + 1)
    last_start = tl.load(control + 2)
    rounds = tl.load(control + 3) + 1
    most = tl.load(control + 4)
    records, steps = tl.load(control + 6), tl.load(control + 7)
    overlap, stop_at_end = tl.load(control + 8) != 0, tl.load(control + 9) != 0
    pause = tl.load(control + 10)
    start, prompt_tokens = tl.load(states), tl.load(states + 1)
    step, post_steps, was_filled = tl.load(states + 2), tl.load(states + 3), tl.load(states + 4)
    wants_stop = tl.load(stop, volatile=True) != 0
    old = tl.load(tokens + at, mask=real, other=0)
    open_ = (tl.load(undecided + at, mask=real, other=0) != 0) & real
    commits = mode >= 2

    # The open block. A narrow forward's predictions stand in the second half.
    own = tl.where(mode == 0, LENGTH, 0)
    after, still, new, changed, filled, taken, settled, final, finite, holds_stop, end = decide(
        at, old, open_, chosen + own, confidence + own, best + own, best_probability + own,
        prompt_tokens, was_filled, post_steps,
        thresholds, counts, stop_ids, stops, mask_id, LENGTH, BLOCK, STOPS, EDITS,
    )  # fmt: skip
    stepped = finite & (commits == 0)
    broken = (finite == 0) & (commits == 0)
    settled = settled & stepped
    final, certain = final & stepped, (end >= 0) & stepped
    after = tl.where(stepped, after, old)
    still = tl.where(stepped, still.to(tl.int32), open_.to(tl.int32))
    filled = tl.where(stepped, filled.to(tl.int64), was_filled) != 0
    step = step + stepped.to(tl.int64)
    taken = tl.where(stepped, taken, post_steps)
    last = start == last_start
    ends_here = last | (stop_at_end & holds_stop)
    over = (settled | final) & ends_here
    if EDITS == 0:
        over = over | (certain & stop_at_end)
    moves = commits | (settled & (over == 0))

    # The one behind it, of which nothing was decided before.
    zero = start * 0
    blank = tl.zeros((BLOCK,), tl.int64) + mask_id
    (
        after_2, still_2, new_2, changed_2,
        filled_2, _taken, _settled, final_2, finite_2, holds_stop_2, end_2,
    ) = decide(
        at, blank, real, chosen + LENGTH, confidence + LENGTH, best + LENGTH,
        best_probability + LENGTH, zero, zero, zero,
        thresholds, counts, stop_ids, stops, mask_id, LENGTH, BLOCK, STOPS, EDITS,
    )  # fmt: skip
    opened = ((mode == 2) | ((mode == 1) & settled)) & finite_2
    ends_here_2 = (start + LENGTH == last_start) | (stop_at_end & holds_stop_2)
    over_2 = final_2 & ends_here_2
    if EDITS == 0:
        over_2 = over_2 | ((end_2 >= 0) & stop_at_end)
    over_2 = over_2 & opened

    # What happened, in its order.
    nothing = zero
    steps = _snapshot(
        box_tokens, box_confidences, box_marks, steps, stepped, at, LENGTH, after,
        confidence + own, new, changed,
    )  # fmt: skip
    alone = ((opened & settled) == 0).to(tl.int64)
    records = _write(
        log, records, stepped, 1, block, step, tl.sum(new.to(tl.int64), 0),
        tl.sum(changed.to(tl.int64), 0), alone, nothing, nothing, nothing, nothing, nothing,
    )  # fmt: skip
    ended = over | moves
    place = block * LENGTH + at
    tl.store(box_final + place, after, mask=real & ended)
    records = _write(
        log, records, ended, 2, block, step, nothing, nothing,
        (commits & (opened == 0)).to(tl.int64), nothing, commits.to(tl.int64),
        (commits | settled).to(tl.int64), nothing, nothing,
    )  # fmt: skip
    steps = _snapshot(
        box_tokens, box_confidences, box_marks, steps, opened, at, LENGTH, after_2,
        confidence + LENGTH, new_2, changed_2,
    )  # fmt: skip
    block = block + moves.to(tl.int64)
    records = _write(
        log, records, opened, 1, block, zero + 1, tl.sum(new_2.to(tl.int64), 0),
        tl.sum(changed_2.to(tl.int64), 0), zero + 1, zero + 1, nothing, nothing, nothing, nothing,
    )  # fmt: skip

    # The block that is open now.
    stepped = tl.where(moves, opened, stepped)
    fresh = tl.where(opened, after_2, blank)
    after = tl.where(moves, fresh, after)
    fresh_open = tl.where(opened, still_2.to(tl.int32), real.to(tl.int32))
    still = tl.where(moves, fresh_open, still)
    start = start + tl.where(moves, LENGTH, 0)
    prompt_tokens = tl.where(moves, 0, prompt_tokens)
    step = tl.where(moves, opened.to(tl.int64), step)
    taken = tl.where(moves, 0, taken)
    filled = tl.where(moves, opened & filled_2, filled)
    final = tl.where(moves, opened & final_2, final & (settled == 0))
    ends_here = tl.where(moves, ends_here_2, ends_here)
    over = (over & (moves == 0)) | over_2
    early = stepped & filled & (taken < 2) & overlap & (ends_here == 0)
    mode = tl.where(final, tl.where(overlap, 2, 3), tl.where(early, 1, 0)).to(tl.int64)
    outcome = tl.where(rounds >= most, 4, 0)
    outcome = tl.where(wants_stop, 2, outcome)
    outcome = tl.where(over, 1, outcome)
    outcome = tl.where(broken, 3, outcome).to(tl.int64)
    stopped = outcome == 2
    closes = over_2 | stopped
    place = block * LENGTH + at
    tl.store(box_final + place, after, mask=real & closes)
    records = _write(
        log, records, closes, 2, block, step, nothing, nothing, nothing, nothing, nothing, nothing,
        stopped.to(tl.int64), nothing,
    )  # fmt: skip
    runs = outcome == 0
    records = _write(
        log, records, runs == 0, 3, block, nothing, nothing, nothing, nothing, nothing, nothing,
        nothing, nothing, outcome,
    )  # fmt: skip
    _publish(written, records, SYSTEM)

    tl.store(tokens + at, after, mask=real)
    tl.store(undecided + at, still, mask=real)
    tl.store(states, start)
    tl.store(states + 1, prompt_tokens)
    tl.store(states + 2, step)
    tl.store(states + 3, taken)
    tl.store(states + 4, filled.to(tl.int64))
    tl.store(states + 5, start + LENGTH)
    tl.store(control, mode)
    tl.store(control + 1, block)
    tl.store(control + 3, rounds)
    tl.store(control + 5, outcome)
    tl.store(control + 6, records)
    tl.store(control + 7, steps)
    pauses = (pause == 2) | ((pause == 1) & moves)
    wide = (mode == 1) | (mode == 2)
    mixes = stepped & (filled == 0)
    if RESIDUAL == 0:
        mixes = mixes & (zero != 0)
    tl.store(flags, (runs & (pauses == 0)).to(tl.int32))
    tl.store(flags + 1, (runs & (wide == 0)).to(tl.int32))
    tl.store(flags + 2, (runs & wide).to(tl.int32))
    tl.store(flags + 3, (runs & mixes).to(tl.int32))
    tl.store(flags + 4, start.to(tl.int32))


def advance_launch(
    state: LoopState, mailbox: Mailbox, rules: BlockRules, *, residual: bool
) -> Launch:
    """What takes a round's decisions. A mailbox in pinned memory is written to by the device's
    address of it, which is the host's."""
    length = state.length
    arguments: dict[str, Any] = {
        "tokens": state.tokens, "undecided": state.undecided, "states": state.states,
        "control": state.control, "flags": state.flags, "chosen": state.chosen,
        "confidence": state.confidence, "best": state.best,
        "best_probability": state.best_probability,
        "thresholds": rules.thresholds, "counts": rules.counts, "stop_ids": rules.stop_ids,
        "stops": rules.stops, "mask_id": rules.mask_id,
        "written": mailbox.written, "log": mailbox.log, "box_tokens": mailbox.tokens,
        "box_confidences": mailbox.confidences, "box_marks": mailbox.marks,
        "box_final": mailbox.final, "stop": mailbox.stop,
    }  # fmt: skip
    constants = {
        "LENGTH": length, "BLOCK": triton.next_power_of_2(length),
        "STOPS": rules.stop_ids.shape[0], "EDITS": rules.edits, "RESIDUAL": residual,
        "SYSTEM": state.tokens.device.type != "cpu",
    }  # fmt: skip
    return Launch("advance", advance_kernel, (1,), arguments, constants, 1 if length <= 32 else 4)
