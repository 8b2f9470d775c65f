"""How the last program of a launch to be done goes on with what all of them made.

Programs that make parts of one result count themselves on one integer in memory; who finds that
all others have come before reads their parts and finishes. That saves the launch which would read
them, and nothing waits: a program that is not the last one ends. Which one is the last depends on
the schedule, so what it computes must not: it reads every part, its own too, in a fixed order.

Why it is right in CUDA's memory model (PTX ISA, "Memory Consistency Model"): every thread's stores
come before its program's barrier, which comes before the atomic addition of one thread; that
addition releases them to the whole device, being `acq_rel`, and cumulatively, so those that
the barrier ordered before it too. The last addition reads from the chain of the others, which makes
it acquire what each released; Triton then hands its result to all threads through shared memory
and a second barrier, before any of them reads a part. Readings after an acquire see no old line of
the first-level cache.

A counter is 0 between launches: its last program puts it back. No other program of that launch
touches it any more, and the next launch on the stream, or the next node of a graph, begins
after this one's stores, or waits for them (`triton_ahead.py`). So it is zeroed once, when it is
made, and a graph may be replayed.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def is_last(counter, programs):
    """Whether this program is the last of `programs` to say so at `counter`; whoever is sees what
    the others stored before."""
    tl.debug_barrier()
    before = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    last = before == programs - 1
    if last:
        tl.store(counter, 0)
    return last


def new_counters(count: int, device: torch.device) -> Tensor:
    """Counters at rest: int32 zeros. Launches on one stream may share them."""
    return torch.zeros(count, dtype=torch.int32, device=device)
