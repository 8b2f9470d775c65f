"""`orl-chat finetune --dry-step`: one update of a run that is thrown away, to see what it takes.

Rollout, verifier and learning are the run's own, on the prompts that it would begin with; nothing
is written. Time and memory are those of this machine, not estimates.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from app.commands.check_prompts import fitting
from app.commands.running import CommandError
from app.commands.steps import Steps
from app.consent import open_verifier
from app.models import ModelFolder
from finetune.config import FinetuneConfig

if TYPE_CHECKING:
    from engine.generate import Engine
    from finetune.prompts import Prompt
    from finetune.trainer import Report

FLOATS = 4
"""Bytes of a trained value in a saved state: two moments and a copy, in float32."""


@dataclass(frozen=True)
class DryStep:
    """What to try: the prompts of `file` on a model, with a run's recipe."""

    folder: ModelFolder
    file: str
    config: FinetuneConfig
    device: str = "auto"
    run_code: bool = False
    as_json: bool = False
    progress: bool = False


def dry_step(request: DryStep, prompts: "Sequence[Prompt]") -> int:
    """Make one update and print what it took; the exit code."""
    from engine.generate import Engine
    from finetune.prompts import split
    from finetune.trainer import OutOfMemoryError, Trainer

    steps, free = Steps(request.progress), psutil.virtual_memory().available
    steps.tell("loading the model")
    engine = Engine.load(request.folder.path, device=request.device, activations="bf16")
    if (on_card := _free_on_card(engine)) is not None:
        free = on_card
    training, held = (
        fitting(engine, part)
        for part in split(prompts, request.config.held_out, request.config.seed)
    )
    with open_verifier(prompts, request.file, run_code=request.run_code) as verifier:
        trainer = Trainer(engine, training, verifier, request.config)
        steps.tell("one update")
        try:
            report = trainer.update(0)
        except OutOfMemoryError as error:
            raise CommandError(f"It does not fit. {error}") from error
    trained = sum(p.numel() for p in trainer.trainable.parameters.values())
    figures = _figures(engine, trained, report, request.config, len(held))
    figures["free_bytes"] = free
    print(json.dumps(figures) if request.as_json else _text(figures))
    return 0


def _figures(
    engine: "Engine", trained: int, report: "Report", config: FinetuneConfig, held: int
) -> dict[str, Any]:
    seconds = report.rollout_seconds + report.learn_seconds
    answers = max(len(report.rollouts), 1)
    check = report.rollout_seconds * held / answers
    checks = 1 + config.updates // config.check_every
    kept = min(config.keep + 1, checks)
    return {
        "device": str(engine.device),
        "train": config.train,
        "updates": config.updates,
        "answers": len(report.rollouts),
        "kept": report.kept,
        "positions": report.sums.positions,
        "rollout_seconds": report.rollout_seconds,
        "verify_seconds": report.verify_seconds,
        "learn_seconds": report.learn_seconds,
        "check_seconds": check,
        "total_seconds": seconds * config.updates + check * checks,
        "peak_bytes": _peak(engine),
        "trained": trained,
        "disk_bytes": _disk(engine, trained, config, kept),
    }


def _disk(engine: "Engine", trained: int, config: FinetuneConfig, checkpoints: int) -> int:
    """Checkpoints kept, and two states with the optimizer's."""
    each = engine.memory if config.train == "full" else trained * FLOATS
    return checkpoints * each + 2 * 3 * FLOATS * trained


def _free_on_card(engine: "Engine") -> int | None:
    """Bytes that the card had before the model was on it."""
    if engine.device.type != "cuda":
        return None
    import torch

    return int(torch.cuda.mem_get_info(engine.device)[0]) + int(
        torch.cuda.memory_reserved(engine.device)
    )


def _peak(engine: "Engine") -> int:
    if engine.device.type == "cuda":
        import torch

        return int(torch.cuda.max_memory_reserved(engine.device))
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _text(figures: dict[str, Any]) -> str:
    minutes = figures["total_seconds"] / 60
    return (
        f"one update   {figures['rollout_seconds']:.1f} s rollout "
        f"({figures['verify_seconds']:.1f} s of it verifiers), {figures['learn_seconds']:.1f} s "
        f"learning; {figures['kept']} of {figures['answers']} answers kept\n"
        f"the run      about {minutes:,.0f} min for {figures['updates']} updates with checks\n"
        f"memory       {figures['peak_bytes'] / 1e9:.2f} GB at most, of "
        f"{figures['free_bytes'] / 1e9:.2f} GB that were free ({figures['device']})\n"
        f"disk         {figures['disk_bytes'] / 1e6:,.0f} MB of checkpoints and states"
    )
