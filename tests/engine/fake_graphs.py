"""A runtime that only writes down what it is asked, and a maker of graphs on it."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from engine.decode.graph import GraphMaker, Work


class FakeRuntime:
    """cuda.bindings.runtime as far as it is used: handles count up, and `fails` names the call
    (and which one of its kind) that returns an error."""

    def __init__(self, fails: tuple[str, int] | None = None) -> None:
        self.log: list[str] = []
        self.fails = fails
        self.captures: dict[int, str] = {}  # stream to the graph it fills
        self.captured: dict[str, list[str]] = {}
        self.bodies = 0
        names = SimpleNamespace
        self.cudaStreamCaptureMode = names(cudaStreamCaptureModeRelaxed="relaxed")
        self.cudaGraphConditionalNodeType = names(
            cudaGraphCondTypeWhile="while", cudaGraphCondTypeIf="if"
        )
        self.edges: dict[str, list[tuple[Any, Any, Any]]] = {}
        self.cudaGraphNodeType = names(
            cudaGraphNodeTypeConditional="conditional", cudaGraphNodeTypeKernel="kernel"
        )
        self.cudaGraphDependencyType = names(cudaGraphDependencyTypeProgrammatic=1)
        self.cudaStreamUpdateCaptureDependenciesFlags = names(
            cudaStreamSetCaptureDependencies="set"
        )

    def cudaConditionalNodeParams(self) -> SimpleNamespace:
        return SimpleNamespace(phGraph_out=[None])

    def cudaGraphNodeParams(self) -> SimpleNamespace:
        return SimpleNamespace()

    def cudaGetErrorString(self, status: int) -> tuple[int, bytes]:
        return 0, b"operation not permitted when stream is capturing"

    def answer(self, name: str, said: str, *values: Any) -> tuple[Any, ...]:
        self.log.append(said)
        if self.fails is not None and self.fails[0] == name:
            before = sum(1 for line in self.log[:-1] if line.split()[0] == name)
            if before == self.fails[1]:
                return (900, *[None] * len(values))
        return (0, *values)

    def begin(self, stream: int, graph: str) -> None:
        assert stream not in self.captures, "one stream cannot capture twice"
        self.captures[stream] = graph
        self.captured.setdefault(graph, [])

    def cudaStreamBeginCapture(self, stream: int, mode: str) -> tuple[Any, ...]:
        assert mode == "relaxed"
        self.begin(stream, "main")
        return self.answer("cudaStreamBeginCapture", f"cudaStreamBeginCapture {stream}")

    def cudaStreamGetCaptureInfo(self, stream: int) -> tuple[Any, ...]:
        graph = self.captures[stream]
        before = self.captured[graph][-1:]
        return 0, "active", 7, graph, before, object(), len(before)

    def cudaGraphConditionalHandleCreate(
        self, graph: str, default: int, flags: int
    ) -> tuple[Any, ...]:
        assert (default, flags) == (1, 1)
        handle = 100 + sum("HandleCreate" in line for line in self.log)
        name = "cudaGraphConditionalHandleCreate"
        return self.answer(name, f"{name} {graph} {handle}", handle)

    def cudaGraphAddNode(
        self, graph: str, before: list[str], edges: Any, count: int, params: SimpleNamespace
    ) -> tuple[Any, ...]:
        assert len(before) == count
        assert edges == [self.cudaGraphEdgeData()] * count
        # It depends on all that was captured before: on the setter of its own condition too.
        assert before == self.captured[graph][-1:]
        self.bodies += 1
        body, condition = f"body{self.bodies}", params.conditional
        condition.phGraph_out = [body]
        node = f"{condition.type} {condition.handle}"
        self.added = (graph, node)
        return self.answer("cudaGraphAddNode", f"cudaGraphAddNode {graph} {node}", node)

    def cudaStreamUpdateCaptureDependencies(
        self, stream: int, nodes: list[str], edges: Any, count: int, flags: str
    ) -> tuple[Any, ...]:
        assert (self.captures[stream], nodes[0]) == self.added
        assert (len(nodes), edges, count, flags) == (1, None, 1, "set")
        self.captured[self.captures[stream]].append(nodes[0])
        name = "cudaStreamUpdateCaptureDependencies"
        return self.answer(name, f"{name} {stream}")

    def cudaStreamBeginCaptureToGraph(
        self, stream: int, body: str, before: Any, edges: Any, count: int, mode: str
    ) -> tuple[Any, ...]:
        assert (before, edges, count, mode) == (None, None, 0, "relaxed")
        self.begin(stream, body)
        name = "cudaStreamBeginCaptureToGraph"
        return self.answer(name, f"{name} {stream} {body}")

    def cudaStreamEndCapture(self, stream: int) -> tuple[Any, ...]:
        graph = self.captures.pop(stream)
        return self.answer("cudaStreamEndCapture", f"cudaStreamEndCapture {stream}", graph)

    def cudaGraphEdgeData(self) -> SimpleNamespace:
        return SimpleNamespace(type=0, from_port=0, to_port=0)

    def cudaGraphGetEdges(self, graph: str, room: int) -> tuple[Any, ...]:
        nodes = [(graph, i) for i in range(len(self.captured[graph]))]
        edges = self.edges.setdefault(
            graph,
            [(a, b, self.cudaGraphEdgeData()) for a, b in itertools.pairwise(nodes)],
        )
        assert room in (0, len(edges))
        begins, ends, _ = zip(*edges[:room], strict=True) if room else (None, None, None)
        data = object()  # of use to nobody: older bindings return memory that they have freed
        said = f"cudaGraphGetEdges {graph}"
        return self.answer("cudaGraphGetEdges", said, begins, ends, data, len(edges))

    def cudaGraphNodeGetType(self, node: tuple[str, int]) -> tuple[Any, ...]:
        name = self.captured[node[0]][node[1]]
        kind = "conditional" if name.split()[0] in ("while", "if") else "kernel"
        return self.answer("cudaGraphNodeGetType", f"cudaGraphNodeGetType {name}", kind)

    def cudaGraphRemoveDependencies(self, *arguments: Any) -> tuple[Any, ...]:
        return self.change("cudaGraphRemoveDependencies", list.remove, *arguments)

    def cudaGraphAddDependencies(self, *arguments: Any) -> tuple[Any, ...]:
        return self.change("cudaGraphAddDependencies", list.append, *arguments)

    def change(
        self, name: str, act: Any, graph: str, begins: Any, ends: Any, data: Any, count: int
    ) -> tuple[Any, ...]:
        edges = list(zip(begins, ends, data, strict=True))
        assert len(edges) == count
        status = self.answer(name, f"{name} {graph}")
        for edge in [] if status[0] else edges:
            act(self.edges[graph], edge)
        return status

    def cudaGraphInstantiate(self, graph: str, flags: int) -> tuple[Any, ...]:
        assert not self.captures, "every capture has ended"
        return self.answer("cudaGraphInstantiate", f"cudaGraphInstantiate {graph}", "executable")

    def cudaGraphLaunch(self, executable: str, stream: int) -> tuple[Any, ...]:
        return self.answer("cudaGraphLaunch", f"cudaGraphLaunch {executable} {stream}")


class Device:
    """A maker of graphs on a fake runtime: launches go to the stream that is current."""

    def __init__(self, fails: tuple[str, int] | None = None, broken: str | None = None) -> None:
        self.runtime, self.broken = FakeRuntime(fails), broken
        self.streams = 0
        self.current: int | None = None
        self.maker = GraphMaker(
            self.runtime,
            lambda handle, flag: self.launch(f"set {handle} to {flag.item()}"),
            self.new_stream,
            self.on_stream,
            lambda: self.runtime.log.append("synchronize"),
        )

    def new_stream(self) -> SimpleNamespace:
        self.streams += 1
        return SimpleNamespace(cuda_stream=self.streams)

    @contextmanager
    def on_stream(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream.cuda_stream
        yield
        self.current = before

    def launch(self, name: str) -> None:
        assert self.current is not None
        if name == self.broken:
            raise RuntimeError("out of memory")
        self.runtime.captured[self.runtime.captures[self.current]].append(name)
        self.runtime.log.append(name)

    def work(self, name: str) -> Work:
        return Work(lambda: self.launch(name))


def flag(value: int) -> Tensor:
    return torch.tensor([value], dtype=torch.int32)
