"""CUDA graphs on the emulated card: what a stream captures is written down, and a graph that is
started runs it on a thread of its own, loops and branches as the numbers in memory say.

So nothing that the host does while it captures is done again when a graph runs, and whoever follows
an answer sees its mailbox change under their hands, as on a card.
"""

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from engine.decode.graph import GraphMaker
from engine.decode.loop_launches import LoopLaunches, Shape
from engine.decode.loops import Loops
from engine.kernels.plans import launches_ahead
from tests.ptx.card import Card


@dataclass
class Conditional:
    """A node whose body runs once or, of a loop, again and again, while its handle is set."""

    handle: int
    loop: bool
    body: list[Any] = field(default_factory=list)


class Stream:
    """One graph at a time."""

    def __init__(self, number: int) -> None:
        self.cuda_stream = number
        self._thread: threading.Thread | None = None
        self._failures: list[Exception] = []

    def start(self, work: Callable[[], None]) -> None:
        """Run `work` after what is under way."""
        self.synchronize()

        def run() -> None:
            try:
                work()
            except Exception as error:
                self._failures.append(error)

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def query(self) -> bool:
        """Whether nothing is under way."""
        return self._thread is None or not self._thread.is_alive()

    def synchronize(self) -> None:
        """Wait for it; what it raised is raised here."""
        if self._thread is not None:
            self._thread.join()
        if self._failures:
            raise self._failures.pop()

    def wait_stream(self, other: "Stream") -> None:
        """What `other` still has to do comes first."""
        other.synchronize()


class Runtime:
    """cuda.bindings.runtime as far as `engine.decode.graph` uses it."""

    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeRelaxed="relaxed")
    cudaGraphConditionalNodeType = SimpleNamespace(
        cudaGraphCondTypeWhile="while", cudaGraphCondTypeIf="if"
    )
    cudaGraphNodeType = SimpleNamespace(
        cudaGraphNodeTypeConditional="conditional", cudaGraphNodeTypeKernel="kernel"
    )
    cudaGraphDependencyType = SimpleNamespace(cudaGraphDependencyTypeProgrammatic=1)

    cudaStreamUpdateCaptureDependenciesFlags = SimpleNamespace(
        cudaStreamSetCaptureDependencies="set"
    )

    def __init__(self, card: Card) -> None:
        self._card = card
        self._streams: dict[int, Stream] = {}
        self._set: dict[int, bool] = {}
        self.launches = 0
        self.early = 0  # kernels that are launched ahead of time

    def new_stream(self) -> Stream:
        stream = Stream(len(self._streams) + 1)
        self._streams[stream.cuda_stream] = stream
        return stream

    @contextmanager
    def on_stream(self, stream: Stream) -> Iterator[None]:
        """Launches go to it, within."""
        before, self._card.stream = self._card.stream, stream.cuda_stream
        try:
            yield
        finally:
            self._card.stream = before

    def set_condition(self, handle: int, flag: Tensor) -> None:
        """The kernel that sets a condition, launched on the current stream."""
        number = ctypes.c_int32.from_address(flag.data_ptr())
        self._card.captured[self._card.stream].append(
            lambda: self._set.update({handle: number.value != 0})
        )

    def cudaConditionalNodeParams(self) -> SimpleNamespace:
        return SimpleNamespace(phGraph_out=[None])

    def cudaGraphNodeParams(self) -> SimpleNamespace:
        return SimpleNamespace()

    def cudaStreamBeginCapture(self, stream: int, mode: str) -> tuple[int]:
        self._card.captured[stream] = []
        return (0,)

    def cudaStreamBeginCaptureToGraph(
        self, stream: int, body: list[Any], before: None, edges: None, count: int, mode: str
    ) -> tuple[int]:
        self._card.captured[stream] = body
        return (0,)

    def cudaStreamGetCaptureInfo(self, stream: int) -> tuple[Any, ...]:
        nodes = self._card.captured[stream]
        return 0, "active", 1, nodes, nodes[-1:], None, len(nodes[-1:])

    def cudaGraphConditionalHandleCreate(
        self, graph: list[Any], default: int, flags: int
    ) -> tuple[int, int]:
        self._set[len(self._set)] = bool(default)
        return 0, len(self._set) - 1

    def cudaGraphAddNode(
        self, graph: list[Any], before: list[Any], edges: list[Any], count: int,
        node: SimpleNamespace,
    ) -> tuple[Any, ...]:  # fmt: skip
        condition = node.conditional
        added = Conditional(condition.handle, condition.type == "while")
        condition.phGraph_out = [added.body]
        graph.append(added)
        return 0, added

    def cudaStreamUpdateCaptureDependencies(self, *arguments: Any) -> tuple[int]:
        return (0,)

    def cudaStreamEndCapture(self, stream: int) -> tuple[Any, ...]:
        return 0, self._card.captured.pop(stream)

    def cudaGraphEdgeData(self) -> SimpleNamespace:
        return SimpleNamespace(type=0)

    def cudaGraphGetEdges(self, graph: list[Any], room: int) -> tuple[Any, ...]:
        # Kernels that are let in early change nothing here: the card sees to it that they wait.
        edges = list(itertools.pairwise(graph))
        if not room:
            return 0, None, None, None, len(edges)
        return 0, *zip(*edges, strict=True), [None] * len(edges), len(edges)

    def cudaGraphNodeGetType(self, node: Any) -> tuple[int, str]:
        return 0, "conditional" if isinstance(node, Conditional) else "kernel"

    def cudaGraphRemoveDependencies(self, *arguments: Any) -> tuple[int]:
        return (0,)

    def cudaGraphAddDependencies(self, *arguments: Any) -> tuple[int]:
        _, _, ends, edges, count = arguments
        assert all(edge.type == 1 for edge in edges)
        self.early += count
        for node in ends:
            # The setter of conditions is no PTX.
            kernel = node.func.__self__ if isinstance(node, partial) else None
            assert kernel is None or any("griddepcontrol.wait" in text for text in kernel.texts)
        return (0,)

    def cudaGraphInstantiate(self, graph: list[Any], flags: int) -> tuple[Any, ...]:
        return 0, graph

    def cudaGraphLaunch(self, graph: list[Any], stream: int) -> tuple[int]:
        # A loop's condition is its default at first: its first round is certain.
        self._set = dict.fromkeys(self._set, True)
        self.launches += 1
        self._streams[stream].start(lambda: self._run(graph))
        return (0,)

    def _run(self, nodes: list[Any]) -> None:
        for node in nodes:
            if not isinstance(node, Conditional):
                node()
            elif node.loop:
                while self._set[node.handle]:
                    self._run(node.body)
            elif self._set[node.handle]:
                self._run(node.body)


def make_maker(card: Card) -> tuple[GraphMaker, Runtime]:
    """A maker of graphs on `card`, with kernels launched ahead of time where it can do that."""
    runtime = Runtime(card)
    maker = GraphMaker(
        runtime, runtime.set_condition, runtime.new_stream, runtime.on_stream, lambda: None,
        ahead=launches_ahead(card.capability),
    )  # fmt: skip
    return maker, runtime


def make_loops(card: Card, maker: GraphMaker, stream: Stream) -> Loops:
    """The loops of a model that the card serves; no memory is pinned where there is no device."""
    return Loops(
        lambda denoiser: LoopLaunches(
            denoiser, card.capability, pinned=False, ahead=maker.ahead
        ),
        Shape.of, maker, loops=True, current=lambda: stream,
    )  # fmt: skip
