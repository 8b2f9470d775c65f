"""The denoising loop of a whole answer as a program: forwards, decisions, block after block.

What is computed is the `Work`'s; what the order is stands here, and is the same for a CUDA graph,
for a host that starts every piece, and for a test without a device (`graph.py`).
"""

from typing import Protocol

from engine.decode.graph import If, Part, While
from engine.decode.graph import Work as Launches
from engine.kernels.loop_state import LoopState


class Work(Protocol):
    """The pieces of a round. Each works on tensors that stay where they are and allocates
    nothing that outlives it."""

    def narrow(self) -> None:
        """Forward the open block; its predictions go to the second half of the state's."""

    def wide(self) -> None:
        """Forward the open block and the next one together."""

    def advance(self) -> None:
        """Decide, go on, tell the host, and set the flags."""

    def mix(self) -> None:
        """Residual context for the open block's next step, from the last forward."""


def answer_program(state: LoopState, work: Work) -> tuple[Part, ...]:
    """The loop of an answer that `state` is at the beginning (or, after a pause, the middle) of."""
    return (
        While(
            state.flag("go"),
            (
                If(state.flag("narrow"), (Launches(work.narrow),)),
                If(state.flag("wide"), (Launches(work.wide),)),
                Launches(work.advance),
                If(state.flag("mix"), (Launches(work.mix),)),
            ),
        ),
    )
