"""What Ctrl+P offers: every action by name, with its key where it has one."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual.app import SystemCommand

from app.tui.tabs import TABS
from engine.config import PRESETS

if TYPE_CHECKING:
    from app.tui.app import OrlChat


COPIES = (
    ("text", "Copy as text", "y"),
    ("markdown", "Copy as Markdown", "m"),
    ("code", "Copy a code block", "c"),
)


def commands(program: "OrlChat") -> Iterator[SystemCommand]:
    """The commands, most used first."""
    chat = program.chat
    yield SystemCommand("New chat", "Start an empty chat (Ctrl+N)", chat.action_new_chat)
    yield SystemCommand(
        "Chats", "Search, rename, delete, export, import (Ctrl+O)", chat.action_open_chat
    )
    yield SystemCommand("Again", "Answer the last question once more (Ctrl+R)", chat.action_again)
    yield SystemCommand(
        "Keep the answer", "As a verified prompt, to train on (Ctrl+S)", chat.action_keep
    )
    yield SystemCommand(
        "Edit", "The last message; send it as a new version (Ctrl+G)", chat.action_edit
    )
    yield SystemCommand(
        "Continue", "Go on with an answer that was cut short (F8)", chat.action_go_on
    )
    yield SystemCommand(
        "Attach a file", "A text file goes along with the message (Ctrl+F)", chat.action_attach
    )
    for what, word, key in COPIES:
        yield SystemCommand(
            word,
            f"Of the last answer; with a message selected: {key}",
            partial(chat.action_copy, what),
        )
    yield SystemCommand(
        "Settings of this chat",
        "Decoding and system prompt (F9)",
        chat.action_settings,
    )
    yield SystemCommand("Block view", "Live, slow motion or off (Ctrl+T)", chat.action_block_view)
    yield SystemCommand("Replay", "The last answer, step by step (F6)", chat.action_replay)
    yield SystemCommand("Block layout", "Grid or running text (F7)", chat.action_block_layout)
    yield SystemCommand(
        "Confidence colours", "On or off, in the open block", chat.action_confidence_colours
    )
    yield SystemCommand(
        "Models", "Download one, choose one, check the machine", program.action_models
    )
    for tab in TABS:
        words = f"{tab.help[:1].upper()}{tab.help[1:]} ({tab.key.upper()})"
        yield SystemCommand(f"Tab: {tab.title}", words, partial(program.action_tab, tab.id))
    for name, (threshold, editing) in PRESETS.items():
        yield SystemCommand(
            f"Preset: {name}",
            f"Threshold {threshold}, editing {editing}; from the next answer on",
            partial(chat.set_preset, name),
        )
    yield SystemCommand("Restart the engine", "End it and load again", program.start_engine)
    yield SystemCommand("Theme", "Change the colours", program.action_change_theme)
    yield SystemCommand("Log", "What the program and the engine wrote (Ctrl+L)", program.action_log)
    yield SystemCommand(
        "Bug report", "Versions, settings and logs, without secrets", program.action_bug_report
    )
    yield SystemCommand("Help", "Keys, and what the numbers mean (F1)", program.action_help)
    yield SystemCommand("Quit", "Leave; chats are saved (Ctrl+Q)", program.action_quit)
