"""The order of calls in which a program becomes a CUDA graph, against a runtime that only writes
down what it is asked; and what becomes of failures."""

import gc
import weakref
from types import SimpleNamespace

import pytest

from engine.decode.graph import (
    Graph,
    GraphUnavailableError,
    If,
    Part,
    While,
    Work,
    run_on_host,
)
from tests.engine.fake_graphs import Device, flag


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
