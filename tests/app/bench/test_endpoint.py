"""An OpenAI-compatible server, measured: its counts, its times, and every way it can fail."""

from collections.abc import Callable
from typing import Any

import pytest

from app.bench.endpoint import Endpoint, EndpointError, _Heard, _Piece, base_address, served_model
from app.bench.sample import Sample
from app.hub.secret import Secret
from engine.config import DecodeConfig
from finetune.prompts import Prompt
from tests.app.bench.chat_server import ChatServer, serving

PROMPT = Prompt(({"role": "user", "content": "6 x 7?"},), "42", "number", 1, "id")
KEY = "sk-this-is-secret"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the environment must not stand between us and our own machine."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


def ask(server: ChatServer, count: Callable[[str], int] | None = None, **config: Any) -> Sample:
    base = base_address(server.url)
    return Endpoint(base, served_model(base, None), count=count).answer(
        PROMPT, DecodeConfig(**config)
    )


def test_an_answer_with_the_servers_count() -> None:
    with serving() as server:
        own = ask(server, max_new_tokens=99, seed=3)
    assert (own.text, own.reason, own.counted) == ("The answer is 42.", "end", "usage")
    stats = own.stats
    assert (stats.tokens, stats.forwards, stats.steps) == (6, 0, 0)
    assert 0 < stats.first_block_seconds <= stats.whole_seconds
    assert stats.whole_seconds == stats.prefill_seconds + stats.decode_seconds
    (body,) = server.bodies
    assert body["path"] == "/v1/chat/completions"
    assert body["messages"] == list(PROMPT.messages)
    assert (body["model"], body["max_tokens"], body["seed"]) == ("small", 99, 3)
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


def test_without_usage_ours_counts_or_nobody() -> None:
    with serving(usage=None, finish="length") as server:
        own = ask(server, count=len)
        assert (own.stats.tokens, own.counted, own.reason) == (17, "tokenizer", "length")
        with pytest.raises(EndpointError, match=r"does not tell how many tokens .* nothing can"):
            ask(server)


def test_times_of_the_pieces() -> None:
    """Ten characters at 2, 3 and 4 s: the first piece's own time is taken to be as long as the
    others', so decoding began at 1 s."""
    heard = _Heard(0.0)
    for text, now in (("", 1.0), ("a" * 10, 2.0), ("b" * 10, 3.0), ("c" * 10, 4.0)):
        heard.take(_Piece(text), now)
    heard.take(_Piece(reason="end", usage=30), 9.0)
    stats = heard.stats(30)
    assert (stats.first_block_seconds, stats.whole_seconds) == (2.0, 4.0)
    assert (stats.prefill_seconds, stats.decode_seconds) == (1.0, 3.0)
    assert stats.tokens_per_second == 10.0
    assert stats.tokens_per_second_whole == 7.5


def test_an_answer_in_one_piece_has_no_decode_time() -> None:
    heard = _Heard(0.0)
    heard.take(_Piece("all of it"), 2.0)
    assert heard.stats(3).decode_seconds == 0.0
    assert heard.stats(3).tokens_per_second_whole == 1.5
    assert _Heard(0.0).stats(0).whole_seconds == 0.0


def test_thoughts_cost_time_and_are_no_answer() -> None:
    heard = _Heard(0.0)
    heard.take(_Piece.of({"choices": [{"delta": {"reasoning_content": "hm"}}]}), 1.0)
    heard.take(_Piece.of({"choices": [{"delta": {"content": "42"}}]}), 2.0)
    assert (heard.text, heard.stats(4).first_block_seconds) == ("42", 1.0)


@pytest.mark.parametrize(
    ("written", "base"),
    [
        ("http://h:8000", "http://h:8000/v1"),
        ("h:8000/", "http://h:8000/v1"),
        ("https://h/api/v1/", "https://h/api/v1"),
        ("http://h/v1/chat/completions", "http://h/v1"),
    ],
)
def test_addresses_as_people_write_them(written: str, base: str) -> None:
    assert base_address(written) == base


@pytest.mark.parametrize("written", ["", "ftp://h", "http://", "http://[x", "a b", "h\n:1"])
def test_what_is_no_address(written: str) -> None:
    with pytest.raises(EndpointError, match="is no address"):
        base_address(written)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"status": 401}, "refuses \\(HTTP 401\\); check OPENAI_API_KEY"),
        ({"status": 404}, "is not there \\(HTTP 404\\); check the address"),
        ({"status": 400, "said": "no {key} \x1b[31m"}, "refuses \\(HTTP 400: no .*\\*\\*\\*"),
        ({"status": 500}, "refuses \\(HTTP 500\\)"),
        ({"lines": ['{"choices": [{"message": {"content": "all"}}]}']}, "does not stream"),
        ({"lines": ['data: {"choices": [{"delta"']}, "broke off"),
        ({"lines": ["data: 7"]}, "broke off"),
        ({"lines": ['data: {"choices": [{"delta": {"content": "half"}}]}']}, "broke off"),
        ({"lines": ['data: {"error": "out of memory"}']}, "gave the answer up: out of memory"),
        ({"lines": ['data: {"choices": 5}']}, "broke off"),
        ({"lines": ['data: {"choices": [5]}']}, "broke off"),
        ({"lines": ['data: {"choices": [{"delta": {"content": 7}}]}']}, "broke off"),
    ],
)
def test_failures_are_sentences_without_the_key(told: dict[str, Any], why: str) -> None:
    with serving(**told) as server:
        endpoint = Endpoint(base_address(server.url), "small", Secret(KEY))
        with pytest.raises(EndpointError, match=why) as failure:
            endpoint.answer(PROMPT, DecodeConfig())
    assert server.keys == [f"Bearer {KEY}"]
    assert KEY not in str(failure.value)
    assert "\x1b" not in str(failure.value)
    assert KEY not in repr(endpoint)


def test_a_redirect_is_not_followed_with_the_key() -> None:
    with serving() as other, serving(status=307, location=other.url) as server:
        with pytest.raises(EndpointError, match="refuses \\(HTTP 307\\)"):
            Endpoint(base_address(server.url), "small", Secret(KEY)).answer(PROMPT, DecodeConfig())
        assert other.keys == []


def test_nobody_there() -> None:
    with serving() as server:
        gone = base_address(server.url.replace("http://", "http://me:secret@"))
    with pytest.raises(EndpointError, match=r"does not answer .*is the server running") as failure:
        served_model(gone, None)
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize(
    ("models", "why"), [((), "offers none"), (("a", "b"), "offers a, b; name one")]
)
def test_which_model(models: tuple[str, ...], why: str) -> None:
    with serving(models=models) as server, pytest.raises(EndpointError, match=why):
        served_model(base_address(server.url), None)


def test_a_stop_ends_within_a_piece() -> None:
    with serving() as server:
        endpoint = Endpoint(base_address(server.url), "small")
        own = endpoint.answer(PROMPT, DecodeConfig(), stop=lambda: True)
    assert own.reason == "stopped"
