"""Every operation of the forward pass, under one name and signature for each implementation.

`ops(tensor)` is the one dispatch rule: the implementation is chosen by where the data lies.
`reference` (plain torch) serves every device and is the oracle that other implementations are
held against.
"""

from types import ModuleType

from torch import Tensor

from engine.kernels import reference


def ops(tensor: Tensor) -> ModuleType:
    """The operations for tensors that lie where `tensor` does."""
    return reference
