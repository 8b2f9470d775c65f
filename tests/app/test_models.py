"""What a model's name stands for."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app import models
from app.models import DEFAULT_REPO, check_folder, is_whole, missing_from, resolve_model
from engine.config import CheckpointError


@pytest.fixture(autouse=True)
def empty_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "assets" / "demo"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    monkeypatch.setattr(models.importlib.resources, "files", lambda name: tmp_path / name)
    return folder


def downloaded(hub: Path, repo: str, files: dict[str, str]) -> Path:
    """A repository as the hub's cache holds it."""
    folder = hub / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    for name, content in files.items():
        (snapshot / name).write_text(content)
    return snapshot


WHOLE = {
    "config.json": "{}",
    "tokenizer.json": "{}",
    "model.safetensors.index.json": json.dumps({"weight_map": {"a": "1.safetensors"}}),
    "1.safetensors": "",
}


def never() -> bool:
    pytest.fail("the hardware was asked")


def test_demo(demo: Path) -> None:
    assert resolve_model("demo") == models.ModelFolder("demo", demo)


def test_a_demo_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.importlib.resources, "files", lambda name: tmp_path / name)
    with pytest.raises(CheckpointError, match="install orl-chat again"):
        resolve_model("demo")


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "owner" / "mine"
    folder.mkdir(parents=True)
    assert resolve_model(str(folder)).name == "mine"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_model("~/owner/mine").path == folder
    monkeypatch.chdir(tmp_path)
    assert resolve_model("owner/mine").name == "mine", "a folder wins over a repository"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/a/b",
        "nothing",
        "a/b/c",
        "../x",
        "a/",
        "owner/name",
        "~nobody/x",
        "a\nb/c",
        "-x/y",
        "\0",
    ],
)
def test_what_does_not_exist_is_a_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(CheckpointError, match=r"^There is no folder"):
        resolve_model(name)


@pytest.mark.parametrize("look", [check_folder, resolve_model])
def test_a_folder_that_the_system_does_not_open(
    look: Callable[[str], object], tmp_path: Path
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("loop", "x" * 300):
        with pytest.raises(CheckpointError, match=r"cannot be opened: .+\.$"):
            look(str(tmp_path / name))


def test_a_downloaded_repository(empty_hub: Path) -> None:
    snapshot = downloaded(empty_hub, "owner/name", WHOLE)
    assert resolve_model("owner/name") == models.ModelFolder("owner/name", snapshot)


def test_without_the_hub_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match="huggingface_hub is not installed"):
        resolve_model("owner/name")


@pytest.mark.parametrize("missing", [None, "1.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("able", [True, False])
def test_auto_takes_the_large_model_only_when_it_is_whole_and_runs(
    empty_hub: Path, demo: Path, missing: str | None, able: bool
) -> None:
    files = {name: text for name, text in WHOLE.items() if name != missing}
    downloaded(empty_hub, DEFAULT_REPO, files)
    found = resolve_model("auto", lambda: able)
    assert found.name == (DEFAULT_REPO if able and missing is None else "demo")


def test_auto_without_a_download_does_not_ask_the_hardware(demo: Path) -> None:
    assert resolve_model("auto", never).name == "demo"


@pytest.mark.parametrize(
    "index", ["{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3}}']
)
def test_a_damaged_index_is_not_whole(tmp_path: Path, index: str) -> None:
    files: dict[str, Any] = {**WHOLE, "model.safetensors.index.json": index}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert not is_whole(tmp_path)


def test_what_lacks_is_named(tmp_path: Path) -> None:
    assert missing_from(tmp_path) == "has no config.json"
    (tmp_path / "config.json").write_text("{}")
    assert missing_from(tmp_path) == "has no tokenizer.json"
    (tmp_path / "tokenizer.json").write_text("{}")
    assert missing_from(tmp_path) == "has no model.safetensors and no index of several"
    index = tmp_path / "model.safetensors.index.json"
    for text in ("[]", "{", '{"weight_map": {"a": 3}}'):
        index.write_text(text)
        assert missing_from(tmp_path) == "cannot be read as a checkpoint"
    index.write_text('{"weight_map": {"a": "x.safetensors", "b": "y.safetensors", "c": "z"}}')
    (tmp_path / "y.safetensors").write_text("")
    assert missing_from(tmp_path) == "lacks x.safetensors and 1 more file that its index names"
    (tmp_path / "x.safetensors").write_text("")
    (tmp_path / "z").write_text("")
    assert missing_from(tmp_path) is None


def test_a_folder_that_a_user_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = resolve_model("demo").path
    assert check_folder(str(demo)) == demo
    monkeypatch.setenv("HOME", str(demo.parent))
    assert check_folder("~/demo") == demo
    monkeypatch.chdir(demo.parent)
    assert check_folder("demo") == demo, "absolute, since the next start is elsewhere"
    with pytest.raises(CheckpointError, match=r"has no config.json; a checkpoint is in .*demo\.$"):
        check_folder(str(demo.parent))
    cached = tmp_path / "models--a--b" / "snapshots"
    cached.mkdir(parents=True)
    (cached / "0123").symlink_to(demo)
    with pytest.raises(CheckpointError, match=r"a checkpoint is in .*snapshots/0123\.$"):
        check_folder(str(cached.parent))
