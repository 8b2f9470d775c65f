"""What an answer's loop on the device reads and writes: everything by pointer, named here once.

A round is one forward. It serves the open block alone ("narrow") or the open block and the one
behind it ("wide"); then `advance` decides, goes on over block borders, writes what happened into
the mailbox and says which forward comes next, or that none does. The rule in plain torch is
`engine/decode/advance.py`, the kernel `triton_loop.py`.

Left out: everything that only the host can know, such as text.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

BLOCK = ("start", "prompt_tokens", "step", "post_steps", "filled")
"""Of a block: position of its first token, how many of its first positions are protected, steps and
mask-free steps taken, nothing is undecided."""

STEP, TRY, COMMIT_WIDE, COMMIT_NARROW = range(4)
"""What a round's forward is for: a step; a step together with the next block's first one; storing
the keys and values of final tokens, together with the next block's first step or alone."""

RUNNING, OVER, STOPPED, NOT_FINITE, CAPPED = range(5)
"""How the loop stands: going on; the answer has ended; stopped from outside; the model's output is
not numbers; more rounds than any answer can need."""

CONTROL = (
    "mode",  # what the next forward is for
    "block",  # the open block, counted from 0 in the answer
    "last_start",  # where the answer's last block begins
    "rounds",  # forwards made
    "most",  # and at most
    "outcome",
    "records",  # records written to the log
    "steps",  # steps among them
    "overlap",
    "stop_at_end",
    "pause",  # leave the loop: 0 when the answer ends, 1 when a block does, 2 after each round
)

FLAGS = ("go", "narrow", "wide", "mix", "start")
"""int32, each of which a graph's node or a kernel reads alone. `mix`: the next forward takes
residual context, which is due now; `start`: position of the open block."""

NEVER, BLOCKS, ROUNDS = range(3)
"""Values of `pause`."""

A_STEP, AN_END, DONE = 1, 2, 3
RECORD = (
    "kind",  # of one block: a step was decided, it ended; or the loop is done
    "block",
    "step",  # steps taken in the block
    "unmasked",
    "edited",
    "forwards",  # what the step, or the block's commit, cost of its own
    "fused",  # the step's forward also ended the block before
    "commits",
    "committed",  # the block's keys and values stand
    "stopped",
    "outcome",
)
COLUMNS = 16
"""Of a record; those behind RECORD mean nothing."""

RING = 64
"""Steps whose whole blocks are kept for the host to look at."""


@dataclass(frozen=True)
class LoopState:
    """The loop's memory on the device, for blocks of `length`; row 0 is the open block, row 1 the
    one behind it, of which nothing is decided.

    tokens int64, undecided int32 [2, B]; states int64 [2, len(BLOCK)]; control int64, flags int32
    by the names above. Predictions [2B] of the last forward, as in
    `engine/decode/unmasking.py`: a wide forward's in their order, a narrow one's in the second
    half.
    """

    tokens: Tensor
    undecided: Tensor
    states: Tensor
    control: Tensor
    flags: Tensor
    chosen: Tensor
    confidence: Tensor
    best: Tensor
    best_probability: Tensor

    @classmethod
    def empty(cls, length: int, device: torch.device) -> Self:
        """Memory for blocks of `length`; `begin` fills it."""
        ids, numbers = (
            torch.zeros(2, 2 * length, dtype=dtype, device=device)
            for dtype in (torch.int64, torch.float32)
        )
        return cls(
            tokens=torch.zeros(2, length, dtype=torch.int64, device=device),
            undecided=torch.zeros(2, length, dtype=torch.int32, device=device),
            states=torch.zeros(2, len(BLOCK), dtype=torch.int64, device=device),
            control=torch.zeros(len(CONTROL), dtype=torch.int64, device=device),
            flags=torch.zeros(len(FLAGS), dtype=torch.int32, device=device),
            chosen=ids[0], best=ids[1], confidence=numbers[0], best_probability=numbers[1],
        )  # fmt: skip

    @property
    def length(self) -> int:
        """Positions of a block."""
        return self.tokens.shape[1]

    def flag(self, name: str) -> Tensor:
        """One of FLAGS, int32 [1]: a view."""
        at = FLAGS.index(name)
        return self.flags[at : at + 1]

    def begin(self, tail: list[int], start: int, mask_id: int, control: dict[str, int]) -> None:
        """Open an answer's first block at `start`, with the prompt's last tokens in it."""
        length = self.length
        tokens = tail + [mask_id] * (2 * length - len(tail))
        undecided = [0] * len(tail) + [1] * (2 * length - len(tail))
        blocks = [[start, len(tail), 0, 0, 0], [start + length, 0, 0, 0, 0]]
        flags = {"go": 1, "narrow": 1, "start": start}
        self.tokens.copy_(torch.tensor(tokens).view(2, length))
        self.undecided.copy_(torch.tensor(undecided).view(2, length))
        self.states.copy_(torch.tensor(blocks))
        self.control.copy_(torch.tensor([control.get(name, 0) for name in CONTROL]))
        self.flags.copy_(torch.tensor([flags.get(name, 0) for name in FLAGS]))


def log_lines(capacity: int) -> int:
    """Records that there is room for, with `capacity` positions: enough for blocks of 8 that take
    all the steps they may."""
    return 4 * capacity + 1024


@dataclass(frozen=True)
class Mailbox:
    """What the device tells the host while it runs, and the host's one word to it.

    In pinned memory where there is a device. `written` int64 [1] counts the finished records of
    `log` int32 [n, COLUMNS], which has room for a whole answer; the last one's kind is DONE. Step
    number s (from 0) lies in line s % RING of tokens int64, confidences float32 and marks int32
    (1: unmasked, 2: edited) [RING, B]. A block's final tokens lie at block * B of `final` int64.
    `stop` int32 [1]: the host wants no further forward.
    """

    written: Tensor
    log: Tensor
    tokens: Tensor
    confidences: Tensor
    marks: Tensor
    final: Tensor
    stop: Tensor

    @classmethod
    def empty(cls, length: int, capacity: int, *, pinned: bool) -> Self:
        """For answers within `capacity` positions."""

        def box(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, pin_memory=pinned)

        return cls(
            written=box(1, dtype=torch.int64),
            log=box(log_lines(capacity), COLUMNS, dtype=torch.int32),
            tokens=box(RING, length, dtype=torch.int64),
            confidences=box(RING, length, dtype=torch.float32),
            marks=box(RING, length, dtype=torch.int32),
            final=box(capacity, dtype=torch.int64),
            stop=box(1, dtype=torch.int32),
        )

    def clear(self) -> None:
        """Before an answer, while nothing runs."""
        self.written.zero_()
        self.stop.zero_()
