"""Which commit a download is about: asked at the hub, kept from a download that was begun, or, when
nobody can be asked, taken from what was recorded."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from app.hub.cache import RepoCache
from app.hub.control import Control
from app.hub.faults import Asked, Failure, FailureError
from app.hub.limits import Limits
from app.hub.manifest import Manifest, known, unfinished
from app.hub.messages import Event, Notice, Retry
from app.hub.plan import Plan, check_names, make_plan
from app.hub.retrying import Retrying
from app.hub.secret import Secret, without_user
from app.version import VERSION

log = logging.getLogger(__name__)

LIBRARY = "orl-chat"


@dataclass(frozen=True)
class Decided:
    """What to download, and with what it is asked for. `headers` hold the token: never log them."""

    manifest: Manifest
    asked: Asked
    headers: dict[str, str]
    token_source: str
    online: bool = True

    def __repr__(self) -> str:
        return f"Decided({self.manifest.plan.repo}@{self.manifest.plan.commit})"


class Planner:
    """Decides for one order. Imports huggingface_hub when asked to decide, not before."""

    def __init__(
        self,
        repo: str,
        revision: str,
        token: Secret | None,
        *,
        keep_token: bool = False,
        limits: Limits,
        control: Control,
        emit: Callable[[Event], None],
    ) -> None:
        self.repo = repo
        self.revision = revision
        self.token = token
        self.keep_token = keep_token
        self.limits = limits
        self.control = control
        self.emit = emit
        self._begun: Manifest | None = None
        self._newest: Decided | None = None

    def decide(self) -> Decided:
        """The plan to follow. Raises FailureError, Stopped."""
        check_names(self.repo, self.revision)
        decided = self._connected()
        try:
            plan = self._ask(decided)
        except FailureError as error:
            recorded = self._recorded() if error.failure.kind in _UNREACHABLE else None
            if recorded is None:
                raise
            self.emit(Notice(f"{error.failure.message} Everything is here already; it is checked."))
            return replace(decided, manifest=recorded, online=False)
        self._keep_token()
        self._newest = replace(decided, manifest=Manifest.of(plan))
        self._begun = unfinished(self.repo, self.revision)
        if self._begun is None or self._begun.plan.commit == plan.commit:
            return self._newest
        self.emit(Notice(_moved(self.revision, self._begun.plan, plan)))
        return replace(decided, manifest=self._begun)

    def decide_anew(self) -> Decided | None:
        """The newest plan instead of the one that was begun; None when that was the newest."""
        if self._begun is None or self._newest is None:
            return None
        if self._begun.plan.commit == self._newest.manifest.plan.commit:
            return None
        self._begun.remove()
        self._begun = None
        return self._newest

    def _connected(self) -> Decided:
        """How the hub is asked; the manifest in it is not one yet."""
        from huggingface_hub import constants
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        given = self.token.reveal() if self.token is not None else None
        headers = build_hf_headers(token=given, library_name=LIBRARY, library_version=VERSION)
        source = _token_source(headers, given is not None)
        endpoint = str(constants.ENDPOINT)
        asked = Asked(self.repo, self.revision, endpoint, bool(source), _proxy(endpoint))
        nothing = Manifest(Plan(self.repo, self.revision, "", ()), 0.0)
        return Decided(nothing, asked, headers, source)

    def _ask(self, decided: Decided) -> Plan:
        def on_retry(failure: Failure, wait: float, attempt: int) -> None:
            self.emit(Retry(failure.message, wait, attempt))

        retrying = Retrying(
            decided.asked, self.limits, self.control, self.limits.plan_patience, on_retry
        )
        api = self._api()
        return retrying.run(lambda: make_plan(api, self.repo, self.revision, self.limits.connect))

    def _api(self) -> Any:
        from huggingface_hub import HfApi

        token = self.token.reveal() if self.token is not None else None
        return HfApi(token=token, library_name=LIBRARY, library_version=VERSION)

    def _keep_token(self) -> None:
        """Into huggingface_hub's own storage, where that was asked for; a download does without."""
        if self.token is None or not self.keep_token:
            return
        from huggingface_hub import login

        try:
            login(self.token.reveal())
        except Exception as error:
            log.warning("the token was not kept", exc_info=error)
            self.emit(Notice("The token could not be kept; it serves this time. See the log."))
        else:
            self.emit(Notice("The token is kept by huggingface_hub; `hf auth logout` removes it."))

    def _recorded(self) -> Manifest | None:
        """A recorded plan whose files are all here with their sizes."""
        cache = RepoCache(self.repo)
        for manifest in known(self.repo, self.revision):
            plan = manifest.plan
            if plan.files and all(cache.find(file, plan.commit) for file in plan.files):
                return manifest
        return None


_UNREACHABLE = ("network", "offline", "busy", "server", "proxy", "tls", "not_a_hub")
"""Kinds of failure after which what is here already is good enough."""


def _moved(revision: str, begun: Plan, newest: Plan) -> str:
    return (
        f"{revision} moved from {begun.commit[:7]} to {newest.commit[:7]} since this download was "
        f"begun; {begun.commit[:7]} is finished first."
    )


def _token_source(headers: dict[str, str], given: bool) -> str:
    """Where the token in `headers` came from. Raises FailureError when it can be no token."""
    value = headers.get("authorization")
    if value is None:
        return ""
    if not (value.isascii() and value.isprintable()):
        raise FailureError(
            Failure(
                "bad_token",
                "The token holds characters that no token has.",
                "Copy it again; it begins with hf_ (HF_TOKEN holds it in a shell).",
            )
        )
    if given:
        return "given"
    names = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
    return next((name for name in names if os.environ.get(name)), "token file")


def _proxy(endpoint: str) -> str:
    """The proxy that the environment names for `endpoint`, without its password."""
    parts = urlsplit(endpoint)
    proxies = getproxies()
    address = proxies.get(parts.scheme) or proxies.get("all") or ""
    if not address or not parts.hostname or proxy_bypass(parts.hostname):
        return ""
    return without_user(address)
