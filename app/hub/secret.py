"""Tokens and what looks like one, kept out of logs, messages and tracebacks."""

import os
import re
from urllib.parse import urlsplit, urlunsplit

HIDDEN = "***"

_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{16,}|\b[Bb]earer\s+\S+")
# The query of a link to a file is a signature that lets anybody fetch it; before the @ of a
# proxy's address stand a name and a password.
_QUERY = re.compile(r"(https?://[^\s?'\"<>]+)\?[^\s'\"<>]+")
_USER = re.compile(r"(\w+://)[^\s/@'\"<>]+@")


class Secret:
    """Text that shows itself only when asked to."""

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text, for the header it belongs into."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__


def scrub(text: str, *secrets: Secret | None) -> str:
    """`text` without `secrets` and without anything that looks like a token, a signed link or a
    password in an address."""
    for secret in secrets:
        if secret is not None and secret.reveal():
            text = text.replace(secret.reveal(), HIDDEN)
    text = _TOKEN.sub(HIDDEN, text)
    text = _QUERY.sub(rf"\1?{HIDDEN}", text)
    return _USER.sub(rf"\1{HIDDEN}@", text)


def environment_token() -> Secret | None:
    """The token that the environment holds."""
    text = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN")
    return Secret(text) if text else None


def without_user(address: str) -> str:
    """An address (of a proxy, of the hub) without the name and password in it."""
    if "://" not in address:
        address = f"http://{address}"
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
