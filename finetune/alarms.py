"""What is going wrong in a run, in words, from its events alone.

An alarm is a pure function of the events so far; it is told once, when it begins to hold.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from finetune.intervals import not_worse

Event = Mapping[str, Any]

NOTHING_KEPT = 5
RECENT = 10
SHRUNK = 0.5
ERRORS = 0.10


def alarms(events: Sequence[Event]) -> dict[str, str]:
    """Name to sentence of every alarm that holds after these events."""
    updates = [event for event in events if event.get("kind") == "update"]
    checks = [event for event in events if event.get("kind") == "check"]
    found = {
        "nothing kept": _nothing_kept(updates),
        "errors": _errors(updates),
        "length": _length(updates),
        "not finite": _not_finite(updates),
        "overfitting": _overfitting(updates, checks),
        "speed for accuracy": _speed_for_accuracy(checks),
    }
    return {name: text for name, text in found.items() if text is not None}


def _nothing_kept(updates: Sequence[Event]) -> str | None:
    last = updates[-NOTHING_KEPT:]
    if len(last) < NOTHING_KEPT or any(update["kept"] for update in last):
        return None
    return (
        f"No answer passed its verifier in the last {NOTHING_KEPT} updates, so nothing is learnt; "
        "use easier prompts, more answers per prompt, or look at the verifier."
    )


def _errors(updates: Sequence[Event]) -> str | None:
    last = updates[-RECENT:]
    answers, errors = (sum(update[name] for update in last) for name in ("answers", "errors"))
    if not answers or errors <= ERRORS * answers:
        return None
    return (
        f"The verifier itself failed on {errors} of the last {answers} answers; "
        "test it with: orl-chat prompts test"
    )


def _length(updates: Sequence[Event]) -> str | None:
    """Mean length of the first updates against the last ones."""
    if len(updates) < 2 * RECENT:
        return None
    first, last = (
        sum(u["tokens"] for u in part) / max(sum(u["answers"] for u in part), 1)
        for part in (updates[:RECENT], updates[-RECENT:])
    )
    if last >= SHRUNK * first:
        return None
    return (
        f"Answers have shrunk from {first:.0f} to {last:.0f} tokens: the model may have found "
        "short answers that pass; make the verifier stricter."
    )


def _not_finite(updates: Sequence[Event]) -> str | None:
    if not updates or not updates[-1]["skipped"]:
        return None
    return (
        f"The loss of update {updates[-1]['update'] + 1} was not a number, so it was skipped; "
        "if this happens again, lower the learning rate."
    )


def _overfitting(updates: Sequence[Event], checks: Sequence[Event]) -> str | None:
    """Two checks in a row below the start while the prompts of training are answered better, both
    by more than chance does to a run in which nothing changes."""
    if len(checks) < 3 or len(updates) < 2 * RECENT:
        return None
    start, *_, before, last = checks
    fell = not any(not_worse(start["passes"], check["passes"]) for check in (before, last))
    (was, n), (now, m) = (
        (sum(u["kept"] for u in part), max(sum(u["answers"] for u in part), 1))
        for part in (updates[:RECENT], updates[-RECENT:])
    )
    if not (fell and _significantly_worse(now, m, was, n)):
        return None
    held, ended = start["right"] / start["n"], last["right"] / last["n"]
    return (
        f"Held-out answers got worse ({held:.0%} to {ended:.0%}) while training answers got better "
        f"({was / n:.0%} to {now / m:.0%}): the prompts are being learnt by heart; use more "
        "prompts or fewer updates. The best checkpoint is kept."
    )


def _speed_for_accuracy(checks: Sequence[Event]) -> str | None:
    if len(checks) < 2:
        return None
    start, last = checks[0], checks[-1]
    worse = _significantly_worse(start["right"], start["n"], last["right"], last["n"])
    if not (worse and last["tpf"] > start["tpf"]):
        return None
    return (
        f"The model got faster (TPF {start['tpf']:.2f} to {last['tpf']:.2f}) at the price of "
        f"accuracy ({start['right'] / start['n']:.0%} to {last['right'] / last['n']:.0%}); "
        "lower the learning rate or raise the anchor's weight."
    )


def _significantly_worse(before: int, n: int, after: int, m: int) -> bool:
    """Whether `before` of n fell to `after` of m by more than two standard errors of a difference
    of two shares."""
    share = (before + after) / (n + m)
    return before / n - after / m > 2 * (share * (1 - share) * (1 / n + 1 / m)) ** 0.5
