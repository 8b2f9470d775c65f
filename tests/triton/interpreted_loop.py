"""The loop's own decision under the interpreter, driving a program on the host."""

import pytest
import torch
from torch import Tensor

from engine.decode.graph import If, While, Work, run_on_host
from engine.kernels.triton_loop import turn_launch


def flag(value: int) -> Tensor:
    return torch.tensor([value], dtype=torch.int32)


@pytest.mark.parametrize(
    ("done_after", "stop_after", "most", "expected"),
    [(3, 99, 10, 3), (99, 2, 10, 2), (99, 99, 4, 4), (1, 1, 1, 1)],
)
def test_it_ends_when_done_or_stopped_or_at_the_cap(
    done_after: int, stop_after: int, most: int, expected: int
) -> None:
    done, stop, rounds, go, log = flag(0), flag(0), flag(0), flag(0), []

    def step() -> None:
        log.append(len(log))
        done.fill_(len(log) >= done_after)
        stop.fill_(len(log) >= stop_after)

    turn = turn_launch(done, stop, rounds, flag(most), go)
    run_on_host([While(go, (Work(step), If(done, (Work(lambda: log),)), Work(turn.run)))])
    assert len(log) == expected == rounds.item()
