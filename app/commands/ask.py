"""`orl-chat ask`: one answer on stdout, without a terminal program and without a pipe."""

import json
import logging
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from app.adapters import with_adapter
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

log = logging.getLogger(__name__)

Activations = Literal["auto", "bf16", "nvfp4"]


@dataclass(frozen=True)
class Compute:
    """How an engine computes, beside its device: the activations of NVFP4 weights, by which kernels
    on a card, whether by a CUDA graph, and whether that launches kernels ahead of time."""

    activations: Activations = "auto"
    kernels: str = "triton"
    graph: bool = True
    ahead: bool = False

    @classmethod
    def of(cls, activations: str, kernels: str, graph: bool, ahead: bool = False) -> "Compute":
        """What was typed. CommandError for what is not known."""
        if activations not in get_args(Activations):
            raise CommandError(f"--activations takes auto, bf16 or nvfp4, got {activations!r}.")
        if kernels not in ("triton", "reference"):
            raise CommandError(f"--kernels takes triton or reference, got {kernels!r}.")
        if ahead and not graph:
            raise CommandError("--ahead is about the CUDA graph; leave --no-graph or --ahead out.")
        return cls(cast(Activations, activations), kernels, graph, ahead)


@dataclass(frozen=True)
class Ask:
    """What to answer and how. `decoding` holds `DecodeConfig` fields by name, and "preset"."""

    prompt: str
    model: str = "auto"
    system: str = ""
    device: str = "auto"
    adapter: str | None = None
    residual_map: str | None = None
    trace: str | None = None
    allow_spill: bool = False
    compute: Compute = field(default_factory=Compute)
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
    folder: ModelFolder,
    device: str,
    adapter: str | None,
    residual_map: str | None = None,
    *,
    allow_spill: bool = False,
    compute: Compute | None = None,
) -> "Engine":
    """An engine that can chat. Raises what `Engine.load` does, and CommandError."""
    from engine.generate import Engine
    from engine.kernels import CHOICE

    compute = compute or Compute()
    if compute.kernels == "reference":
        os.environ[CHOICE] = compute.kernels

    found = with_adapter(folder, adapter)
    engine = Engine.load(
        found.folder.path,
        device=device,
        adapter=found.adapter,
        residual_map=residual_map,
        allow_spill=allow_spill,
        activations=compute.activations,
    )
    if not compute.graph or compute.ahead:
        engine.use_graph(compute.graph, ahead=compute.ahead)
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
    engine = load_engine(
        folder,
        request.device,
        request.adapter,
        request.residual_map,
        allow_spill=request.allow_spill,
        compute=request.compute,
    )
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
        if engine.how:
            log.info(engine.how)
        if engine.how.startswith("Without") or (engine.how and request.compute.ahead):
            say(engine.how)
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
