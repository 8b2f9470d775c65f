"""What the Finetune tab says of a run before it begins, as rows of spans. No screen here.

The figures are the JSON of the shell's commands; the texts in it are a user's or a model's.
"""

import textwrap
from collections.abc import Mapping
from typing import Any

from app.text import printable
from app.tui.figures import count, duration, number, size
from app.tui.panel import GAP, Row
from app.tui.setup import ANSWERS, HELD_OUT_SHARE, TRAINS, TRIED, Setup, prompts
from app.tui.spark import meter
from finetune.config import RECIPES

LABEL = 18
SHOWN = 4
"""Problems that are listed; a key shows all of them."""
GIB = 2**30


def prompt_rows(setup: Setup, width: int) -> list[Row]:
    """How many prompts can be used, and what is wrong with the others."""
    checked = setup.checked
    if checked is None:
        words = setup.trouble or setup.missing()
        return wrapped(words, width, "warning" if setup.trouble else "note")
    rows: list[Row] = [_mark(setup.usable > 0, f"{prompts(setup.usable)} can be used")]
    problems = _problems(checked)
    if problems:
        twice = sum("duplicate" in text for _, text in problems)
        also = f", {twice} of them duplicates" if twice else ""
        rows.append(_mark(False, f"{len(problems):,} lines cannot{also}"))
    for line, text in problems[:SHOWN]:
        rows.append([(f"  line {line:<6}", "label"), (text[: max(8, width - 13)], "value")])
    if len(problems) > SHOWN:
        rows.append([(f"  and {len(problems) - SHOWN:,} more: p shows all", "note")])
    if not_run := number(checked, "answers_not_checked"):
        rows += wrapped(f"{not_run:,.0f} answers were not checked: that runs code.", width, "note")
    tokens = checked.get("tokens")
    if isinstance(tokens, Mapping) and tokens:
        least, middle, most = (_n(tokens, name) for name in ("min", "median", "max"))
        rows.append(_row("tokens", f"{least} to {most}, median {middle}"))
    return rows


def problem_text(setup: Setup) -> str:
    """Every problem, a line each."""
    problems = _problems(setup.checked or {})
    return "\n".join(f"line {line} {text}" for line, text in problems)


def _problems(checked: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = checked.get("problems")
    return [
        (str(p.get("line")), _line(p.get("text")))
        for p in (found if isinstance(found, list) else [])
        if isinstance(p, Mapping)
    ]


def verifier_rows(setup: Setup, width: int) -> list[Row]:
    """Which verifiers there are, and what their test run said."""
    rows: list[Row] = []
    kinds = (setup.checked or {}).get("verifiers")
    if isinstance(kinds, Mapping) and kinds:
        rows.append(_row("verifiers", ", ".join(f"{_line(k)} {n}" for k, n in kinds.items())))
    if setup.consent is not None:
        rows += wrapped("These run code: you are asked before the first time.", width, "warning")
    if setup.trial is None:
        words = f"Not tested: t makes {ANSWERS} answers to {TRIED} prompts and verifies them."
        return [*rows, *wrapped(words, width, "note")]
    return [*rows, *_trial(setup.trial, width)]


def _trial(trial: Mapping[str, Any], width: int) -> list[Row]:
    answers, passed = number(trial, "answers"), number(trial, "passed")
    part = passed / answers if answers and passed is not None else 0.0
    full, empty = meter(part, max(4, min(16, width - LABEL - 16)))
    never = trial.get("never_passed")
    never = never if isinstance(never, list) else []
    asked = number(trial, "prompts") or 0
    seconds = trial.get("verifier_seconds")
    times = seconds if isinstance(seconds, Mapping) else {}
    rows: list[Row] = [
        [
            ("answers passed".ljust(LABEL), "label"), (full, "meter"), (empty, "rest"),
            (f" {_n(trial, 'passed')} of {_n(trial, 'answers')}", "figure"),
        ],
        _row("prompts with pass", f"{asked - len(never):,.0f} of {asked:,.0f}"),
        _row("errors, cut", f"{_n(trial, 'verifier_errors')}, {_n(trial, 'cut')}"),
        _row(
            "verifier takes",
            f"{_short(number(times, 'median'))}, at most {_short(number(times, 'max'))}",
        ),
    ]  # fmt: skip
    if never:
        rows.append(_row("never right", "lines " + ", ".join(str(line) for line in never[:8])))
    for sentence in _texts(trial.get("advice")):
        rows += wrapped(sentence, width, "note")
    rows.append([("a shows the answers", "note")])
    return rows


def answers_text(trial: Mapping[str, Any]) -> str:
    """All answers of a test run with their verdicts, prompt by prompt."""
    parts: list[str] = []
    asked = ""
    found = trial.get("attempts")
    for attempt in found if isinstance(found, list) else []:
        if not isinstance(attempt, Mapping):
            continue
        question = f"line {attempt.get('line')}: {_line(attempt.get('question'))}"
        if question != asked:
            parts.append(f"{question}\n{'-' * min(60, len(question))}")
            asked = question
        state = "passed" if attempt.get("passed") else "failed"
        reason = "" if attempt.get("passed") else f" ({_line(attempt.get('reason'))})"
        state = "the verifier failed" if attempt.get("error") else state
        parts.append(f"[{state}{reason}]\n{printable(str(attempt.get('text') or '').strip())}")
    return "\n\n".join(parts)


def recipe_rows(setup: Setup, width: int) -> list[Row]:
    """What the recipe in force does."""
    if setup.checked is not None and not setup.holds_out:
        words = f"{setup.all_updates} updates; checks need {HELD_OUT_SHARE} prompts at least"
    else:
        every = RECIPES[setup.recipe]["check_every"]
        words = f"{setup.all_updates} updates, a check on held-out prompts every {every}"
    return wrapped(words, width, "note")


def fit_rows(setup: Setup, width: int) -> list[Row]:
    """What the run would take: measured where it was, else estimated from shapes."""
    if setup.step is not None:
        return _measured(setup.step, width)
    rows: list[Row] = []
    for card, plan in (setup.plan or {}).items():
        if isinstance(plan, Mapping):
            total = number(plan, "total")
            words = f"{total / GIB:.1f} GiB" if total is not None else "unknown"
            fits = plan.get("fits") is True
            rows = rows or [_trains(plan)]
            told = "fits" if fits else "too large for"
            rows.append(_mark(fits, f"{told} a {card} card: {words}"))
    if rows:
        rows.append(GAP)
    return rows + wrapped(
        "Estimated from shapes. m makes one update here and measures it." if rows else
        "m makes one update here and measures time and memory.", width, "note",
    )  # fmt: skip


def _measured(step: Mapping[str, Any], width: int) -> list[Row]:
    peak, free = number(step, "peak_bytes"), number(step, "free_bytes")
    fits = peak is not None and free is not None and peak <= free
    rolling, learning = (number(step, f"{name}_seconds") for name in ("rollout", "learn"))
    memory = f"{size(peak or 0)} of {size(free or 0)} that were free"
    pace = f"{duration((rolling or 0) + (learning or 0))}: {duration(rolling)} answers, "
    told = "fits" if fits else "does not fit"
    return [
        _mark(fits, f"{told}, measured on {_line(step.get('device'))}"),
        _trains(step),
        _row("memory", memory),
        _row("an update", f"{pace}{duration(learning)} learning"),
        _row("answers kept", f"{_n(step, 'kept')} of {_n(step, 'answers')}"),
        _row("the run", f"about {duration(number(step, 'total_seconds'))}, checks included"),
        _row("disk", f"{size(number(step, 'disk_bytes') or 0)} of checkpoints"),
    ]


def _trains(data: Mapping[str, Any]) -> Row:
    """What is trained, which the model's size may have chosen."""
    train = str(data.get("train"))
    return _row("trains", _line(dict(TRAINS).get(train, train)))


def wrapped(words: str, width: int, look: str) -> list[Row]:
    """A sentence over as many lines as it takes."""
    return [[(line, look)] for line in textwrap.wrap(printable(words), max(20, width))]


def _mark(good: bool, words: str) -> Row:
    return [("\u2713 " if good else "\u2717 ", "meter" if good else "warning"), (words, "value")]


def _row(label: str, value: str) -> Row:
    return [(label.ljust(LABEL), "label"), (value, "value")]


def _n(data: Mapping[str, Any], name: str) -> str:
    value = number(data, name)
    return count(None if value is None else int(value))


def _short(seconds: float | None) -> str:
    if seconds is not None and seconds < 0.001:
        return "below 1 ms"
    return duration(seconds)


def _line(text: object) -> str:
    return printable(" ".join(str(text or "").split()))


def _texts(value: object) -> list[str]:
    return [str(text) for text in value] if isinstance(value, list) else []
