"""One kernel launch as data: run it on a device, or compile it for a card that is not there.

The same code makes both, from tensors or from their shapes (tensors on torch's meta device), so
what is compiled and counted offline is what runs.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Launch:
    """A Triton kernel with its grid, its arguments by name and its compile-time constants."""

    name: str
    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Tensor | int]
    constants: dict[str, Any]
    warps: int = 4
    stages: int = 3

    def run(self) -> None:
        """Launch it on the current stream."""
        self.kernel[self.grid](
            **self.arguments, **self.constants, num_warps=self.warps, num_stages=self.stages
        )
