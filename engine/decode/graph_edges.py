"""Edges of a captured graph along which a kernel's programs are let in ahead of time.

What is captured from a stream runs kernel after kernel: each begins when the one before has come to
its end. Along a programmatic edge it is let in as soon as all programs of the one before have their
places (CUDA programming guide, "Programmatic Dependent Launch", "Use in CUDA Graphs"), and waits by
itself for the rest; `engine/kernels/triton_ahead.py` says what that asks of every kernel.
"""

from dataclasses import dataclass
from typing import Any

from engine.decode.graph_calls import call, plain_edges


class LostEdgesError(RuntimeError):
    """Edges were taken away and could not be put back: the graph is of no use."""


@dataclass(frozen=True)
class KernelEdges:
    """The edges of `graph` from one kernel to another, which a stream captured as plain ones."""

    graph: Any
    begins: tuple[Any, ...]
    ends: tuple[Any, ...]

    @classmethod
    def of(cls, runtime: Any, graph: Any) -> "KernelEdges":
        """Those that it has now. RuntimeError when the driver refuses."""
        *_, count = call(runtime, "cudaGraphGetEdges", graph, 0)
        begins, ends, *_ = call(runtime, "cudaGraphGetEdges", graph, count) if count else ((), ())
        between = [
            edge
            for edge in zip(begins, ends, strict=True)
            if _is_kernel(runtime, edge[0]) and _is_kernel(runtime, edge[1])
        ]
        return cls(graph, tuple(a for a, _ in between), tuple(b for _, b in between))

    def let_in_ahead(self, runtime: Any) -> None:
        """Make them programmatic. RuntimeError when the driver refuses; they are then as before,
        but for LostEdgesError."""
        plain = plain_edges(runtime, len(self.begins))
        self._replace(runtime, plain, self._programmatic(runtime))

    def put_back(self, runtime: Any) -> None:
        """As they were captured, after `let_in_ahead`."""
        plain = plain_edges(runtime, len(self.begins))
        self._replace(runtime, self._programmatic(runtime), plain)

    def _programmatic(self, runtime: Any) -> list[Any]:
        data = runtime.cudaGraphEdgeData()
        data.type = int(runtime.cudaGraphDependencyType.cudaGraphDependencyTypeProgrammatic)
        data.from_port = _PROGRAMMATIC_PORT
        return [data] * len(self.begins)

    def _replace(self, runtime: Any, old: list[Any], new: list[Any]) -> None:
        """Edges with data `old` become edges with `new`."""
        if not self.begins:
            return
        ends = self.graph, list(self.begins), list(self.ends)
        count = len(self.begins)
        call(runtime, "cudaGraphRemoveDependencies", *ends, old, count)
        try:
            call(runtime, "cudaGraphAddDependencies", *ends, new, count)
        except Exception:
            try:
                call(runtime, "cudaGraphAddDependencies", *ends, old, count)
            except Exception as error:
                raise LostEdgesError(str(error)) from error
            raise


_PROGRAMMATIC_PORT = 1
"""cudaGraphKernelNodePortProgrammatic: open once all of a kernel's programs let the next one in."""


def _is_kernel(runtime: Any, node: Any) -> bool:
    kind = call(runtime, "cudaGraphNodeGetType", node)
    return bool(kind == runtime.cudaGraphNodeType.cudaGraphNodeTypeKernel)
