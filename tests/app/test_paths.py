"""Paths: one override for all, nothing made on the way, private folders."""

from pathlib import Path

import pytest

from app.paths import ensure, paths


def test_one_variable_moves_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORL_CHAT_HOME", str(tmp_path / "home"))
    for path in paths().named().values():
        assert path.is_relative_to(tmp_path / "home")
    assert list(tmp_path.iterdir()) == []


def test_without_it_the_platform_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ORL_CHAT_HOME", raising=False)
    for path in paths().named().values():
        assert "orl-chat" in path.parts


def test_folders_are_private(tmp_path: Path) -> None:
    assert ensure(tmp_path / "a" / "b")
    assert ensure(tmp_path / "a" / "b")
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_is_false(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not ensure(tmp_path / "file" / "under")
    assert not ensure(Path("/proc/orl-chat"))
