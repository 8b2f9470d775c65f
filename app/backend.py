"""What answers in the engine process: the engine. What fails is raised; `worker` words it."""

import contextlib
import gc
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from app.adapters import with_adapter
from app.answer import Conditions, Narrator
from app.card_watch import CardWatch
from app.control import Control
from app.decoding import decode_config, preset_name
from app.failures import AnswerFailedError
from app.models import ModelFolder, resolve_model
from app.outbox import Outbox
from app.protocol import Chat, Loading, LoadModel, Prefill, Ready
from app.trace import TraceWriter
from engine.config import DecodeConfig
from engine.events import Event, FinishEvent, StepEvent
from engine.machine.gauges import gauges_of

if TYPE_CHECKING:
    from engine.generate import Engine

log = logging.getLogger(__name__)

LOADING_SECONDS = 0.1
"""Between two messages about how far a load is."""

ROLES = ("system", "user", "assistant")


class Backend(Protocol):
    """What the worker needs of whatever answers: the engine, or a recording of it."""

    def load(self, request: LoadModel) -> None: ...

    def unload(self) -> None: ...

    def set_adapter(self, adapter: str | None) -> None: ...

    def chat(self, request: Chat) -> None: ...


class EngineBackend:
    """One engine and what is loaded in it. `trace` records every answer of the session that has
    no trace of its own."""

    def __init__(self, outbox: Outbox, control: Control, trace: TraceWriter | None = None) -> None:
        self._outbox = outbox
        self._control = control
        self._trace = trace
        self._engine: Engine | None = None
        self._ready: Ready | None = None
        self._request: LoadModel | None = None
        self._watch: CardWatch | None = None

    def load(self, request: LoadModel) -> None:
        """Load what is asked for in place of what is loaded; tell how far it is, then Ready.

        A name that stands for no folder leaves the loaded model as it is; later failures do not.
        """
        begin = time.monotonic()
        self._outbox.put(Loading("importing torch"))
        folder = resolve_model(request.model)
        found = with_adapter(folder, request.adapter)
        self.unload()
        from engine.generate import Engine

        self._outbox.put(Loading("reading weights"))
        last = 0.0

        def progress(done: int, total: int) -> None:
            nonlocal last
            if done == total or time.monotonic() - last > LOADING_SECONDS:
                last = time.monotonic()
                self._outbox.put(Loading("reading weights", done, total))

        engine = Engine.load(
            found.folder.path,
            device=request.device,
            adapter=found.adapter,
            allow_spill=request.allow_spill,
            progress=progress,
        )
        if engine.tokenizer is None:
            raise ValueError(f"{folder.path} has no tokenizer.json, so it cannot chat.")
        if engine.how:
            log.info(engine.how)
        self._engine, self._request = engine, request
        self._ready = describe(engine, folder, request.adapter, time.monotonic() - begin)
        self._outbox.put(self._ready)
        if (gauges := gauges_of(engine.device)) is not None:
            self._watch = CardWatch(self._outbox, gauges)
            self._watch.start()

    def unload(self) -> None:
        """Drop the model and give its memory back; without a model nothing happens."""
        if self._watch is not None:
            self._watch.end()
            self._watch = None
        self._engine = self._ready = None
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()

    def set_adapter(self, adapter: str | None) -> None:
        """Load the same checkpoint with another adapter. Raises ValueError without a model."""
        if self._request is None or self._engine is None:
            raise ValueError("no model is loaded that an adapter could be put on; load one first")
        self.load(replace(self._request, adapter=adapter))

    def chat(self, request: Chat) -> None:
        """Answer, from checking the request to Done."""
        if self._engine is None or self._ready is None:
            raise ValueError("no model is loaded; load one first")
        check_messages(request.messages)
        config = decode_config(request.config)
        narrator = narrate(request.id, self._engine, self._ready.model, config)
        if self._control.is_stopped(request.id):
            self._outbox.last(narrator.stopped_early())
            return
        assert self._engine.tokenizer is not None
        ids = self._engine.tokenizer.encode_chat(request.messages, request.continue_text)
        with self._tracing(request) as trace:
            last = None
            for last in self._events(ids, config, request.id, narrator, trace):
                self._send(last, narrator, trace)
        # Whoever hears that the answer is done may read its trace: so that is closed by now.
        assert isinstance(last, FinishEvent)
        self._outbox.last(narrator.done(last))

    def _events(
        self,
        ids: Sequence[int],
        config: DecodeConfig,
        id: str,
        narrator: Narrator,
        trace: TraceWriter | None,
    ) -> Iterable[Event]:
        denoising = False

        def stopped() -> bool:  # asked before each forward
            if not denoising:
                return self._control.is_stopped(id)
            narrator.slowed = narrator.slowed or self._control.pace > 0
            return self._control.wait(id)

        def on_prefill(done: int, total: int, cached: int, seconds: float) -> None:
            nonlocal denoising
            denoising = done >= total
            message = Prefill(id, done, total + cached, cached, seconds, len(ids))
            self._outbox.put(message)
            if trace is not None:
                trace.put(seconds, message)

        assert self._engine is not None
        # A pace is kept between steps, so they must wait for it.
        stepwise = self._control.pace > 0
        return self._engine.generate(
            ids, config, stepwise=stepwise, stop=stopped, on_prefill=on_prefill
        )

    def _send(self, event: Event, narrator: Narrator, trace: TraceWriter | None) -> None:
        failure = getattr(event, "error", None)
        if failure is not None:
            raise AnswerFailedError(failure)
        seconds, message = narrator.tell(event)
        if trace is not None:
            trace.put(seconds, message)
        if isinstance(event, StepEvent) and self._control.pace == 0:
            self._outbox.sample(narrator.step(event))
        elif not isinstance(event, FinishEvent):
            self._outbox.put(message)

    @contextlib.contextmanager
    def _tracing(self, request: Chat) -> Iterator[TraceWriter | None]:
        """Where this answer is recorded: a file of its own, the session's, or nowhere."""
        own = TraceWriter(request.trace) if request.trace is not None else None
        trace = own or self._trace
        if trace is not None and self._ready is not None:
            trace.put(0.0, self._ready)
            trace.put(0.0, request)
        try:
            yield trace
        finally:
            if own is not None:
                own.close()
                if own.problem:
                    log.warning(own.problem)


def describe(engine: "Engine", folder: ModelFolder, adapter: str | None, seconds: float) -> Ready:
    """The loaded engine in figures; `seconds` is how long loading took."""
    return Ready(
        model=folder.name,
        path=str(folder.path),
        device=str(engine.device),
        adapter=adapter,
        memory=engine.memory,
        context_length=engine.context_length,
        block_length=engine.block_length,
        parameters=engine.parameters,
        dtype=str(engine.dtype).removeprefix("torch."),
        load_seconds=seconds,
    )


def narrate(id: str, engine: "Engine", model: str, config: DecodeConfig) -> Narrator:
    """A narrator of the answer `id`, decoded with `config`."""
    assert engine.tokenizer is not None
    conditions = Conditions(model, str(engine.device), preset_name(config))
    return Narrator(id, engine.tokenizer, conditions)


def check_messages(messages: Sequence[dict[str, str]]) -> None:
    """Raises ValueError for messages that no template should see."""
    if not messages:
        raise ValueError("there is no message to answer")
    for message in messages:
        if set(message) != {"role", "content"} or message["role"] not in ROLES:
            raise ValueError(f"a message needs a role ({', '.join(ROLES)}) and a content")
