"""The tab of models and settings: real keys, a hub cache on disk, the settings' own file."""

import asyncio
import json
import shutil
import tomllib
from pathlib import Path

import pytest
from textual.widgets import Input, OptionList

from app import library
from app.hub.cache import RepoCache
from app.library import LibraryError
from app.models import DEFAULT_REPO
from app.paths import paths
from app.tui.screens.keys import KeyList, KeysScreen
from app.tui.screens.library import LibraryScreen, ModelList
from app.tui.setting_rows import GROUPS
from app.tui.widgets.settings_list import SettingsOptions
from tests.app.training import make_run
from tests.app.tui.driver import Window, window
from tests.app.tui.recording import Script

DEMO = Path(__file__).parents[3] / "assets" / "demo"
OTHERS = "somebody/tiny"
COMMIT = "a" * 40


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return Script(pace=0.001).answer("Together: 85").write(tmp_path / "t")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache."""
    cache = tmp_path / "hub"
    cache.mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    return cache


def put_model(hub: Path, repo: str = OTHERS) -> Path:
    """A whole small checkpoint that another program downloaded."""
    folder = RepoCache(repo, hub).snapshot(COMMIT)
    shutil.copytree(DEMO, folder)
    return folder


async def open_tab(shown: Window) -> LibraryScreen:
    await shown.ready()
    await shown.press("f5")
    await shown.until(lambda: isinstance(shown.app.screen, LibraryScreen))
    screen = shown.app.screen
    assert isinstance(screen, LibraryScreen)
    await shown.until(lambda: any(shown.option_count for shown in screen.query(ModelList)))
    return screen


async def mark(shown: Window, name: str) -> None:
    """Mark the setting `name` and give its list the focus."""
    options = shown.app.screen.query_one(SettingsOptions)
    options.focus()
    options.highlighted = options.get_option_index(name)
    await shown.until(lambda: options.has_focus)


async def test_adapters_stand_below_their_model(trace: Path, hub: Path) -> None:
    put_model(hub)
    for name in ("one", "two"):
        make_run(name).checkpoint(4).mkdir(parents=True)
    async with window(trace) as shown:
        screen = await open_tab(shown)
        ids = [option.id for option in screen.query_one(ModelList).options]
        assert ids[:5] == ["demo", "demo\none", "demo\ntwo", "demo-tuned", OTHERS]


def test_what_other_programs_downloaded_is_listed_and_deleted(hub: Path) -> None:
    put_model(hub)
    not_ours = RepoCache("somebody/else", hub).snapshot(COMMIT)
    not_ours.mkdir(parents=True)
    (not_ours / "config.json").write_text(json.dumps({"model_type": "bert"}))
    found = {model.name: model for model in library.models(None)}
    assert list(found) == ["demo", "demo-tuned", OTHERS]
    assert found[OTHERS].state == "unchecked"
    assert found[OTHERS].usable
    assert found[OTHERS].revision == COMMIT
    assert found[OTHERS].size > 3_000_000
    assert library.delete(found[OTHERS]) > 3_000_000
    assert [model.name for model in library.models(None)] == ["demo", "demo-tuned"]
    with pytest.raises(LibraryError, match="demo is not in the hub cache"):
        library.delete(found["demo"])


def test_a_cut_download_is_partial(hub: Path) -> None:
    folder = put_model(hub)
    (folder / "model.safetensors").unlink()
    assert [model.state for model in library.models(None)] == ["built in", "built in", "partial"]


def test_the_folder_in_use_is_listed(hub: Path, tmp_path: Path) -> None:
    shutil.copytree(DEMO, tmp_path / "mine")
    last = library.models(str(tmp_path / "mine"))[-1]
    assert (last.state, last.usable) == ("folder", True)
    last = library.models(str(tmp_path / "gone"))[-1]
    assert (last.state, last.usable) == ("not here", False)


async def test_models_are_used_and_deleted(trace: Path, hub: Path) -> None:
    put_model(hub)
    async with window(trace) as shown:
        screen = await open_tab(shown)
        await shown.shows(OTHERS)
        await shown.shows(DEFAULT_REPO)
        await shown.press("d")
        await shown.shows("The demos come with the program")
        await shown.press("down", "down", "d")
        await shown.shows(f"d again deletes {OTHERS}")
        await shown.press("up", "down", "d")  # moving away takes it back
        await shown.until(lambda: "d again deletes" in shown.text)
        assert library.models(None)[-1].name == OTHERS
        await shown.press("enter")
        await shown.until(lambda: shown.app.screen is shown.app.chat)
        assert shown.app.link.model == OTHERS
        assert shown.session.settings.model == OTHERS
        await shown.ready()
        await open_tab(shown)
        await shown.press("d")
        await shown.shows("It is in use")
        await shown.press("up", "up", "enter")
        await shown.until(lambda: shown.app.link.model == "demo")
        await shown.ready()
        await open_tab(shown)
        await shown.press("down", "down", "d", "d")
        await shown.until(lambda: not RepoCache(OTHERS, hub).folder.exists())
        await shown.shows("are free again")
        assert screen.query_one(ModelList).option_count == 6


async def test_settings_are_changed_checked_and_saved(trace: Path, hub: Path) -> None:
    async with window(trace) as shown:
        screen = await open_tab(shown)
        await mark(shown, "preset")
        await shown.press("enter")
        await shown.until(lambda: shown.session.settings.preset == "careful")
        await mark(shown, "temperature")
        field = screen.query_one("#settings Input", Input)
        await shown.press("enter")
        await shown.until(lambda: field.has_focus)
        field.value = "warm"
        await shown.press("enter")
        await shown.shows("temperature cannot be 'warm'")
        assert field.value == "warm"
        field.value = "0.7"
        await shown.press("enter")
        await shown.until(lambda: shown.session.settings.temperature == 0.7)
        saved = tomllib.loads(paths().settings.read_text())
        assert (saved["preset"], saved["temperature"]) == ("careful", 0.7)
        await shown.press("backspace")
        await shown.until(lambda: shown.session.settings.temperature == 0.0)
        assert "temperature" not in tomllib.loads(paths().settings.read_text())
        await shown.press("enter")
        await shown.until(lambda: field.has_focus)
        await shown.press("escape")
        await shown.until(lambda: not field.display)
        await shown.press("escape")
        await shown.until(lambda: shown.app.screen is shown.app.chat)


async def test_a_theme_is_seen_at_once(trace: Path, hub: Path) -> None:
    async with window(trace, theme="orl-dark") as shown:
        screen = await open_tab(shown)
        await mark(shown, "theme")
        await shown.press("enter")
        field = screen.query_one("#settings Input", Input)
        await shown.until(lambda: field.has_focus)
        field.value = "orl-light"
        await shown.press("enter")
        await shown.until(lambda: shown.app.theme == "orl-light")


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (160, 45)])
async def test_every_setting_can_be_reached(trace: Path, hub: Path, size: tuple[int, int]) -> None:
    async with window(trace, size=size) as shown:
        screen = await open_tab(shown)
        names = [row.name for group in GROUPS for row in group.rows]
        options = screen.query_one("#settings OptionList", OptionList)
        for name in (names[0], names[-1]):
            await mark(shown, name)
            label = next(row.label for group in GROUPS for row in group.rows if row.name == name)
            await shown.shows(f"{label}: ")
        assert options.option_count == len(names) + len(GROUPS)
        await asyncio.sleep(0)


async def test_a_key_is_changed_and_given_back(trace: Path, hub: Path) -> None:
    async with window(trace) as shown:
        await open_tab(shown)
        await shown.press("f6")
        await shown.shows("the key it came with")
        screen = shown.app.screen
        assert isinstance(screen, KeysScreen)
        options = screen.query_one(KeyList)
        options.highlighted = options.get_option_index("chat.new")
        await shown.press("enter")
        await shown.shows("Press the new key for chat.new")
        await shown.press("ctrl+o")
        await shown.shows("chat.new cannot be 'ctrl+o'")
        await shown.press("enter")
        await shown.shows("Press the new key for chat.new")
        await shown.press("f10")
        await shown.until(lambda: shown.session.settings.keys == {"chat.new": "f10"})
        assert tomllib.loads(paths().settings.read_text())["keys"] == {"chat.new": "f10"}
        await shown.press("escape")
        await shown.until(lambda: isinstance(shown.app.screen, LibraryScreen))
        await shown.press("escape")
        await shown.ask("Hello")
        await shown.answered()
        await shown.press("f10")
        await shown.until(lambda: not shown.session.conversation.entries)
        await open_tab(shown)
        await shown.press("f6")
        await shown.shows("the key it came with")
        assert isinstance(shown.app.screen, KeysScreen)
        options = shown.app.screen.query_one(KeyList)
        options.highlighted = options.get_option_index("chat.new")
        await shown.press("backspace")
        await shown.until(lambda: shown.session.settings.keys == {})
