"""Every message survives the pipe, and no line whatsoever gets past the two decoders."""

import contextlib
import json
from dataclasses import MISSING, fields
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.protocol import (
    Chat,
    EngineMessage,
    Pace,
    ProtocolError,
    Request,
    Step,
    decode_engine,
    decode_request,
    encode,
)

ENGINE: tuple[type, ...] = get_args(EngineMessage)
REQUESTS: tuple[type, ...] = get_args(Request)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def values(hint: Any) -> st.SearchStrategy[Any]:
    simple: dict[Any, st.SearchStrategy[Any]] = {
        str: st.text(),
        int: st.integers(),
        float: st.floats(allow_nan=False),
        bool: st.booleans(),
        list[int]: st.lists(st.integers()),
        list[list[Any]]: st.lists(st.tuples(st.integers(), st.text()).map(list)),
        list[dict[str, str]]: st.lists(st.dictionaries(st.text(), st.text())),
        dict[str, Any]: st.dictionaries(st.text(), st.integers() | st.text() | st.none()),
        dict[str, int]: st.dictionaries(st.text(), st.integers()),
    }
    if hint in simple:
        return simple[hint]
    return st.one_of(
        [values(option) if option is not type(None) else st.none() for option in get_args(hint)]
    )


def instances(kinds: tuple[type, ...]) -> st.SearchStrategy[Any]:
    return st.one_of(
        [
            st.builds(kind, **{f.name: values(get_type_hints(kind)[f.name]) for f in fields(kind)})
            for kind in kinds
        ]
    )


@given(instances(ENGINE))
def test_engine_messages_round_trip(message: EngineMessage) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert decode_engine(line) == message


@given(instances(REQUESTS))
def test_requests_round_trip(message: Request) -> None:
    assert decode_request(encode(message)) == message


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_protocol_error_at_worst(line: bytes) -> None:
    for decode in (decode_engine, decode_request):
        with pytest.raises(ProtocolError):
            decode(line)


@given(instances(ENGINE + REQUESTS), st.data())
def test_a_broken_message_is_a_protocol_error_at_worst(message: Any, data: st.DataObject) -> None:
    content = json.loads(encode(message))
    key = data.draw(st.sampled_from(sorted(content)))
    content[key] = data.draw(JSON)
    for decode in (decode_engine, decode_request):
        with contextlib.suppress(ProtocolError):
            decode(json.dumps(content).encode())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not an object"),
        (b'{"type": 3}', "not an object"),
        (b'{"type": "dance"}', "unknown message type"),
        (b'{"type": "pace"}', "incomplete"),
        (b'{"type": "pace", "seconds_per_step": true}', "wrong type"),
        (b'{"type": "pace", "seconds_per_step": "1"}', "wrong type"),
        (b'{"type": "pace", "seconds_per_step": 1, "x": 2}', "no field x"),
        (b'{"type": "chat", "id": "a", "messages": [3]}', "wrong type"),
        (b'{"type": "chat", "id": "a", "messages": [{"role": 3}]}', "wrong type"),
    ],
)
def test_what_is_wrong_is_said(line: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        decode_request(line)


def test_ints_pass_as_floats_and_defaults_fill_in() -> None:
    assert decode_request(b'{"type": "pace", "seconds_per_step": 1}') == Pace(1)
    assert decode_request(b'{"type": "chat", "id": "a", "messages": []}') == Chat("a", [])


def test_every_field_has_a_type_the_check_knows() -> None:
    for kind in ENGINE + REQUESTS:
        for f in fields(kind):
            assert values(get_type_hints(kind)[f.name]) is not None
            assert f.default is MISSING or f.default_factory is MISSING


def test_lines_are_ascii_whatever_the_text() -> None:
    step = Step("a", 0, 1, [[1, "\ud800\x1b\U0001f600\n", 0.5, "n"]], 0, 0, 0, 0, 0.0)
    line = encode(step)
    assert line.isascii()
    assert decode_engine(line) == step
