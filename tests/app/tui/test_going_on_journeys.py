"""With real keys: an answer is continued, a full context is a choice, a file goes along."""

import sys
from pathlib import Path

from textual.widgets import Button, Input

from app.attachment import join, read
from app.paths import paths
from app.protocol import Error
from app.store import Store
from app.tui.screens.attach import AttachScreen
from app.tui.screens.bug_report import BugReportScreen
from app.tui.widgets.attachments import Attachments
from app.tui.widgets.prompt import Prompt
from tests.app.tui.driver import window
from tests.app.tui.recording import Script

LONG = "\n\n".join(f"Paragraph {i} says what it has to say, and then more." for i in range(8))
COUNTS = {"prompt": 2100, "context": 2048}


def stored() -> list[tuple[str, str, str | None]]:
    store = Store.open(paths().store)
    try:
        return [(m.role, m.content, m.reason) for m in store.messages(store.chats()[0].id)]
    finally:
        store.close()


async def test_a_stopped_answer_is_continued(tmp_path: Path) -> None:
    script = Script(pace=0.001).answer(LONG, hold=1).answer(" And the rest.")
    async with window(script.write(tmp_path / "t")) as shown:
        await shown.ready()
        await shown.ask("Talk")
        await shown.writing(1)
        await shown.press("escape")
        await shown.answered()
        await shown.shows("f8 continue")
        await shown.press("f8")
        await shown.answered()
        await shown.shows("And the rest.")
        await shown.shows("part 1: ")
        await shown.shows("part 2: ")
        assert "f8" not in shown.text
    (_, answer) = stored()
    assert answer[1].startswith("Paragraph 0")
    assert answer[1].endswith(" And the rest.")
    assert answer[2] == "end"


async def test_a_full_context_is_a_choice(tmp_path: Path) -> None:
    script = Script(pace=0.001).answer("First answer")
    refusal = Error("prompt_too_long", "Too long.", "", "", "a1", COUNTS)
    script.messages(refusal).answer("It fits now").messages(
        Error("prompt_too_long", "Too long.", "", "", "a3", COUNTS)
    )
    async with window(script.answer("In a new one").write(tmp_path / "t")) as shown:
        await shown.ready()
        await shown.ask("First")
        await shown.answered()
        await shown.ask("Second")
        await shown.shows("With this chat it is 2,100 tokens long")
        await shown.until(lambda: isinstance(shown.app.focused, Button))
        await shown.press("enter")
        await shown.answered()
        await shown.shows("without the 2 oldest messages")
        assert shown.app.chat.query_one(Prompt).text == ""
        await shown.ask("Third")
        await shown.shows("[ New chat ]")
        await shown.until(lambda: isinstance(shown.app.focused, Button))
        await shown.press("tab", "enter")
        await shown.answered()
        await shown.shows("In a new one")
        assert "It fits now" not in shown.text
    assert [row[1] for row in stored()] == ["Third", "In a new one"]


async def test_a_file_goes_along(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "notes.txt").write_text("remember [this]\n")
    (folder / "other.bin").write_bytes(b"\0")
    script = Script(pace=0.001).answer("I read it.")
    async with window(script.write(tmp_path / "t"), size=(100, 40)) as shown:
        await shown.ready()
        await shown.type("What does it say?")
        await shown.press("ctrl+f")
        await shown.until(lambda: isinstance(shown.app.screen, AttachScreen))
        await shown.until(lambda: shown.app.screen.query(Input))
        field = shown.app.screen.query_one(Input)
        field.value = f"{folder}/o"
        field.cursor_position = len(field.value)
        await shown.press("tab")
        await shown.until(lambda: field.value.endswith("/other.bin"))
        await shown.press("enter")
        await shown.shows("other.bin is no text file.")
        field.value = f"{folder}/no"
        await shown.shows("notes.txt")
        await shown.press("down", "enter")
        chips = shown.app.chat.query_one(Attachments)
        await shown.until(lambda: [file.name for file in chips.files] == ["notes.txt"])
        await shown.shows("notes.txt 15 B")
        await shown.press("enter")
        await shown.answered()
        assert chips.files == []
        await shown.shows("[notes.txt 15 B]")
        assert "remember" not in shown.text
        await shown.press("up")
        prompt = shown.app.chat.query_one(Prompt)
        await shown.until(lambda: prompt.text == "What does it say?")
        prompt.text = ""
        chips.add(read(folder / "notes.txt"))
        await shown.press("backspace")
        await shown.until(lambda: chips.files == [])
    assert stored()[0][1] == join("What does it say?", [read(folder / "notes.txt")])


async def test_a_bug_report_is_read_copied_and_saved(tmp_path: Path) -> None:
    doctor = [sys.executable, "-c", f"print('a machine at {tmp_path}/x')"]
    async with window(Script().answer("x").write(tmp_path / "t")) as shown:
        await shown.ready()
        shown.app.action_bug_report()
        await shown.until(lambda: isinstance(shown.app.screen, BugReportScreen))
        await shown.shows("looking at the machine")
        await shown.press("escape")
        await shown.until(lambda: shown.app.screen is shown.app.chat)
        shown.app.push_screen(BugReportScreen("the facts", doctor))
        await shown.shows("a machine at <folder>")
        await shown.shows("the facts")
        await shown.press("y", "s")
        await shown.until(lambda: "the facts" in shown.app.clipboard)
        await shown.until(lambda: list(paths().logs.glob("bug-report-*.txt")))
    (saved,) = paths().logs.glob("bug-report-*.txt")
    assert saved.read_text() == "a machine at <folder>\n\nthe facts"
