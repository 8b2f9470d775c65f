"""The loops of a model that lies on a card, or the sentence that says why there are none."""

import torch

from engine.decode.cuda_graphs import make_maker
from engine.decode.denoise import Denoiser
from engine.decode.graph import GraphUnavailableError
from engine.decode.loops import Built, Loops
from engine.kernels import runs_triton
from engine.kernels.loop_state import BLOCKS, NEVER
from engine.kernels.plans import launches_ahead
from engine.machine.system import read_system
from engine.model.transformer import LLaDA2Model

_EAGER = "Without a CUDA graph, step by step: {}."


def make_loops(model: LLaDA2Model, *, graph: bool, ahead: bool = False) -> tuple[Loops | None, str]:
    """The loops for `model`, and what to say where there are none ("" on a CPU). `ahead`: a graph's
    kernels are to be launched ahead of time."""
    device = model.embedding_table.device
    if device.type != "cuda":
        return None, ""
    if not graph:
        return None, _EAGER.format("as asked")
    if not runs_triton(model.embedding_table):
        return None, _EAGER.format("a graph needs the Triton kernels")
    capability = torch.cuda.get_device_capability(device)
    early = ahead and launches_ahead(capability)
    try:
        maker, loops = make_maker(device, ahead=early)
    except GraphUnavailableError as error:
        return None, _EAGER.format(error)
    from engine.decode.loop_launches import LoopLaunches, Shape

    def build(denoiser: Denoiser) -> Built:
        return LoopLaunches(denoiser, capability, pinned=True, ahead=early)

    # Under WSL the host sees what a graph writes only when it has come to an end.
    pause = BLOCKS if read_system().wsl else NEVER
    made = Loops(
        build, Shape.of, maker, loops=loops,
        current=lambda: torch.cuda.current_stream(device), pause=pause, ahead=ahead,
    )  # fmt: skip
    return made, ""
