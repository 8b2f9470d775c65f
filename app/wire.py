"""Dataclasses as lines: one JSON object a line, whose `type` names the class.

What every child process of this program speaks on its pipes; which messages there are stands with
each of them (`app/protocol.py` for the engine, `app/hub/messages.py` for downloads).
"""

import json
import types
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from typing import Any, ClassVar, Literal, Protocol, Union, get_args, get_origin, get_type_hints

MAX_LINE = 16 * 1024 * 1024
"""Longest line either side reads, in bytes; a chat of a full context stays far below it."""


class ProtocolError(ValueError):
    """A line that is no message; says what is wrong with it."""


class Message(Protocol):
    """A dataclass with the name it has on the wire."""

    type: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


def encode_line(message: Message) -> bytes:
    """One line, newline included. ASCII only, so that no decoder on the way can break it.

    Fields are taken as they are: `asdict` would copy every slot of every step first.
    """
    values = {field.name: getattr(message, field.name) for field in fields(message)}
    line = json.dumps({"type": message.type, **values}, separators=(",", ":"), default=asdict)
    return line.encode("ascii") + b"\n"


def decode_line(line: bytes, kinds: Mapping[str, type]) -> Any:
    """The message that stands in `line`, of one of `kinds`. Raises ProtocolError."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise ProtocolError("not an object with a type")
    kind = kinds.get(data.pop("type"))
    if kind is None:
        raise ProtocolError("unknown message type")
    hints = _hints(kind)
    if unknown := sorted(set(data) - {field.name for field in fields(kind)}):
        raise ProtocolError(f"{kind.__name__} has no field {', '.join(unknown)}")
    for name, value in data.items():
        if not _fits(value, hints[name]):
            raise ProtocolError(f"{kind.__name__}.{name} has the wrong type")
    try:
        return kind(**data)
    except TypeError as error:
        raise ProtocolError(f"{kind.__name__} is incomplete: {error}") from error


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The declared types; working them out takes longer than reading a line."""
    return get_type_hints(kind)


def _fits(value: Any, hint: Any) -> bool:
    """Whether JSON `value` may stand where `hint` is declared; ints pass as floats, bools do not
    pass as numbers."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, option) for option in arguments)
    if origin is Literal:
        return value in arguments
    if origin is list:
        return isinstance(value, list) and all(_fits(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(item, arguments[1]) for item in value.values())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)
