"""That the calls which make a graph are calls that cuda-bindings takes, by their real signatures:
without a driver each comes back with an error, which is looked past here, and none with a
TypeError. Run with cuda-bindings 12.9, 13.0 and 13.5, whose calls are not the same."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.decode.graph import GraphMaker, If, While, Work

runtime = pytest.importorskip("cuda.bindings.runtime")
pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="with a driver its handles would be followed"
)

SUFFIXES = "_v2", "_v3"


class Bindings:
    """The real module, whose functions are called and then answer what a capture needs."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(runtime, name)
        if not name.startswith(("cudaGraph", "cudaStream")) or isinstance(found, type):
            return found

        def function(*arguments: Any) -> tuple[Any, ...]:
            status, *_ = found(*arguments)
            assert status == runtime.cudaError_t.cudaErrorInsufficientDriver
            plain = name[:-3] if name.endswith(SUFFIXES) else name
            self.called.append(plain)
            return 0, *self.answers(plain, arguments)

        return function

    def answers(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        graph, node = runtime.cudaGraph_t(3), runtime.cudaGraphNode_t(4)
        edge = object()  # of use to nobody: older bindings return memory that they have freed
        several = bool(arguments[1:] and arguments[1])
        return {
            "cudaStreamEndCapture": (graph,),
            "cudaStreamGetCaptureInfo": ("active", 7, graph, [node], [edge], 1),
            "cudaGraphConditionalHandleCreate": (runtime.cudaGraphConditionalHandle(5),),
            "cudaGraphAddNode": (node,),
            "cudaGraphGetEdges": ([node], [node], [edge], 1) if several else (None, None, None, 1),
            "cudaGraphNodeGetType": (runtime.cudaGraphNodeType.cudaGraphNodeTypeKernel,),
            "cudaGraphInstantiate": (runtime.cudaGraphExec_t(6),),
        }.get(name, ())


def test_the_real_signatures_take_our_calls() -> None:
    bindings, flag = Bindings(), torch.ones(1, dtype=torch.int32)
    set_to: list[tuple[int, Tensor]] = []
    maker = GraphMaker(
        bindings, lambda handle, flag: set_to.append((handle, flag)),
        lambda: SimpleNamespace(cuda_stream=9), nullcontext, lambda: None, ahead=True,
    )  # fmt: skip
    work = Work(lambda: None)
    graph = maker.capture([work, While(flag, (If(flag, (work,)), work))], keep=None)
    graph.launch(SimpleNamespace(cuda_stream=9))
    assert maker.ahead
    assert [handle for handle, _ in set_to] == [5, 5]
    assert set(bindings.called) == {
        "cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaStreamGetCaptureInfo",
        "cudaStreamUpdateCaptureDependencies", "cudaStreamBeginCaptureToGraph",
        "cudaGraphConditionalHandleCreate", "cudaGraphAddNode", "cudaGraphGetEdges",
        "cudaGraphNodeGetType", "cudaGraphRemoveDependencies", "cudaGraphAddDependencies",
        "cudaGraphInstantiate", "cudaGraphLaunch",
    }  # fmt: skip
