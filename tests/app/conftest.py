"""Every test of the program has a home of its own."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure: no example has a time limit, and slow generation is no error.
settings.register_profile("app", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("app")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's settings, chats and logs go; nobody else's are read."""
    for name in [name for name in os.environ if name.upper().startswith("ORL_CHAT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ORL_CHAT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
