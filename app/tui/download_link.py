"""Keeps at most one download process beside the window: starts it, steers it, ends it.

The download belongs to the program and not to the screen that shows it, so that chat with the demo
goes on meanwhile. What a killed or cancelled process leaves is all that the next one needs.
"""

from collections.abc import Callable, Mapping

from app.hub.client import DownloadClient, network_environment
from app.hub.messages import Event, Planned, Start
from app.hub.secret import Secret
from app.paths import paths
from app.protocol import Error
from app.settings import SettingsFile
from app.tui.download_state import DownloadState, Stage


class DownloadLink:
    """The window's download. `limits` replaces fields of `app.hub.limits.Limits` by name.

    A token that was typed serves every download of this window until the hub refuses it.
    """

    def __init__(self, file: SettingsFile, limits: Mapping[str, float] | None = None) -> None:
        self._file = file
        self._limits = dict(limits or {})
        self._client: DownloadClient | None = None
        self._asking: DownloadClient | None = None
        self._token: Secret | None = None
        self._keep_token = False
        self.state: DownloadState | None = None
        self.changed: Callable[[DownloadState], None] = lambda state: None

    @property
    def pid(self) -> int | None:
        """The download process's id."""
        return self._client.pid if self._client is not None else None

    @property
    def running(self) -> bool:
        """Whether there is a download that is not over."""
        return self.state is not None and self.state.running

    def use_token(self, token: Secret, *, keep: bool) -> None:
        """Ask with `token` from now on; with `keep` huggingface_hub stores it for other windows."""
        self._token, self._keep_token = token, keep

    def prepare(self, repo: str) -> DownloadState:
        """The state of another attempt at `repo`; `run` follows."""
        if self.state is None or self.state.repo != repo:
            self.state = DownloadState(repo)
        self.state.begin()
        return self.state

    async def run(self) -> None:
        """Download what was prepared, until it is over in one way or another."""
        state = self.state
        assert state is not None, "prepare comes first"
        await self._close_client()
        client = self._client = self._new_client()
        try:
            await client.start(self._order(state.repo, keep_token=self._keep_token))
        except OSError as error:
            state.take(_cannot_start(error))
            self.changed(state)
            return
        async for event in client.events():
            if client is not self._client:
                return
            self._heed(event)
            state.take(event)
            self.changed(state)

    async def plan(self, repo: str) -> Planned | Error:
        """What a download of `repo` would fetch; nothing is fetched."""
        client = self._asking = self._new_client()
        found: Planned | Error = Error("died", "The hub was not asked.", "Try again.")
        try:
            await client.start(self._order(repo, only_plan=True))
            async for event in client.events():
                if isinstance(event, Planned | Error):
                    found = event
        except OSError as error:
            return _cannot_start(error)
        finally:
            await client.close(timeout=0.2)
        return found

    def pause_or_go_on(self) -> None:
        """Ask for no more bytes, or for more again."""
        if self._client is None or self.state is None:
            return
        if self.state.stage is Stage.PAUSED:
            self._client.resume()
        else:
            self._client.pause()

    def cancel(self) -> None:
        """End it; what came stays."""
        if self._client is not None:
            self._client.cancel()

    async def close(self, timeout: float = 0.3) -> None:
        """The window closes."""
        if self._asking is not None:
            self._asking.kill()  # it has nothing to save
            await self._asking.close(timeout)
        await self._close_client(timeout)

    async def _close_client(self, timeout: float = 0.3) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close(timeout)

    def _order(self, repo: str, *, only_plan: bool = False, keep_token: bool = False) -> Start:
        return Start(
            repo,
            only_plan=only_plan,
            limits=self._limits,
            token=self._token.reveal() if self._token is not None else None,
            keep_token=keep_token,
        )

    def _heed(self, event: Event) -> None:
        """What an event means for the token that was typed."""
        if isinstance(event, Planned):
            self._keep_token = False  # it was stored, or could not be
        elif isinstance(event, Error) and event.kind == "bad_token":
            self._token = None

    def _new_client(self) -> DownloadClient:
        settings = self._file.settings
        environment = network_environment(endpoint=settings.endpoint, offline=settings.offline)
        return DownloadClient(log=paths().download_log, environment=environment)


def _cannot_start(error: OSError) -> Error:
    reason = error.strerror or type(error).__name__
    return Error("died", f"The download process cannot be started: {reason}.", "Try again.")
