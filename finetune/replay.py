"""A packed row through the current weights, with the z that its states consumed.

On the weights that rolled out, a row's logits are the rollout's: that equality is what on-policy
means, and it is tested.

Left out: states as their own forwards (the tests' oracle), and stored replay from older weights.
"""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from engine.kernels import ops
from engine.model.attention import Attend
from engine.model.transformer import LLaDA2Model
from finetune.rows import Row


def replay(model: LLaDA2Model, row: Row, attend: Attend, *, checkpointed: bool = False) -> Tensor:
    """Normed hidden states [P, d] at the row's trained positions, ready for the head.

    With `checkpointed` a layer's activations are computed again in the backward pass, so that
    frozen weights which a layer unpacks for its own use live no longer than that layer.
    """
    clean = model.embed(row.clean)
    noisy = model.embed(row.canvas, row.z, row.consumed)
    x = torch.cat((clean, noisy.flatten(0, 1)))
    config = model.config
    cos, sin = ops(x).rotary_tables(row.positions, config.rotary_dim, config.rope_theta, x.dtype)
    for layer in model.model.layers:
        if checkpointed and torch.is_grad_enabled():
            x = checkpoint(
                layer, x, cos, sin, attend, use_reentrant=False, preserve_rng_state=False
            )
        else:
            x = layer(x, cos, sin, attend)
    hidden: Tensor = model.model.norm(x[row.clean.shape[0] + row.places])
    return hidden
