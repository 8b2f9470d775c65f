"""Settings: defaults, file, environment, bad values, broken files, and saving without losses."""

from pathlib import Path

import pytest

from app.settings import Settings, SettingsError, SettingsFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "config.toml"


def written(path: Path, text: str) -> SettingsFile:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return SettingsFile.open(path)


def test_defaults_without_a_file_and_nothing_is_created(path: Path) -> None:
    file = SettingsFile.open(path)
    assert file.settings == Settings()
    assert file.notices == []
    assert not path.parent.exists()


def test_the_file_is_read(path: Path) -> None:
    file = written(
        path,
        'preset = "speed"\nediting_threshold = "off"\nseed = 18446744073709551615\n'
        '[keys]\n"chat.send" = "ctrl+j"\n',
    )
    assert file.notices == []
    assert file.settings.preset == "speed"
    assert file.settings.seed == 2**64 - 1
    assert file.settings.keys == {"chat.send": "ctrl+j"}


def test_the_environment_wins(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORL_CHAT_PRESET", "careful")
    monkeypatch.setenv("ORL_CHAT_ASCII", "1")
    monkeypatch.setenv("ORL_CHAT_KEYS", '{"help": "f9"}')
    monkeypatch.setenv("ORL_CHAT_SEED", "")
    file = written(path, 'preset = "speed"\n')
    assert (file.settings.preset, file.settings.ascii) == ("careful", True)
    assert file.settings.keys == {"help": "f9"}
    file.set(theme="nord")
    assert path.read_text() == 'preset = "speed"\ntheme = "nord"\n', "variables are not saved"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("threshold = 1.4", "threshold"),
        ("threshold = nan", "threshold"),
        ('preset = "fast"', "preset"),
        ("max_new_tokens = 0", "max_new_tokens"),
        ("temperature = inf", "temperature"),
        ('editing_threshold = "never"', "editing_threshold"),
        ("seed = -1", "seed"),
        ('model = ""', "model"),
        ("keys = 3", "keys"),
        ('keys = "{"', "keys"),
        ("[keys]\nhelp = 3", "keys"),
    ],
)
def test_a_bad_value_costs_only_itself(path: Path, line: str, name: str) -> None:
    file = written(path, f'# comment\ntheme = "nord"\n{line}\n')
    assert not file.broken
    (notice,) = file.notices
    assert f"{path}, line 3" in notice
    assert name in notice
    assert file.settings == Settings(theme="nord")


def test_a_bad_variable_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORL_CHAT_THRESHOLD", "much")
    monkeypatch.setenv("ORL_CHAT_KEYS", "{")
    file = written(path, "threshold = 0.25\n")
    assert file.settings.threshold == 0.25
    assert any("ORL_CHAT_THRESHOLD" in notice for notice in file.notices)
    assert any("ORL_CHAT_KEYS" in notice for notice in file.notices)


def test_unknown_keys_are_reported_and_kept(path: Path) -> None:
    file = written(path, "thresold = 0.5\nzzz = 1\n")
    near, far = file.notices
    assert "line 1" in near
    assert "'threshold'" in near
    assert "ignored" in far
    file.set(ascii=True)
    assert "thresold = 0.5\nzzz = 1\n" in path.read_text()


@pytest.mark.parametrize("content", [b"preset = \n", b"a = 1\na = 2", b"\xff\xfe", b"[" * 5000])
def test_a_broken_file_is_never_overwritten(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    file = SettingsFile.open(path)
    assert file.broken
    assert file.settings == Settings()
    assert str(path) in file.notices[0]
    with pytest.raises(SettingsError, match="until you quit"):
        file.set(preset="speed")
    assert file.settings.preset == "speed"
    assert path.read_bytes() == content
    aside = file.set_aside()
    assert aside.read_bytes() == content
    file.set(preset="careful")
    assert SettingsFile.open(path).settings.preset == "careful"


def test_the_line_of_a_syntax_error_is_named(path: Path) -> None:
    file = written(path, 'preset = "speed"\nthis is no toml\n')
    assert "line 2" in file.notices[0]


def test_saving_keeps_comments_order_and_hand_edits(path: Path) -> None:
    file = written(path, '# mine\npreset = "speed"  # fast\n\n[keys]\nhelp = "f1"\n')
    path.write_text(path.read_text().replace("# mine", "# edited by hand"))
    file.set(preset="careful", threshold=0.9, seed=None)
    assert path.read_text() == (
        '# edited by hand\npreset = "careful"  # fast\nthreshold = 0.9\n\n[keys]\nhelp = "f1"\n'
    )
    file.set(threshold=None, keys={"help": "f2"})
    again = SettingsFile.open(path)
    assert again.notices == []
    assert again.settings == file.settings


def test_a_value_that_is_not_allowed_changes_nothing(path: Path) -> None:
    file = SettingsFile.open(path)
    with pytest.raises(SettingsError, match=r"threshold cannot be 1\.4"):
        file.set(threshold=1.4)
    with pytest.raises(SettingsError, match="thresold"):
        file.set(thresold=0.4)
    assert file.settings == Settings()
    assert not path.exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    file = SettingsFile.open(tmp_path / "file" / "config.toml")
    assert file.notices == []
    with pytest.raises(SettingsError, match="cannot be written"):
        file.set(preset="speed")
    assert file.settings.preset == "speed"


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text("ascii = true\n")
    path.parent.mkdir()
    path.symlink_to(real)
    SettingsFile.open(path).set(offline=True)
    assert path.is_symlink()
    assert real.read_text() == "ascii = true\noffline = true\n"
    assert [p.name for p in path.parent.iterdir()] == ["config.toml"]


def test_decoding_holds_only_what_was_set() -> None:
    assert Settings().decoding() == {
        "preset": "quality", "max_new_tokens": 1024, "temperature": 0.0,
    }  # fmt: skip
    assert Settings(editing_threshold="off").decoding()["editing_threshold"] is None
    assert Settings(editing_threshold=0.0, seed=0).decoding()["editing_threshold"] == 0.0
