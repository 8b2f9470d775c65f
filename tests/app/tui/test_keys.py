"""Keys that the user chose: which hold, and what is said about the others."""

import re
from pathlib import Path

import pytest

from app import tui
from app.paths import paths
from app.settings import SettingsFile
from app.tui.keys import check, complete, is_key, rebindable
from app.tui.widgets.transcript import Transcript
from tests.app.tui.driver import window
from tests.app.tui.recording import Script


@pytest.mark.parametrize(
    "key",
    ["f9", "ctrl+g", "alt+enter", "ctrl+shift+left", "x", "left_square_bracket", "question_mark"],
)
def test_names_of_keys(key: str) -> None:
    assert is_key(key)


@pytest.mark.parametrize("key", ["", "f99x", "control+g", "ctrl+", "+x", "ctrl x", "Escape!", "xy"])
def test_what_is_no_key(key: str) -> None:
    assert not is_key(key)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"chat.agian": "f10"}, "did you mean 'chat.again'?"),
        ({"nonsense": "f9"}, "F1 lists the names"),
        ({"chat.again": "hyperspace"}, "is no key"),
        ({"chat.again": ""}, "is no key"),
        ({"chat.again": "x"}, "needed for typing"),
        ({"chat.send": "x"}, "needed for typing"),
        ({"chat.again": "ctrl+t"}, "which is view.block's key; it stays ctrl+r."),
        ({"chat.again": "ctrl+q"}, "which is quit's key"),
        ({"chats.delete": "f2"}, "which is tab.chat's key"),
        ({"chat.again": "f10", "chat.new": "f10"}, "chat.again cannot be 'f10'"),
    ],
)
def test_a_key_that_cannot_hold_is_said_in_a_sentence(chosen: dict[str, str], words: str) -> None:
    good, said = check(chosen, rebindable())
    assert len(said) == 1
    assert words in said[0]
    assert len(good) == len(chosen) - 1


def test_keys_that_hold() -> None:
    chosen = {
        "chat.again": "ctrl+t",  # two keys change places
        "view.block": "ctrl+r",
        "msg.text": "x",  # a letter where nothing is typed
        "download.pause": "y",  # another screen
        "chat.newline": "alt+enter, ctrl+j",  # one of its own
    }
    good, said = check(chosen, rebindable())
    assert said == []
    assert good == {**chosen, "chat.newline": "alt+enter,ctrl+j"}


def test_a_refused_key_frees_nothing() -> None:
    """view.block stays where it is, so its own key is not free."""
    good, said = check({"chat.again": "ctrl+t", "view.block": "f1"}, rebindable())
    assert good == {}
    assert len(said) == 2


def test_what_shares_a_key_keeps_it() -> None:
    known = rebindable()
    assert complete({"chat.stop": "f12"}, known) == {"chat.leave": "escape", "chat.stop": "f12"}
    assert complete({}, known) == {}


def test_every_id_is_used_once() -> None:
    ids = [binding.id for binding in rebindable()]
    assert len(ids) == len(set(ids))
    assert all(binding.words for binding in rebindable())


def test_no_binding_with_an_id_is_left_out() -> None:
    folder = Path(tui.__file__).parent
    written = {
        id
        for path in folder.rglob("*.py")
        for id in re.findall(r'id="([a-z_]+\.[a-z_]+)"', path.read_text(encoding="utf-8"))
    }
    assert written - {binding.id for binding in rebindable()} == set()


def test_names_without_quotes_mean_the_same(home: Path) -> None:
    path = paths().settings
    path.parent.mkdir(parents=True)
    path.write_text('[keys]\nchat.again = "f10"\n"chat.new" = "f11"\n')
    file = SettingsFile.open()
    assert (file.settings.keys, file.notices) == ({"chat.again": "f10", "chat.new": "f11"}, [])


async def test_chosen_keys_work_and_help_names_them(tmp_path: Path) -> None:
    trace = Script(pace=0.001).answer("One").answer("Two").write(tmp_path / "t")
    keys = {"chat.again": "f10", "chat.stop": "f12", "msg.text": "x", "chat.open": "nokey"}
    async with window(trace, size=(120, 100), keys=keys) as shown:
        await shown.ready()
        await shown.shows("chat.open cannot be 'nokey'")
        await shown.ask("First")
        await shown.answered()
        await shown.press("f10")
        await shown.answered()
        await shown.press("escape")  # what shared the key of another is still there
        await shown.until(lambda: isinstance(shown.app.focused, Transcript))
        await shown.press("x")
        await shown.until(lambda: shown.app.clipboard == "Two")
        await shown.press("escape")
        await shown.until(lambda: not isinstance(shown.app.focused, Transcript))
        await shown.press("f1")
        await shown.shows("answer once more")
        (line,) = [line for line in shown.text.splitlines() if "answer once more" in line]
        assert "F10" in line
        assert "chat.again" in line
        await shown.shows("Keys elsewhere")
