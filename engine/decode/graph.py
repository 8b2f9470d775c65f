"""A program of launches with loops and branches that the device decides, as one CUDA graph.

`Program` is data; `run_on_host` runs it eagerly (reading each flag), `GraphMaker.capture` makes a
graph of it with conditional nodes (CUDA 12.4 and later), which the host only starts. Both know
nothing of what the launches compute.

The order of calls matters and is this module's subject: a node's condition is set on the device by
the last launch before its value is needed; nothing may be allocated, synchronised or run on the
host inside; and after a failure inside a body no capture is ended or tried again in the process,
since the driver may then crash (cuda-python issue 2918).
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from torch import Tensor

from engine.decode.graph_calls import call, plain_edges
from engine.decode.graph_edges import KernelEdges, LostEdgesError

log = logging.getLogger(__name__)

Part: TypeAlias = "Work | If | While"


@dataclass(frozen=True)
class Work:
    """Launches on the current stream, by pointers that stay what they are."""

    run: Callable[[], None]


@dataclass(frozen=True)
class If:
    """`parts` run when `flag` (int32 [1] on the device) is not 0 by then."""

    flag: Tensor
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class While:
    """`parts` run once, and again while they leave `flag` (int32 [1]) other than 0."""

    flag: Tensor
    parts: tuple[Part, ...]


def run_on_host(parts: Sequence[Part]) -> None:
    """Run a program now: the eager form, and the stand-in for a graph where there is no device."""
    for part in parts:
        if isinstance(part, Work):
            part.run()
        elif isinstance(part, If):
            if int(part.flag):
                run_on_host(part.parts)
        else:
            run_on_host(part.parts)
            while int(part.flag):
                run_on_host(part.parts)


class Stream(Protocol):
    """What is used of torch.cuda.Stream."""

    cuda_stream: int


class GraphUnavailableError(RuntimeError):
    """No graph can be made in this process; the message says why."""


class Graph:
    """A captured program. `keep` holds every tensor that it points at."""

    def __init__(self, runtime: Any, executable: Any, keep: object) -> None:
        self._runtime, self._executable, self._keep = runtime, executable, keep

    def launch(self, stream: Stream) -> None:
        """Start it; returns at once. RuntimeError when the driver refuses."""
        call(self._runtime, "cudaGraphLaunch", self._executable, stream.cuda_stream)


@dataclass
class GraphMaker:
    """Makes graphs until the first failure, and never again after it.

    Attributes:
        runtime: the module cuda.bindings.runtime.
        set_condition: launches, on the current stream, the kernel that sets a conditional handle
            to whether a flag is not 0. Its module must have been loaded before.
        new_stream: makes a stream of its own.
        on_stream: makes launches go to a stream, torch.cuda.stream.
        synchronize: waits for the device.
        ahead: every kernel waits by itself for the one before, and may be let in ahead of time;
            false once a driver has refused that.
    """

    runtime: Any
    set_condition: Callable[[int, Tensor], None]
    new_stream: Callable[[], Stream]
    on_stream: Callable[[Any], AbstractContextManager[object]]
    synchronize: Callable[[], None]
    ahead: bool = False
    unusable: str = ""
    # What a failed capture was about: freeing any of it may end that capture.
    _abandoned: list[object] = field(default_factory=list)

    def capture(self, program: Sequence[Part], keep: object) -> Graph:
        """A graph of `program`. GraphUnavailableError now, and at every later call, if it fails.

        The caller has run every piece of work once before, so that nothing is compiled, loaded or
        allocated here.
        """
        if self.unusable:
            raise GraphUnavailableError(self.unusable)
        capture = _Capture(self, keep)
        try:
            return Graph(self.runtime, capture.run(program), keep)
        except Exception as error:
            self.unusable = f"CUDA graphs are off until the engine restarts: {error}"
            self._abandoned.append(capture)
            raise GraphUnavailableError(self.unusable) from error


class _Capture:
    """One capture: a stream for each depth of nesting."""

    def __init__(self, maker: GraphMaker, keep: object) -> None:
        self._maker, self._keep = maker, keep
        self._rt = maker.runtime
        # Relaxed: another thread's allocation does not concern this one.
        self._mode = self._rt.cudaStreamCaptureMode.cudaStreamCaptureModeRelaxed
        self._streams: list[Stream] = []
        self._bodies: list[Any] = []
        self._inside = False

    def run(self, program: Sequence[Part]) -> Any:
        """The executable graph."""
        self._maker.synchronize()
        stream = self._stream(0)
        self._call("cudaStreamBeginCapture", stream.cuda_stream, self._mode)
        try:
            self._parts(program, 0)
        except Exception:
            if not self._inside:
                # No body has begun: ending the capture is allowed, and gives the stream back.
                self._rt.cudaStreamEndCapture(stream.cuda_stream)
            raise
        graph = self._call("cudaStreamEndCapture", stream.cuda_stream)
        return self._instantiate(graph)

    def _instantiate(self, graph: Any) -> Any:
        """The executable graph, its kernels let in ahead of time where that is wanted and works."""
        changed: list[KernelEdges] = []
        if self._maker.ahead:
            try:
                # Only read at first: the bindings' older calls are not all known.
                for edges in [KernelEdges.of(self._rt, one) for one in (graph, *self._bodies)]:
                    edges.let_in_ahead(self._rt)
                    changed.append(edges)
                return self._call("cudaGraphInstantiate", graph, 0)
            except LostEdgesError:
                raise
            except Exception as error:
                log.warning("No kernel is launched ahead of time: %s", error)
                self._maker.ahead = False
        for edges in changed:
            edges.put_back(self._rt)
        return self._call("cudaGraphInstantiate", graph, 0)

    def _parts(self, parts: Sequence[Part], depth: int) -> None:
        for part in parts:
            if isinstance(part, Work):
                with self._maker.on_stream(self._stream(depth)):
                    part.run()
            else:
                self._conditional(part, depth)

    def _conditional(self, part: "If | While", depth: int) -> None:
        """A node whose body is captured on the next stream, into a graph that the node owns."""
        stream, child = self._stream(depth).cuda_stream, self._stream(depth + 1).cuda_stream
        loop = isinstance(part, While)
        graph = self._info(stream)[2]
        # The default, 1, is assigned at every launch of the graph: a loop's first round is certain.
        # A branch's condition is set right before it, whatever was assigned.
        handle = self._call("cudaGraphConditionalHandleCreate", graph, 1, _ASSIGN_DEFAULT)
        if not loop:
            self._set(handle, part.flag, depth)
        body, node = self._add_node(stream, handle, loop=loop)
        self._call(
            "cudaStreamUpdateCaptureDependencies", stream, [node], None, 1,
            self._rt.cudaStreamUpdateCaptureDependenciesFlags.cudaStreamSetCaptureDependencies,
        )  # fmt: skip
        self._inside = True
        self._bodies.append(body)
        self._call("cudaStreamBeginCaptureToGraph", child, body, None, None, 0, self._mode)
        self._parts(part.parts, depth + 1)
        if loop:
            self._set(handle, part.flag, depth + 1)
        self._call("cudaStreamEndCapture", child)

    def _add_node(self, stream: int, handle: Any, *, loop: bool) -> tuple[Any, Any]:
        """Append a conditional node to what `stream` has captured: its body graph, and the node."""
        rt = self._rt
        kinds = rt.cudaGraphConditionalNodeType
        condition = rt.cudaConditionalNodeParams()
        condition.handle, condition.size = handle, 1
        condition.type = kinds.cudaGraphCondTypeWhile if loop else kinds.cudaGraphCondTypeIf
        params = rt.cudaGraphNodeParams()
        params.type = rt.cudaGraphNodeType.cudaGraphNodeTypeConditional
        params.conditional = condition
        # Asked again: a launch since the last time has changed what a new node depends on.
        _, _, graph, before, _, count = self._info(stream)
        edges = plain_edges(rt, count)
        node = self._call("cudaGraphAddNode", graph, list(before or []), edges, count, params)
        return params.conditional.phGraph_out[0], node

    def _set(self, handle: Any, flag: Tensor, depth: int) -> None:
        with self._maker.on_stream(self._stream(depth)):
            self._maker.set_condition(int(handle), flag)

    def _info(self, stream: int) -> Any:
        """(status, capture id, graph, dependencies, their edges, how many)."""
        return self._call("cudaStreamGetCaptureInfo", stream)

    def _stream(self, depth: int) -> Stream:
        while len(self._streams) <= depth:
            self._streams.append(self._maker.new_stream())
        return self._streams[depth]

    def _call(self, name: str, *arguments: Any) -> Any:
        return call(self._rt, name, *arguments)


_ASSIGN_DEFAULT = 1
"""cudaGraphCondAssignDefault, which the bindings do not name."""
