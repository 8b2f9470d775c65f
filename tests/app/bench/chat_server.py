"""A small OpenAI-compatible server on loopback, which does what a test tells it to."""

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class ChatServer:
    """What it answers with, and what it was asked.

    Attributes:
        pieces: the text of an answer, piece by piece.
        usage: tokens that it says it wrote; None says nothing.
        status: of every reply; other than 200 it goes with `said`, and {key} is the key.
        lines: sent in place of a stream, and the connection is closed.
        asked: told after each chat request.
    """

    pieces: Sequence[str] = ("The answer", " is ", "42.")
    usage: int | None = 6
    finish: str = "stop"
    models: Sequence[str] = ("small",)
    status: int = 200
    said: str = ""
    location: str | None = None
    lines: Sequence[str] | None = None
    hold: bool = False
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    asked: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    released: threading.Event = field(default_factory=threading.Event)

    def events(self) -> Iterator[str]:
        """The lines of a stream."""
        if self.lines is not None:
            yield from self.lines
            return
        yield ": a comment, as some servers send to keep a connection"
        yield _event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for piece in self.pieces:
            yield _event({"choices": [{"delta": {"content": piece}}], "usage": None})
        yield _event({"choices": [{"delta": {}, "finish_reason": self.finish}]})
        if self.usage is not None:
            yield _event({"choices": [], "usage": {"completion_tokens": self.usage}})
        yield "data: [DONE]"


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}"


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing on stderr."""

    @property
    def told(self) -> ChatServer:
        return self.server.told  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        self.told.keys.append(self.headers.get("Authorization"))
        if self.told.status != 200:
            self._refuse()
            return
        rows = [{"id": name} for name in self.told.models]
        self._reply(200, json.dumps({"data": rows}).encode())

    def do_POST(self) -> None:
        self.told.keys.append(self.headers.get("Authorization"))
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.told.bodies.append(json.loads(body) | {"path": self.path})
        self.told.asked.release()
        if self.told.status != 200:
            self._refuse()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for line in self.told.events():
            self.wfile.write(line.encode() + b"\n\n")
            self.wfile.flush()
            if self.told.hold and len(self.told.bodies) > 2:
                self.told.released.wait(30)

    def _refuse(self) -> None:
        self._reply(self.told.status, self.told.said.format(key=self.told.keys[-1]).encode())

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if self.told.location is not None:
            self.send_header("Location", self.told.location)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def serving(**told: Any) -> Iterator[ChatServer]:
    """A server that runs while the block does."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    chat = ChatServer(url=f"http://127.0.0.1:{server.server_port}", **told)
    server.told = chat  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield chat
    finally:
        chat.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
