"""What follows from a forward, in plain torch: decisions, block borders, the mailbox, what is next.

The rules are `denoise.py`'s, written as a state that moves on, so that a loop can follow them which
the host only starts; the Triton kernel of the same name (`engine/kernels/triton_loop.py`) must give
the same state and the same mailbox, and both the same answers as the plain loop.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.config import DecodeConfig
from engine.decode.unmasking import Prediction, edit, unmask
from engine.kernels.loop_state import (
    A_STEP,
    AN_END,
    BLOCKS,
    CAPPED,
    COLUMNS,
    COMMIT_NARROW,
    COMMIT_WIDE,
    CONTROL,
    DONE,
    FLAGS,
    NOT_FINITE,
    OVER,
    RECORD,
    RING,
    ROUNDS,
    RUNNING,
    STEP,
    STOPPED,
    TRY,
    LoopState,
    Mailbox,
)


@dataclass(frozen=True)
class Rules:
    """What decides, beside the state: `residual`: the model takes residual context."""

    config: DecodeConfig
    stop_ids: Collection[int]
    mask_id: int
    residual: bool


@dataclass(frozen=True)
class _Block:
    """A block after a forward; `stepped` says whether it took a step, as the fields behind it tell.
    `was_filled`: before the forward."""

    start: int
    prompt_tokens: int
    step: int
    post_steps: int
    was_filled: bool
    tokens: Tensor
    undecided: Tensor
    confidence: Tensor
    unmasked: Tensor
    edited: Tensor
    stepped: bool = False
    finite: bool = True
    settled: bool = False

    @property
    def filled(self) -> bool:
        return not bool(self.undecided.any())


def advance(state: LoopState, mailbox: Mailbox, rules: Rules) -> None:
    """Take a round's decisions by the predictions in `state`, and say what is next."""
    control = dict(zip(CONTROL, state.control.tolist(), strict=True))
    commits = control["mode"] in (COMMIT_WIDE, COMMIT_NARROW)
    block, fresh = _decide(state, control["mode"], rules)
    opened = fresh.stepped
    book = _Book(state, mailbox, control)
    over = block.stepped and _ends(block, control, rules)
    moves = commits or (block.settled and not over)
    if block.stepped:
        book.step(block, forwards=not (opened and block.settled), fused=False)
    if over or moves:
        book.end(block, commits=commits, forwards=commits and not opened,
                 committed=commits or block.settled)  # fmt: skip
    if moves:
        block = fresh
        control["block"] += 1
        if opened:
            book.step(block, forwards=True, fused=True)
            over = _ends(block, control, rules)
            if over:
                book.end(block)
    control["mode"] = _next_mode(block, control, rules)
    control["rounds"] += 1
    control["outcome"] = _outcome(control, over, block.finite, bool(mailbox.stop))
    if control["outcome"] == STOPPED:
        book.end(block, stopped=True)
    if control["outcome"] != RUNNING:
        book.write(kind=DONE, outcome=control["outcome"])
    book.publish()
    _store(state, block, control, moves, rules)


def _decide(state: LoopState, mode: int, rules: Rules) -> tuple[_Block, _Block]:
    """The open block and the one behind it, after the steps that the forward was for."""
    block, fresh = (_load(state, row) for row in (0, 1))
    if mode in (STEP, TRY):
        block = _take_step(block, state, state.length if mode == STEP else 0, rules)
    if mode == COMMIT_WIDE or (mode == TRY and block.settled):
        after = _take_step(fresh, state, state.length, rules)
        # What is not a number there is for that block's own step to say.
        fresh = after if after.finite else fresh
    return block, fresh


def _load(state: LoopState, row: int) -> _Block:
    start, prompt_tokens, step, post_steps, filled = state.states[row].tolist()
    blank = torch.zeros_like(state.undecided[row], dtype=torch.bool)
    return _Block(
        start, prompt_tokens, step, post_steps, bool(filled), state.tokens[row].clone(),
        state.undecided[row].bool(), state.confidence[: state.length], blank, blank,
    )  # fmt: skip


def _take_step(block: _Block, state: LoopState, first: int, rules: Rules) -> _Block:
    """Unmask and edit by the predictions from row `first` on; unchanged where one is no number."""
    rows = slice(first, first + state.length)
    prediction = Prediction(
        state.chosen[rows], state.confidence[rows], state.best[rows], state.best_probability[rows]
    )
    if bool(prediction.confidence.isnan().any()):
        return replace(block, finite=False)
    own = torch.arange(state.length, device=block.tokens.device) >= block.prompt_tokens
    unmasked = unmask(prediction, block.undecided, rules.config)
    edited = edit(prediction, block.tokens, own & ~block.undecided, rules.config)
    tokens = torch.where(unmasked, prediction.tokens, block.tokens)
    return replace(
        block,
        step=block.step + 1,
        post_steps=block.post_steps + block.was_filled,
        tokens=torch.where(edited, prediction.best, tokens),
        undecided=block.undecided & ~unmasked,
        confidence=prediction.confidence.clone(),
        unmasked=unmasked,
        edited=edited,
        stepped=True,
        settled=block.was_filled and not bool(edited.any()),
    )


def _first_end(block: _Block, rules: Rules) -> tuple[bool, bool]:
    """Whether a stop id stands at an unprotected position, and one that nothing undecided
    precedes."""
    own = block.tokens[block.prompt_tokens :].tolist()
    for token in own:
        if token in rules.stop_ids:
            return True, True
        if token == rules.mask_id:
            break
    return any(token in rules.stop_ids for token in own), False


def _is_final(block: _Block, rules: Rules) -> bool:
    limit = rules.config.max_post_steps if rules.config.edits else 0
    return block.filled and block.post_steps >= limit


def _ends(block: _Block, control: dict[str, int], rules: Rules) -> bool:
    """The answer ends with this block, as it stands after a step."""
    holds_stop, certain = _first_end(block, rules)
    if control["stop_at_end"] and not rules.config.edits and certain:
        return True
    last = block.start == control["last_start"]
    ends_here = last or bool(control["stop_at_end"] and holds_stop)
    return (block.settled or _is_final(block, rules)) and ends_here


def _next_mode(block: _Block, control: dict[str, int], rules: Rules) -> int:
    """What the next forward is for, where there is one."""
    if not block.stepped:
        return STEP
    if not block.settled and _is_final(block, rules):
        return COMMIT_WIDE if control["overlap"] else COMMIT_NARROW
    holds_stop, _ = _first_end(block, rules)
    early = block.filled and block.post_steps < 2
    ends_here = block.start == control["last_start"] or (control["stop_at_end"] and holds_stop)
    return TRY if control["overlap"] and early and not ends_here else STEP


def _outcome(control: dict[str, int], over: bool, finite: bool, stop: bool) -> int:
    if not finite:
        return NOT_FINITE
    if over:
        return OVER
    if stop:
        return STOPPED
    return CAPPED if control["rounds"] >= control["most"] else RUNNING


def _store(
    state: LoopState, block: _Block, control: dict[str, int], moves: bool, rules: Rules
) -> None:
    runs = control["outcome"] == RUNNING
    wide = control["mode"] in (TRY, COMMIT_WIDE)
    pauses = control["pause"] == ROUNDS or (control["pause"] == BLOCKS and moves)
    flags = {
        "go": runs and not pauses,
        "narrow": runs and not wide,
        "wide": runs and wide,
        "mix": runs and rules.residual and block.stepped and not block.filled,
        "start": block.start,
    }
    own = [block.start, block.prompt_tokens, block.step, block.post_steps, int(block.filled)]
    state.tokens[0] = block.tokens
    state.undecided[0] = block.undecided
    state.states.copy_(torch.tensor([own, [block.start + state.length, 0, 0, 0, 0]]))
    state.control.copy_(torch.tensor([control[name] for name in CONTROL]))
    state.flags.copy_(torch.tensor([int(flags[name]) for name in FLAGS]))


class _Book:
    """Writes records; `control` is counted up with them."""

    def __init__(self, state: LoopState, mailbox: Mailbox, control: dict[str, int]) -> None:
        self._state, self._mailbox, self._control = state, mailbox, control

    def step(self, block: _Block, *, forwards: bool, fused: bool) -> None:
        """A step, with its snapshot."""
        line = self._control["steps"] % RING
        self._mailbox.tokens[line] = block.tokens
        self._mailbox.confidences[line] = block.confidence
        self._mailbox.marks[line] = block.unmasked.int() + 2 * block.edited.int()
        self._control["steps"] += 1
        self.write(
            kind=A_STEP, step=block.step, unmasked=int(block.unmasked.sum()),
            edited=int(block.edited.sum()), forwards=int(forwards), fused=int(fused),
        )  # fmt: skip

    def end(
        self, block: _Block, *, commits: bool = False, forwards: bool = False,
        committed: bool = False, stopped: bool = False,
    ) -> None:  # fmt: skip
        """A block's end, with its tokens."""
        first = self._control["block"] * self._state.length
        self._mailbox.final[first : first + self._state.length] = block.tokens
        self.write(
            kind=AN_END, step=block.step, commits=int(commits), forwards=int(forwards),
            committed=int(committed), stopped=int(stopped),
        )  # fmt: skip

    def write(self, **values: int) -> None:
        """A record of the open block."""
        row = [values.get(name, 0) for name in RECORD]
        row[RECORD.index("block")] = self._control["block"]
        row += [0] * (COLUMNS - len(row))
        self._mailbox.log[self._control["records"]] = torch.tensor(row, dtype=torch.int32)
        self._control["records"] += 1

    def publish(self) -> None:
        """Let the host see what was written."""
        self._mailbox.written.fill_(self._control["records"])
