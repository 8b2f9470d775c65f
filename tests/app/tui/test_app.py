"""The program as a process: what it imports, and what it says when it fails."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from app.paths import paths
from app.settings import SettingsFile
from app.store import Store
from app.tui.app import OrlChat
from app.tui.look import Look
from app.tui.parts import furnishing
from app.tui.state import EngineState, Phase
from app.tui.widgets.welcome_card import WelcomeCard

ROOT = Path(__file__).parents[3]
HEAVY = ("torch", "transformers", "huggingface_hub", "numpy", "tokenizers", "tree_sitter")


def test_the_terminal_process_imports_nothing_heavy() -> None:
    code = (
        "import sys, app.tui.app, app.tui.screens.chats, app.tui.screens.help\n"
        "import app.tui.screens.models, app.tui.screens.download, app.tui.screens.finetune\n"
        "import app.tui.screens.run, app.tui.screens.compare, app.tui.screens.export\n"
        "import app.tui.screens.keep, app.tui.using\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_an_engine_may_be_ready_before_the_start_card_is_drawn() -> None:
    WelcomeCard(EngineState(), []).show(EngineState(Phase.DEAD))


async def test_a_crash_is_a_sentence_and_a_log_without_locals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        hf_token = "hf_secret"
        raise RuntimeError("broken" + hf_token[:0])

    furnish = furnishing(
        file=SettingsFile.open(),
        store=Store.open(None),
        model="demo",
        make_client=lambda: pytest.fail("not reached"),
    )
    app = OrlChat(Look(), furnish)
    app.start_engine = fail  # type: ignore[method-assign]
    with caplog.at_level(logging.ERROR), pytest.raises(RuntimeError):
        async with app.run_test() as pilot:
            await pilot.pause()
    logged = caplog.text
    assert "RuntimeError: broken" in logged
    assert "hf_secret" not in logged.replace('hf_token = "hf_secret"', "")
    shown = [str(part) for part in app._exit_renderables]
    assert shown == [] or shown == [
        f"orl-chat stopped because of an error in it. Details are in {paths().log}."
    ]
