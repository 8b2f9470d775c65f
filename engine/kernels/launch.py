"""One kernel launch as data: run it on a device, or compile it for a card that is not there.

The same code makes both, from tensors or from their shapes (tensors on torch's meta device), so
what is compiled and counted offline is what runs.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor


@cache
def waits_by_itself(device: torch.device) -> bool:
    """Whether kernels on `device` can be launched ahead of time (`triton_ahead`)."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= LAUNCHED_AHEAD


LAUNCHED_AHEAD = (9, 0)
"""The first compute capability that knows programmatic dependent launch."""


@dataclass(frozen=True)
class Launch:
    """A Triton kernel with its grid, its arguments by name and its compile-time constants; whether
    it waits by itself is for the device to say."""

    name: str
    kernel: Any
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    constants: Mapping[str, Any]
    warps: int = 4
    stages: int = 3

    def run(self) -> None:
        """Launch it on the current stream of the device that its tensors lie on."""
        device = next(a.device for a in self.arguments.values() if isinstance(a, Tensor))
        constants = self.all_constants(ahead=waits_by_itself(device))
        # Triton launches on the current device, whatever the tensors say.
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            self.kernel[self.grid](**self.arguments, **constants, **self.options)

    def all_constants(self, *, ahead: bool) -> dict[str, Any]:
        """Of the kernel for a device that launches ahead of time, or for one that does not."""
        return {**self.constants, "AHEAD": ahead}

    @property
    def options(self) -> dict[str, int | bool]:
        """The compiler's options by Triton's names.

        A product and a sum are not fused. Where threads of several warps hold the same sum and each
        adds another's product to its own, fused they differ in the last bit, and which of them is
        stored depends on the schedule. It is also what the reference computes.
        """
        return {"num_warps": self.warps, "num_stages": self.stages, "enable_fp_fusion": False}
