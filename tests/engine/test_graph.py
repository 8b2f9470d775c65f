"""The order of calls in which a program becomes a CUDA graph, against a runtime that only writes
down what it is asked; and what becomes of failures."""

import gc
import itertools
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.decode.graph import (
    Graph,
    GraphMaker,
    GraphUnavailableError,
    If,
    Part,
    While,
    Work,
    run_on_host,
)


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
        return 0, "active", 7, graph, before, None, len(before)

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
        assert edges is None
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
        begins, ends, data = zip(*edges[:room], strict=True) if room else (None, None, None)
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


def answer_program(device: Device) -> list[Part]:
    """The shape of an answer: a loop whose round is 32 or 64 wide."""
    narrow = If(flag(32), (device.work("narrow forward"),))
    wide = If(flag(64), (device.work("wide forward"),))
    loop = While(flag(1), (device.work("choose"), narrow, wide, device.work("decide")))
    return [device.work("prologue"), loop, device.work("epilogue")]


def test_the_order_of_calls() -> None:
    device = Device()
    graph = device.maker.capture(answer_program(device), keep=None)
    graph.launch(SimpleNamespace(cuda_stream=9))
    assert device.runtime.log == [
        "synchronize",
        "cudaStreamBeginCapture 1",
        "prologue",
        "cudaGraphConditionalHandleCreate main 100",
        "cudaGraphAddNode main while 100",
        "cudaStreamUpdateCaptureDependencies 1",
        "cudaStreamBeginCaptureToGraph 2 body1",
        "choose",
        "cudaGraphConditionalHandleCreate body1 101",
        "set 101 to 32",
        "cudaGraphAddNode body1 if 101",
        "cudaStreamUpdateCaptureDependencies 2",
        "cudaStreamBeginCaptureToGraph 3 body2",
        "narrow forward",
        "cudaStreamEndCapture 3",
        "cudaGraphConditionalHandleCreate body1 102",
        "set 102 to 64",
        "cudaGraphAddNode body1 if 102",
        "cudaStreamUpdateCaptureDependencies 2",
        "cudaStreamBeginCaptureToGraph 3 body3",
        "wide forward",
        "cudaStreamEndCapture 3",
        "decide",
        "set 100 to 1",
        "cudaStreamEndCapture 2",
        "epilogue",
        "cudaStreamEndCapture 1",
        "cudaGraphInstantiate main",
        "cudaGraphLaunch executable 9",
    ]
    assert device.runtime.captured == {
        "main": ["prologue", "while 100", "epilogue"],
        "body1": ["choose", "set 101 to 32", "if 101", "set 102 to 64", "if 102", "decide",
                  "set 100 to 1"],
        "body2": ["narrow forward"],
        "body3": ["wide forward"],
    }  # fmt: skip


CALLS = [
    ("cudaStreamBeginCapture", 0),
    ("cudaGraphConditionalHandleCreate", 0),
    ("cudaGraphConditionalHandleCreate", 1),
    ("cudaGraphAddNode", 0),
    ("cudaGraphAddNode", 2),
    ("cudaStreamUpdateCaptureDependencies", 1),
    ("cudaStreamBeginCaptureToGraph", 0),
    ("cudaStreamEndCapture", 0),
    ("cudaStreamEndCapture", 2),
    ("cudaGraphInstantiate", 0),
]


@pytest.mark.parametrize("fails", CALLS)
def test_a_failed_call_ends_graphs_for_the_process(fails: tuple[str, int]) -> None:
    device = Device(fails)
    with pytest.raises(GraphUnavailableError, match="not permitted when stream is capturing"):
        device.maker.capture(answer_program(device), keep=None)
    said = list(device.runtime.log)
    with pytest.raises(GraphUnavailableError, match="off until the engine restarts"):
        device.maker.capture(answer_program(device), keep=None)
    assert device.runtime.log == said  # the driver was not asked again


@pytest.mark.parametrize("failing", ["choose", "narrow forward", "decide"])
def test_after_a_failure_in_a_body_no_capture_is_ended(failing: str) -> None:
    """Ending the outer capture of an invalid inner one crashes inside the driver."""
    device, kept = Device(broken=failing), flag(0)
    with pytest.raises(GraphUnavailableError, match="out of memory"):
        device.maker.capture(answer_program(device), kept)
    began = {line.split()[1] for line in device.runtime.log if "BeginCapture" in line}
    ended = {line.split()[1] for line in device.runtime.log if "EndCapture" in line}
    assert {"1", "2"} <= began
    assert not {"1", "2"} & ended
    # Its tensors are still held, since freeing one could end the capture too.
    held = weakref.ref(kept)
    del kept
    gc.collect()
    assert held() is not None
    device.maker._abandoned.clear()
    gc.collect()
    assert held() is None


def test_a_failure_before_any_body_gives_the_stream_back() -> None:
    device = Device(broken="prologue")
    with pytest.raises(GraphUnavailableError, match="out of memory"):
        device.maker.capture(answer_program(device), keep=None)
    assert device.runtime.log[-1] == "cudaStreamEndCapture 1"
    assert device.maker.unusable


def early(runtime: FakeRuntime) -> dict[str, list[tuple[str, str]]]:
    """The programmatic edges of each graph, by what they join."""
    found: dict[str, list[tuple[str, str]]] = {}
    for graph, edges in runtime.edges.items():
        nodes = runtime.captured[graph]
        assert {(a, b) for (_, a), (_, b), _ in edges} == {
            (i, i + 1) for i in range(len(nodes) - 1)
        }
        assert all(data.type == data.from_port and not data.to_port for *_, data in edges)
        found[graph] = sorted(
            (nodes[a], nodes[b]) for (_, a), (_, b), data in edges if data.type == 1
        )
    return found


def two_steps(device: Device) -> list[Part]:
    """Kernels behind each other within a loop, within a branch and outside."""
    names = ("prologue", "begin", "narrow forward", "sample", "decide")
    prologue, begin, forward, sample, decide = map(device.work, names)
    branch = If(flag(1), (forward, sample))
    return [prologue, begin, While(flag(1), (begin, branch, sample, decide))]


def test_kernels_that_wait_by_themselves_are_let_in_ahead() -> None:
    device = Device()
    device.maker.ahead = True
    device.maker.capture(two_steps(device), keep=None)
    assert early(device.runtime) == {
        "main": [("prologue", "begin")],
        "body1": [("begin", "set 101 to 1"), ("decide", "set 100 to 1"), ("sample", "decide")],
        "body2": [("narrow forward", "sample")],
    }
    assert device.runtime.log[-1] == "cudaGraphInstantiate main"
    assert device.maker.ahead


AHEAD_CALLS = [
    ("cudaGraphGetEdges", 0),
    ("cudaGraphGetEdges", 3),
    ("cudaGraphNodeGetType", 4),
    ("cudaGraphRemoveDependencies", 0),
    ("cudaGraphRemoveDependencies", 1),
    ("cudaGraphAddDependencies", 0),
    ("cudaGraphAddDependencies", 2),
    ("cudaGraphInstantiate", 0),
]


@pytest.mark.parametrize("fails", AHEAD_CALLS)
def test_where_that_is_refused_they_run_one_after_the_other(fails: tuple[str, int]) -> None:
    device = Device(fails)
    device.maker.ahead = True
    device.maker.capture(two_steps(device), keep=None)
    assert not any(early(device.runtime).values())
    assert device.runtime.log[-1] == "cudaGraphInstantiate main"
    assert not device.maker.ahead
    assert not device.maker.unusable


def test_edges_that_are_lost_end_graphs_for_the_process() -> None:
    device = Device(("cudaGraphAddDependencies", 0))
    device.maker.ahead = True
    answer, refused = device.runtime.answer, (900,)
    device.runtime.answer = lambda name, said, *values: (  # type: ignore[method-assign]
        refused if name == "cudaGraphAddDependencies" else answer(name, said, *values)
    )
    with pytest.raises(GraphUnavailableError, match="not permitted"):
        device.maker.capture(two_steps(device), keep=None)


def test_a_refused_launch_is_told_in_the_drivers_words() -> None:
    device = Device(("cudaGraphLaunch", 0))
    graph: Graph = device.maker.capture([device.work("step")], keep=None)
    with pytest.raises(RuntimeError, match="not permitted"):
        graph.launch(SimpleNamespace(cuda_stream=1))


def test_on_the_host_flags_decide_the_same() -> None:
    go, wide, narrow, log = flag(0), flag(0), flag(0), []

    def choose() -> None:
        wide.fill_(len(log) % 2)
        narrow.fill_(1 - len(log) % 2)

    program = [
        Work(lambda: log.append("prologue")),
        While(
            go,
            (
                Work(choose),
                If(narrow, (Work(lambda: log.append("narrow")),)),
                If(wide, (Work(lambda: log.append("wide")),)),
                Work(lambda: go.fill_(len(log) < 4)),
            ),
        ),
        Work(lambda: log.append("epilogue")),
    ]
    run_on_host(program)
    assert log == ["prologue", "wide", "narrow", "wide", "epilogue"]
