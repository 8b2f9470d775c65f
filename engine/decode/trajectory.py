"""What a rollout remembers of each step, so that training can replay it exactly."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class StepState:
    """The input of one denoising step.

    Attributes:
        block: index in the answer, from 0.
        step: within the block, from 0.
        start: position of the block's first token.
        canvas: [B] int64 tokens that the step read, the mask id where undecided.
        undecided: [B] bool.
        z: [B, d] float32 residual context that it consumed, before the adapter; None if none.
        entropy: mean over its undecided positions of the predicted distribution's entropy, nats;
            0 when nothing was undecided.
    """

    block: int
    step: int
    start: int
    canvas: Tensor
    undecided: Tensor
    z: Tensor | None
    entropy: float


@dataclass(frozen=True)
class Trajectory:
    """A recorded answer: the prompt, the accepted steps in order, and the final tokens.

    `final_ids` are prompt and answer in whole blocks, tokens past the end included. Mask ids stand
    there where nothing was decided: past an end that was certain before its block was filled, and
    anywhere in the last block of an answer that was stopped.
    """

    prompt_ids: tuple[int, ...]
    final_ids: tuple[int, ...]
    block_length: int
    steps: tuple[StepState, ...]
