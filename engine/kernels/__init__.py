"""Every operation of the forward pass, under one name and signature for each implementation.

`ops(tensor)` is the one dispatch rule: the implementation is chosen by where the data lies, and
`nvfp4_ops` is the same rule for quantised weights. `reference` and `nvfp4_reference` (plain torch)
serve every device and are the oracle that other implementations are held against; on an NVIDIA
card, where triton is installed, `triton_ops` and `triton_nvfp4` take their place. Triton is
imported when the first tensor on a card asks for it, and never on a CPU.
"""

import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor

from engine.kernels import nvfp4_reference, reference

CHOICE = "ORL_CHAT_KERNELS"
"""Environment variable; "reference" keeps Triton out of a process, cards included."""


def ops(tensor: Tensor) -> ModuleType:
    """The operations for tensors that lie where `tensor` does."""
    return import_module("engine.kernels.triton_ops") if runs_triton(tensor) else reference


def nvfp4_ops(tensor: Tensor) -> ModuleType:
    """The operations on NVFP4 weights for tensors that lie where `tensor` does."""
    return import_module("engine.kernels.triton_nvfp4") if runs_triton(tensor) else nvfp4_reference


def runs_triton(tensor: Tensor) -> bool:
    """Whether our kernels run where `tensor` lies."""
    wanted = os.environ.get(CHOICE) != "reference"
    return tensor.is_cuda and wanted and _has_triton(tensor.device)


@cache
def _has_triton(device: torch.device) -> bool:
    """AMD's cards call themselves CUDA devices too; before sm_80 there are no bf16 units."""
    return (
        torch.version.hip is None
        and find_spec("triton") is not None
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )
