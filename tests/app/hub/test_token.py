"""A token that is typed into the window: it opens what is closed, and shows nowhere."""

import stat
from pathlib import Path

import pytest

from app.hub.client import DownloadClient
from app.hub.messages import Planned, Start
from app.tui.download_state import Stage
from app.tui.widgets.token_field import TokenField
from tests.app.hub.conftest import QUICK
from tests.app.hub.hub_server import FakeHub
from tests.app.hub.test_models_screen import (
    buttons,
    default_repo,
    download,
    first_start,
    laptop,
    squeezed,
    stage,
)
from tests.app.tui.driver import Window

__all__ = ["default_repo"]  # a fixture, for every test here too


async def refused(shown: Window) -> None:
    """The download begins and is refused; the field for a token is opened."""
    await download(shown)
    await stage(shown, Stage.FAILED)
    assert buttons(shown)[0] == "Token"
    await shown.press("enter")
    await shown.until(lambda: isinstance(shown.app.focused, TokenField))
    assert buttons(shown) == ["Use once", "Use and keep", "Back"]


def field(shown: Window) -> TokenField:
    return shown.app.screen.query_one(TokenField)


def authorizations(hub: FakeHub) -> set[str | None]:
    return {seen.headers.get("authorization") for seen in hub.seen}


def files_that_hold(text: str, folder: Path) -> list[str]:
    """Files with `text` in them: `folder` holds the program's home and huggingface_hub's."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(p.relative_to(folder)) for p in files if text.encode() in p.read_bytes()]


@pytest.mark.parametrize("closed", ["gated", pytest.param("private", marks=pytest.mark.slow)])
async def test_it_opens_what_is_closed_and_is_not_written_down(
    hub: FakeHub, tmp_path: Path, closed: str
) -> None:
    setattr(hub, closed, True)
    async with first_start(tmp_path, laptop(tmp_path)) as shown:
        await refused(shown)
        assert authorizations(hub) == {None}
        await shown.paste(f"  {hub.token}\n")
        await shown.until(lambda: field(shown).value)
        await shown.shows("•" * 20)
        assert hub.token[:8] not in shown.text
        await shown.press("enter")
        await stage(shown, Stage.READY)
        await shown.shows("Every file is here and was checked.")
        assert f"Bearer {hub.token}" in authorizations(hub)
        state = shown.app.models.download.state
        assert state is not None
        assert state.plan is not None
        assert state.plan.token == "given"
        assert not field(shown).value
        assert not field(shown).has_class("-open")
        hub.seen.clear()
        plan = await shown.app.models.download.plan(state.repo)
        assert isinstance(plan, Planned)
        assert authorizations(hub) == {f"Bearer {hub.token}"}, "it serves this window"
    assert files_that_hold(hub.token, tmp_path) == []


@pytest.mark.slow
async def test_kept_it_serves_the_next_start(hub: FakeHub, tmp_path: Path) -> None:
    hub.private = True
    async with first_start(tmp_path, laptop(tmp_path)) as shown:
        await refused(shown)
        await shown.paste(hub.token)
        await shown.press("tab", "tab", "enter")  # past "Use once"
        await stage(shown, Stage.READY)
        await shown.shows("The token is kept by huggingface_hub")
    kept = files_that_hold(hub.token, tmp_path)
    assert kept == ["hf/stored_tokens", "hf/token"] or kept == ["hf/token", "hf/stored_tokens"]
    assert stat.S_IMODE((tmp_path / "hf" / "token").stat().st_mode) == 0o600
    client = DownloadClient()
    await client.start(Start(hub.repo, only_plan=True, limits=QUICK))
    plans = [event async for event in client.events() if isinstance(event, Planned)]
    assert [plan.token for plan in plans] == ["token file"]
    await client.close()


@pytest.mark.slow
async def test_one_that_cannot_be_kept_serves_all_the_same(hub: FakeHub, tmp_path: Path) -> None:
    hub.private, hub.faults.whoami = True, 500
    async with first_start(tmp_path, laptop(tmp_path)) as shown:
        await refused(shown)
        await shown.paste(hub.token)
        await shown.press("tab", "tab", "enter")
        await stage(shown, Stage.READY)
        await shown.until(lambda: squeezed("could not be kept") in squeezed(shown.text))
    assert files_that_hold(hub.token, tmp_path) == []


@pytest.mark.slow
async def test_a_wrong_one_is_said_and_forgotten(hub: FakeHub, tmp_path: Path) -> None:
    hub.private, wrong = True, "hf_" + "w" * 30
    async with first_start(tmp_path, laptop(tmp_path)) as shown:
        await refused(shown)
        await shown.paste("hf_")
        await shown.press("enter")
        await shown.shows("That is too short for a token.")
        await shown.paste(wrong)
        await shown.press("enter")
        await shown.shows("The token is not accepted")
        assert buttons(shown)[0] == "Token"
        hub.private = False
        hub.seen.clear()
        await shown.press("r")
        await stage(shown, Stage.READY)
        assert authorizations(hub) == {None}, "a public model is not refused for a bad token"
    assert files_that_hold(wrong, tmp_path) == []


async def test_it_can_be_left_and_not_be_copied(hub: FakeHub, tmp_path: Path) -> None:
    hub.gated = True
    async with first_start(tmp_path, laptop(tmp_path), size=(60, 20)) as shown:
        await refused(shown)
        await shown.paste(hub.token)
        await shown.until(lambda: field(shown).value)
        field(shown).select_all()
        await shown.press("ctrl+c", "ctrl+x")
        assert shown.app.clipboard == ""
        assert field(shown).value == hub.token
        for words in ("[ Use once ]", "[ Use and keep ]", "[ Back ]"):
            assert words in shown.text
        await shown.press("escape")
        await shown.until(lambda: buttons(shown)[0] == "Token")
        assert not field(shown).value
        await shown.press("t")
        await shown.until(lambda: isinstance(shown.app.focused, TokenField))
        assert not field(shown).value
