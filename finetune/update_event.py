"""One update as events.jsonl holds it."""

import math
import time
from dataclasses import asdict
from typing import Any

from finetune.trainer import Report

SAMPLES = 3
"""Answers of an update that are kept."""


def update_event(report: Report) -> dict[str, Any]:
    """The figures of an update, and its first answers with their verdicts."""
    sums = report.sums
    return {
        "kind": "update",
        "done": report.update + 1,
        "update": report.update,
        "answers": len(report.rollouts),
        "kept": report.kept,
        "errors": report.errors,
        "cut": sum(rollout.finish.reason != "end" for rollout in report.rollouts),
        "prompts": len({rollout.prompt.id for rollout in report.rollouts}),
        "prompts_passed": len({rollout.prompt.id for rollout in report.rollouts if rollout.kept}),
        "steps": report.steps,
        "tpf_steps": report.tpf_steps,
        **{name: _number(value) for name, value in asdict(sums).items()},
        "packed": sums.tokens,
        "tokens": report.tokens,
        "skipped": report.skipped,
        "rollout_seconds": round(report.rollout_seconds, 3),
        "verify_seconds": round(report.verify_seconds, 3),
        "learn_seconds": round(report.learn_seconds, 3),
        "card": None if report.card is None else asdict(report.card),
        "time": time.time(),
        "samples": [
            {
                "prompt": rollout.prompt.id,
                "text": rollout.finish.text[:400],
                "passed": rollout.kept,
                "reason": rollout.verdict.reason[:200],
                "tpf_steps": rollout.finish.stats.tpf_steps,
            }
            for rollout in report.rollouts[:SAMPLES]
        ],
    }


def _number(value: float) -> float | None:
    """JSON has no word for what is not a number."""
    return value if math.isfinite(value) else None
