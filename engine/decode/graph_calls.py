"""Calls of CUDA's runtime through cuda-bindings (a module is handed in, so that tests can stand in
for it): their failures as exceptions, and one name for what is called differently in CUDA 12."""

from typing import Any

_NAMED_OTHERWISE_BEFORE_13 = {
    "cudaStreamGetCaptureInfo": "_v3",
    "cudaStreamUpdateCaptureDependencies": "_v2",
    "cudaGraphAddNode": "_v2",
    "cudaGraphGetEdges": "_v2",
    "cudaGraphAddDependencies": "_v2",
    "cudaGraphRemoveDependencies": "_v2",
}
"""Calls that take or give data of edges; CUDA 12 has those of these names without."""


def call(runtime: Any, name: str, *arguments: Any) -> Any:
    """What `runtime.name` returned, without its status. RuntimeError with the driver's words."""
    function = getattr(runtime, name)
    suffix = _NAMED_OTHERWISE_BEFORE_13.get(name)
    if suffix is not None:
        function = getattr(runtime, name + suffix, function)
    status, *values = function(*arguments)
    if int(status):
        words = runtime.cudaGetErrorString(status)[1]
        raise RuntimeError(words.decode() if isinstance(words, bytes) else str(words))
    return values[0] if len(values) == 1 else tuple(values)


def plain_edges(runtime: Any, count: int) -> list[Any]:
    """Data of as many edges along which a node waits for the end of another: what streams capture.

    It is made anew and never taken from an answer: cuda-bindings before 12.9.7 and 13.3 answer with
    memory that they have freed (its issue 1804). Those of CUDA 12 do not take None for it.
    """
    return [runtime.cudaGraphEdgeData()] * count
