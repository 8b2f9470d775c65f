"""The store survives killed writers, damage, full disks, newer versions and a second window."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import store_schema
from app.store import Store, StoreError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "chats.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = Store.open(path)
    yield store
    store.close()


def contents(store: Store, chat: int) -> list[str]:
    return [message.content for message in store.messages(chat)]


def test_a_chat_round_trips(store: Store, path: Path) -> None:
    chat = store.create_chat()
    store.add_message(chat, "user", "What is\n7 times 6?")
    answer = store.add_message(chat, "assistant", "")
    store.update_message(answer, content="42 \x00 \U0001f600")
    assert store.messages(chat)[1].reason is None
    store.update_message(answer, reason="end", stats={"tpf": 3.5})
    store.close()

    again = Store.open(path)
    assert again.notice is None
    assert again.writable
    (summary,) = again.chats()
    assert (summary.title, summary.messages) == ("What is 7 times 6?", 2)
    assert summary.preview.startswith("42")
    question, reply = again.messages(chat)
    assert (question.role, question.reason, question.stats) == ("user", None, None)
    assert (reply.content, reply.reason) == ("42 \x00 \U0001f600", "end")
    assert reply.stats == {"tpf": 3.5}
    again.close()


def test_the_folder_is_private(store: Store, path: Path) -> None:
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_title_is_the_first_user_message_cut_at_60(store: Store) -> None:
    chat = store.create_chat()
    store.add_message(chat, "system", "be brief")
    store.add_message(chat, "user", "x" * 100)
    store.add_message(chat, "user", "second")
    named = store.create_chat("kept")
    store.add_message(named, "user", "hello")
    assert {c.id: c.title for c in store.chats()} == {chat: "x" * 60, named: "kept"}


def test_newest_first_and_renaming_keeps_the_place(store: Store) -> None:
    first, second = store.create_chat("a"), store.create_chat("b")
    assert [c.id for c in store.chats()] == [second, first]
    store.add_message(first, "user", "again")
    store.rename_chat(second, "c")
    assert [(c.id, c.title) for c in store.chats()] == [(first, "a"), (second, "c")]
    assert len(store.chats(limit=1)) == 1


def test_search_ignores_case_in_any_script_and_has_no_wildcards(store: Store) -> None:
    chat = store.create_chat("Fragen")
    store.add_message(chat, "user", "Die ÄPFEL kosten 50%")
    store.create_chat("other")
    for needle in ("äpfel", "FRAGEN", "50%", " fragen "):
        assert [c.id for c in store.chats(needle)] == [chat]
    for needle in ("5%0", "_", "nothing", "'; DROP TABLE chats"):
        assert store.chats(needle) == []


def test_deleting_takes_the_messages_along(store: Store) -> None:
    chat = store.create_chat()
    message = store.add_message(chat, "user", "secret")
    store.delete_chat(chat)
    assert store.chats() == []
    assert store.messages(chat) == []
    store.update_message(message, content="late block")
    store.rename_chat(chat, "gone")
    with pytest.raises(StoreError, match="gone"):
        store.add_message(chat, "user", "late")
    assert store.create_chat() != chat, "ids are never used twice"


def test_lone_surrogates_do_not_stop_a_save(store: Store) -> None:
    chat = store.create_chat("\ud800")
    store.add_message(chat, "user", "a\udfffb")
    assert contents(store, chat) == ["a?b"]
    assert store.chats("\ud800") != []


def test_two_instances_see_each_other(store: Store, path: Path) -> None:
    other = Store.open(path)
    chat = store.create_chat("shared")
    other.add_message(chat, "user", "from the other window")
    store.add_message(chat, "assistant", "from this one")
    assert contents(other, chat) == ["from the other window", "from this one"]
    other.close()


def test_two_instances_write_at_once(path: Path) -> None:
    chat = (first := Store.open(path)).create_chat()
    second = Store.open(path)

    def write(store: Store) -> None:
        for number in range(50):
            store.add_message(chat, "user", str(number))

    threads = [threading.Thread(target=write, args=(s,)) for s in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(first.messages(chat)) == 100
    first.close()
    second.close()


def test_a_busy_file_is_a_sentence(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = store.create_chat()
    store._connection.execute("PRAGMA busy_timeout = 10")
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="Another window"):
        store.add_message(chat, "user", "x")
    blocker.execute("ROLLBACK")
    blocker.close()
    store.add_message(chat, "user", "x")
    assert store.writable


@pytest.mark.parametrize("damage", ["garbage", "middle", "foreign", "lost_table"])
def test_a_damaged_file_is_set_aside(path: Path, damage: str) -> None:
    store = Store.open(path)
    for _ in range(20):
        chat = store.create_chat()
        store.add_message(chat, "user", "x" * 3000)
    store.close()
    harm(path, damage)
    before = path.read_bytes()

    store = Store.open(path)
    assert store.writable
    assert store.notice is not None
    assert "damaged" in store.notice
    (aside,) = path.parent.glob("*.damaged-*.db")
    assert str(aside) in store.notice
    assert aside.read_bytes() == before
    assert store.chats() == []
    store.create_chat("new")
    store.close()
    again = Store.open(path)
    assert again.notice is None
    again.close()


def harm(path: Path, damage: str) -> None:
    if damage == "garbage":
        path.write_bytes(b"this is no database" * 500)
    elif damage == "middle":
        data = bytearray(path.read_bytes())
        data[4096 : len(data) - 4096] = b"\xff" * (len(data) - 8192)
        path.write_bytes(bytes(data))
    else:
        change = {
            "foreign": "ALTER TABLE chats RENAME COLUMN title TO titel",
            "lost_table": "DROP TABLE messages",
        }[damage]
        connection = sqlite3.connect(path)
        connection.execute(change)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()


def test_an_empty_file_is_a_new_store(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    store = Store.open(path)
    assert store.notice is None
    assert store.create_chat() == 1
    store.close()


def test_a_newer_file_is_left_alone(path: Path) -> None:
    Store.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()

    store = Store.open(path)
    assert not store.writable
    assert store.notice is not None
    assert "newer" in store.notice
    assert store.create_chat("only in memory") == 1
    store.close()
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_folder_that_cannot_be_made_means_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = Store.open(tmp_path / "file" / "chats.db")
    assert not store.writable
    assert store.notice is not None
    assert "memory only" in store.notice
    chat = store.create_chat()
    store.add_message(chat, "user", "still works")
    assert contents(store, chat) == ["still works"]
    store.close()


def test_a_read_only_file_shows_the_old_chats(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(path)
    chat = store.create_chat("old")
    store.add_message(chat, "user", "earlier")
    store.close()
    monkeypatch.setattr(store_schema, "ensure", lambda folder: False)

    store = Store.open(path)
    assert not store.writable
    assert contents(store, chat) == ["earlier"]
    store.add_message(chat, "user", "in memory")
    assert contents(store, chat) == ["earlier", "in memory"]
    store.close()
    monkeypatch.undo()
    again = Store.open(path)
    assert contents(again, chat) == ["earlier"]
    again.close()


def test_a_disk_that_fills_up_moves_the_session_to_memory(store: Store, path: Path) -> None:
    chat = store.create_chat()
    store.add_message(chat, "user", "before")
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    store.add_message(chat, "assistant", "y" * 100_000)
    assert not store.writable
    assert store.notice is not None
    assert "no longer saved" in store.notice
    assert [len(text) for text in contents(store, chat)] == [6, 100_000]
    store.create_chat("more")
    again = Store.open(path)
    assert contents(again, chat) == ["before"]
    again.close()


def test_in_memory() -> None:
    store = Store.open(None)
    assert (store.notice, store.writable) == (None, True)
    assert store.create_chat() == 1
    store.close()
    store.close()


WRITER = """
import sys
from pathlib import Path
from app.store import Store
store = Store.open(Path(sys.argv[1]))
chat = store.create_chat("written")
answer = store.add_message(chat, "assistant", "")
text = ""
while True:
    text += "word "
    store.update_message(answer, content=text)
    print(len(text), flush=True)
"""


def test_a_killed_writer_loses_nothing_that_was_committed(path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        text=True,
    )
    assert writer.stdout is not None
    for line in writer.stdout:
        committed = int(line)
        if committed >= 200:
            break
    os.kill(writer.pid, signal.SIGKILL)
    writer.communicate()
    store = Store.open(path)
    assert store.notice is None
    (chat,) = store.chats()
    assert len(contents(store, chat.id)[0]) >= committed
    store.close()


def test_thousands_of_chats_list_quickly_enough_to_search(store: Store) -> None:
    def fill(connection: sqlite3.Connection) -> None:
        connection.executemany(
            "INSERT INTO chats (title, created, updated) VALUES (?, 0, ?)",
            [(f"chat {number}", float(number)) for number in range(2000)],
        )
        connection.execute(
            "INSERT INTO messages (chat_id, role, content, created)"
            " SELECT id, 'user', 'text ' || id, 0 FROM chats"
        )

    store._write(fill)
    assert len(store.chats()) == 200
    assert [c.title for c in store.chats("text 1999")] == ["chat 1998"]
