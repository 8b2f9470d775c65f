"""The same prompts against an OpenAI-compatible server: vLLM, SGLang, llama.cpp and others.

Chat completions are streamed, since only a stream shows when the first text came. A server tells
no forwards, so there is no TPF. When its prefill ended it does not tell either: the time before the
first piece holds the first piece's decoding too. So decode time is taken to run at one rate from
the first token to the last, and is the time since the first piece, stretched by that piece's share
of the text. The standard library speaks this much HTTP; a redirect is not followed, as it could
carry the key to another host.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from typing import IO, Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from app.bench.sample import Sample
from app.hub.secret import Secret, scrub, without_user
from app.text import printable
from engine.config import DecodeConfig
from engine.events import Stats
from finetune.prompts import Prompt

CHAT = "/chat/completions"
SILENCE = 300.0
"""Seconds without a byte after which a server is given up."""
LONGEST_LINE = 1 << 20
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_REASONS = {"stop": "end", "length": "length"}


class EndpointError(ValueError):
    """The server cannot be measured; the message is a sentence for the user."""


@dataclass(frozen=True)
class Endpoint:
    """A server and the model that it is asked for.

    Attributes:
        base: its address up to and with the version, like http://localhost:8000/v1.
        key: sent as a bearer token; shown nowhere.
        count: counts the tokens of a text where the server does not tell; None: nobody can.
        counter: what `count` is called in the conditions.
    """

    base: str
    model: str
    key: Secret | None = None
    count: Callable[[str], int] | None = None
    counter: str = "tokenizer"

    def answer(
        self, prompt: Prompt, config: DecodeConfig, stop: Callable[[], bool] = lambda: False
    ) -> Sample:
        """One answer, measured from the request on. Raises EndpointError."""
        body = {
            "model": self.model,
            "messages": list(prompt.messages),
            "max_tokens": config.max_new_tokens,
            "temperature": config.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        optional = {"seed": config.seed, "top_p": config.top_p}
        body |= {name: value for name, value in optional.items() if value is not None}
        heard = _Heard(time.perf_counter())
        with _open(self.base + CHAT, self.key, body) as reply:
            for piece in _pieces(reply, self.base, self.key):
                if stop():
                    return Sample(prompt.id, heard.text, "stopped", heard.stats(0))
                heard.take(piece, time.perf_counter())
        if not heard.reason:
            raise _broke_off(self.base)
        tokens, counted = self._tokens(heard)
        stats = heard.stats(tokens)
        return Sample(prompt.id, heard.text, heard.reason, stats, counted=counted)

    def _tokens(self, heard: "_Heard") -> tuple[int, str]:
        if heard.usage is not None:
            return heard.usage, "usage"
        if self.count is None:
            raise EndpointError(
                f"{_shown(self.base)} does not tell how many tokens it writes, and without a model "
                "here nothing can count them; leave out --only-endpoint."
            )
        return self.count(heard.thoughts + heard.text), self.counter


@dataclass
class _Heard:
    """What has come of one answer. Thoughts are apart from the text, and cost time as it does."""

    requested: float
    text: str = ""
    thoughts: str = ""
    reason: str = ""
    usage: int | None = None
    first: float | None = None
    last: float = 0.0
    first_length: int = 0

    def take(self, piece: "_Piece", now: float) -> None:
        """One event of the stream, at `now`."""
        self.usage = self.usage if piece.usage is None else piece.usage
        self.reason = piece.reason or self.reason
        self.text, self.thoughts = self.text + piece.text, self.thoughts + piece.thought
        if length := len(piece.text) + len(piece.thought):
            if self.first is None:
                self.first, self.first_length = now, length
            self.last = now

    def stats(self, tokens: int) -> Stats:
        """Its times; an answer that came in one piece has no decode time."""
        if self.first is None:
            return _stats(tokens, 0.0, 0.0, 0.0)
        whole = self.last - self.requested
        length = len(self.text) + len(self.thoughts)
        rest = length - self.first_length
        decode = (self.last - self.first) * length / rest if rest else 0.0
        decode = min(decode, whole)
        return _stats(tokens, whole - decode, decode, self.first - self.requested)


@dataclass(frozen=True)
class _Piece:
    """One event of a stream."""

    text: str = ""
    thought: str = ""
    reason: str = ""
    usage: int | None = None

    @classmethod
    def of(cls, event: dict[str, Any]) -> Self:
        """Raises AttributeError or TypeError for what is no event of a chat."""
        usage = (event.get("usage") or {}).get("completion_tokens")
        (choice,) = (event.get("choices") or [{}])[:1]
        delta = choice.get("delta") or {}
        thought = delta.get("reasoning_content") or delta.get("reasoning") or ""
        finish = choice.get("finish_reason") or ""
        reason = _REASONS.get(finish, printable(str(finish)))
        return cls("" + (delta.get("content") or ""), "" + thought, reason, usage)


def _stats(tokens: int, prefill: float, decode: float, first: float) -> Stats:
    return Stats(
        tokens=tokens, forwards=0, steps=0, commits=0, fused=0, edits=0, waste_tokens=0,
        prefill_tokens=0, cached_tokens=0, prefill_seconds=prefill, decode_seconds=decode,
        whole_seconds=prefill + decode, first_block_seconds=first,
    )  # fmt: skip


def base_address(url: str) -> str:
    """The address up to the version, from what people write. Raises EndpointError."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        usable = usable and url.isprintable() and " " not in url.strip()
    except ValueError:
        usable = False
    if not usable:
        raise EndpointError(f"{scrub(url)!r} is no address of a server; write http://HOST:PORT/v1.")
    path = parts.path.rstrip("/").removesuffix(CHAT)
    return urlunsplit((parts.scheme, parts.netloc, path or "/v1", "", ""))


def served_model(base: str, key: Secret | None) -> str:
    """The one model that the server offers. Raises EndpointError when there are several."""
    with _open(f"{base}/models", key) as reply:
        try:
            names = [str(row["id"]) for row in json.loads(reply.read(LONGEST_LINE))["data"]]
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise EndpointError(
                f"{_shown(base)} does not list its models; name one with --endpoint-model."
            ) from error
    if len(names) != 1:
        some = ", ".join(printable(name) for name in names[:10]) or "none"
        raise EndpointError(f"{_shown(base)} offers {some}; name one with --endpoint-model.")
    return names[0]


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """A redirect is an answer like any other, and no use."""


def _opener(url: str) -> OpenerDirector:
    handlers: list[Any] = [_NoRedirect()]
    if urlsplit(url).hostname in LOOPBACK:
        handlers.append(ProxyHandler({}))
    return build_opener(*handlers)


def _open(url: str, key: Secret | None, body: dict[str, Any] | None = None) -> IO[bytes]:
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key.reveal()}"
    data = None if body is None else json.dumps(body).encode()
    try:
        request = Request(url, data, headers)
        reply: IO[bytes] = _opener(url).open(request, timeout=SILENCE)
        return reply
    except HTTPError as error:
        with error:
            raise EndpointError(_refusal(url, error, key)) from None
    except (URLError, OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        why = getattr(reason, "strerror", None) or reason
        raise EndpointError(
            f"{_shown(url)} does not answer ({scrub(str(why), key)}); is the server running?"
        ) from None


def _refusal(url: str, error: HTTPError, key: Secret | None) -> str:
    if error.code in (401, 403):
        hint = "set OPENAI_API_KEY" if key is None else "check OPENAI_API_KEY"
        return f"{_shown(url)} refuses (HTTP {error.code}); {hint}."
    if error.code == 404:
        return f"{_shown(url)} is not there (HTTP 404); check the address and --endpoint-model."
    try:
        said = error.read(2000).decode("utf-8", "replace")
    except OSError:
        said = ""
    said = printable(" ".join(scrub(said, key).split()))[:200]
    return f"{_shown(url)} refuses (HTTP {error.code}{': ' + said if said else ''})."


def _broke_off(base: str) -> EndpointError:
    return EndpointError(f"The answer of {_shown(base)} broke off; try again.")


def _pieces(reply: IO[bytes], base: str, key: Secret | None) -> Iterator[_Piece]:
    """The events of a stream as they come, to its end. Raises EndpointError when it breaks off."""
    events = 0
    try:
        while line := reply.readline(LONGEST_LINE):
            name, _, value = line.strip().partition(b":")
            if name != b"data":
                continue
            if value.strip() == b"[DONE]":
                return
            event = json.loads(value)
            if event.get("error"):
                said = printable(scrub(str(event["error"]), key))[:200]
                raise EndpointError(f"{_shown(base)} gave the answer up: {said}")
            events += 1
            yield _Piece.of(event)
    except EndpointError:
        raise
    except (OSError, ValueError, TypeError, AttributeError, HTTPException, RecursionError):
        raise _broke_off(base) from None
    if not events:
        raise EndpointError(f"{_shown(base)} does not stream its answers, so they have no times.")


def _shown(url: str) -> str:
    """An address without a name and a password, and without what could steer a terminal."""
    return printable(without_user(url)).replace("\n", " ")
