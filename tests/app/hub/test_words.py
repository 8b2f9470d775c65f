"""The sentence of each failure, secrets that do not show, numbers as people read them."""

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from app.hub.client import network_environment
from app.hub.faults import Asked, classify, from_disk
from app.hub.limits import Limits
from app.hub.messages import FileState as FileStateEvent
from app.hub.messages import Start, decode_event, decode_request, encode
from app.hub.plan import PlannedFile
from app.hub.secret import Secret, scrub, without_user
from app.hub.text import size_text, time_text
from app.wire import ProtocolError
from tests.app.hub.hub_server import sha256

COMMIT, OTHER = "a" * 40, "b" * 40
ASKED = Asked("o/n", "main", "https://huggingface.co")


def planned(**bodies: bytes) -> tuple[PlannedFile, ...]:
    return tuple(PlannedFile(name, len(body), sha256(body)) for name, body in bodies.items())


# --- words --------------------------------------------------------------------------------------


def response(status: int, host: str = "huggingface.co", hops: int = 0, **headers: str) -> Any:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    url = SimpleNamespace(host=host, port=None)
    return SimpleNamespace(status_code=status, headers=names, url=url, history=[None] * hops)


def refused(*args: Any, **options: Any) -> Exception:
    error = RuntimeError("HTTP")
    error.response = response(*args, **options)  # type: ignore[attr-defined]
    return error


CASES: list[tuple[Exception, str]] = [
    (refused(401, X_Error_Code="GatedRepo"), "gated"),
    (refused(403, X_Error_Code="GatedRepo"), "gated"),
    (refused(401, X_Error_Code="RepoNotFound"), "private"),
    (refused(404, X_Error_Code="RepoNotFound"), "not_found"),
    (refused(404, X_Error_Code="RevisionNotFound"), "revision_not_found"),
    (refused(404, X_Error_Code="EntryNotFound"), "gone"),
    (refused(403), "forbidden"),
    (refused(407), "proxy"),
    (refused(429), "busy"),
    (refused(500), "server"),
    (refused(418), "server"),
    (refused(403, "files.example", 1), "network"),
    (OSError(errno.ENOSPC, "No space left on device"), "disk_full"),
    (OSError(errno.EDQUOT, "Quota exceeded"), "disk_full"),
    (OSError(errno.EROFS, "Read-only file system"), "read_only"),
    (PermissionError(errno.EACCES, "Permission denied"), "read_only"),
    (OSError(errno.EIO, "Input/output error"), "disk"),
    (ValueError("no JSON"), "not_a_hub"),
    (KeyError("x"), "internal"),
]


@pytest.mark.parametrize(("error", "kind"), CASES)
def test_every_failure_has_its_sentence(error: Exception, kind: str) -> None:
    failure = classify(error, ASKED)
    assert failure.kind == kind
    assert failure.message.endswith(".")
    assert failure.hint.endswith(".")
    assert len(failure.message) < 120


def test_the_sentences_differ() -> None:
    sentences = {classify(error, ASKED).message for error, kind in CASES}
    assert len(sentences) >= len({kind for _, kind in CASES})


def test_what_httpx_raises() -> None:
    import httpx2

    request = httpx2.Request("GET", "https://huggingface.co/x?Signature=s")
    for error, kind, words in [
        (httpx2.ConnectError("[Errno -2] Name or service not known"), "network", "no connection"),
        (httpx2.ConnectTimeout("timed out"), "network", "no connection"),
        (httpx2.ReadTimeout("timed out"), "network", "sends nothing"),
        (httpx2.RemoteProtocolError("peer closed"), "network", "was cut"),
        (httpx2.ReadError("reset", request=request), "network", "was cut"),
        (httpx2.DecodingError("gzip"), "network", "was cut"),
        (httpx2.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED]"), "tls", "certificate"),
        (httpx2.ProxyError("407 Proxy Authentication Required"), "proxy", "407"),
        (ImportError("socksio"), "proxy", "socksio"),
        (httpx2.UnsupportedProtocol("no scheme"), "endpoint", "cannot be used"),
        (httpx2.TooManyRedirects("x"), "endpoint", "cannot be used"),
        (httpx2.InvalidURL("x"), "endpoint", "cannot be used"),
    ]:
        failure = classify(error, ASKED)
        assert failure.kind == kind, error
        assert words in failure.message


def test_a_retry_after_is_read_from_either_header() -> None:
    assert classify(refused(429, Retry_After="7"), ASKED).wait == 7.0
    assert classify(refused(429, RateLimit='"api";r=0;t=55'), ASKED).wait == 55.0
    assert classify(refused(429, RateLimit='"api";r=5;t=55'), ASKED).wait is None
    assert classify(refused(503, Retry_After="Fri, 31 Dec 1999"), ASKED).wait is None


def test_disk_errors_name_the_folder() -> None:
    assert from_disk(OSError(errno.EROFS, "Read-only"), "/c").message.startswith("/c cannot be")


def test_secrets_do_not_show() -> None:
    secret = Secret("hf_" + "x" * 34)
    assert repr(secret) == str(secret) == f"{secret}" == "***"
    assert secret.reveal().endswith("x")
    assert "xxx" not in repr(Start("o/n", token=secret.reveal()))
    text = f"Authorization: Bearer abc.def hf_{'y' * 34} {secret.reveal()} http://u:p@proxy:1/"
    clean = scrub(text, secret, None)
    for hidden in ("abc", "yyy", "xxx", "u:p"):
        assert hidden not in clean
    assert scrub("https://cdn/x?Signature=abc&b='", None) == "https://cdn/x?***'"
    for plain in ("hf_raise_for_status", "HF_TOKEN", "HF_ENDPOINT", "hf_hub_download"):
        assert scrub(plain) == plain
    assert without_user("http://u:p@proxy:3128") == "http://proxy:3128"
    assert without_user("proxy:3128") == "http://proxy:3128"


def test_sizes_and_times() -> None:
    assert [size_text(n) for n in (0, 999, 1000, 38_400, 999_499, 1_000_000, 10_900_000_000)] == [
        "0 B", "999 B", "1.0 kB", "38.4 kB", "999 kB", "1.0 MB", "10.9 GB",
    ]  # fmt: skip
    assert size_text(5e12) == "5.0 TB"
    assert size_text(5e15) == "5000 TB"
    assert [time_text(n) for n in (0.4, 59, 103, 3599, 3600, 7384)] == [
        "0 s", "59 s", "1 m 43 s", "59 m 59 s", "1 h 00 m", "2 h 03 m",
    ]  # fmt: skip


def test_limits_are_checked() -> None:
    assert Limits.of({"workers": 1}).workers == 1
    with pytest.raises(ValueError, match="no limit 'x'"):
        Limits.of({"x": 1})
    with pytest.raises(ValueError, match="at least 0"):
        Limits.of({"stall": float("nan")})


def test_messages_survive_the_wire() -> None:
    event = FileStateEvent("a", "checking", 1, 2)
    assert decode_event(encode(event)) == event
    start = Start("o/n", limits={"stall": 1}, token="t")
    assert decode_request(encode(start)) == start
    with pytest.raises(ProtocolError):
        decode_event(encode(event).replace(b"checking", b"napping"))
    with pytest.raises(ProtocolError):
        decode_request(encode(event))


def test_what_the_settings_say_about_the_network() -> None:
    assert network_environment() == {}
    assert network_environment(endpoint="https://mirror", offline=True) == {
        "HF_ENDPOINT": "https://mirror", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
