"""What is painted before most of the program is there, and what is typed meanwhile."""

from pathlib import Path

import pytest
from textual import events
from textual.message import Message

from app.settings import SettingsFile
from app.store import Store
from app.tui.app import OrlChat
from app.tui.look import Look
from app.tui.parts import furnishing
from app.tui.screens.chat_frame import FirstFrame
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.welcome_card import WelcomeCard
from tests.app.tui.driver import Window


def program(seen: list[str] | None = None, *, file: str = "") -> OrlChat:
    """A program that paints the frame first, without an engine; `seen` gets what was painted."""
    settings = SettingsFile.open()
    settings.path.parent.mkdir(parents=True, exist_ok=True)
    settings.path.write_text(file)
    furnish = furnishing(
        file=SettingsFile.open(),
        store=Store.open(None),
        model="demo",
        make_client=lambda: pytest.fail("not reached"),
    )

    def look_first(app: OrlChat) -> None:
        assert isinstance(app.screen, FirstFrame)
        assert isinstance(app.focused, Prompt) or app.size.width < 60
        strips = app.screen._compositor.render_strips()
        (seen if seen is not None else []).append("\n".join(strip.text for strip in strips))
        furnish(app)

    app = OrlChat(Look.glance(settings.path), look_first, first_frame=True)
    app.start_engine = lambda: None  # type: ignore[method-assign]
    return app


async def there(shown: Window) -> None:
    """The chat has taken the frame's place."""
    await shown.until(lambda: shown.app.is_furnished and shown.app.screen is shown.app.chat)
    await shown.until(lambda: shown.app.chat.query(Prompt))


@pytest.mark.parametrize("size", [(100, 30), (60, 20), (160, 45), (40, 10)])
async def test_the_chat_takes_the_place_of_its_frame_without_moving_anything(
    size: tuple[int, int],
) -> None:
    seen: list[str] = []
    app = program(seen)
    async with app.run_test(size=size) as pilot:
        shown = Window(app, pilot)
        await there(shown)
        await shown.until(lambda: app.chat.query(WelcomeCard))
        await shown.shows("Ask something" if size[0] >= 60 else "needs a window")
        pairs = list(zip(seen[0].split("\n"), shown.text.split("\n"), strict=True))
        assert "Ask something" in seen[0] or size[0] < 60
        for frame, chat in pairs:
            drawn = [(a, b) for a, b in zip(frame, chat.ljust(size[0]), strict=True) if a != " "]
            assert all(a == b for a, b in drawn), f"{frame}\nbecame\n{chat}"


async def test_what_is_typed_before_the_chat_is_there_is_not_lost() -> None:
    app = program()
    typed = [events.Key(key, key if len(key) == 1 else None) for key in ("h", "i", "enter", "y")]

    def early(message: Message) -> None:
        if isinstance(message, events.Focus):  # the frame's field has it before it is painted
            while typed:
                event = typed.pop(0)
                event.set_sender(app)
                assert app._driver is not None
                app._driver.send_message(event)

    async with app.run_test(message_hook=early) as pilot:
        shown = Window(app, pilot)
        await there(shown)
        await shown.until(lambda: app.chat.query_one(Prompt).text)
        assert app.session.asked == ["hi"]
        assert app.chat.query_one(Prompt).text == "y"


async def test_keys_that_were_changed_are_not_shown_before_they_hold() -> None:
    seen: list[str] = []
    app = program(seen, file='keys = { "chat.new" = "ctrl+y" }\n')
    async with app.run_test(size=(100, 30)) as pilot:
        await Window(app, pilot).shows("^y new")
    assert "^n" not in seen[0]


@pytest.mark.parametrize(
    ("text", "environ", "look"),
    [
        ("", {}, Look()),
        ('theme = "nord"\nascii = true\nmouse = "off"\n', {}, Look("nord", True, False)),
        ("mouse = 0\n[keys]\nchat.new = 'f10'\n", {}, Look(mouse=False, usual_keys=False)),
        ("theme = 7\nascii = 'perhaps'\nmouse = []\n", {}, Look()),
        ("theme = \n", {}, Look()),
        ('theme = "nord"\n', {"ORL_CHAT_THEME": "dracula", "ORL_CHAT_MOUSE": ""}, Look("dracula")),
    ],
)
def test_a_glance_at_the_settings(
    tmp_path: Path, text: str, environ: dict[str, str], look: Look
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    assert Look.glance(path, environ) == look
    assert Look.glance(tmp_path / "none", {}) == Look()
