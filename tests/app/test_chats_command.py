"""`orl-chat chats`: what is listed, what leaves as a file, and what comes back only once."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from app import chat_files
from app.cli import run
from app.paths import paths
from app.store import Store

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def chats(capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(["chats", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def filled() -> None:
    store = Store.open(paths().store)
    for title, text in (("Cats", "about \x1b[31m cats\nand dogs"), ("", "sort [b]lists[/b]")):
        chat = store.create_chat(title)
        store.add_message(chat, "user", text)
        store.update_message(store.add_message(chat, "assistant", f"{text}, yes"), reason="end")
    store.close()


def refusal(result: tuple[int, str, str]) -> str:
    """What a failed command said: one sentence on stderr, nothing else."""
    code, out, err = result
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert "Traceback" not in line
    return line


def test_a_fresh_home_has_no_chats(chats: Command) -> None:
    assert chats() == (0, "", "There are no chats yet.\n")
    assert chats("--json") == (0, "[]\n", "")


@pytest.mark.usefixtures("filled")
def test_the_list_and_a_search_with_what_it_found(chats: Command) -> None:
    code, out, err = chats()
    assert (code, err) == (0, "")
    assert [line.split("  ")[-2:] for line in out.splitlines()] == [
        ["sort [b]lists[/b]", "(2)"], ["Cats", "(2)"],
    ]  # fmt: skip
    code, out, _ = chats("--search", "dogs CATS")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split()[0] == "1"
    assert lines[1].strip() == "about [31m cats and dogs, yes"
    (found,) = json.loads(chats("--search", "dogs", "--json")[1])
    assert (found["id"], found["title"], found["hit"]["message_id"]) == (1, "Cats", 2)
    a, b = found["hit"]["marks"][0]
    assert found["hit"]["snippet"][a:b] == "dogs"
    assert chats("--search", "nowhere") == (0, "", "No chat holds that.\n")


@pytest.mark.usefixtures("filled")
def test_an_export_is_imported_once(
    chats: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = str(tmp_path / "all.json")
    assert chats("export", "--all", backup) == (0, f"{backup} holds 2 chats.\n", "")
    assert chats("import", backup) == (0, "2 chats were here already.\n", "")
    here = Store.open(paths().store)
    here.rename_chat(1, "Renamed")
    here.add_version(1, "another wording")
    here.choose_version(1)
    here.close()
    assert chats("import", backup)[1] == "Imported 1 chat; 1 of the file was here already.\n"
    monkeypatch.setenv("ORL_CHAT_HOME", str(tmp_path / "elsewhere"))
    assert chats("import", backup)[1] == "Imported 2 chats.\n"
    assert chats("import", backup)[1] == "2 chats were here already.\n"
    assert len(json.loads(chats("--json")[1])) == 2


@pytest.mark.usefixtures("filled")
def test_some_chats_as_markdown_in_a_file_or_on_stdout(chats: Command, tmp_path: Path) -> None:
    path = tmp_path / "cats.md"
    assert chats("export", "1", str(path))[0] == 0
    text = path.read_text()
    assert text.startswith("# Cats\n")
    assert "lists" not in text
    assert chats("export", "1", "-", "--format", "md") == (0, text, "")
    assert "\x1b" not in text
    assert chats("export", "2", "1", str(tmp_path / "x"), "--format", "json")[0] == 0
    assert len(chat_files.read(tmp_path / "x")) == 2


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["export", "x.md"], "or give --all"),
        (["export", "1", "--all", "x.md"], "or give --all"),
        (["export", "9", "x.md"], "There is no chat '9'"),
        (["export", "one", "x.md"], "There is no chat 'one'"),
        (["export", "1", "x.txt"], "md or json, got 'txt'"),
        (["export", "1", "x.md", "--format", "pdf"], "md or json, got 'pdf'"),
        (["export", "1", "here.md"], "here.md exists already"),
        (["export", "1", "no/where.md"], "cannot be written"),
        (["export"], "orl-chat chats export --help"),
        (["import", "gone.json"], "gone.json cannot be read"),
        (["import", "here.md"], "is no JSON export of orl-chat"),
        (["import"], "orl-chat chats import --help"),
        (["print"], "No such command"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    chats: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here.md").write_text("mine")
    assert why in refusal(chats(*words))
    assert Path("here.md").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here.md", "home"]


@pytest.mark.usefixtures("filled")
def test_nothing_is_imported_into_a_store_that_ends_with_the_command(
    chats: Command, tmp_path: Path
) -> None:
    backup = str(tmp_path / "all.json")
    chats("export", "--all", backup)
    connection = sqlite3.connect(paths().store)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert "update orl-chat to use it" in refusal(chats("import", backup))
    code, out, err = chats()
    assert (code, out) == (0, "")
    assert "update orl-chat to use it" in err
