"""How far an answer may go, in whole blocks: known before anything is computed."""

from dataclasses import dataclass

from engine.config import DecodeConfig


@dataclass(frozen=True)
class Plan:
    """Where an answer may go: block starts from `first_start` to `last_start`, and the position
    `limit` that no visible token reaches; `by_context` when the context sets it, not the budget.
    """

    prompt: list[int]
    block_length: int
    first_start: int
    last_start: int
    limit: int
    by_context: bool

    @classmethod
    def make(cls, prompt: list[int], config: DecodeConfig, context_length: int) -> "Plan":
        """Whole blocks, within the budget and the context; the prompt is known to fit."""
        length = config.block_length
        budget = len(prompt) + config.max_new_tokens
        room = context_length // length * length
        limit = min(budget, room)
        return cls(
            prompt=prompt,
            block_length=length,
            first_start=len(prompt) // length * length,
            last_start=(limit - 1) // length * length,
            limit=limit,
            by_context=room < budget,
        )
