"""What is known of a terminal from the environment: which cannot be used, which hold ASCII only."""

import pytest

from app.terminal import is_ascii_only, is_without_drawing, refusal


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_dumb_terminal_is_refused_in_a_sentence(term: str) -> None:
    why = refusal("orl-chat ask PROMPT", {"TERM": term})
    assert why is not None
    assert term in why
    assert "orl-chat ask" in why


@pytest.mark.parametrize("term", ["xterm", "xterm-256color", "tmux-256color", "linux", ""])
def test_others_are_not(term: str) -> None:
    assert refusal("orl-chat ask PROMPT", {"TERM": term}) is None


def test_the_linux_console_has_letters_but_no_lines() -> None:
    assert is_without_drawing({"TERM": "linux"})
    assert not is_without_drawing({"TERM": "xterm"})


@pytest.mark.parametrize(
    ("environ", "ascii"),
    [
        ({"LC_ALL": "C"}, True),
        ({"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, True),
        ({"LC_ALL": "en_US.UTF-8", "LANG": "C"}, False),
        ({"LANG": "C"}, True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),  # as Python leaves it
        ({"LC_CTYPE": "C.UTF-8"}, False),  # nothing was set; a container
        ({"LANG": "C", "LC_CTYPE": "en_US.UTF-8"}, False),
        ({"LANG": "C.UTF-8"}, False),
        ({}, False),
    ],
)
def test_a_locale_that_somebody_wrote_down_counts(environ: dict[str, str], ascii: bool) -> None:
    assert is_ascii_only(environ) is ascii


def test_a_stream_that_holds_ascii_only_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        encoding = "ANSI_X3.4-1968"

    monkeypatch.setattr("sys.__stderr__", Stream())
    assert is_ascii_only({"LANG": "en_US.UTF-8"})
