"""A download in the window's memory: bars that never run backwards, words for every stage."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.hub.messages import (
    Cancelled,
    FileState,
    Notice,
    Paused,
    Planned,
    Progress,
    Ready,
    Resumed,
    Retry,
)
from app.protocol import Error
from app.tui import download_words as words
from app.tui.download_state import LINES, DownloadState, Stage

SIZE = 1000


def plan(*kept: int, commit: str = "a" * 40) -> Planned:
    files = [
        {"path": f"file-{i}", "size": SIZE, "kept": size, "state": "waiting"}
        for i, size in enumerate(kept)
    ]
    return Planned(
        repo="some/model", revision="main", commit=commit, path=f"/cache/m/snapshots/{commit}",
        files=files, total=SIZE * len(kept), kept=sum(kept), need=0, free=10**12,
        endpoint="https://huggingface.co",
    )  # fmt: skip


def progress(*done: int, state: str = "fetching", **more: Any) -> Progress:
    files = [
        {"path": f"file-{i}", "state": state, "done": size, "checked": 0, "speed": 10.0}
        for i, size in enumerate(done)
    ]
    figures = {"speed": 50.0, "stalled": 0.0, "left": 30.0, "reconnects": 0, **more}
    return Progress(
        done=sum(done), checked=0, total=SIZE * len(done), elapsed=2.0, files=files, **figures
    )


def test_stages() -> None:
    state = DownloadState("some/model")
    assert state.running
    assert state.percent == 0
    state.take(plan(0, 0))
    assert state.stage is Stage.FETCHING
    state.take(progress(500, 500))
    assert (state.done, state.percent) == (1000, 50)
    state.take(Paused())
    assert (state.stage, state.running) == (Stage.PAUSED, True)
    state.take(Resumed())
    state.take(progress(1000, 1000, state="checking"))
    assert state.percent == 99, "it is not over before all was checked"
    assert len(state.checking) == 2
    state.take(FileState("file-0", "checked", SIZE, SIZE))
    assert len(state.checking) == 1
    state.take(Ready("some/model", "main", "a" * 40, "/cache", 2000, 2000, 3.0))
    assert (state.stage, state.percent, state.running) == (Stage.READY, 100, False)


@given(
    attempts=st.lists(
        st.tuples(
            st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)),
            st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)), max_size=5),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_nothing_runs_backwards_over_attempts(attempts: list[Any]) -> None:
    """Whatever a later process finds lost or damaged."""
    state, before = DownloadState("some/model"), (0, 0, 0)
    for kept, moments in attempts:
        state.begin()
        for event in (plan(*kept), *(progress(*done) for done in moments)):
            state.take(event)
            now = (state.done, *(row.done for row in state.rows.values()))
            assert all(a <= b for a, b in zip(before, now, strict=True))
            before = now
        state.take(Error("network", "Gone."))
        assert state.stage is Stage.FAILED


def test_another_commit_is_another_download() -> None:
    state = DownloadState("some/model")
    state.take(plan(900))
    state.begin()
    state.take(plan(0, 0, commit="b" * 40))
    assert (state.done, state.total, len(state.rows)) == (0, 2 * SIZE, 2)


def test_what_is_told_is_kept_up_to_a_bound() -> None:
    state = DownloadState("some/model")
    for i in range(LINES + 50):
        state.take(Notice(f"line {i}"))
    assert len(state.lines) == LINES
    state.take(Retry("No answer.", 2.0, 1, "file-0"))
    assert state.lines[-1] == "file-0: No answer. Trying again in 2 s."
    state.take(Cancelled(300, 1000))
    assert state.lines[-1] == "Cancelled. 300 B of 1.0 kB are kept."


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (progress(100, 100), "50 B/s (mean of 10 s) \u00b7 30 s left \u00b7 2 s so far"),
        (progress(1, 1, speed=0.0, stalled=12.0), "stalled 12 s \u00b7 2 s so far"),
        (progress(1, 1, reconnects=2), "2 s so far \u00b7 2 reconnects"),
        (progress(1, 1, state="checking", speed=0.0), "checking, 0 % checked \u00b7 2 s so far"),
        (Paused(), "Paused: nothing is asked for. What came is kept."),
    ],
    ids=["speed", "stalled", "reconnects", "checking", "paused"],
)
def test_the_moment_in_words(event: Any, said: str) -> None:
    state = DownloadState("some/model")
    state.take(plan(0, 0))
    state.take(event)
    assert words.moment(state).endswith(said)


@given(done=st.integers(0, SIZE), cells=st.integers(1, 80))
def test_the_bar_is_never_ahead(done: int, cells: int) -> None:
    bar = words.bar(done, SIZE, cells).plain
    assert len(bar) == cells
    assert bar.count("\u2588") / cells <= done / SIZE


def test_names_from_outside_steer_no_terminal() -> None:
    state = DownloadState("some/model")
    state.take(Error("offline", "\x1b[2J[bold]No.", "\x07Ask."))
    card = words.card(state, runs=None)
    assert card is not None
    assert card.plain == "Offline\n[2J[bold]No.\nAsk."
