"""One kernel launch as data: run it on a device, or compile it for a card that is not there.

The same code makes both, from tensors or from their shapes (tensors on torch's meta device), so
what is compiled and counted offline is what runs.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Launch:
    """A Triton kernel with its grid, its arguments by name and its compile-time constants.

    `ahead`: it may be launched while the one before is running, and waits by itself (from sm_90;
    `triton_ahead`).
    """

    name: str
    kernel: Any
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    constants: Mapping[str, Any]
    warps: int = 4
    stages: int = 3
    ahead: bool = False

    def run(self) -> None:
        """Launch it on the current stream of the device that its tensors lie on."""
        device = next(a.device for a in self.arguments.values() if isinstance(a, Tensor))
        # Triton launches on the current device, whatever the tensors say.
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            self.kernel[self.grid](**self.arguments, **self.all_constants, **self.options)

    @property
    def all_constants(self) -> dict[str, Any]:
        """`constants`, and the one that every kernel has."""
        return {**self.constants, "AHEAD": self.ahead}

    @property
    def options(self) -> dict[str, int | bool]:
        """The compiler's options by Triton's names.

        A product and a sum are not fused. Where threads of several warps hold the same sum and each
        adds another's product to its own, fused they differ in the last bit, and which of them is
        stored depends on the schedule. It is also what the reference computes.
        """
        return {"num_warps": self.warps, "num_stages": self.stages, "enable_fp_fusion": False}
