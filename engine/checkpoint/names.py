"""The one table from tensor names on disk to places in the model.

A routed expert's three matrices are tensors of their own on disk and slices of two stacks in
memory; everything else has the same name in both. Writing walks the same table backwards.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from engine.config import ModelConfig
from engine.model.transformer import LLaDA2Model

RESIDUAL_PREFIX = "residual_adapter."
"""Names below this belong to the residual adapter, in a checkpoint or in an adapter folder."""


@dataclass(frozen=True)
class Place:
    """Where a tensor of a checkpoint lives: parameter (or buffer) `target`, and within it expert
    `expert`'s rows `first` to `last`; expert None means the whole of it."""

    target: str
    expert: int | None = None
    first: int = 0
    last: int = 0

    def view(self, tensors: dict[str, Tensor]) -> Tensor:
        """The part of the model that the checkpoint's tensor fills."""
        whole = tensors[self.target]
        return whole if self.expert is None else whole[self.expert, self.first : self.last]


def model_tensors(model: LLaDA2Model) -> dict[str, Tensor]:
    """Parameters and buffers by their names in the model, detached."""
    return {
        name: tensor.detach()
        for source in (model.named_parameters(), model.named_buffers())
        for name, tensor in source
    }


def places(model: LLaDA2Model) -> dict[str, Place]:
    """Checkpoint name to place, for every tensor that the model needs, in the model's order."""
    table: dict[str, Place] = {}
    for name in model_tensors(model):
        if name.endswith((".experts.gate_up", ".experts.down")):
            table.update(_expert_places(name, model.config))
        else:
            table[name] = Place(name)
    return table


def _expert_places(target: str, config: ModelConfig) -> Iterator[tuple[str, Place]]:
    stem, stack = target.rsplit(".", 1)
    width, hidden = config.moe_intermediate_size, config.hidden_size
    parts = (
        {"gate_proj": (0, width), "up_proj": (width, 2 * width)}
        if stack == "gate_up"
        else {"down_proj": (0, hidden)}
    )
    for expert in range(config.num_experts):
        for projection, (first, last) in parts.items():
            name = f"{stem}.{expert}.{projection}.weight"
            yield name, Place(target, expert, first, last)
