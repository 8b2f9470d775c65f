"""What can go wrong with a download, each with a sentence of its own and the next move.

Errors are told apart by what the server answered and by the names of their classes: the HTTP
library under huggingface_hub changed its name once and may again, its class names did not.
"""

import errno
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from app.hub.text import size_text


@dataclass(frozen=True)
class Failure:
    """A reason in words. `passing` says that trying again may help, `wait` (seconds) that the
    server asked for a pause of that length. `counts` carries numbers that a choice needs."""

    kind: str
    message: str
    hint: str = ""
    passing: bool = False
    wait: float | None = None
    counts: dict[str, int] = field(default_factory=dict)


class FailureError(Exception):
    """Carries a Failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True)
class Asked:
    """Who was asked for what: the words that a sentence about a failure needs."""

    repo: str
    revision: str
    endpoint: str
    has_token: bool = False
    proxy: str = ""

    @property
    def host(self) -> str:
        """The hub's name, as people know it."""
        return urlsplit(self.endpoint).netloc.rpartition("@")[2] or self.endpoint

    @property
    def page(self) -> str:
        """Where the repository's terms stand."""
        return f"{self.endpoint}/{self.repo}"


def classify(error: BaseException, asked: Asked) -> Failure:
    """`error` in words. Every exception has some."""
    if isinstance(error, FailureError):
        return error.failure
    response = getattr(error, "response", None)
    if response is not None:
        return _from_response(response, asked)
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"HTTPError", "InvalidURL", "OfflineModeIsEnabled"} or isinstance(
        error, ImportError
    ):
        return _from_connection(error, names, asked)
    if isinstance(error, OSError):
        return from_disk(error)
    if isinstance(error, ValueError):  # a plan that is no JSON, a size that is no number
        return Failure(
            "not_a_hub",
            f"What answers at {asked.host} is not a hub's answer.",
            "Check HF_ENDPOINT, and whether a login page or a proxy stands in between.",
        )
    return Failure(
        "internal",
        f"The download failed ({type(error).__name__}).",
        "Start it again; what came is kept. Details are in the log.",
    )


# --- what the server answered ---------------------------------------------------------------


def _from_response(response: Any, asked: Asked) -> Failure:
    status, code = response.status_code, response.headers.get("X-Error-Code", "")
    if status == 407:
        return _proxy_refused(asked, "asks for a name and a password")
    if code == "GatedRepo":
        return _gated(asked)
    if code == "RevisionNotFound":
        return Failure(
            "revision_not_found",
            f"{asked.repo} has no revision {asked.revision!r}.",
            "Check the branch, tag or commit; without --revision the newest is taken.",
        )
    if code == "EntryNotFound":
        return _gone(asked)
    if status in (408, 425, 429) or status >= 500:
        return _busy(status, response.headers, asked)
    if _is_elsewhere(response, asked):
        return Failure(
            "network",
            f"The file server that {asked.host} named refused the link ({status}).",
            "Try again later; what came is kept.",
            passing=True,
        )
    return _refused(status, code, asked)


def _refused(status: int, code: str, asked: Asked) -> Failure:
    if status == 401 and asked.has_token:
        return Failure(
            "bad_token",
            f"{asked.host} does not accept the token.",
            "It may have expired: set HF_TOKEN to a valid one, or unset it for public models.",
        )
    if status == 401:
        return Failure(
            "private",
            f"{asked.repo} is private, or there is no repository of that name.",
            "If you have access, set HF_TOKEN to a token that may read it; else check the name.",
        )
    if code == "RepoNotFound" or status == 404:
        also = " that this token may read" if asked.has_token else ""
        return Failure(
            "not_found",
            f"{asked.host} has no repository {asked.repo}{also}.",
            "Check the name: owner/name, with the same capitals as on its page.",
        )
    if status == 403:
        token = "the token may not read it" if asked.has_token else "access is refused"
        return Failure(
            "forbidden",
            f"{asked.host} does not give {asked.repo} away: {token} (403).",
            f"Open {asked.page} in a browser to see what is asked for.",
        )
    return Failure(
        "server",
        f"{asked.host} refused the request ({status}).",
        "Try again later; what came is kept.",
    )


def _gated(asked: Asked) -> Failure:
    if asked.has_token:
        return Failure(
            "gated",
            f"The token has no access to {asked.repo}: its terms were not accepted yet.",
            f"Accept them at {asked.page} with the account of the token, then start again.",
        )
    return Failure(
        "gated",
        f"{asked.repo} is given only to those who accept its terms, and no token is set.",
        f"Accept them at {asked.page} and set HF_TOKEN to that account's token, then start again.",
    )


def _gone(asked: Asked) -> Failure:
    return Failure(
        "gone",
        f"A file of {asked.repo} at {asked.revision[:12]} is no longer on {asked.host}.",
        "The repository was changed; start again to get what it holds now.",
    )


def _busy(status: int, headers: Any, asked: Asked) -> Failure:
    if status == 429:
        message = f"{asked.host} asks to slow down (429)."
        return Failure("busy", message, _LATER, passing=True, wait=_asked_wait(headers))
    message = f"{asked.host} has trouble ({status})."
    return Failure("server", message, _LATER, passing=True, wait=_asked_wait(headers))


_LATER = "Start again later; what came is kept."


def _asked_wait(headers: Any) -> float | None:
    """Seconds from Retry-After, or from the hub's own header: `"api";r=0;t=55`."""
    plain = re.fullmatch(r"\s*(\d+)\s*", headers.get("Retry-After", ""))
    own = re.search(r";\s*r=0\s*;\s*t=(\d+)", headers.get("RateLimit", ""))
    found = plain or own
    return float(found[1]) if found else None


def _is_elsewhere(response: Any, asked: Asked) -> bool:
    """Whether a redirect led away from the hub: signed links of file servers expire."""
    hub = urlsplit(asked.endpoint)
    here = (response.url.host, response.url.port) == (hub.hostname, hub.port)
    return bool(response.history) and not here


# --- what the connection did ----------------------------------------------------------------


def _from_connection(error: BaseException, names: set[str], asked: Asked) -> Failure:
    text = str(error)
    if "OfflineModeIsEnabled" in names:
        return Failure(
            "offline",
            f"Offline mode is on, so {asked.host} is not asked.",
            "Unset HF_HUB_OFFLINE (and the setting `offline`) to download.",
        )
    if "ProxyError" in names or isinstance(error, ImportError):
        return _proxy_refused(asked, f"does not work ({text})" if text else "does not work")
    if "CERTIFICATE_VERIFY" in text.upper():
        return Failure(
            "tls",
            f"The certificate of {asked.host} cannot be checked.",
            "Check the clock; behind a company's proxy set SSL_CERT_FILE to its certificate.",
        )
    if names & {"InvalidURL", "UnsupportedProtocol", "TooManyRedirects", "LocalProtocolError"}:
        return Failure(
            "endpoint",
            f"{asked.endpoint} cannot be used as a hub's address.",
            "Check HF_ENDPOINT; it looks like https://huggingface.co.",
        )
    return Failure("network", _connection_sentence(names, asked), _NETWORK_HINT, passing=True)


_NETWORK_HINT = "Check the network (and the proxy, where there is one); what came is kept."


def _connection_sentence(names: set[str], asked: Asked) -> str:
    through = f" through the proxy {asked.proxy}" if asked.proxy else ""
    if names & {"ConnectError", "ConnectTimeout"}:
        return f"There is no connection to {asked.host}{through}."
    if "TimeoutException" in names:
        return f"{asked.host} sends nothing any more."
    return f"The connection to {asked.host}{through} was cut."


def _proxy_refused(asked: Asked, what: str) -> Failure:
    name = f"The proxy {asked.proxy}" if asked.proxy else "The proxy"
    return Failure(
        "proxy",
        f"{name} {what}.",
        "Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY (http://user:password@host:port).",
    )


# --- what the disk did ----------------------------------------------------------------------

_FULL = (errno.ENOSPC, errno.EDQUOT)
_CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR)


def from_disk(error: OSError, folder: str = "") -> Failure:
    """An error of the file system in words."""
    where = folder or str(error.filename or "The cache")
    if error.errno in _FULL:
        return Failure("disk_full", f"The disk of {where} is full.", _SPACE_HINT)
    if error.errno in _CLOSED:
        return Failure(
            "read_only",
            f"{where} cannot be written ({error.strerror}).",
            "Make it writable, or set HF_HUB_CACHE to a folder that is.",
        )
    return Failure(
        "disk",
        f"{where}: {error.strerror or type(error).__name__}.",
        "Check the disk; what came is kept.",
    )


_SPACE_HINT = "Free some space and start again; what came is kept."


def no_space(folder: str, need: int, free: int) -> Failure:
    """The disk cannot hold `need` more bytes (margin included), it has `free`."""
    lacking = max(need - free, 1)
    return Failure(
        "disk_full",
        f"{size_text(need)} more are needed in {folder}, and {size_text(free)} are free.",
        f"Free {size_text(lacking)} (or set HF_HUB_CACHE to another disk) and start again; what "
        "came is kept.",
        counts={"need": need, "free": free, "missing": lacking},
    )
