"""Makes the pictures of the documentation from a real run of the demo: real engine, real keys.

python docs/screenshots.py
"""

import asyncio
import os
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
QUESTION = "Tom has 23 apples and buys 48 more. How many apples does Tom have now?"
UPDATES = 16
"""Of the run, when its picture is taken."""
FIRST = "What is 6 x 7?"
SIZE = (110, 34)


async def take() -> None:
    """Ask two questions, and take the picture while the second answer's block is half decided."""
    from app.client import EngineClient
    from app.paths import paths
    from app.settings import SettingsFile
    from app.store import Store
    from app.tui.app import OrlChat
    from app.tui.look import Look
    from app.tui.parts import furnishing

    file = SettingsFile.open()
    furnish = furnishing(
        file=file,
        store=Store.open(None),
        model="demo",
        make_client=lambda: EngineClient(log=paths().engine_log),
    )
    app = OrlChat(Look.of(file.settings), furnish)
    async with app.run_test(size=SIZE) as pilot:
        while not app.session.engine.usable:
            await pilot.pause(0.1)
        await ask(pilot, app, FIRST)
        await settled(pilot, app)
        app.session.keeper.settings(slow_steps_per_second=2.0)
        await pilot.press("ctrl+t")
        await ask(pilot, app, QUESTION)
        for _ in range(400):
            await pilot.pause(0.02)
            turn = app.session.turn
            second = (
                turn is not None and turn.live.picture is not None and turn.live.picture[0] == 1
            )
            if second and 4 <= turn.live.decided <= 28:
                break
        picture(app, "denoising")
        await pilot.press("ctrl+t", "ctrl+t")
        await settled(pilot, app)
        await pilot.pause(0.3)
        picture(app, "chat")
        await inspect(pilot, app)
        await finetune(pilot, app)


def picture(app, name: str) -> None:
    (HERE / f"{name}.svg").write_text(app.export_screenshot(title="orl-chat"))


async def inspect(pilot, app) -> None:
    """The last answer again, step by step and in figures; models and settings."""
    await pilot.press("f6")
    await pilot.pause(0.5)
    await pilot.press("right", "right", "right")
    await pilot.pause(0.3)
    picture(app, "replay")
    await pilot.press("escape")
    for key, name in (("f3", "speed"), ("f5", "models")):
        await pilot.press(key)
        await pilot.pause(1.5)
        picture(app, name)
        await pilot.press("escape")
        await pilot.pause(0.3)


async def finetune(pilot, app) -> None:
    """Set up a run on the demo's own prompts, test their verifier, and train for a while."""
    await pilot.press("f4", "d")
    await done(pilot, lambda: app.screen.setup.plan)
    await pilot.press("t")
    await done(pilot, lambda: app.screen.setup.trial)
    picture(app, "finetune")
    await pilot.press("s")
    await done(pilot, lambda: hasattr(app.screen, "seen"))
    await done(pilot, lambda: len(app.screen.seen.of("update")) >= UPDATES)
    await pilot.pause(1.5)
    picture(app, "run")
    await pilot.press("x")
    await done(pilot, lambda: not app.screen.seen.status.alive)


async def done(pilot, what) -> None:
    while not what():
        await pilot.pause(0.2)


async def ask(pilot, app, question: str) -> None:
    await pilot.press(*(" " if c == " " else c for c in question))
    await pilot.pause(0.2)
    await pilot.press("enter")
    for _ in range(200):
        await pilot.pause(0.02)
        if app.session.turn is not None:
            return


async def settled(pilot, app) -> None:
    while app.session.turn is not None:
        await pilot.pause(0.1)
    await pilot.pause(0.3)


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        os.environ["ORL_CHAT_HOME"] = home
        asyncio.run(take())


if __name__ == "__main__":
    main()
