"""Selecting messages, and what of them is copied."""

from pathlib import Path

import pytest

from app.tui import clipboard
from app.tui.conversation import Entry
from app.tui.copying import Copies, code_blocks, plain_text
from app.tui.screens.chat_view import ChatView
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.transcript import Transcript
from tests.app.tui.driver import Window, window
from tests.app.tui.recording import Script

RICH = """# Sums *here*

- one
- two
  more

  1. inner

See `f` and [this](http://a.example).

| a | b |
|---|---|
| 1 | **2** |

```python
x = 1
```

```
plain
```
"""

PLAIN = """Sums here

- one
- two
  more
  1. inner

See f and this.

a\tb
1\t2

x = 1

plain"""


def test_an_answer_as_text_as_markdown_and_its_code_blocks_in_turn() -> None:
    copies, answer = Copies(), Entry("assistant", RICH)
    assert plain_text(RICH) == PLAIN
    assert [(b.language, b.text) for b in code_blocks(RICH)] == [
        ("python", "x = 1\n"), ("", "plain\n"),
    ]  # fmt: skip
    taken = [copies.take(answer, "code") for _ in range(3)]
    assert [piece.name for piece in taken if piece] == [
        "code block 1 of 2 (python)", "code block 2 of 2", "code block 1 of 2 (python)",
    ]  # fmt: skip
    other = Entry("assistant", "```sh\nls\n```")
    assert [p.text for e in (other, answer) if (p := copies.take(e, "code"))] == ["ls\n", "x = 1\n"]
    markdown = copies.take(answer, "markdown")
    assert (markdown and markdown.text) == RICH
    assert copies.take(Entry("assistant", "No code."), "code") is None


def test_a_users_message_is_copied_as_typed_and_nothing_copied_steers_a_terminal() -> None:
    copies = Copies()
    for role in ("user", "assistant"):
        for what in ("text", "markdown", "code"):
            piece = copies.take(Entry(role, "```\n\x1b]0;x\x07*a*\n```"), what)
            assert piece is not None
            assert "\x1b" not in piece.text
            assert "*a*" in piece.text
    typed = copies.take(Entry("user", "a *b*"), "text")
    assert (typed and typed.text) == "a *b*"


async def test_tmux_is_asked_by_its_own_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = tmp_path / "took"
    tmux = tmp_path / "tmux"
    tmux.write_text(f'#!/bin/sh\necho "$@" > {took}; cat >> {took}\n')
    tmux.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("TMUX", raising=False)
    assert not clipboard.in_tmux()
    monkeypatch.setenv("TMUX", "x")
    assert clipboard.in_tmux()
    await clipboard.hand_to_tmux("größer\n")
    assert took.read_text() == "load-buffer -w -\ngrößer\n"
    tmux.write_text("#!/bin/sh\nexit 1\n")
    await clipboard.hand_to_tmux("x" * 200_000)  # a tmux that does not read is no failure


def transcript(shown: Window) -> Transcript:
    return shown.app.chat.query_one(Transcript)


def selected(shown: Window) -> str:
    entry = transcript(shown).selected
    return entry.content if entry is not None else ""


async def test_selecting_with_keys_and_copying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setattr("app.tui.screens.chat_view.REFUSAL_SECONDS", 60)
    long = "\n\n".join(f"Line {i}" for i in range(16))
    trace = Script(pace=0.001).answer("**One**").answer(long).answer("c: `3`")
    async with window(trace.write(tmp_path / "t"), size=(80, 20)) as shown:
        await shown.ready()
        for text in ("First", "Second", "Third"):
            await shown.ask(text)
            await shown.answered()
        await shown.press("escape")
        await shown.until(lambda: selected(shown) == "c: `3`")
        await shown.press("y")
        await shown.shows("Copied the answer, 4 characters, to your terminal by OSC 52.")
        assert shown.app.clipboard == "c: 3"
        await shown.press("m")
        await shown.until(lambda: shown.app.clipboard == "c: `3`")
        await shown.press("up")
        await shown.until(lambda: selected(shown) == "Third")
        seen = set()
        for _ in range(12):  # a long answer is read on the way
            await shown.press("up")
            await shown.pilot.pause()
            seen.add((selected(shown), transcript(shown).scroll_y))
            if selected(shown) == "First":
                break
        assert selected(shown) == "First"
        assert len({y for content, y in seen if content == long}) > 1
        await shown.press("down")
        await shown.until(lambda: selected(shown) == "**One**")
        await shown.press("y")
        await shown.until(lambda: shown.app.clipboard == "One")
        assert isinstance(shown.app.screen, ChatView)
        # No key of the conversation is typed, and so is what comes right behind it.
        await shown.burst("h", "y", "m")
        await shown.until(lambda: shown.app.chat.query_one(Prompt).text == "hym")
        assert transcript(shown).selected is None


async def test_the_mouse_selects_and_copies(tmp_path: Path) -> None:
    trace = Script(pace=0.001).answer("**One**").write(tmp_path / "t")
    async with window(trace) as shown:
        await shown.ready()
        await shown.ask("First")
        await shown.answered()
        for _ in range(20):  # what was just drawn may still move from under the mouse
            await shown.pilot.click("Answer Markdown")
            await shown.pilot.pause(0.1)
            if selected(shown):
                break
        assert selected(shown) == "**One**"
        await shown.shows("   Markdown")
        row = next(i for i, line in enumerate(shown.text.splitlines()) if "   Markdown" in line)
        column = shown.text.splitlines()[row].index("Markdown")
        await shown.pilot.click(offset=(column + 1, row))
        await shown.until(lambda: shown.app.clipboard == "**One**")
