"""Held-out checks while a run trains: which checkpoint is the best, and when to give up.

The best is the fastest among those whose accuracy held against the start, prompt by prompt. It is
chosen on these prompts, so its figures on them are flattering: `compare` on others says the truth.

No torch here: the shell lists runs without a model.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from finetune.config import FinetuneConfig
from finetune.intervals import not_worse

if TYPE_CHECKING:
    from finetune.evaluate import Evaluation

Event = Mapping[str, Any]


def check_event(done: int, evaluation: "Evaluation") -> dict[str, Any]:
    """A check after `done` updates, as events.jsonl holds it."""
    low, high = evaluation.interval
    return {
        "kind": "check",
        "done": done,
        "n": evaluation.n,
        "right": evaluation.right,
        "interval": [low, high],
        "passes": [result.right for result in evaluation.results],
        "tpf": evaluation.tpf,
        "tpf_steps": evaluation.tpf_steps,
        "tokens": evaluation.tokens,
    }


def best_check(checks: Sequence[Event]) -> Event:
    """The first of the fastest checks that are not worse than the first one, the start."""
    start = checks[0]
    held = [check for check in checks if not_worse(start["passes"], check["passes"])]
    return max(held, key=lambda check: check["tpf"])


def should_end(checks: Sequence[Event], config: FinetuneConfig) -> bool:
    """Whether as many updates as `patience` checks take brought nothing better. Updates are what
    counts: checks that the user asked for must not bring the end nearer."""
    waited = checks[-1]["done"] - best_check(checks)["done"]
    return bool(waited >= config.patience * config.check_every)
