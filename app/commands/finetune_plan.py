"""`orl-chat finetune --plan`: what a run would take on a card, by part."""

import json
from typing import Any

from app.models import ModelFolder
from engine.config import ModelConfig
from engine.machine.room import quantised_in
from finetune.config import FinetuneConfig
from finetune.plan import GIB, MemoryPlan, fitted

CARDS = {"32 GB": 31.5 * GIB, "24 GB": 23.5 * GIB}
"""What such cards leave to a program."""


def show(folder: ModelFolder, config: FinetuneConfig, *, as_json: bool) -> int:
    """Print the plan for every card; the exit code says whether all of them fit."""
    model = ModelConfig.from_pretrained(folder.path)
    options: dict[str, Any] = {
        "stored": sum(file.stat().st_size for file in folder.path.glob("*.safetensors")) or None,
        "quantised": quantised_in(folder.path),
    }
    plans = {name: fitted(model, config, card, **options) for name, card in CARDS.items()}
    if as_json:
        print(json.dumps({name: _figures(found, CARDS[name]) for name, found in plans.items()}))
    else:
        print(_table(folder.name, plans))
    return 0 if all(found.fits(CARDS[name]) for name, found in plans.items()) else 1


def _figures(plan: MemoryPlan, card: float) -> dict[str, Any]:
    return {
        "train": plan.config.train,
        "fits": plan.fits(card),
        "total": plan.total,
        "card": card,
        "rows": plan.config.rows,
        "row_tokens": plan.config.row_tokens,
        "parts": plan.parts,
    }


def _table(model: str, plans: dict[str, MemoryPlan]) -> str:
    first = next(iter(plans.values()))
    head = f"{model}, {first.config.train}, memory in GiB (estimated from shapes)"
    lines = [head, "", " " * 28 + "".join(f"{name:>10}" for name in plans)]
    for part in first.parts:
        values = "".join(f"{plan.parts[part] / GIB:>10.2f}" for plan in plans.values())
        lines.append(f"{part:<28}{values}")
    lines.append(f"{'at most at once':<28}" + _row(f"{p.total / GIB:.2f}" for p in plans.values()))
    lines.append(
        f"{'answers at once (rows)':<28}" + _row(str(p.config.rows) for p in plans.values())
    )
    lines.append(
        f"{'tokens of a row':<28}" + _row(str(p.config.row_tokens) for p in plans.values())
    )
    fits = ("fits" if p.fits(CARDS[name]) else "too large" for name, p in plans.items())
    lines.append(f"{'':<28}" + _row(fits))
    lines += ["", "Rollouts and learning take turns, so only the larger of the two counts."]
    return "\n".join(lines)


def _row(values: Any) -> str:
    return "".join(f"{value:>10}" for value in values)
