"""The open block: its tokens, which of them are decided, and what the last step believed."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Canvas:
    """One block while it is denoised. A step makes a new canvas; none is changed in place.

    Attributes:
        start: position of its first token in the whole sequence, a multiple of the block length.
        tokens: [B] int64, the mask id where undecided.
        undecided: [B] bool.
        prompt_tokens: how many of the first positions hold the prompt's last tokens; these are
            protected: never undecided, never edited.
        z: [B, d] float32 expected embeddings under the last step's distribution; None before the
            first step.
        step: denoising steps taken.
        post_steps: mask-free steps taken.
        filled: nothing is undecided (known on the host, so that asking costs no transfer).
    """

    start: int
    tokens: Tensor
    undecided: Tensor
    prompt_tokens: int
    z: Tensor | None = None
    step: int = 0
    post_steps: int = 0
    filled: bool = False

    @classmethod
    def open(
        cls, start: int, block_length: int, prompt: list[int], mask_id: int, device: torch.device
    ) -> "Canvas":
        """A fresh canvas that begins with the `prompt` tokens that fall into the block."""
        tokens = torch.tensor(prompt + [mask_id] * (block_length - len(prompt)), device=device)
        undecided = torch.arange(block_length, device=device) >= len(prompt)
        return cls(start, tokens, undecided, len(prompt))

    def __len__(self) -> int:
        return self.tokens.shape[0]

    @property
    def editable(self) -> Tensor:
        """[B] bool: decided and not protected."""
        own = torch.arange(len(self), device=self.tokens.device) >= self.prompt_tokens
        return own & ~self.undecided

    @property
    def positions(self) -> Tensor:
        """[B] int64 positions in the whole sequence."""
        return torch.arange(self.start, self.start + len(self), device=self.tokens.device)
