"""A hub on the loopback: the part of its API that clients use, and a switch for each fault.

Two servers: the hub itself and the file server that it redirects to, on another port and so another
origin. Every request is remembered. A switch that is a list holds one entry a request; an empty
list is no fault.
"""

import hashlib
import json
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PIECE = 16 * 1024


@dataclass
class Seen:
    """One request and what was sent in answer."""

    server: str
    method: str
    path: str
    headers: dict[str, str]
    status: int = 0
    sent: int = 0

    @property
    def start(self) -> int:
        """The place in the file that was asked for."""
        return int(self.headers.get("range", "bytes=0-")[6:].partition("-")[0])

    @property
    def name(self) -> str:
        return unquote(urlsplit(self.path).path).rpartition("/")[2]


@dataclass
class Commit:
    """A commit of the repository."""

    sha: str
    files: dict[str, bytes]


@dataclass
class Faults:
    """What goes wrong.

    api, file, cdn: (status, headers) to answer the next requests of that sort with.
    cut: bytes of the body after which the connection is closed. stall: bytes after which nothing
    comes any more. corrupt: how many times a file is sent with a wrong byte. size: what the plan
    says in place of a file's size; length: what Content-Length says. whoami: the status that the
    question for a token's owner is refused with.
    """

    api: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    file: dict[str, list[tuple[int, dict[str, str]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    cdn: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    cut: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    stall: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    corrupt: dict[str, int] = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)
    length: dict[str, int] = field(default_factory=dict)
    whole_only: bool = False
    wrong_range: bool = False
    page: bytes | None = None
    whoami: int = 0
    rate: float = 0.0


class FakeHub:
    """The hub with one repository. `token` is needed to read it where it is private or gated."""

    def __init__(self, repo: str, files: dict[str, bytes]) -> None:
        self.repo = repo
        self.commits: dict[str, Commit] = {}
        self.branches: dict[str, str] = {}
        self.faults = Faults()
        self.seen: list[Seen] = []
        self.redirect = self.xet = False
        self.private = self.gated = False
        self.token = "hf_" + "a" * 30
        self.granted = True
        self.released = threading.Event()
        self.commit(files)
        self._hub, self.endpoint = self._serve("hub")
        self._cdn, self.cdn = self._serve("cdn")

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        """A new commit at `branch`; its hash."""
        sha = hashlib.sha1(repr((sorted(files.items()), len(self.commits))).encode()).hexdigest()
        self.commits[sha] = Commit(sha, files)
        self.branches[branch] = sha
        return sha

    def find(self, revision: str) -> Commit | None:
        return self.commits.get(self.branches.get(revision, revision))

    def bodies(self, name: str | None = None) -> list[Seen]:
        """The requests for the bodies of files, those that were redirected away left out."""
        return [
            seen
            for seen in list(self.seen)
            if seen.method == "GET"
            and "/api/" not in seen.path
            and seen.status in (200, 206)
            and name in (None, seen.name)
        ]

    def close(self) -> None:
        self.released.set()
        for server in (self._hub, self._cdn):
            server.shutdown()
            server.server_close()

    def _serve(self, name: str) -> tuple[ThreadingHTTPServer, str]:
        handler = type("Bound", (Handler,), {"hub": self, "server_name": name})
        server = Server(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server, f"http://127.0.0.1:{server.server_address[1]}"


def is_lfs(name: str) -> bool:
    return name.endswith(".safetensors") or name == "tokenizer.json"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def blob_name(name: str, content: bytes) -> str:
    return sha256(content) if is_lfs(name) else git_hash(content)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no news."""


class Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    server_name: str
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: Any) -> None:
        """Nothing on the tests' stderr."""

    def _answer(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.seen = Seen(self.server_name, self.command, self.path, headers)
        self.hub.seen.append(self.seen)
        try:
            if self.server_name == "cdn":
                self._answer_as_file_server()
            elif (path := unquote(urlsplit(self.path).path)).startswith("/api/models/"):
                self._answer_api(path.removeprefix("/api/models/"))
            elif path == "/api/whoami-v2":
                self._answer_whoami()
            else:
                self._answer_resolve(path)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    # --- the API --------------------------------------------------------------------------------

    def _answer_api(self, path: str) -> None:
        if self.hub.faults.page is not None:
            self._send(200, self.hub.faults.page, {"Content-Type": "text/html"})
        elif self.hub.faults.api:
            self._refuse(*self.hub.faults.api.pop(0))
        elif self._may_ask(path.startswith(self.hub.repo)):
            parts = path.removeprefix(self.hub.repo).strip("/").split("/", 1)
            revision = parts[1] if len(parts) > 1 else "main"
            commit = self.hub.find(revision)
            if commit is None:
                self._refuse(404, {"X-Error-Code": "RevisionNotFound"})
            elif parts[0] == "tree":
                self._send_json([self._tree_row(*item) for item in commit.files.items()])
            else:
                self._send_json(self._info(commit))

    def _answer_whoami(self) -> None:
        hub = self.hub
        if hub.faults.whoami or self.headers.get("Authorization") != f"Bearer {hub.token}":
            self._refuse(hub.faults.whoami or 401, {})
            return
        token = {"displayName": "for tests", "role": "read"}
        self._send_json({"type": "user", "name": "somebody", "auth": {"accessToken": token}})

    def _may_ask(self, is_known: bool) -> bool:
        hub, authorization = self.hub, self.headers.get("Authorization")
        if authorization is not None and authorization != f"Bearer {hub.token}":
            message = "Invalid credentials in Authorization header"
            self._refuse(401, {"X-Error-Message": message})
        elif not is_known or (hub.private and not (authorization and hub.granted)):
            code = 404 if authorization else 401
            self._refuse(code, {"X-Error-Code": "RepoNotFound"})
        else:
            return True
        return False

    def _info(self, commit: Commit) -> dict[str, Any]:
        wants_blobs = "blobs" in parse_qs(urlsplit(self.path).query)
        siblings: list[dict[str, Any]] = []
        for name, content in commit.files.items():
            row: dict[str, Any] = {"rfilename": name}
            if wants_blobs:
                row |= {"size": self._size(name, content), "blobId": git_hash(content)}
                if is_lfs(name):
                    size = self._size(name, content)
                    row["lfs"] = {"sha256": sha256(content), "size": size, "pointerSize": 134}
            siblings.append(row)
        return {
            "id": self.hub.repo,
            "modelId": self.hub.repo,
            "sha": commit.sha,
            "private": self.hub.private,
            "gated": "auto" if self.hub.gated else False,
            "disabled": False,
            "tags": [],
            "downloads": 0,
            "cardData": {"license": "apache-2.0"},
            "siblings": siblings,
        }

    def _tree_row(self, name: str, content: bytes) -> dict[str, Any]:
        row: dict[str, Any] = {
            "type": "file", "oid": git_hash(content), "size": len(content), "path": name,
        }  # fmt: skip
        if is_lfs(name):
            row["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 134}
        return row

    def _size(self, name: str, content: bytes) -> int:
        return self.hub.faults.size.get(name, len(content))

    # --- files ----------------------------------------------------------------------------------

    def _answer_resolve(self, path: str) -> None:
        repo, _, rest = path.strip("/").partition("/resolve/")
        if not self._may_ask(repo == self.hub.repo):
            return
        revision, _, name = rest.partition("/")
        commit = self.hub.find(revision)
        authorized = self.headers.get("Authorization") and self.hub.granted
        if self.hub.gated and not authorized:
            code = 403 if self.headers.get("Authorization") else 401
            self._refuse(code, {"X-Error-Code": "GatedRepo"})
        elif commit is None:
            self._refuse(404, {"X-Error-Code": "RevisionNotFound"})
        elif name not in commit.files:
            self._refuse(404, {"X-Error-Code": "EntryNotFound"})
        elif self.hub.faults.file[name]:
            self._refuse(*self.hub.faults.file[name].pop(0))
        else:
            self._give(commit, name)

    def _give(self, commit: Commit, name: str) -> None:
        content = commit.files[name]
        about = {
            "ETag": f'"{blob_name(name, content)}"',
            "X-Repo-Commit": commit.sha,
            "Accept-Ranges": "bytes",
        }
        if is_lfs(name):
            about |= {"X-Linked-Etag": about["ETag"], "X-Linked-Size": str(len(content))}
            if self.hub.xet:
                route = (
                    f"{self.hub.endpoint}/api/models/{self.hub.repo}/xet-read-token/{commit.sha}"
                )
                about |= {"X-Xet-Hash": sha256(content), "X-Xet-Refresh-Route": route}
            if self.hub.redirect:
                link = f"{self.hub.cdn}/{commit.sha}/{name}?Signature=secret-signature"
                self._send(302, b"", {**about, "Location": link})
                return
        self._send_file(name, content, about)

    def _answer_as_file_server(self) -> None:
        if self.hub.faults.cdn:
            self._refuse(*self.hub.faults.cdn.pop(0))
            return
        sha, _, name = unquote(urlsplit(self.path).path).strip("/").partition("/")
        self._send_file(name, self.hub.commits[sha].files[name], {"ETag": '"cdn"'})

    def _send_file(self, name: str, content: bytes, about: dict[str, str]) -> None:
        faults = self.hub.faults
        start = 0 if faults.whole_only else self.seen.start
        if start >= len(content) > 0:
            self._refuse(416, {"Content-Range": f"bytes */{len(content)}"})
            return
        body, status = content[start:], 200
        if "range" in self.seen.headers and not faults.whole_only:
            status = 206
            told = start + 1 if faults.wrong_range else start
            about = {
                **about,
                "Content-Range": f"bytes {told}-{len(content) - 1}/{len(content)}",
            }
        if self.command == "GET" and faults.corrupt.get(name, 0) > 0:
            faults.corrupt[name] -= 1
            body = body[:-1] + bytes([body[-1] ^ 1])
        about["Content-Length"] = str(faults.length.get(name, len(body)))
        self._head(status, about)
        if self.command == "GET":
            self._send_body(name, body)

    def _send_body(self, name: str, body: bytes) -> None:
        faults = self.hub.faults
        cut = faults.cut[name].pop(0) if faults.cut[name] else None
        stall = faults.stall[name].pop(0) if faults.stall[name] else None
        end = min(x for x in (cut, stall, len(body)) if x is not None)
        for place in range(0, end, PIECE):
            piece = body[place : min(place + PIECE, end)]
            self.wfile.write(piece)
            self.seen.sent += len(piece)
            if faults.rate:
                time.sleep(len(piece) / faults.rate)
        if stall is not None:
            self.hub.released.wait(30)
        if end < len(body):
            self.close_connection = True

    # --- answers --------------------------------------------------------------------------------

    def _refuse(self, status: int, headers: dict[str, str]) -> None:
        self._send(status, b'{"error":"no"}', headers)

    def _send_json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self._head(status, {**headers, "Content-Length": str(len(body))})
        if self.command == "GET":
            self.wfile.write(body)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.seen.status = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
