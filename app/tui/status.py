"""The status line's words: what is going on, and how the block is shown."""

from pathlib import Path

from app.settings import Settings
from app.tui.figures import count, duration
from app.tui.state import EngineState, Phase, Turn


def doing(engine: EngineState, turn: Turn | None, *, here: bool, now: float) -> str:
    """What is going on. `turn` may be that of another chat than the one on screen."""
    if turn is None:
        return engine_words(engine)
    if not turn.sent:
        return f"Your message waits · {engine_words(engine)}"
    if turn.stopping:
        return "Stopping"
    seconds = now - turn.sent_at if turn.sent_at is not None else 0.0
    if not here:
        return f"Answering in \u201c{turn.conversation.title}\u201d · {duration(seconds)}"
    return f"{_answering(turn)} · {duration(seconds)}"


def _answering(turn: Turn) -> str:
    live = turn.live
    if live.block is not None:
        return "Answering"
    if live.prompt_done < live.prompt_total:
        done, total = count(live.prompt_done), count(live.prompt_total)
        return f"Reading the prompt, {done} of {total} tokens"
    return "Reading the prompt"


def engine_words(engine: EngineState) -> str:
    """The engine's state."""
    match engine.phase:
        case Phase.STARTING:
            return "Starting the engine"
        case Phase.LOADING:
            return _loading(engine)
        case Phase.READY:
            return "Ready"
        case Phase.FAILED:
            return "No model is loaded"
        case Phase.DEAD:
            return "The engine stopped"


def _loading(engine: EngineState) -> str:
    loading = engine.loading
    if loading is None:
        return "Loading the model"
    stage = loading.stage[:1].upper() + loading.stage[1:]
    if loading.total <= 0:
        return stage
    scale, unit = (1e9, "GB") if loading.total >= 1e9 else (1e6, "MB")
    return f"{stage}, {loading.done / scale:.1f} of {loading.total / scale:.1f} {unit}"


def viewing(settings: Settings) -> str:
    """How the block is shown."""
    match settings.block_view:
        case "live":
            return "block view: live"
        case "slow":
            return f"slow motion: {settings.slow_steps_per_second:g} steps/s"
        case "off":
            return "block view: off"


def what_answers(engine: EngineState, settings: Settings) -> str:
    """The top bar: model, device, preset."""
    ready = engine.ready
    if ready is None:
        return f"{settings.preset} preset"
    device = "CPU" if ready.device == "cpu" else ready.device
    parts = [ready.model, Path(ready.adapter).name if ready.adapter else "", device]
    return " · ".join([*(part for part in parts if part), f"{settings.preset} preset"])


def engine_facts(engine: EngineState) -> str:
    """The engine for a bug report."""
    ready = engine.ready
    if ready is None:
        return engine_words(engine)
    parts = [ready.model, ready.dtype, ready.device, f"context {count(ready.context_length)}"]
    return " · ".join([*parts, "with an adapter" if ready.adapter else "no adapter"])
