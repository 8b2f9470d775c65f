"""Keys that the user chose (`[keys]` in the settings): which of them hold, and what is wrong with
the others, in words.

A key chosen for a part of the program holds there together with the keys of the program and of the
screen it is on, so only those can be in each other's way.
"""

import difflib
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import Keys

MODIFIERS = {"ctrl", "alt", "shift", "super", "hyper", "meta"}
_NAMES = {key.value for key in Keys}
PROGRAM = "program"
CHAT = "chat"
TYPED_INTO = (PROGRAM, CHAT, "prompt")
"""Where a plain letter is text, so that it cannot be a key."""


@dataclass(frozen=True)
class Rebindable:
    """A binding with an id, and the parts of the program that it belongs to, outer ones first."""

    id: str
    keys: tuple[str, ...]
    scope: tuple[str, ...]
    words: str = ""


def rebindable() -> list[Rebindable]:
    """Every binding that can get another key."""
    from app.tui.app import OrlChat
    from app.tui.program import Program
    from app.tui.screens import (
        attach,
        bench,
        bug_report,
        chat,
        chat_settings,
        chats,
        compare,
        confirm,
        download,
        export,
        finetune,
        help,
        keep,
        keys,
        library,
        models,
        replay,
        run,
        speed,
        tab,
        text,
    )
    from app.tui.widgets.choice import Choice
    from app.tui.widgets.path_field import PathField
    from app.tui.widgets.prompt import Prompt
    from app.tui.widgets.run_list import RunList
    from app.tui.widgets.search_field import SearchField
    from app.tui.widgets.settings_list import SettingsOptions
    from app.tui.widgets.token_field import TokenField
    from app.tui.widgets.transcript import Transcript

    places: list[tuple[type[DOMNode], tuple[str, ...]]] = [
        (Program, (PROGRAM,)),
        (OrlChat, (PROGRAM,)),
        (chat.ChatScreen, (CHAT,)),
        (Prompt, (CHAT, "prompt")),
        (Transcript, (CHAT, "conversation")),
        (chats.ChatsScreen, ("chats",)),
        (SearchField, ("chats", "field")),
        (attach.AttachScreen, ("attach",)),
        (attach.PathField, ("attach", "field")),
        (text.TextScreen, ("text",)),
        (bug_report.BugReportScreen, ("text", "bug_report")),
        (help.HelpScreen, ("help",)),
        (models.ModelsScreen, ("models",)),
        (models.FolderField, ("models", "field")),
        (TokenField, ("download", "field")),
        (models.ChoiceList, ("models", "list")),
        (download.DownloadScreen, ("download",)),
        (replay.ReplayScreen, ("replay",)),
        (tab.TabScreen, ("tab",)),
        (speed.SpeedScreen, ("tab", "speed")),
        (bench.BenchScreen, ("bench",)),
        (finetune.FinetuneScreen, ("tab", "finetune")),
        (PathField, ("tab", "finetune", "field")),
        (Choice, ("tab", "finetune", "choice")),
        (RunList, ("tab", "finetune", "runs")),
        (run.RunScreen, ("run",)),
        (compare.CompareScreen, ("compare",)),
        (export.ExportScreen, ("export",)),
        (confirm.ConfirmScreen, ("confirm",)),
        (keep.KeepScreen, ("keep",)),
        (keep.ReferenceField, ("keep", "field")),
        (keys.KeysScreen, ("keys",)),
        (keys.KeyList, ("keys", "list")),
        (library.LibraryScreen, ("tab", "library")),
        (library.ModelList, ("tab", "library", "list")),
        (SettingsOptions, ("tab", "library", "settings")),
        (chat_settings.ChatSettingsScreen, ("chat_settings",)),
        (chat_settings.PromptList, ("chat_settings", "library")),
    ]
    return [found for node, scope in places for found in _of(node, scope)]


def _of(node: type[DOMNode], scope: tuple[str, ...]) -> Iterable[Rebindable]:
    """The bindings that a class declares itself; one with several keys is one."""
    single = [b for b in Binding.make_bindings(node.BINDINGS) if b.id]
    for id, group in groupby(single, key=lambda binding: binding.id or ""):
        bindings = list(group)
        words = bindings[0].tooltip or bindings[0].description
        yield Rebindable(id, tuple(binding.key for binding in bindings), scope, words)


def check(
    chosen: Mapping[str, str], known: Iterable[Rebindable]
) -> tuple[dict[str, str], list[str]]:
    """The chosen keys that can hold, and a sentence about each of the others."""
    by_id = {binding.id: binding for binding in known}
    good: dict[str, str] = {}
    words = []
    for id, text in chosen.items():
        problem = _problem(id, text, by_id)
        if problem is None:
            good[id] = ",".join(_split(text))
        else:
            words.append(problem)
    while (clash := _first_clash(good, by_id)) is not None:
        id, problem = clash
        words.append(problem)
        del good[id]
    return good, words


def complete(chosen: Mapping[str, str], known: Iterable[Rebindable]) -> dict[str, str]:
    """`chosen`, and the own keys of every binding that shares one with a chosen one's own: the
    toolkit takes such a key from all that have it in one part of the program."""
    known = list(known)
    taken = {(key, b.scope) for b in known if b.id in chosen for key in b.keys}
    sharing = [b for b in known if any((key, b.scope) in taken for key in b.keys)]
    return {**{b.id: ",".join(b.keys) for b in sharing}, **chosen}


def _problem(id: str, text: str, by_id: Mapping[str, Rebindable]) -> str | None:
    if id not in by_id:
        near = difflib.get_close_matches(id, by_id, 1)
        hint = f"did you mean {near[0]!r}?" if near else "F1 lists the names."
        return f"There is no key called {id!r}; {hint}"
    own = " or ".join(by_id[id].keys)
    for key in _split(text) or [text]:
        if not is_key(key):
            return (
                f"{id} cannot be {key!r}, which is no key (ctrl+g, f10 and alt+enter are); "
                f"it stays {own}."
            )
        if len(key) == 1 and by_id[id].scope[-1] in TYPED_INTO:
            return f"{id} cannot be {key!r}, which is needed for typing; it stays {own}."
    return None


def _first_clash(
    good: Mapping[str, str], by_id: Mapping[str, Rebindable]
) -> tuple[str, str] | None:
    found = ((id, _clash(id, good, by_id)) for id in good)
    return next(((id, problem) for id, problem in found if problem is not None), None)


def _clash(id: str, good: Mapping[str, str], by_id: Mapping[str, Rebindable]) -> str | None:
    """Why the key chosen for `id` cannot hold: something else that is there at the same time has
    it, by its own binding or chosen before."""
    for other in by_id.values():
        if other.id == id or not _meet(other.scope, by_id[id].scope):
            continue
        theirs = _split(good[other.id]) if other.id in good else other.keys
        same = set(_split(good[id])) & set(theirs) - set(by_id[id].keys)
        if same:
            own = " or ".join(by_id[id].keys)
            return f"{id} cannot be {same.pop()!r}, which is {other.id}'s key; it stays {own}."
    return None


def _meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two parts can be there at once: the program and anything, or one within the other."""
    if PROGRAM in (one[0], other[0]):
        return True
    short = min(len(one), len(other))
    return one[:short] == other[:short]


def is_key(text: str) -> bool:
    """Whether `text` names a key as the toolkit does: `f9`, `ctrl+g`, `left_square_bracket`."""
    *modifiers, name = text.split("+") if text != "+" else [text]
    if not set(modifiers) <= MODIFIERS or not name or text != text.strip():
        return False
    if text in _NAMES or name in _NAMES or (len(name) == 1 and name.isprintable()):
        return True
    try:
        unicodedata.lookup(name.replace("_", " "))
    except KeyError:
        return False
    return True


def _split(text: str) -> list[str]:
    return [key.strip() for key in text.split(",") if key.strip()]
