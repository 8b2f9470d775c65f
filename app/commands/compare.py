"""`orl-chat compare`: the base against a run's best checkpoint, on prompts that it held out."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.adapters import with_adapter
from app.commands.check_prompts import fitting
from app.commands.finetune import check_unchanged, usable_prompts
from app.commands.running import CommandError, say
from app.commands.steps import Steps
from app.consent import open_verifier
from app.decoding import decode_config
from app.models import ModelFolder
from app.runs import find_run
from app.text import printable
from engine.config import DecodeConfig
from finetune.runs import RunFolder

if TYPE_CHECKING:
    from finetune.evaluate import Comparison, Evaluation, Result
    from finetune.prompts import Prompt

PROGRESS_EVERY = 20


@dataclass(frozen=True)
class Compare:
    """Which run, on which prompts (None: those it held out), with which preset (None: the
    thresholds that it trained with)."""

    run: str
    prompts: str | None = None
    preset: str | None = None
    device: str = "auto"
    run_code: bool = False
    as_json: bool = False
    progress: bool = False


def compare(request: Compare) -> int:
    """Measure and print a table, or one JSON object; the exit code."""
    from engine.generate import Engine
    from finetune.compare import frontier, headline

    steps = Steps(request.progress)
    steps.tell("loading both models")
    run = find_run(request.run)
    check_unchanged(run)
    info = run.info()
    config = _decoding(request, run)
    prompts = _prompts(request, run)
    folder = ModelFolder(info.model, Path(info.base))
    tuned_at = with_adapter(folder, str(run.path))
    base = Engine.load(folder.path, device=request.device)
    tuned = Engine.load(tuned_at.folder.path, device=request.device, adapter=tuned_at.adapter)
    prompts = fitting(base, prompts)
    if not prompts:
        raise CommandError("Each of these prompts is too long for the model; name others.")
    file = request.prompts or info.prompts
    with open_verifier(prompts, file, run_code=request.run_code) as check:
        count = _counter(2 * len(prompts), steps)
        compared = headline(base, tuned, prompts, check, config, count)
        curves = {}
        for name, engine in (("base", base), ("tuned", tuned)):
            steps.tell(f"other thresholds, {name}")
            curves[name] = frontier(engine, prompts, check, config)
    data = {
        "run": run.name,
        # Of what was measured: a run that still trains may have a better one by now.
        "update": int((tuned_at.adapter or tuned_at.folder.path).name),
        "model": info.model,
        "device": str(base.device),
        "n": len(prompts),
        "held_out": request.prompts is None,
        "threshold": config.threshold,
        "editing_threshold": config.editing_threshold,
        **_comparison(compared),
        "frontier": {
            name: {str(t): _short(e) for t, e in curve.items()} for name, curve in curves.items()
        },
        "items": _items(prompts, compared),
    }
    print(json.dumps(data) if request.as_json else printable(_table(data)))
    return 0


def _decoding(request: Compare, run: RunFolder) -> DecodeConfig:
    if request.preset is not None:
        return decode_config({"preset": request.preset})
    config = run.info().config
    return DecodeConfig(
        max_new_tokens=config.max_new_tokens,
        threshold=config.threshold,
        editing_threshold=config.editing_threshold,
    )


def _prompts(request: Compare, run: RunFolder) -> "list[Prompt]":
    held = set(run.info().held_out)
    if request.prompts is not None:
        trained = {p.id for p in usable_prompts(str(run.prompts))} - held
        found = usable_prompts(request.prompts)
        if seen := sum(prompt.id in trained for prompt in found):
            say(f"{seen} of these {len(found)} prompts were trained on; their figures flatter.")
        return list(found)
    found = tuple(p for p in usable_prompts(str(run.prompts)) if p.id in held)
    if not found:
        raise CommandError(f"{run.name} held no prompts out; name others with --prompts FILE.")
    return list(found)


def _counter(total: int, steps: Steps) -> Callable[[Any], None]:
    done = 0

    def count(result: Any) -> None:
        nonlocal done
        done += 1
        steps.tell("answers", done, total)
        if done % PROGRESS_EVERY == 0 and sys.stderr.isatty():
            say(f"{done} of {total} answers")

    return count


def _items(prompts: "list[Prompt]", compared: "Comparison") -> list[dict[str, Any]]:
    """Every prompt with both answers."""
    rows = zip(prompts, compared.before.results, compared.after.results, strict=True)
    return [
        {"line": p.line, "question": p.question, "base": _answer(a), "tuned": _answer(b)}
        for p, a, b in rows
    ]


def _answer(result: "Result") -> dict[str, Any]:
    stats = result.stats
    figures = {"tokens": stats.tokens, "forwards": stats.forwards, "tpf": stats.tpf}
    return {"text": result.text, "right": result.right, **figures}


def _comparison(compared: "Comparison") -> dict[str, Any]:
    gained, low, high = compared.change
    return {
        "base": _figures(compared.before),
        "tuned": _figures(compared.after),
        "change": gained,
        "change_interval": [low, high],
        "fixed": len(compared.fixed),
        "broken": len(compared.broken),
        "speedup": compared.speedup,
    }


def _figures(evaluation: "Evaluation") -> dict[str, Any]:
    return {
        **_short(evaluation),
        "interval": list(evaluation.interval),
        "tokens_per_second": evaluation.tokens_per_second,
        "steps_per_block": evaluation.steps_per_block,
        "tokens_per_answer": evaluation.tokens / evaluation.n,
    }


def _short(evaluation: "Evaluation") -> dict[str, Any]:
    return {
        "accuracy": evaluation.accuracy,
        "tpf": evaluation.tpf,
        "tpf_steps": evaluation.tpf_steps,
    }


def _table(data: dict[str, Any]) -> str:
    editing = data["editing_threshold"]
    kind = "held-out prompts" if data["held_out"] else "prompts"
    lines = [
        f"{data['model']} · {data['run']} · {data['device']} · {data['n']} {kind} · "
        f"threshold {data['threshold']:g}, editing {'off' if editing is None else f'{editing:g}'}",
        "",
        f"{'':<8}{'right':>7}  {'95 % interval':<16}{'TPF':>6}{'per step':>10}{'tok/s':>8}"
        f"{'steps/block':>13}{'tokens':>8}",
    ]
    for name in ("base", "tuned"):
        row = data[name]
        low, high = row["interval"]
        lines.append(
            f"{name:<8}{row['accuracy']:>7.1%}  {f'{low:.1%} to {high:.1%}':<16}{row['tpf']:>6.2f}"
            f"{row['tpf_steps']:>10.2f}{row['tokens_per_second']:>8,.0f}"
            f"{row['steps_per_block']:>13.2f}{row['tokens_per_answer']:>8.1f}"
        )
    low, high = data["change_interval"]
    lines += [
        "",
        f"TPF times {data['speedup']:.2f}; accuracy {data['change']:+.1%} "
        f"({low:+.1%} to {high:+.1%}); {data['fixed']} fixed, {data['broken']} broken",
        "",
        f"{'threshold':<11}" + "".join(f"{name:>9} right   TPF" for name in ("base", "tuned")),
    ]
    for threshold in data["frontier"]["base"]:
        rows = (data["frontier"][name][threshold] for name in ("base", "tuned"))
        cells = "".join(f"{row['accuracy']:>15.1%}{row['tpf']:>6.2f}" for row in rows)
        lines.append(f"{threshold:<11}{cells}")
    return "\n".join(lines)
