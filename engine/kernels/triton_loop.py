"""Whether a captured loop goes round again, decided on the device at the end of each round."""

import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.launch import Launch


@triton.jit
def turn_kernel(done, stop, rounds, most, go):
    """One program. All int32 [1]; `stop` may lie in pinned host memory: read anew."""
    count = tl.load(rounds) + 1
    tl.store(rounds, count)
    wanted = (tl.load(done) == 0) & (tl.load(stop, volatile=True) == 0)
    tl.store(go, (wanted & (count < tl.load(most))).to(tl.int32))


def turn_launch(done: Tensor, stop: Tensor, rounds: Tensor, most: Tensor, go: Tensor) -> Launch:
    """Counts a round and sets `go` unless `done`, `stop` or `most` rounds say no; all int32 [1]."""
    arguments: dict[str, Tensor | int] = {
        "done": done, "stop": stop, "rounds": rounds, "most": most, "go": go
    }  # fmt: skip
    return Launch("turn", turn_kernel, (1,), arguments, {}, warps=1)
