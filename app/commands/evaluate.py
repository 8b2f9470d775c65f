"""`orl-chat eval`: how often the demo's held-out questions are answered right, and at what TPF."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.commands.ask import Compute, load_engine
from app.commands.running import CommandError, say
from app.decoding import decode_config
from app.models import resolve_model
from engine.config import PRESETS

if TYPE_CHECKING:
    from finetune.evaluate import Evaluation

SEED = 0
"""Of the held-out questions: the same ones for everybody."""

PROGRESS_EVERY = 20


@dataclass(frozen=True)
class Eval:
    """What to measure; `preset` None is all of them."""

    model: str
    n: int = 400
    preset: str | None = None
    device: str = "auto"
    adapter: str | None = None
    residual_map: str | None = None
    allow_spill: bool = False
    as_json: bool = False
    compute: Compute = field(default_factory=Compute)


def evaluate(request: Eval) -> int:
    """Measure and print a table, or one JSON object; the exit code."""
    if request.n < 1:
        raise CommandError(f"The number of questions must be at least 1, got {request.n}.")
    names = [request.preset] if request.preset is not None else list(PRESETS)
    configs = {name: decode_config({"preset": name}) for name in names}
    folder = resolve_model(request.model)
    engine = load_engine(
        folder,
        request.device,
        request.adapter,
        request.residual_map,
        allow_spill=request.allow_spill,
        compute=request.compute,
    )
    from finetune.demo.corpus import heldout
    from finetune.evaluate import evaluate as measure

    items = heldout(request.n, SEED)
    results = {
        name: measure(engine, items, config, progress=_counter(name, len(items)))
        for name, config in configs.items()
    }
    conditions = {
        "model": folder.name, "device": str(engine.device), "n": len(items), "seed": SEED,
    }  # fmt: skip
    print(_as_json(conditions, results) if request.as_json else _as_table(conditions, results))
    return 0


def _counter(preset: str, n: int) -> Callable[[Any], None] | None:
    """Tells how far it is, where somebody watches."""
    if not sys.stderr.isatty():
        return None
    done = 0

    def count(result: Any) -> None:
        nonlocal done
        done += 1
        if done % PROGRESS_EVERY == 0 or done == n:
            say(f"{preset}: {done} of {n}")

    return count


def _figures(evaluation: "Evaluation") -> dict[str, Any]:
    low, high = evaluation.interval
    return {
        "accuracy": evaluation.accuracy,
        "interval": [low, high],
        "right": evaluation.right,
        "n": evaluation.n,
        "tpf": evaluation.tpf,
        "tpf_steps": evaluation.tpf_steps,
        "tokens_per_second": evaluation.tokens_per_second,
    }


def _as_json(conditions: dict[str, Any], results: dict[str, "Evaluation"]) -> str:
    presets = {
        name: {
            **_figures(result),
            "tasks": {task: _figures(part) for task, part in result.per_task.items()},
        }
        for name, result in results.items()
    }
    return json.dumps({**conditions, "presets": presets})


def _as_table(conditions: dict[str, Any], results: dict[str, "Evaluation"]) -> str:
    lines = [
        "{model} · {device} · {n} held-out questions (seed {seed})".format(**conditions),
        "",
        f"{'preset':<12}{'right':>8}  {'95 % interval':<16}{'TPF':>6}{'per step':>10}{'tok/s':>9}",
    ]
    for name, result in results.items():
        low, high = result.interval
        lines.append(
            f"{name:<12}{result.accuracy:>8.1%}  {f'{low:.1%} to {high:.1%}':<16}"
            f"{result.tpf:>6.2f}{result.tpf_steps:>10.2f}{result.tokens_per_second:>9,.0f}"
        )
    lines += ["", f"{'task':<12}{'n':>5}" + "".join(f"{name:>10}" for name in results)]
    parts = {name: result.per_task for name, result in results.items()}
    for task, part in next(iter(parts.values())).items():
        shares = "".join(f"{parts[name][task].accuracy:>10.1%}" for name in results)
        lines.append(f"{task:<12}{part.n:>5}{shares}")
    return "\n".join(lines)
