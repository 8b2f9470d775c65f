"""Every operation of the forward pass, under one name and signature for each implementation.

`ops(tensor)` is the one dispatch rule: the implementation is chosen by where the data lies, and
`nvfp4_ops` is the same rule for quantised weights. `reference` and `nvfp4_reference` (plain torch)
serve every device and are the oracle that other implementations are held against.
"""

from types import ModuleType

from torch import Tensor

from engine.kernels import nvfp4_reference, reference


def ops(tensor: Tensor) -> ModuleType:
    """The operations for tensors that lie where `tensor` does."""
    return reference


def nvfp4_ops(tensor: Tensor) -> ModuleType:
    """The operations on NVFP4 weights for tensors that lie where `tensor` does."""
    return nvfp4_reference
