"""Leave to run code: programs that a model writes, and functions that a file of prompts names.

It is asked for once and kept in the settings. What was allowed in a sandbox that keeps code in is
not allowed without one; then it is asked for again.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from app.commands.running import CommandError, say
from app.settings import SettingsError, SettingsFile

if TYPE_CHECKING:
    from finetune.prompts import Prompt
    from finetune.verifiers import Verifier

Level = Literal["isolated", "anywhere"]
_ENOUGH: dict[Level, tuple[str, ...]] = {
    "isolated": ("isolated", "anywhere"),
    "anywhere": ("anywhere",),
}


@dataclass(frozen=True)
class Consent:
    """What the user has to allow; `text` says what it is."""

    level: Level
    text: str


def consent_needed(prompts: "Sequence[Prompt]", allowed: str) -> Consent | None:
    """What must still be asked for these prompts when the setting `run_code` is `allowed`."""
    from finetune.sandbox import sandbox_kind
    from finetune.verifiers import describe_code, needs_code, runs_functions, runs_programs

    code = needs_code(prompts)
    if not code or allowed == "anywhere":
        return None
    functions, programs = runs_functions(code), runs_programs(code)
    texts = [f"{describe_code(code)}."]
    level: Level = "anywhere" if functions else "isolated"
    if programs:
        kind = sandbox_kind()
        texts.append(kind.words)
        level = level if kind.contains else "anywhere"
    if functions:
        texts.append("Functions run with your rights; only their time is limited.")
    return None if allowed in _ENOUGH[level] else Consent(level, " ".join(texts))


def open_verifier(
    prompts: "Sequence[Prompt]", file: str | Path, *, run_code: bool = False
) -> "Verifier":
    """A verifier for the prompts of `file`, after asking the user where that is due.

    Args:
        run_code: the user allowed it on the command line, for this time.

    Raises:
        CommandError: nobody can be asked, or the answer was no.
        VerifierError: they cannot be verified here.
    """
    from finetune.verifiers import make_verifier

    if not may_run(prompts, run_code=run_code):
        raise CommandError(
            "Without leave to run code these prompts cannot be verified; --run-code gives it for "
            "this time."
        )
    return make_verifier(prompts, folder=Path(file).resolve().parent, run_code=True)


def may_run(
    prompts: "Sequence[Prompt]",
    *,
    run_code: bool = False,
    ask: Callable[[str], bool] | None = None,
) -> bool:
    """Whether what these prompts run is allowed: by the option, the settings, or when asked."""
    if run_code:
        return True
    settings = SettingsFile.open()
    consent = consent_needed(prompts, settings.settings.run_code)
    if consent is None:
        return True
    if not (ask or _ask)(consent.text):
        return False
    try:
        settings.set(run_code=consent.level)
    except SettingsError as error:
        say(str(error))
    return True


def _ask(text: str) -> bool:
    say(text)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    say("Allow this from now on? [y/N]")
    return sys.stdin.readline().strip().casefold() in ("y", "yes")
