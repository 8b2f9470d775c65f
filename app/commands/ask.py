"""`orl-chat ask`: one answer on stdout, without a terminal program and without a pipe."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.backend import describe, narrate
from app.commands.running import INTERRUPTED, CommandError, ctrl_c_asks, say
from app.decoding import decode_config
from app.models import ModelFolder, resolve_model
from app.protocol import Chat, Done, Prefill
from app.text import printable, without_surrogates
from app.trace import TraceWriter
from engine.config import DecodeConfig
from engine.events import BlockEvent, Event, FinishEvent

if TYPE_CHECKING:
    from engine.generate import Engine


@dataclass(frozen=True)
class Ask:
    """What to answer and how. `decoding` holds `DecodeConfig` fields by name, and "preset"."""

    prompt: str
    model: str = "auto"
    system: str = ""
    device: str = "auto"
    adapter: str | None = None
    trace: str | None = None
    allow_spill: bool = False
    as_json: bool = False
    decoding: dict[str, Any] = field(default_factory=dict)

    @property
    def messages(self) -> list[dict[str, str]]:
        """The chat: the system prompt, where there is one, and the prompt."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.prompt}]


def ask(request: Ask) -> int:
    """Answer on stdout; the exit code. Everything that can be checked is, before a load."""
    request = _with_prompt(request)
    config = decode_config(request.decoding)
    folder = resolve_model(request.model)
    trace = TraceWriter(request.trace) if request.trace is not None else None
    try:
        return _answer(request, config, folder, trace)
    finally:
        if trace is not None:
            trace.close()
            if trace.problem:
                say(trace.problem)


def load_engine(
    folder: ModelFolder, device: str, adapter: str | None, *, allow_spill: bool = False
) -> "Engine":
    """An engine that can chat. Raises what `Engine.load` does, and CommandError."""
    from engine.generate import Engine

    engine = Engine.load(folder.path, device=device, adapter=adapter, allow_spill=allow_spill)
    if engine.tokenizer is None:
        raise CommandError(
            f"{folder.path} has no tokenizer.json, so it cannot chat; name another folder."
        )
    return engine


def is_terminal() -> bool:
    """Whether somebody watches stdout."""
    return sys.stdout.isatty()


def stats_line(stats: dict[str, Any]) -> str:
    """The figures that stay under an answer."""
    return (
        f"{stats['tokens']:,} tok · {stats['tokens_per_second']:,.0f} tok/s · "
        f"TPF {stats['tpf']:.2f} · {stats['forwards']:,} fwd · {stats['decode_seconds']:.2f} s"
    )


def _with_prompt(request: Ask) -> Ask:
    """The request with its prompt as text: "-" is read from stdin."""
    prompt = request.prompt
    if prompt == "-":
        prompt = sys.stdin.buffer.read().decode("utf-8-sig", "replace").rstrip("\r\n")
    prompt = without_surrogates(prompt)
    if not prompt.strip():
        raise CommandError("The prompt is empty; write what to answer behind `orl-chat ask`.")
    return Ask(**{**vars(request), "prompt": prompt})


def _answer(
    request: Ask, config: DecodeConfig, folder: ModelFolder, trace: TraceWriter | None
) -> int:
    engine = load_engine(folder, request.device, request.adapter, allow_spill=request.allow_spill)
    assert engine.tokenizer is not None
    if trace is not None:
        trace.put(0.0, describe(engine, folder, request.adapter, 0.0))
        trace.put(0.0, Chat("ask", request.messages, request.decoding))

    def on_prefill(done: int, total: int, cached: int, seconds: float) -> None:
        if trace is not None:
            trace.put(seconds, Prefill("ask", done, total + cached, cached, seconds, len(ids)))

    ids = engine.tokenizer.encode_chat(request.messages)
    narrator = narrate("ask", engine, folder.name, config)
    with ctrl_c_asks() as asked:
        events = engine.generate(ids, config, stop=asked.is_set, on_prefill=on_prefill)
        writer = _Writer(stream=not request.as_json)
        for event in writer.written(events):
            if trace is not None or isinstance(event, FinishEvent):
                seconds, message = narrator.tell(event)
                if trace is not None:
                    trace.put(seconds, message)
        assert isinstance(message, Done)
        _close(message, writer.failure, as_json=request.as_json)
        return INTERRUPTED if asked.is_set() else int(message.reason == "error")


class _Writer:
    """Writes text to stdout as blocks become final. `failure` is why the answer broke off."""

    def __init__(self, *, stream: bool) -> None:
        self.failure: str | None = None
        self._stream = stream
        self._written = ""

    def written(self, events: Iterable[Event]) -> Iterable[Event]:
        """The events, each after its text was written."""
        for event in events:
            if isinstance(event, BlockEvent):
                self._write(event.text)
            elif isinstance(event, FinishEvent):
                self._write(event.text.removeprefix(self._written))
                self.failure = event.error
            yield event

    def _write(self, text: str) -> None:
        self._written += text
        if self._stream:
            print(printable(text), end="", flush=True)


def _close(done: Done, failure: str | None, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(done.stats), flush=True)
    else:
        print(flush=True)
    if is_terminal() and not as_json:
        say(stats_line(done.stats))
    if failure is not None:
        say(failure)
