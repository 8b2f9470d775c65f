"""Start-up stays light: what the terminal process imports imports no torch and no model library."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "textual", "huggingface_hub", "numpy", "tokenizers")
LIGHT = (
    "app.cli", "app.launcher", "app.client", "app.store", "app.settings", "app.protocol",
    "app.paths",
    "app.worker", "app.trace", "app.replay", "app.models", "app.failures", "app.text",
    "app.commands.ask", "app.commands.download", "app.downloader", "app.hub.client",
    "app.hub.manifest", "app.hub.job", "engine.config", "engine.events",
)  # fmt: skip


def test_light_modules_import_nothing_heavy() -> None:
    code = (
        f"import sys, {', '.join(LIGHT)}\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("module", ["pydantic", "sqlite3", "asyncio"])
def test_the_command_line_imports_little(module: str) -> None:
    code = f"import sys, app.cli; print({module!r} in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
