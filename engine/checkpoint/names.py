"""The one table from tensor names on disk to places in the model.

A routed expert's three matrices are tensors of their own in the published files and slices of two
stacks in memory; everything else has the same name in both. Writing walks the same table backwards.
Other spellings of a checkpoint (stacked experts, packed weights) are `stored.py`'s.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from engine.config import ModelConfig
from engine.model.transformer import LLaDA2Model

RESIDUAL_PREFIX = "residual_adapter."
"""Names below this belong to the residual adapter, in a checkpoint or in an adapter folder."""

Index = tuple[int | slice, ...]


@dataclass(frozen=True)
class Place:
    """Where a tensor of a checkpoint lives: parameter (or buffer) `target`, of it the part `index`,
    with the last two dimensions exchanged if `transposed`."""

    target: str
    index: Index = ()
    transposed: bool = False

    def view(self, tensors: dict[str, Tensor]) -> Tensor:
        """The part of the model that the checkpoint's tensor fills."""
        whole = tensors[self.target]
        part = whole[self.index] if self.index else whole
        return part.mT if self.transposed else part


def model_tensors(model: LLaDA2Model) -> dict[str, Tensor]:
    """Parameters and buffers by their names in the model, detached."""
    return {
        name: tensor.detach()
        for source in (model.named_parameters(), model.named_buffers())
        for name, tensor in source
    }


def places(model: LLaDA2Model) -> dict[str, Place]:
    """Checkpoint name to place, for every tensor that a model of plain weights needs, in its order
    and in the published spelling."""
    table: dict[str, Place] = {}
    for name in model_tensors(model):
        if name.endswith((".experts.gate_up", ".experts.down")):
            table.update(_expert_places(name, model.config))
        else:
            table[name] = Place(name)
    return table


def projections(stack: str, config: ModelConfig) -> dict[str, slice]:
    """Which rows of an expert in `stack` ("gate_up" or "down") are which projection's."""
    width, hidden = config.moe_intermediate_size, config.hidden_size
    if stack == "gate_up":
        return {"gate_proj": slice(0, width), "up_proj": slice(width, 2 * width)}
    return {"down_proj": slice(0, hidden)}


def _expert_places(target: str, config: ModelConfig) -> Iterator[tuple[str, Place]]:
    stem, stack = target.rsplit(".", 1)
    parts = projections(stack, config)
    for expert in range(config.num_experts):
        for projection, rows in parts.items():
            yield f"{stem}.{expert}.{projection}.weight", Place(target, (expert, rows))
