"""Kernels that are launched ahead of time: which edges of a graph that changes, against a runtime
that only writes down what it is asked, and what becomes of a driver's refusals."""

import pytest

from engine.decode.graph import GraphUnavailableError, If, Part, While
from tests.engine.fake_graphs import Device, FakeRuntime, flag


def early(runtime: FakeRuntime) -> dict[str, list[tuple[str, str]]]:
    """The programmatic edges of each graph, by what they join."""
    found: dict[str, list[tuple[str, str]]] = {}
    for graph, edges in runtime.edges.items():
        nodes = runtime.captured[graph]
        assert {(a, b) for (_, a), (_, b), _ in edges} == {
            (i, i + 1) for i in range(len(nodes) - 1)
        }
        assert all(d.type == d.from_port and not d.to_port for *_, d in edges)
        changed = [(nodes[a], nodes[b], d) for (_, a), (_, b), d in edges if d.type == 1]
        found[graph] = sorted((a, b) for a, b, _ in changed)
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
