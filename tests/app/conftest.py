"""Every test of the program has a home of its own."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's settings, chats and logs go; nobody else's are read."""
    for name in [name for name in os.environ if name.upper().startswith("ORL_CHAT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ORL_CHAT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
