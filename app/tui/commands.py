"""What Ctrl+P offers: every action by name, with its key where it has one."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual.app import SystemCommand
from textual.binding import Binding

from app.tui.program import Program
from app.tui.screens.chat_frame import ChatFrame
from app.tui.screens.help import key_words
from app.tui.tabs import TABS
from app.tui.widgets.selecting import Selecting
from engine.config import PRESETS

if TYPE_CHECKING:
    from app.tui.app import OrlChat


COPIES = (
    ("text", "Copy as text"),
    ("markdown", "Copy as Markdown"),
    ("code", "Copy a code block"),
)


def _keys(program: "OrlChat") -> dict[str, str]:
    """The first key in force of each action, by the name of its binding."""
    places = (ChatFrame, Selecting, type(program), Program)
    declared = [b for place in places for b in Binding.make_bindings(place.BINDINGS)]
    own = {b.id: b.key for b in reversed(declared) if b.id} | program.chosen_keys
    return {id: key_words(keys.split(",")[0]) for id, keys in own.items()}


def commands(program: "OrlChat") -> Iterator[SystemCommand]:
    """The commands, most used first."""
    chat, key = program.chat, _keys(program)
    yield SystemCommand(
        "New chat", f"Start an empty chat ({key['chat.new']})", chat.action_new_chat
    )
    yield SystemCommand(
        "Chats",
        f"Search, rename, delete, export, import ({key['chat.open']})",
        chat.action_open_chat,
    )
    yield SystemCommand(
        "Again", f"Answer the last question once more ({key['chat.again']})", chat.action_again
    )
    yield SystemCommand(
        "Keep the answer",
        f"As a verified prompt, to train on ({key['chat.keep']})",
        chat.action_keep,
    )
    yield SystemCommand(
        "Edit", f"The last message; send it as a new version ({key['chat.edit']})", chat.action_edit
    )
    yield SystemCommand(
        "Continue",
        f"Go on with an answer that was cut short ({key['chat.continue']})",
        chat.action_go_on,
    )
    yield SystemCommand(
        "Attach a file",
        f"A text file goes along with the message ({key['chat.attach']})",
        chat.action_attach,
    )
    for what, word in COPIES:
        yield SystemCommand(
            word,
            f"Of the last answer; with a message selected: {key[f'msg.{what}']}",
            partial(chat.action_copy, what),
        )
    yield SystemCommand(
        "Settings of this chat",
        f"Decoding and system prompt ({key['chat.settings']})",
        chat.action_settings,
    )
    yield SystemCommand(
        "Block view", f"Live, slow motion or off ({key['view.block']})", chat.action_block_view
    )
    yield SystemCommand(
        "Replay", f"The last answer, step by step ({key['view.replay']})", chat.action_replay
    )
    yield SystemCommand(
        "Block layout", f"Grid or running text ({key['view.layout']})", chat.action_block_layout
    )
    yield SystemCommand(
        "Confidence colours", "On or off, in the open block", chat.action_confidence_colours
    )
    yield SystemCommand(
        "Models", "Download one, choose one, check the machine", program.action_models
    )
    for tab in TABS:
        words = f"{tab.help[:1].upper()}{tab.help[1:]} ({key[f'tab.{tab.id}']})"
        yield SystemCommand(f"Tab: {tab.title}", words, partial(program.action_tab, tab.id))
    for name, (threshold, editing) in PRESETS.items():
        yield SystemCommand(
            f"Preset: {name}",
            f"Threshold {threshold}, editing {editing}; from the next answer on",
            partial(chat.set_preset, name),
        )
    yield SystemCommand("Restart the engine", "End it and load again", program.start_engine)
    yield SystemCommand("Theme", "Change the colours", program.action_change_theme)
    yield SystemCommand(
        "Log", f"What the program and the engine wrote ({key['log']})", program.action_log
    )
    yield SystemCommand(
        "Bug report", "Versions, settings and logs, without secrets", program.action_bug_report
    )
    yield SystemCommand(
        "Help", f"Keys, and what the numbers mean ({key['help']})", program.action_help
    )
    yield SystemCommand("Quit", f"Leave; chats are saved ({key['quit']})", program.action_quit)
