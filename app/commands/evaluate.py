"""`orl-chat eval`: how often the demo's held-out questions are answered right, and at what TPF."""

import json
import sys
from dataclasses import dataclass
from typing import Any

from app.commands.ask import load_engine
from app.commands.running import CommandError, say
from app.decoding import decode_config
from app.models import resolve_model
from engine.config import PRESETS

SEED = 0


@dataclass(frozen=True)
class Evaluation:
    """What to measure; `preset` None is all of them."""

    model: str
    n: int = 400
    preset: str | None = None
    device: str = "auto"
    adapter: str | None = None
    as_json: bool = False


def evaluate(request: Evaluation) -> int:
    """Measure and print a table, or one JSON object; the exit code."""
    if request.n < 1:
        raise CommandError(f"The number of questions must be at least 1, got {request.n}.")
    names = [request.preset] if request.preset is not None else list(PRESETS)
    configs = {name: decode_config({"preset": name}) for name in names}
    folder = resolve_model(request.model)
    engine = load_engine(folder, request.device, request.adapter)
    from finetune.demo.corpus import heldout
    from finetune.evaluate import evaluate as measure

    items = heldout(request.n, SEED)
    results = {}
    for name, config in configs.items():
        if not request.as_json and sys.stderr.isatty():
            say(f"{name}: {len(items)} questions …")
        results[name] = measure(engine, items, config)
    conditions = {"model": folder.name, "device": str(engine.device), "n": len(items)}
    print(_as_json(conditions, results) if request.as_json else _as_table(conditions, results))
    return 0


def _as_json(conditions: dict[str, Any], results: dict[str, Any]) -> str:
    return json.dumps({**conditions, "presets": results})


def _as_table(conditions: dict[str, Any], results: dict[str, Any]) -> str:
    return f"{conditions} {results}"
