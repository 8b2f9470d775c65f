"""Search over all chats: with the index, without it, and after both have been in turn."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app import store_search
from app.store import Store
from app.words import Search


@pytest.fixture(params=["index", "no index"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    if request.param == "no index":
        monkeypatch.setattr(store_search, "available", lambda connection: False)
    store = Store.open(None)
    assert store._indexed == (request.param == "index")
    yield store
    store.close()


def said(store: Store, *texts: str) -> int:
    chat = store.create_chat("untold")
    for text in texts:
        store.add_message(chat, "user", text)
    return chat


def found(store: Store, search: str) -> list[int]:
    return [chat.id for chat in store.chats(search)]


def test_words_in_any_order_and_case_the_last_one_begun(store: Store) -> None:
    chat = said(store, "Sort a list of dicts", "by two KEYS, Straße und Äpfel")
    for search in ("sort", "dicts list", "list so", "straße", "äpf", "keys by"):
        assert found(store, search) == [chat], search
    for search in ("sort keys", "missing", "sort missing"):
        assert found(store, search) == [], search


def test_signs_and_scripts_without_spaces_are_found_anywhere(store: Store) -> None:
    code = said(store, "use x->y and a_b, 100%")
    tokyo = said(store, "我想去东京玩 🎉")
    assert found(store, "->") == found(store, "x->") == found(store, "100%") == [code]
    assert found(store, "东京") == found(store, "🎉") == [tokyo]
    assert found(store, "京东") == found(store, "=>") == []


def test_the_hit_is_shown_with_its_words_marked(store: Store) -> None:
    text = "intro " * 40 + "here \x1b[31mthe\nneedle\x07 and NEEDLES stand " + "end " * 40
    chat = said(store, "no", text, "neither")
    (summary,) = store.chats("needle")
    hit = summary.hit
    assert hit is not None
    assert hit.message_id == store.messages(chat)[1].id
    assert [hit.snippet[a:b] for a, b in hit.marks] == ["needle", "NEEDLES"]
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert hit.snippet.isprintable()
    assert len(hit.snippet) <= store_search.SNIPPET_LENGTH + 2


def test_titles_are_searched_and_need_no_hit(store: Store) -> None:
    chat = store.create_chat("Äpfel und Birnen")
    (summary,) = store.chats("apfel birn")
    assert (summary.id, summary.hit) == (chat, None)


def test_versions_that_are_not_shown_are_found_and_can_be_opened(store: Store) -> None:
    chat = said(store, "first wording")
    (message,) = store.messages(chat)
    store.add_version(message.id, "second")
    (summary,) = store.chats("wording")
    assert summary.hit is not None
    store.choose_version(summary.hit.message_id)
    assert [m.content for m in store.messages(chat)] == ["first wording"]


def test_the_index_follows_every_change(store: Store) -> None:
    chat = said(store, "before")
    (message,) = store.messages(chat)
    store.update_message(message.id, content="after")
    assert (found(store, "before"), found(store, "after")) == ([], [chat])
    store.delete_chat(chat)
    assert found(store, "after") == []
    assert store.restore_chat(chat)
    assert found(store, "after") == [chat]
    resent = store.add_message(chat, "user", "unsent")
    store.update_message(resent, reason="unsent")
    store.resend(resent, "rephrased")
    assert (found(store, "unsent"), found(store, "rephrased")) == ([], [chat])


def test_diacritics_do_not_matter_where_there_is_an_index() -> None:
    store = Store.open(None)
    chat = said(store, "Un café crème, Ångström, cafe\u0301 noir, Łódź, ПРИВЕТ")
    for search in ("cafe creme", "angstrom", "CAFÉ", "noir", "łodz", "привет"):
        (summary,) = store.chats(search)
        assert summary.id == chat
        assert summary.hit is not None
        assert summary.hit.marks, search
    store.close()


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.text(max_size=12), st.text(alphabet="ab\"'*^:(){}[]+-. NEAROD\x00%_", max_size=12))
def test_nothing_that_is_typed_is_an_error(store: Store, any: str, signs: str) -> None:
    for text in (any, signs, any + signs):
        for chat in store.chats(text):
            assert chat.hit is None or all(a < b for a, b in chat.hit.marks)
        Search(text).marks(text)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60), st.data())
def test_a_word_of_a_text_finds_it_and_marks_lie_in_it(text: str, data: st.DataObject) -> None:
    parts = Search(text).parts
    if not parts:
        return
    store = Store.open(None)
    try:
        chat = said(store, text)
        part = data.draw(st.sampled_from(parts))
        assert found(store, part) == [chat]
        marks = Search(part).marks(text)
        assert marks == sorted(marks)
        assert all(b <= c for (_, b), (c, _) in pairwise(marks))
        cut, inside = Search(part).snippet(text, 20)
        assert all(0 <= a < b <= len(cut) for a, b in inside)
    finally:
        store.close()


def test_an_sqlite_without_the_index_writes_and_one_with_it_catches_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "chats.db"
    store = Store.open(path)
    chat = said(store, "one")
    store.close()
    with monkeypatch.context() as patch:
        patch.setattr(store_search, "available", lambda connection: False)
        store = Store.open(path)
        (message,) = store.messages(chat)
        store.update_message(message.id, content="two")
        assert store._read("SELECT name FROM sqlite_master WHERE type = 'trigger'") == []
        assert (found(store, "one"), found(store, "two")) == ([], [chat])
        store.close()
    store = Store.open(path)
    assert store._indexed
    assert (found(store, "one"), found(store, "two")) == ([], [chat])
    store.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE message_words_data SET block = x'ff00ff'",
        "UPDATE message_words_data SET block = zeroblob(40) WHERE id > 10",
        "DELETE FROM message_words_data",
        "DROP TABLE message_words_data",
    ],
)
def test_a_damaged_index_stops_no_save_and_hides_nothing(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "chats.db"
    store = Store.open(path)
    chat = said(store, "still here")
    store._connection.execute(damage)
    store.close()
    store = Store.open(path)
    for number in range(3):
        store.add_message(chat, "user", f"more {number}")
        store.update_message(store.messages(chat)[0].id, content=f"still here {number}")
    assert (store.notice, store.writable) == (None, True)
    store.close()
    store = Store.open(path)
    assert found(store, "still") == found(store, "more") == [chat]
    assert len(store.messages(chat)) == 4
    store.close()


def test_what_was_deleted_leaves_the_file_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "chats.db"
    store = Store.open(path)
    for number in range(50):
        said(store, f"kept {number}")
    doomed = said(store, "xylophonesecret")
    store.delete_chat(doomed)
    store.close()
    store = Store.open(path)
    assert store.restore_chat(doomed)
    store.delete_chat(doomed)
    store.close()
    assert b"xylophonesecret" in path.read_bytes()

    monkeypatch.setattr("app.store_file.UNDO_SECONDS", -1.0)
    store = Store.open(path)
    assert not store.restore_chat(doomed)
    assert len(store.chats("kept")) == 50
    store.close()
    assert b"xylophonesecret" not in path.read_bytes()
    assert not path.with_name("chats.db-wal").exists()
