"""`orl-chat download`: a model into the hub's cache, by a download process that is followed here.

What happens goes to stderr, as a moving line in a terminal and as plain lines elsewhere; stdout
gets the model's folder and nothing else (with --json the events).
"""

import asyncio
import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from app.commands.running import INTERRUPTED, CommandError, say
from app.hub.client import DownloadClient, network_environment
from app.hub.messages import (
    Cancelled,
    Event,
    FileState,
    Notice,
    Paused,
    Planned,
    Progress,
    Ready,
    Resumed,
    Retry,
    Start,
    encode,
)
from app.hub.text import size_text, time_text
from app.models import DEFAULT_REPO
from app.paths import paths
from app.protocol import Error
from app.text import printable

if TYPE_CHECKING:
    from app.settings import Settings

PLAIN_SECONDS = 15.0
"""Between two lines of progress where there is no terminal."""


@dataclass(frozen=True)
class Download:
    """What to download; `repo` None is the model that this program is made for."""

    repo: str | None = None
    revision: str = "main"
    only_plan: bool = False
    recheck: bool = False
    as_json: bool = False


def download(request: Download, settings: "Settings") -> int:
    """Do it; the exit code. Raises CommandError."""
    return asyncio.run(_follow(request, settings))


class View(Protocol):
    """Shows events to whoever waits."""

    def show(self, event: Event) -> None:
        """`event` happened."""

    def close(self) -> None:
        """Nothing more is shown."""


async def _follow(request: Download, settings: "Settings") -> int:
    environment = network_environment(endpoint=settings.endpoint, offline=settings.offline)
    client = DownloadClient(log=paths().download_log, environment=environment)
    view = _view(as_json=request.as_json)
    last: Event | None = None
    with _ctrl_c(client):
        await client.start(
            Start(
                request.repo or DEFAULT_REPO,
                request.revision,
                only_plan=request.only_plan,
                recheck=request.recheck,
            )
        )
        try:
            async for event in client.events():
                view.show(event)
                last = event
        finally:
            view.close()
            await client.close()
    return _code(last, as_json=request.as_json)


@contextlib.contextmanager
def _ctrl_c(client: DownloadClient) -> Iterator[None]:
    """Inside, Ctrl+C asks the process to end, and a second one ends it."""
    asked = False

    def stop() -> None:
        nonlocal asked
        if asked:
            client.kill()
        asked = True
        client.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _code(last: Event | None, *, as_json: bool) -> int:
    """The exit code, the last event's folder on stdout, or CommandError."""
    if isinstance(last, Ready):
        if not as_json:
            print(printable(last.path), flush=True)
        return 0
    if isinstance(last, Cancelled):
        return INTERRUPTED
    if isinstance(last, Error):
        raise CommandError(" ".join(part for part in (last.message, last.hint) if part))
    return 0


def _view(*, as_json: bool) -> View:
    if as_json:
        return JsonView()
    return TerminalView() if sys.stderr.isatty() else PlainView()


class JsonView:
    """Events as the download process writes them."""

    def show(self, event: Event) -> None:
        """A line."""
        sys.stdout.write(encode(event).decode("ascii"))
        sys.stdout.flush()

    def close(self) -> None:
        """Nothing is left open."""


class PlainView:
    """A line for what happens, and now and then for how far it is."""

    def __init__(self) -> None:
        self._due = time.monotonic() + PLAIN_SECONDS

    def show(self, event: Event) -> None:
        """A line, or none."""
        if isinstance(event, Progress):
            if time.monotonic() >= self._due:
                self._due = time.monotonic() + PLAIN_SECONDS
                say(progress_line(event))
            return
        for line in event_lines(event):
            say(line)

    def close(self) -> None:
        """Nothing is left open."""


class TerminalView:
    """Lines for what happens, above one that moves."""

    def __init__(self) -> None:
        self._moving = False

    def show(self, event: Event) -> None:
        """Redraw the moving line, or put lines above it."""
        if isinstance(event, Progress):
            width = max(shutil.get_terminal_size().columns - 1, 20)
            self._write(f"\r\x1b[K{printable(progress_line(event))[:width]}")
            self._moving = True
            return
        for line in event_lines(event):
            self.close()
            say(line)

    def close(self) -> None:
        """Wipe the moving line."""
        if self._moving:
            self._write("\r\x1b[K")
            self._moving = False

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def progress_line(now: Progress) -> str:
    """ "61 %  6.6 GB of 10.9 GB · 41.8 MB/s · 1 m 43 s left"."""
    parts = [f"{_percent(now.done, now.total)} %  {size_text(now.done)} of {size_text(now.total)}"]
    parts += pace_words(now)
    checking = [row for row in now.files if row["state"] == "checking"]
    if checking:
        parts.append(f"checking, {_percent(now.checked, now.total)} % checked")
    if now.reconnects:
        parts.append(f"{now.reconnects} reconnect{'s' if now.reconnects > 1 else ''}")
    return " · ".join(parts)


def pace_words(now: Progress, *, about: str = "") -> list[str]:
    """How fast it comes and how long it takes yet; `about` follows the rate."""
    if now.stalled:
        return [f"stalled {time_text(now.stalled)}"]
    if not now.speed:
        return []
    rate = f"{size_text(now.speed)}/s{about}"
    return [rate, f"{time_text(now.left)} left"] if now.left else [rate]


def event_lines(event: Event) -> list[str]:
    """What `event` says to people."""
    if isinstance(event, Planned):
        return plan_lines(event)
    if isinstance(event, Notice):
        return [event.text]
    if isinstance(event, Retry):
        name = f"{event.path}: " if event.path else ""
        return [f"{name}{event.reason} Trying again in {time_text(max(event.wait, 1))}."]
    if isinstance(event, FileState) and event.state == "checked" and event.size >= 1 << 24:
        return [f"{event.path}: {size_text(event.size)}, checked"]
    if isinstance(event, Cancelled) and not event.total:
        return ["Stopped."]
    if isinstance(event, Cancelled):
        kept = f"{size_text(event.kept)} of {size_text(event.total)} are kept"
        return [f"Stopped; {kept}. The same command goes on from there."]
    if isinstance(event, Ready):
        came = f"{size_text(event.fetched)} fetched in {time_text(event.elapsed)}"
        return [f"Ready: {size_text(event.total)}, every file checked ({came})."]
    if isinstance(event, Paused | Resumed):
        return [event.type.capitalize() + "."]
    return []


def plan_lines(plan: Planned) -> list[str]:
    """What would be fetched, from where and with what, and the room for it: no secret in it."""
    about = [
        f"{plan.repo} at {plan.commit[:7]}",
        f"{size_text(plan.total)} in {len(plan.files)} files",
        plan.licence,
        plan.access if plan.access != "public" else "",
    ]
    way = [
        f"from {plan.endpoint.partition('://')[2]}" if plan.online else "",
        f"through the proxy {plan.proxy}" if plan.proxy else "",
        token_words(plan.token),
    ]
    room = f"{size_text(plan.need)} to fetch, {size_text(plan.free)} free on the disk"
    have = f"{size_text(plan.kept)} here already" if plan.kept else ""
    rows = (about, [f"to {plan.path}"], way, [have, room])
    return [line for row in rows if (line := " · ".join(part for part in row if part))]


def token_words(source: str) -> str:
    """Where the token came from; never what it is."""
    if source == "given":
        return "with the token that was typed"
    return f"with the token from {source}" if source else ""


def _percent(done: int, total: int) -> int:
    """Never 100 before the end."""
    return 100 * done // total if total else 100
