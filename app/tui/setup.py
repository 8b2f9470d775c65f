"""What is about to be trained: the prompts, the recipe, and what is known of both. No screen here.

Everything known comes from the shell's own commands, run as child processes: their JSON is kept as
it is, and forgotten when what it was about changes.
"""

import os
from dataclasses import dataclass, field
from typing import Any

from app.text import printable
from app.tui.figures import number
from finetune.config import RECIPES

TRIED, ANSWERS = 8, 4
"""Prompts of the verifier's test run, and answers to each."""
LEAST_PROMPTS = 2
HELD_OUT_SHARE = 4
"""One prompt in so many is set aside for checks."""
TRAINS = (
    ("auto", "what suits the model's size"),
    ("lora", "LoRA and residual adapter"),
    ("adapter", "residual adapter only"),
    ("full", "every weight"),
)
OPTIONS: dict[str, tuple[str, ...]] = {
    "auto": (),
    "lora": ("--lora",),
    "adapter": ("--adapter-only",),
    "full": ("--full",),
}


@dataclass
class Setup:
    """The three parts of a run that is not begun: prompts, verifier, recipe.

    Attributes:
        updates: in place of the recipe's; None is the recipe's.
        checked, trial, plan, step: what `prompts check`, `prompts test`, `finetune --plan` and
            `finetune --dry-step` printed; None before that.
        trouble: why the prompts could not be looked at.
    """

    path: str = ""
    recipe: str = "quick"
    train: str = "auto"
    updates: int | None = None
    seed: int = 0
    checked: dict[str, Any] | None = None
    trial: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None
    step: dict[str, Any] | None = None
    trouble: str = ""
    _stamp: tuple[int, int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.take_path(self.path)

    def take_path(self, path: str) -> None:
        """Another file, of which nothing is known yet."""
        self.path, self._stamp = path, _stamp(path)
        self.checked = self.trial = self.plan = self.step = None
        self.trouble = ""

    def changed(self) -> None:
        """Another recipe: what it takes is not known any more."""
        self.plan = self.step = None

    def about(self, part: str) -> tuple[object, ...]:
        """What a result of this name is about: when that is another by now, it is of no use."""
        recipe = (self.recipe, self.train) if part in ("plan", "step") else ()
        length = (self.updates, self.seed) if part == "step" else ()
        return (self.path, self._stamp, *recipe, *length)

    @property
    def stale(self) -> bool:
        """Whether the file has changed since it was taken, in the chat or in an editor."""
        return bool(self.path) and _stamp(self.path) != self._stamp

    @property
    def all_updates(self) -> int:
        """Updates that the run would make."""
        return self.updates or int(RECIPES[self.recipe]["updates"])

    @property
    def usable(self) -> int:
        """Prompts that can be used, as far as known."""
        return int(number(self.checked or {}, "usable") or 0)

    @property
    def consent(self) -> dict[str, Any] | None:
        """What must be allowed before anything of these prompts is run."""
        found = (self.checked or {}).get("consent")
        return found if isinstance(found, dict) else None

    def missing(self) -> str:
        """Why the run cannot be started yet, in a sentence; nothing when it can."""
        if not self.path:
            return "Name a file of prompts, or press d for a set of the demo's."
        if self.trouble:
            return printable(self.trouble)
        if self.checked is None:
            return "The prompts are being looked at."
        if self.usable < LEAST_PROMPTS:
            return (
                f"{prompts(self.usable)} can be used; a run needs at least {LEAST_PROMPTS}. "
                "Keep more in the chat, or press d."
            )
        return ""

    @property
    def testable(self) -> bool:
        """Whether there is a prompt that the verifier could be tested on."""
        return bool(self.path) and not self.trouble and self.usable > 0

    @property
    def holds_out(self) -> bool:
        """Whether there are enough prompts to set some aside for checks."""
        return self.usable >= HELD_OUT_SHARE

    # --- the commands -------------------------------------------------------------------------

    def check_command(self, model: str) -> list[str]:
        """Look at the prompts."""
        return ["prompts", "check", self.path, "--model", model, "--json"]

    def test_command(self, model: str) -> list[str]:
        """Try the verifier on answers of the model."""
        counts = ["--n", str(TRIED), "--k", str(ANSWERS), "--seed", str(self.seed)]
        return ["prompts", "test", self.path, "--model", model, *counts, "--progress", "--json"]

    def plan_command(self, model: str) -> list[str]:
        """What the run would take, from shapes."""
        return [*self._run(model), "--plan", "--json"]

    def step_command(self, model: str) -> list[str]:
        """What one update takes here."""
        return [*self._run(model), "--dry-step", "--progress", "--json"]

    def start_command(self, model: str) -> list[str]:
        """Begin, in a process of its own."""
        return [*self._run(model), "--detach", "--json"]

    def _run(self, model: str) -> list[str]:
        updates = [] if self.updates is None else ["--updates", str(self.updates)]
        return [
            "finetune", self.path, "--model", model, "--recipe", self.recipe,
            *OPTIONS[self.train], *updates, "--seed", str(self.seed),
        ]  # fmt: skip


def prompts(count: int) -> str:
    """`1 prompt`, `12 prompts`."""
    return f"{count:,} prompt{'s' * (count != 1)}"


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size
