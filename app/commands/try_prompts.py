"""`orl-chat prompts test`: a few answers to each prompt, and what the verifiers say of them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.commands.ask import load_engine
from app.commands.check_prompts import fitting, read, warn
from app.commands.running import INTERRUPTED, CommandError, ctrl_c_asks, say
from app.commands.steps import Steps
from app.consent import open_verifier
from app.decoding import decode_config
from app.models import resolve_model
from app.text import printable

if TYPE_CHECKING:
    from finetune.prompts import Prompt
    from finetune.rollout import Rollout
    from finetune.trial import Trial

ANSWERS_SHOWN = 400
QUESTIONS_SHOWN = 10


@dataclass(frozen=True)
class Test:
    """What to try. `n` prompts (None: all) with `k` answers each; `decoding` as for `ask`."""

    path: str
    model: str
    k: int = 4
    n: int | None = 8
    device: str = "auto"
    adapter: str | None = None
    run_code: bool = False
    show: bool = False
    as_json: bool = False
    progress: bool = False
    decoding: dict[str, Any] = field(default_factory=dict)


def test(request: Test) -> int:
    """Try the prompts and print figures; the exit code says only whether that was possible."""
    if request.k < 1 or (request.n is not None and request.n < 1):
        raise CommandError("The numbers of prompts and of answers must be at least 1.")
    config = decode_config({"seed": 0, **request.decoding})
    k = request.k if config.temperature > 0 else 1
    if k < request.k:
        say("At temperature 0 all answers to a prompt are the same, so each is made once.")
    prompts = _chosen(request)
    steps = Steps(request.progress)
    steps.tell("loading the model")
    with open_verifier(prompts, request.path, run_code=request.run_code) as verifier:
        folder = resolve_model(request.model)
        engine = load_engine(folder, request.device, request.adapter)
        prompts = fitting(engine, prompts)
        if not prompts:
            raise CommandError("Each of these prompts is too long for the model; shorten them.")
        from finetune.trial import try_prompts

        with ctrl_c_asks() as asked:
            trial = try_prompts(
                engine, prompts, verifier, config, k,
                progress=_progress(request, k * len(prompts), steps), stop=asked.is_set,
            )  # fmt: skip
    if trial is None:
        say("Stopped before the first answers were whole.")
        return INTERRUPTED
    conditions = {"file": request.path, "model": folder.name, "device": str(engine.device)}
    print(_as_json(conditions, trial) if request.as_json else printable(_as_text(trial, k)))
    return INTERRUPTED if asked.is_set() else 0


def _chosen(request: Test) -> "list[Prompt]":
    """The prompts to try: a stable choice out of the whole file."""
    from finetune.prompts import split

    found = read(request.path)
    warn(found.problems)
    if not found.prompts:
        raise CommandError(f"{request.path} has no prompt that can be used.")
    if request.n is None or request.n >= len(found.prompts):
        return list(found.prompts)
    return split(found.prompts, request.n, seed=0)[1]


def _progress(request: Test, total: int, steps: Steps) -> "Callable[[Rollout], None]":
    done = 0

    def tell(attempt: "Rollout") -> None:
        nonlocal done
        done += 1
        steps.tell("answers", done, total)
        if request.show and not request.as_json:
            say(f"[{done}/{total}] {_told(attempt)}")

    return tell


def _told(attempt: "Rollout") -> str:
    mark = "pass" if attempt.kept else "ERROR" if attempt.verdict.error else "no"
    reason = attempt.verdict.reason or ("" if attempt.kept else f"ended: {attempt.finish.reason}")
    text = attempt.finish.text.strip()
    return (
        f"line {attempt.prompt.line} {mark}{f' ({reason})' if reason else ''}\n"
        f"  > {_short(attempt.prompt.question, 200)}\n  {_short(text, ANSWERS_SHOWN)}"
    )


def _short(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _figures(trial: "Trial") -> dict[str, Any]:
    median, longest = trial.verifier_seconds
    return {
        "answers": len(trial.attempts),
        "passed": trial.passed,
        "pass_rate": trial.pass_rate,
        "prompts": len(trial.by_prompt),
        "never_passed": [prompt.line for prompt in trial.never_passed],
        "always_passed": len(trial.always_passed),
        "cut": trial.cut,
        "verifier_errors": len(trial.errors),
        "verifier_seconds": {"median": median, "max": longest},
        "tokens": trial.tokens,
    }


def _as_json(conditions: dict[str, str], trial: "Trial") -> str:
    attempts = [
        {
            "line": attempt.prompt.line,
            "question": attempt.prompt.question,
            "text": attempt.finish.text,
            "passed": attempt.kept,
            "reason": attempt.verdict.reason or attempt.finish.reason,
            "error": attempt.verdict.error,
            "seconds": attempt.verdict.seconds,
        }
        for attempt in trial.attempts
    ]
    figures = {**conditions, **_figures(trial), "advice": trial.advice()}
    return json.dumps({**figures, "attempts": attempts})


def _as_text(trial: "Trial", k: int) -> str:
    median, longest = trial.verifier_seconds
    count = len(trial.attempts)
    solved = len(trial.by_prompt) - len(trial.never_passed)
    lines = [
        f"pass       {trial.passed} of {count} answers ({trial.pass_rate:.0%})",
        f"prompts    {solved} of {len(trial.by_prompt)} with a pass in {k}, "
        f"{len(trial.always_passed)} always",
        f"answers    {trial.tokens:,.0f} tokens (median), {trial.cut} cut",
        f"verifier   {len(trial.errors)} errors · {_time(median)} (median) · "
        f"{_time(longest)} (longest)",
    ]
    lines += _questions(trial.never_passed) + _errors(trial.errors)
    return "\n".join(lines + (["", *trial.advice()] if trial.advice() else []))


def _questions(prompts: "Sequence[Prompt]") -> list[str]:
    shown = [f"  line {p.line}: {_short(p.question, 80)}" for p in prompts[:QUESTIONS_SHOWN]]
    return ["", "Never right:", *shown] if shown else []


def _errors(attempts: "Sequence[Rollout]") -> list[str]:
    reasons = dict.fromkeys(attempt.verdict.reason for attempt in attempts)
    shown = [f"  {reason}" for reason in list(reasons)[:QUESTIONS_SHOWN]]
    return ["", "Errors of verifiers:", *shown] if shown else []


def _time(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
