"""Which form an answer's loop takes on a card, and making it: one graph for the answer, one for a
step, or none.

A loop is made when the first answer of its shape asks for it, and kept. What fails is said once, in
a sentence (`how`), and the plain loop of `denoise.py` takes over.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from engine.decode.denoise import Denoiser
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
from engine.decode.loop import Work as LoopWork
from engine.decode.loop import answer_program
from engine.decode.loop_answer import AnswerLoop, answer_fits
from engine.decode.plan import Plan
from engine.kernels.loop_state import NEVER, ROUNDS, LoopState, Mailbox

log = logging.getLogger(__name__)

WHOLE = "One CUDA graph makes a whole answer."
STEPWISE = (
    "Each denoising step is a CUDA graph; a driver from CUDA 12.4 on would make a whole answer one."
)
AHEAD = " Its kernels are launched ahead of time."
NOT_AHEAD = " This card or its driver launches no kernel ahead of time."
MOST_STOPS = 8
"""Stop ids that a loop has room for."""


class Built(LoopWork, Protocol):
    """A loop's pieces with their memory, ready for any answer of their shape."""

    state: LoopState
    mailbox: Mailbox

    def begin(self, denoiser: Denoiser) -> None:
        """Take an answer's thresholds, filters, seed and stop ids."""


class GraphRunner:
    """The loop as a graph, started once an answer (or a block) on a stream of its own."""

    def __init__(self, graph: Graph, stream: Any, current: Callable[[], Any], pause: int) -> None:
        self._graph, self._stream, self._current = graph, stream, current
        self.pause = pause

    def start(self) -> None:
        """Launch it behind what the current stream still has to do."""
        self._stream.wait_stream(self._current())
        self._graph.launch(self._stream)

    def idle(self) -> bool:
        """Whether it is through; then the host sees all of its mailbox, under WSL too."""
        through = bool(self._stream.query())
        if through:
            self._stream.synchronize()
        return through

    def wait(self) -> None:
        """Until it is."""
        self._stream.synchronize()


class StepRunner:
    """The loop driven by the host, which reads every flag; its pieces are graphs."""

    pause = ROUNDS

    def __init__(self, program: Sequence[Part], current: Callable[[], Any]) -> None:
        self._program, self._current = program, current

    def start(self) -> None:
        """One round."""
        run_on_host(self._program)

    def idle(self) -> bool:
        """Always: the flags have been read."""
        return True

    def wait(self) -> None:
        """Nothing is under way."""
        self._current().synchronize()


class Loops:
    """The loops of one engine.

    Args:
        build: makes a loop's pieces for an answer's shape and its cache's memory.
        shape: what of an answer is built in.
        maker: of graphs; None: there are none, and `how` says why.
        loops: the driver's graphs can loop.
        current: the current stream.
        pause: where a whole answer's graph comes back (`loop_state.BLOCKS` where the host sees
            nothing of a graph that runs).
        ahead: kernels were to be launched ahead of time; whether they are is for `maker` to say.
    """

    def __init__(
        self,
        build: Callable[[Denoiser], Built],
        shape: Callable[[Denoiser], object],
        maker: GraphMaker,
        *,
        loops: bool,
        current: Callable[[], Any],
        pause: int = NEVER,
        ahead: bool = False,
    ) -> None:
        self._build, self._shape, self._maker = build, shape, maker
        self._whole, self._current, self._pause = loops, current, pause
        self._made: dict[object, tuple[Built, AnswerLoop]] = {}
        self._layout = -1
        self._ahead, self._failure = ahead, ""

    @property
    def how(self) -> str:
        """How answers are made, in a sentence or two."""
        if self._failure:
            return f"Without a CUDA graph, step by step: {self._failure}."
        form = WHOLE if self._whole else STEPWISE
        return form + (AHEAD if self._maker.ahead else NOT_AHEAD if self._ahead else "")

    def takes(self, plan: Plan, denoiser: Denoiser) -> bool:
        """Whether an answer is for a loop: nothing on the host has to look at its text, and its
        length is foreseeable."""
        config = denoiser.config
        reach = plan.last_start + plan.block_length
        return (
            not self._maker.unusable
            and not denoiser.record
            and not config.stop_strings
            and len(denoiser.stop_ids) <= MOST_STOPS
            and answer_fits(plan, denoiser, reach)
        )

    def begin(self, plan: Plan, denoiser: Denoiser) -> AnswerLoop:
        """A loop at the beginning of an answer, whose prompt is in the cache.

        Raises GraphUnavailableError when it cannot be made; then none will be tried again.
        """
        if self._maker.unusable:
            raise GraphUnavailableError(self._maker.unusable)
        self.halt()
        if denoiser.cache.layout != self._layout:
            self._made.clear()
            self._layout = denoiser.cache.layout
        key = self._shape(denoiser)
        if key not in self._made:
            try:
                self._made[key] = self._make(denoiser)
            except GraphUnavailableError as error:
                self._failure = str(error)
                log.warning(self.how)
                raise
        built, loop = self._made[key]
        built.begin(denoiser)
        loop.begin(plan, denoiser)
        return loop

    def halt(self) -> None:
        """End what may still be running: an answer that was left alone uses the cache."""
        for _, loop in self._made.values():
            loop.halt()

    def _make(self, denoiser: Denoiser) -> tuple[Built, AnswerLoop]:
        built = self._build(denoiser)
        _warm_up(built, denoiser)
        program = answer_program(built.state, built)
        if self._whole:
            graph = self._maker.capture(program, built)
            stream = self._maker.new_stream()
            runner: Any = GraphRunner(graph, stream, self._current, self._pause)
        else:
            runner = StepRunner(self._pieces(program, built), self._current)
        return built, AnswerLoop(built.state, built.mailbox, runner)

    def _pieces(self, parts: Sequence[Part], keep: object) -> tuple[Part, ...]:
        """The program with each piece of work as a graph of its own."""
        made: list[Part] = []
        for part in parts:
            if isinstance(part, While | If):
                made.append(replace(part, parts=self._pieces(part.parts, keep)))
            else:
                made.append(self._piece(part, keep))
        return tuple(made)

    def _piece(self, work: Work, keep: object) -> Work:
        graph = self._maker.capture([work], keep)
        return Work(lambda: graph.launch(self._current()))


def _warm_up(built: Built, denoiser: Denoiser) -> None:
    """Run every piece once, on the open slot of the cache, so that all is compiled and loaded."""
    state, start = built.state, denoiser.cache.length
    built.begin(denoiser)
    control = {"last_start": start + state.length, "most": 2}
    state.begin([], start, denoiser.mask_id, control)
    for piece in (built.narrow, built.wide, built.mix, built.advance):
        piece()
    built.mailbox.clear()
