"""`orl-chat prompts check`: what is wrong with a file of prompts, told without loading a model."""

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.commands.running import CommandError, say
from app.models import resolve_model
from app.settings import SettingsFile
from app.text import printable

if TYPE_CHECKING:
    from app.consent import Consent
    from engine.generate import Engine
    from finetune.prompts import Problem, Prompt, PromptSet

LINES_SHOWN = 10


@dataclass(frozen=True)
class Check:
    """Which file, for which model's template; `run_code` allows code for this time."""

    path: str
    model: str
    run_code: bool = False
    as_json: bool = False


@dataclass(frozen=True)
class Report:
    """All that was found."""

    path: str
    usable: int
    problems: "tuple[Problem, ...]"
    kinds: dict[str, int]
    lengths: list[int]
    model: str
    not_run: int
    consent: "Consent | None" = None

    def to_json(self) -> str:
        """One object; problems as {line, text}."""
        problems = [{"line": p.line, "text": f"{p.text}{p.detail}"} for p in self.problems]
        figures: dict[str, Any] = {
            "usable": self.usable,
            "verifiers": self.kinds,
            "tokens": _spread(self.lengths),
            "model": self.model,
            "answers_not_checked": self.not_run,
            "consent": None if self.consent is None else asdict(self.consent),
            "problems": problems,
        }
        return json.dumps({"file": self.path, **figures})

    def to_text(self) -> str:
        """Lines for the terminal."""
        kinds = " · ".join(f"{kind} {count}" for kind, count in self.kinds.items())
        lines = [f"{self.path}: {self.usable:,} usable prompts"]
        lines += [f"verifiers  {kinds}"] if kinds else []
        if spread := _spread(self.lengths):
            lines.append(
                "tokens     min {min:,} · median {median:,} · max {max:,}".format(**spread)
                + f" ({self.model})"
            )
        if self.not_run:
            lines.append(f"{self.not_run:,} answers were not checked: that would run code")
        return "\n".join([*lines, *_told(self.problems)])


def check(request: Check) -> int:
    """Print what was found; 1 when a line cannot be used."""
    found = read(request.path)
    report = examine(request, found)
    print(report.to_json() if request.as_json else printable(report.to_text()))
    return 1 if report.problems else 0


def read(path: str) -> "PromptSet":
    """The prompts of a file. Raises CommandError when it cannot be read."""
    from finetune.prompts import read_prompts

    try:
        return read_prompts(path)
    except OSError as error:
        raise CommandError(
            f"{path} cannot be read ({error.strerror}); name a prompts file."
        ) from error


def examine(request: Check, found: "PromptSet") -> Report:
    """Lengths and own answers of the prompts that could be read."""
    from app.consent import consent_needed

    lengths, too_long, model = _lengths(request.model, found.prompts)
    rejected, not_run = _own_answers(request, found.prompts)
    allowed = SettingsFile.open().settings.run_code
    problems = sorted((*found.problems, *too_long, *rejected), key=lambda p: p.line)
    bad = {problem.line for problem in problems}
    good = [prompt for prompt in found.prompts if prompt.line not in bad]
    return Report(
        path=request.path,
        usable=len(good),
        problems=tuple(problems),
        kinds=dict(Counter(map(_kind, good)).most_common()),
        lengths=[lengths[prompt.id] for prompt in good if prompt.id in lengths],
        model=model,
        not_run=not_run,
        consent=consent_needed(found.prompts, allowed),
    )


def _kind(prompt: "Prompt") -> str:
    return prompt.verify if isinstance(prompt.verify, str) else str(prompt.verify["kind"])


def _lengths(
    model: str, prompts: "tuple[Prompt, ...]"
) -> "tuple[dict[str, int], list[Problem], str]":
    from engine.checkpoint.tokenizer import Tokenizer
    from engine.config import ModelConfig
    from finetune.lengths import token_lengths

    folder = resolve_model(model)
    context = ModelConfig.from_pretrained(folder.path).max_position_embeddings
    tokenizer = Tokenizer.from_pretrained(folder.path)
    return *token_lengths(prompts, tokenizer, context), folder.name


def _own_answers(request: Check, prompts: "tuple[Prompt, ...]") -> "tuple[list[Problem], int]":
    """Answers that their own verifiers reject, and how many could not be checked."""
    from app.consent import may_run
    from finetune.verifiers import check_references, make_verifier, needs_code

    code = {prompt.id for prompt in needs_code(prompts)}
    allowed = may_run(prompts, run_code=request.run_code)
    kept = [p for p in prompts if allowed or p.id not in code]
    folder = Path(request.path).resolve().parent
    with make_verifier(kept, folder=folder, run_code=allowed) as verifier:
        return check_references(verifier, kept), len(prompts) - len(kept)


def _spread(lengths: list[int]) -> dict[str, int]:
    if not lengths:
        return {}
    return {
        "min": min(lengths), "median": round(statistics.median(lengths)), "max": max(lengths)
    }  # fmt: skip


def _told(problems: "tuple[Problem, ...]") -> list[str]:
    """A line for each mistake, with the lines that have it."""
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(problem.text, []).append(problem)
    return [_group(text, group) for text, group in groups.items()]


def _group(text: str, group: "list[Problem]") -> str:
    if len(group) == 1:
        return str(group[0])
    lines = ", ".join(f"{problem.line}" for problem in group[:LINES_SHOWN])
    more = f" and {len(group) - LINES_SHOWN:,} more" if len(group) > LINES_SHOWN else ""
    return f"{len(group):,} lines: {text}{group[0].detail}: lines {lines}{more}"


def warn(problems: "tuple[Problem, ...]") -> None:
    """Tell the problems of a file on stderr, for commands that go on without those lines."""
    for line in _told(problems):
        say(line)


def fitting(engine: "Engine", prompts: "Sequence[Prompt]") -> "list[Prompt]":
    """The prompts that the model has room for; of the others stderr is told. Raises CommandError
    for a model that cannot chat."""
    from finetune.lengths import token_lengths

    if engine.tokenizer is None:
        raise CommandError("The model has no tokenizer.json, so it cannot answer; name another.")
    _, problems = token_lengths(prompts, engine.tokenizer, engine.context_length)
    warn(tuple(problems))
    long = {problem.line for problem in problems}
    return [prompt for prompt in prompts if prompt.line not in long]
