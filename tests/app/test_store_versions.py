"""A chat as a tree: one path is shown, nothing else is lost, and old files become such trees."""

import random
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import store_schema
from app.chat_settings import ChatSettings
from app.store import Store, StoreError


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store.open(None)
    yield store
    store.close()


def shown(store: Store, chat: int) -> list[tuple[str, int, int]]:
    return [(m.content, m.version, m.versions) for m in store.messages(chat)]


def test_another_answer_is_a_version_and_the_old_one_can_be_chosen(store: Store) -> None:
    chat = store.create_chat()
    store.add_message(chat, "user", "q")
    first = store.add_message(chat, "assistant", "a1")
    store.add_message(chat, "user", "more")
    second = store.add_version(first, "a2")
    assert shown(store, chat) == [("q", 1, 1), ("a2", 2, 2)]
    assert store.messages(chat)[1].role == "assistant"
    store.choose_version(first)
    assert shown(store, chat) == [("q", 1, 1), ("a1", 1, 2), ("more", 1, 1)]
    assert [m.id for m in store.versions(first)] == [first, second]
    assert [m.id for m in store.versions(second)] == [first, second]


def test_an_edited_question_starts_a_path_of_its_own(store: Store) -> None:
    chat = store.create_chat()
    question = store.add_message(chat, "user", "q1")
    store.add_message(chat, "assistant", "a1")
    edited = store.add_version(question, "q2")
    assert shown(store, chat) == [("q2", 2, 2)]
    store.add_message(chat, "assistant", "a2")
    assert shown(store, chat) == [("q2", 2, 2), ("a2", 1, 1)]
    store.choose_version(question)
    assert shown(store, chat) == [("q1", 1, 2), ("a1", 1, 1)]
    store.add_message(chat, "assistant", "late", after=edited)
    assert shown(store, chat) == [("q1", 1, 2), ("a1", 1, 1)]
    assert [c.title for c in store.chats()] == ["q1"]


def test_choosing_a_message_deep_in_another_branch_leads_there(store: Store) -> None:
    chat = store.create_chat()
    question = store.add_message(chat, "user", "q1")
    store.add_message(chat, "assistant", "a1")
    deep = store.add_message(chat, "user", "deep")
    store.add_version(question, "q2")
    store.choose_version(deep)
    assert [content for content, _, _ in shown(store, chat)] == ["q1", "a1", "deep"]


def test_an_answer_stays_with_its_question_while_another_window_goes_on(store: Store) -> None:
    chat = store.create_chat()
    question = store.add_message(chat, "user", "here")
    store.add_message(chat, "user", "there")
    store.add_message(chat, "assistant", "answer", after=question)
    assert shown(store, chat) == [("here", 1, 1), ("answer", 2, 2)]
    elsewhere = store.add_message(store.create_chat(), "user", "x")
    with pytest.raises(StoreError, match="gone"):
        store.add_message(chat, "assistant", "lost", after=elsewhere)


def test_an_unsent_message_is_on_no_path_and_sent_at_its_end(store: Store) -> None:
    chat = store.create_chat()
    store.add_message(chat, "user", "q")
    first = store.add_message(chat, "assistant", "a1")
    unsent = store.add_message(chat, "user", "too long")
    store.update_message(unsent, reason="unsent")
    store.add_version(first, "a2")
    assert shown(store, chat)[:2] == [("q", 1, 1), ("a2", 2, 2)]
    assert [(m.content, m.reason) for m in store.messages(chat)[2:]] == [("too long", "unsent")]
    store.choose_version(unsent)
    assert [content for content, _, _ in shown(store, chat)] == ["q", "a1", "too long"]
    store.choose_version(store.versions(first)[1].id)
    sent = store.resend(unsent, "shorter")
    assert [(m.id, m.content, m.reason) for m in store.messages(chat)[2:]] == [
        (sent, "shorter", "sent")
    ]
    assert store.messages(chat)[1].content == "a2"
    assert store.resend(sent, "shorter still") == sent
    assert shown(store, chat)[2] == ("shorter still", 1, 1)


def test_an_unsent_version_gives_its_place_back(store: Store) -> None:
    chat = store.create_chat()
    question = store.add_message(chat, "user", "q1")
    store.add_message(chat, "assistant", "a1")
    store.update_message(store.add_version(question, "q2, too long"), reason="unsent")
    assert shown(store, chat)[:2] == [("q1", 1, 1), ("a1", 1, 1)]
    store.update_message(question, reason="unsent")
    assert shown(store, chat)[0] == ("q1", 1, 1), "an answered question stays"
    assert store.messages(chat)[0].reason is None


def test_an_unsent_message_that_moved_to_another_chat_stays_off_the_path(store: Store) -> None:
    chat = store.create_chat()
    unsent = store.add_message(chat, "user", "too long")
    store.update_message(unsent, reason="unsent")
    store.update_message(unsent, reason="moved", content="still too long")
    store.update_message(unsent, reason="end")
    assert [(m.content, m.reason) for m in store.messages(chat)] == [("still too long", "moved")]
    store.add_message(chat, "user", "shorter")
    assert shown(store, chat)[0] == ("shorter", 1, 1)
    assert store.records()[0].path[0][0].content == "shorter"
    store.update_message(99, reason="unsent")


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_done_every_message_can_be_reached(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    chat = store.create_chat()
    ids = [store.add_message(chat, "user", "0")]
    for number in range(1, 60):
        target = chance.choice(ids)
        act = chance.randrange(5)
        if act == 0:
            ids.append(store.add_message(chat, "user", str(number)))
        elif act == 1 and target not in waiting(store, chat):
            ids.append(store.add_message(chat, "assistant", str(number), after=target))
        elif act == 2:
            ids.append(store.add_version(target, str(number)))
        elif act == 3:
            store.choose_version(target)
        elif act == 4 and target not in (unsent := waiting(store, chat)):
            store.update_message(target, reason="unsent")
        elif act == 4:
            ids.remove(target)
            ids.append(store.resend(target, unsent[target]))
    assert {row[0] for row in store._read("SELECT id FROM messages")} == set(ids)
    for id in set(ids) - set(waiting(store, chat)):
        store.choose_version(id)
        path = [m for m in store.messages(chat) if m.reason != "unsent"]
        assert id in {m.id for m in path}
        assert [m.id for m in path] == sorted(m.id for m in path)
        assert all(1 <= m.version <= m.versions for m in path)


def waiting(store: Store, chat: int) -> dict[int, str]:
    return {m.id: m.content for m in store.messages(chat) if m.reason == "unsent"}


def test_a_thousand_turns(store: Store) -> None:
    chat = store.create_chat()
    last = 0
    for number in range(2000):
        role = ("user", "assistant")[number % 2]
        last = store.add_message(chat, role, str(number), after=last)
    assert [m.content for m in store.messages(chat)] == [str(n) for n in range(2000)]
    store.delete_chat(chat)
    assert store.messages(chat) == []


def test_settings_of_a_chat(store: Store) -> None:
    chat = store.create_chat(settings=ChatSettings(preset="speed"))
    assert store.chat_settings(chat) == ChatSettings(preset="speed")
    store.set_chat_settings(chat, ChatSettings(temperature=0.5, system="Be brief ✓"))
    assert store.chat_settings(chat) == ChatSettings(temperature=0.5, system="Be brief ✓")
    store.set_chat_settings(chat, ChatSettings())
    assert store.chat_settings(chat) == store.chat_settings(99) == ChatSettings()


def test_the_prompt_library(store: Store) -> None:
    store.save_prompt(" Tutor ", "Explain\nslowly.")
    store.save_prompt("brief", "Be brief.")
    store.save_prompt("tutor", "Explain.")
    assert [(p.name, p.content) for p in store.prompts()] == [
        ("brief", "Be brief."),
        ("tutor", "Explain."),
    ]
    store.delete_prompt("BRIEF")
    assert [p.name for p in store.prompts()] == ["tutor"]
    with pytest.raises(StoreError, match="name"):
        store.save_prompt(" ", "x")


OLD_CHATS = {
    "plain": [("user", "q1"), ("assistant", "a1"), ("user", "q2"), ("assistant", "a2")],
    "tries": [
        ("user", "q1"), ("assistant", "a1"), ("assistant", "a2"), ("user", "q2"),
        ("assistant", "b1"), ("assistant", " \n"),
    ],
    "unsent": [("user", "q1"), ("assistant", "a1"), ("user", "long", "unsent")],
    "unsent first": [("user", "long", "unsent")],
    "unanswered": [("user", "q1"), ("user", "q2"), ("assistant", "a2")],
    "answer first": [("assistant", "hello"), ("user", "q1"), ("assistant", "a1")],
    "empty": [],
}  # fmt: skip
NOW_SHOWN = {
    "plain": [("q1", 1, 1), ("a1", 1, 1), ("q2", 1, 1), ("a2", 1, 1)],
    "tries": [("q1", 1, 1), ("a2", 2, 2), ("q2", 1, 1), ("b1", 1, 2)],
    "unsent": [("q1", 1, 1), ("a1", 1, 1), ("long", 0, 0)],
    "unsent first": [("long", 0, 0)],
    "unanswered": [("q1", 1, 1), ("q2", 1, 1), ("a2", 1, 1)],
    "answer first": [("hello", 1, 1), ("q1", 1, 1), ("a1", 1, 1)],
    "empty": [],
}


def write_schema_1(path: Path) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    for statement in store_schema.MIGRATIONS[0]:
        connection.execute(statement)
    connection.execute("PRAGMA user_version = 1")
    for id, title in enumerate(OLD_CHATS, 1):
        connection.execute("INSERT INTO chats VALUES (?, ?, 1.5, ?)", (id, title, 2.5 + id))
    # Written in turn, as two windows write: the ids of one chat are not consecutive.
    for place in range(6):
        for id, messages in enumerate(OLD_CHATS.values(), 1):
            for role, content, *reason in messages[place : place + 1]:
                connection.execute(
                    "INSERT INTO messages (chat_id, role, content, created, reason, stats)"
                    " VALUES (?, ?, ?, 1.5, ?, '{\"tpf\": 2.0}')",
                    (id, role, content, reason[0] if reason else None),
                )
    connection.commit()
    connection.close()


def test_a_file_of_schema_1_becomes_trees(tmp_path: Path) -> None:
    path = tmp_path / "data" / "chats.db"
    write_schema_1(path)
    store = Store.open(path)
    assert (store.notice, store.writable) == (None, True)
    chats = {chat.title: chat for chat in store.chats()}
    assert list(chats) == list(reversed(OLD_CHATS))
    for title, chat in chats.items():
        messages = store.messages(chat.id)
        unsent = [m for m in messages if m.reason == "unsent"]
        found = [(m.content, m.version, m.versions) for m in messages if m not in unsent]
        assert found + [(m.content, 0, 0) for m in unsent] == NOW_SHOWN[title]
        assert all(m.stats == {"tpf": 2.0} and m.created == 1.5 for m in messages)
        assert (chat.updated, chat.messages) == (2.5 + chat.id, len(OLD_CHATS[title]))
    assert [c.title for c in store.chats("hello")] == ["answer first"]
    tries = store.messages(chats["tries"].id)
    store.choose_version(store.versions(tries[1].id)[0].id)
    assert shown(store, chats["tries"].id) == [("q1", 1, 1), ("a1", 1, 2)]
    store.close()


def test_two_windows_meet_an_old_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "data" / "chats.db"
    write_schema_1(path)
    stores: list[Store] = []
    threads = [threading.Thread(target=lambda: stores.append(Store.open(path))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(s.notice, s.writable, len(s.chats("q1"))) for s in stores] == [(None, True, 5)] * 2
    for store in stores:
        store.close()


def test_a_migration_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data" / "chats.db"
    write_schema_1(path)
    with monkeypatch.context() as patch:
        conflict = "INSERT INTO prompts SELECT 'one name', title FROM chats"
        first, second = store_schema.MIGRATIONS
        patch.setattr(store_schema, "MIGRATIONS", (first, (*second, conflict)))
        store = Store.open(path)
        assert not store.writable
        store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    store = Store.open(path)
    assert len(store.chats()) == len(OLD_CHATS)
    store.close()
