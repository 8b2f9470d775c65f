"""A model of any size with random weights, for measuring what needs no sense."""

import torch

from engine.decode.step import Step, blank_model
from engine.model.layers import RMSNorm
from engine.model.moe import Router
from engine.model.quantised import packed_modules
from engine.model.transformer import LLaDA2Model


def random_model(step: Step, device: torch.device, seed: int) -> LLaDA2Model:
    """The step's model with random weights on `device`: packed codes of every value, scales near
    one, and numbers that keep activations near one."""
    model = blank_model(step).to_empty(device=device)
    generator = torch.Generator(device=device).manual_seed(seed)
    for module in model.modules():
        if isinstance(module, RMSNorm):
            module.weight.data.fill_(1.0)
        elif isinstance(module, Router):
            module.weight.data.normal_(std=0.02, generator=generator)
            module.expert_bias.zero_()
        elif isinstance(module, torch.nn.Linear | torch.nn.Embedding):
            module.weight.data.normal_(std=0.02, generator=generator)
    for packed in packed_modules(model):
        for name, buffer in packed.named_buffers():
            if buffer.dtype == torch.float32:
                # Codes have a mean square near 9; 0.02 / 3 makes weights of 0.02.
                buffer.fill_(4 / 2688 if "input_scale" in name else 0.02 / 3)
            else:
                low, high = (52, 60) if "scales" in name else (0, 256)  # E4M3 of 0.75 to 1.5
                raw = buffer.view(torch.uint8)
                raw.random_(low, high, generator=generator)
    return model.eval()
