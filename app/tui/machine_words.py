"""The words of the models screen: the machine in rows, and what each choice means."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.hub.messages import Planned
from app.hub.text import size_text
from app.models import DEFAULT_REPO, DEMO
from app.protocol import Error
from app.text import printable
from app.tui import welcome
from app.tui.download_words import plan_words
from app.tui.machine_check import Verdict
from engine.machine.facts import Row

DOWNLOAD, FOLDER = "download", "folder"
LABELS = {  # what is done, and a word about it
    DOWNLOAD: ("Download the checkpoint", "wants an NVIDIA card"),
    FOLDER: ("I have the folder", "or name another repository"),
    DEMO: ("Use the demo", "comes with the program"),
}
MARKS = {"ok": "ok", "warn": " !", "no": "NO"}
STYLES = {"ok": "green", "warn": "yellow", "no": "bold red"}


def report(
    machine: welcome.Machine, verdict: Verdict | None, *, checking: bool, trouble: str
) -> RenderableType:
    """What was found, what is missing first, each with the one command that mends it."""
    parts: list[RenderableType] = []
    if checking:
        parts.append(Text("Looking at this machine (you can choose meanwhile) ...", "dim"))
    if trouble:
        parts.append(Text(printable(trouble), "yellow"))
    if verdict is None:
        parts.append(Text(welcome.machine_words(machine, None)))
        return Group(*parts)
    parts += [Text(printable(verdict.summary), "bold"), Text("")]
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for row in verdict.sorted_rows:
        table.add_row(
            Text(MARKS[row.state], STYLES[row.state]), Text(printable(row.name)), _found(row)
        )
    return Group(*parts, table)


def _found(row: Row) -> Text:
    text = Text(printable(row.found))
    if row.need:
        text.append(f" (need {printable(row.need)})", "dim")
    if row.fix and row.state != "ok":
        text.append(f"\n-> {printable(row.fix)}", "bold")
    return text


def about(choice: str, verdict: Verdict | None, plan: Planned | Error | None) -> list[str]:
    """What `choice` means, in a few lines."""
    if choice == DEMO:
        return [
            "A real block-diffusion model, but a very small one: sums, word problems, lists, a few "
            "facts. It comes with the program and runs on any processor, at once."
        ]
    if choice == FOLDER:
        return [
            "A folder with config.json, tokenizer.json and .safetensors files is used where it is. "
            "The name of a repository (owner/name) is downloaded."
        ]
    lines = _warning(verdict)
    if plan is None:
        return [DEFAULT_REPO, "Asking the hub for its size ...", *lines]
    if isinstance(plan, Error):
        return [DEFAULT_REPO, f"{plan.message} {plan.hint}".strip(), *lines]
    name, *more = plan_words(plan)
    return [name, *lines, *_room(plan), *more]


def _warning(verdict: Verdict | None) -> list[str]:
    """Where it would not run; what lacks stands above."""
    if verdict is None or verdict.runs_large:
        return []
    return ["This machine cannot run it (see above); it can fetch it for another one."]


def _room(plan: Planned) -> list[str]:
    if plan.need > plan.free:
        return [f"Free {size_text(plan.need - plan.free)} first, or set HF_HUB_CACHE."]
    if not plan.need:
        return ["Every file is here already: Enter checks them and loads it."]
    return []
