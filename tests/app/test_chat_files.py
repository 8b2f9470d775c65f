"""Chats leave the store as files and come back equal; what is no such file changes nothing."""

import json
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from app import chat_files
from app.chat_files import ChatFileError, ChatRecord, MessageRecord
from app.chat_settings import ChatSettings
from app.store import Store

NASTY = "a\x00b \x1b[31m\u202e \U0001f600 ```\n# no heading\n\u2028 é e\u0301 \ufffd"


def filled() -> Store:
    store = Store.open(None)
    chat = store.create_chat(settings=ChatSettings(preset="speed", system="Be brief ✓"))
    question = store.add_message(chat, "user", NASTY)
    answer = store.add_message(chat, "assistant", "first")
    store.update_message(answer, reason="end", stats={"tpf": 3.1, "blocks": [1, 2], "x": None})
    store.add_message(chat, "user", "and then?")
    store.add_message(chat, "assistant", "second try", after=question)
    edited = store.add_version(question, "edited")
    store.add_message(chat, "assistant", "")
    store.choose_version(edited)
    store.choose_version(answer)
    store.update_message(store.add_message(chat, "user", "far too long"), reason="unsent")
    store.create_chat("empty")
    store.delete_chat(store.create_chat("deleted"))
    return store


def test_an_export_comes_back_equal(tmp_path: Path) -> None:
    here, there = filled(), Store.open(tmp_path / "chats.db")
    there.create_chat("in the way of the ids")
    records = here.records()
    assert [(r.title[:1], len(r.messages)) for r in records] == [("a", 7), ("e", 0)]
    path = tmp_path / "chats.json"
    chat_files.save(chat_files.to_json(records), path)
    assert path.read_bytes().isascii()
    assert path.stat().st_mode & 0o777 == 0o600
    read = chat_files.read(path)
    assert list(read) == records
    ids = there.add_records(read)
    assert there.records(ids) == records
    assert there.chat_settings(ids[0]) == ChatSettings(preset="speed", system="Be brief ✓")
    (chat,) = (c for c in here.chats() if c.title != "empty")
    assert [(m.content, m.version, m.versions, m.stats) for m in there.messages(ids[0])] == [
        (m.content, m.version, m.versions, m.stats) for m in here.messages(chat.id)
    ]
    assert [c.id for c in there.chats("second try")] == [ids[0]]
    here.close()
    there.close()


def test_a_choice_of_chats(tmp_path: Path) -> None:
    store = filled()
    assert [r.title for r in store.records([2, 99])] == ["empty"]
    assert store.records([3]) == [], "deleted"
    store.close()


def test_markdown_is_the_shown_path_and_harmless() -> None:
    store = filled()
    text = chat_files.to_markdown(store.records())
    store.close()
    lines = text.splitlines()
    assert lines[0].startswith("# a")
    assert "## System" in lines
    assert "Be brief ✓" in lines
    assert "## You (1 of 2)" in lines
    assert "## orl-chat (1 of 2)" in lines
    assert "and then?" in lines
    assert "second try" not in text
    assert "far too long" not in text
    assert "# empty" in lines
    assert not {"\x00", "\x1b", "\u202e"} & set(text)


def test_markdown_cannot_be_imported(tmp_path: Path) -> None:
    store = filled()
    path = tmp_path / "chats.md"
    chat_files.save(chat_files.to_markdown(store.records()), path)
    store.close()
    with pytest.raises(ChatFileError, match="is no JSON export of orl-chat"):
        chat_files.read(path)


def chat(*messages: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"title": "t", "created": 1.0, "updated": 2.0, "messages": list(messages), **changes}


def said(**changes: Any) -> dict[str, Any]:
    return {"role": "user", "content": "x", "created": 1.0, **changes}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (chat(said(role="tool")), "role"),
        (chat(said(content=5)), "content"),
        (chat(said(created="1")), "created"),
        (chat(said(created=float("nan"))), "created"),
        (chat(said(parent=0)), "message 0 comes after message 0"),
        (chat(said(), said(parent=5)), "message 1 comes after message 5"),
        (chat(said(parent=-1)), "comes after message -1"),
        (chat(said(), said()), "exactly one must be chosen"),
        (chat(said(chosen=False)), "exactly one must be chosen"),
        (chat(said(stats=[1])), "stats"),
        (chat(settings={"threshold": 2}), "threshold cannot be 2"),
        (chat(settings={"preset": "fastest"}), "preset"),
        (chat(created=-5.0), "created"),
        ({"title": "t"}, "created"),
        ("text", "chats.1"),
    ],
)
def test_one_wrong_chat_refuses_the_file(tmp_path: Path, wrong: Any, why: str) -> None:
    path = tmp_path / "x.json"
    good = chat(said(), said(role="assistant", parent=0), settings={"threshold": 0.5})
    file = {"format": "orl-chat chats", "version": 1, "chats": [good]}
    path.write_text(json.dumps(file))
    assert len(chat_files.read(path)) == 1
    path.write_text(json.dumps({**file, "chats": [good, wrong]}))
    with pytest.raises(ChatFileError, match=why) as refused:
        chat_files.read(path)
    assert str(refused.value).startswith(f"{path} cannot be imported")
    assert str(refused.value).count("\n") == 0


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is no JSON export"),
        (b"\xff\xfe{}", "is no JSON export"),
        (b"[1, 2]", "is no JSON export"),
        (b"[" * 100_000, "is no JSON export"),
        (b'{"format": "someone else", "chats": []}', "is no JSON export"),
        (b'{"format": "orl-chat chats", "version": 7, "chats": {}}', "newer orl-chat .format 7"),
        (b'{"format": "orl-chat chats", "version": 1}', "cannot be imported .chats"),
    ],
)
def test_a_foreign_file_is_a_sentence(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(ChatFileError, match=why):
        chat_files.read(path)
    with pytest.raises(ChatFileError, match=r"cannot be read \(No such file"):
        chat_files.read(tmp_path / "missing")
    with pytest.raises(ChatFileError, match=r"cannot be read \(Is a directory"):
        chat_files.read(tmp_path)


def test_every_cut_of_an_export_is_refused(tmp_path: Path) -> None:
    store = filled()
    text = chat_files.to_json(store.records())
    store.close()
    path = tmp_path / "cut.json"
    for length in range(0, len(text) - 2, 97):
        path.write_text(text[:length])
        with pytest.raises(ChatFileError, match="not all of it"):
            chat_files.read(path)


def test_nothing_is_half_imported(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "chats.db")
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    big = MessageRecord("user", "y" * 100_000, 1.0)
    store.add_records([ChatRecord("small", 1.0, 1.0), ChatRecord("big", 1.0, 1.0, messages=(big,))])
    assert not store.writable, "the session goes on in memory, with all of it"
    assert {c.title for c in store.chats()} == {"small", "big"}
    store.close()
    store = Store.open(tmp_path / "chats.db")
    assert store.chats() == []
    store.close()


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("mine")
    with pytest.raises(ChatFileError, match="exists already"):
        chat_files.save("x", path)
    assert path.read_text() == "mine"
    with pytest.raises(ChatFileError, match=r"cannot be written \(No such file"):
        chat_files.save("x", tmp_path / "missing" / "x.md")


def test_a_write_that_fails_leaves_no_half_file(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(ChatFileError, match=r"cannot be written \(File too large"):
            chat_files.save("x" * 200_000, tmp_path / "big.md")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert list(tmp_path.iterdir()) == []


def test_a_chat_that_is_here_is_not_added_again() -> None:
    store = filled()
    records = store.records()
    assert store.add_records(records) == []
    store.choose_version(store.messages(1)[0].id)
    assert store.add_records(records) == [], "another version is shown: still the same chat"
    longer = ChatRecord("new", 1.0, 2.0, messages=(MessageRecord("user", "x", 1.0),))
    (id,) = store.add_records([longer, *records, longer])
    assert store.records([id]) == [longer]
    store.delete_chat(id)
    assert len(store.add_records([longer])) == 1, "a deleted one is not here"
    store.add_message(1, "user", "and on")
    assert len(store.add_records(records)) == 1, "the chat of the file is not the longer one"
    store.close()


def test_a_name_of_a_file_says_which_chat_and_is_free(tmp_path: Path) -> None:
    title = "Wie sorte ich /etc/passwd?\x1b \u202e 東京 " + "x" * 99
    first = chat_files.free_name(title, tmp_path, ".md")
    assert first.parent == tmp_path
    assert first.name.startswith("Wie-sorte-ich-etc-passwd-東京-xx")
    assert len(first.name) <= chat_files.NAME_LENGTH + 3
    first.touch()
    second = chat_files.free_name(title, tmp_path, ".md")
    second.touch()
    third = chat_files.free_name(title, tmp_path, ".md")
    assert (second.stem, third.stem) == (f"{first.stem}-2", f"{first.stem}-3")
    assert chat_files.free_name("../..", tmp_path, ".json") == tmp_path / "chat.json"


def test_the_ending_is_the_format(tmp_path: Path) -> None:
    store = filled()
    records = store.records()
    store.close()
    assert chat_files.as_text(records, tmp_path / "a.MD") == chat_files.to_markdown(records)
    assert chat_files.as_text(records, tmp_path / "a.json") == chat_files.to_json(records)
    with pytest.raises(ChatFileError, match=r"must end in \.md"):
        chat_files.as_text(records, tmp_path / "a.txt")
