"""How the engine is to compute, as typed: checked before a load, and handed on."""

from typing import Any

import pytest

from app.commands.ask import Ask, Compute, load_engine
from app.commands.running import CommandError
from app.failures import explain
from app.models import resolve_model
from engine.kernels import CHOICE


def test_what_is_typed_reaches_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.generate import Engine

    asked: dict[str, Any] = {}
    plain = Engine.load.__func__  # type: ignore[attr-defined]

    def load(cls: type[Engine], path: Any, **options: Any) -> Engine:
        asked.update(options)
        return plain(cls, path, **options)

    monkeypatch.setattr(Engine, "load", classmethod(load))

    def use_graph(self: Engine, wanted: bool = True, *, ahead: bool = False) -> None:
        asked.update(graph=wanted, ahead=ahead)

    monkeypatch.setattr(Engine, "use_graph", use_graph)
    monkeypatch.setenv(CHOICE, "triton")
    compute = Compute.of("bf16", "reference", False)
    load_engine(resolve_model("demo"), "cpu", None, compute=compute)
    assert (asked["activations"], asked["graph"], asked["ahead"]) == ("bf16", False, False)
    import os

    assert os.environ[CHOICE] == "reference"
    compute = Compute.of("bf16", "reference", True, True)
    load_engine(resolve_model("demo"), "cpu", None, compute=compute)
    assert (asked["graph"], asked["ahead"]) == (True, True)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("fp8", "triton", True), "--activations"),
        (("auto", "x", True), "x"),
        (("auto", "triton", False, True), "--no-graph"),
    ],
)
def test_what_is_not_known_is_a_sentence(arguments: Any, word: str) -> None:
    with pytest.raises(CommandError, match=word):
        Compute.of(*arguments)


def test_by_default_nothing_is_asked_for() -> None:
    assert Ask("x").compute == Compute.of("auto", "triton", True)


def test_a_failed_card_says_how_to_go_on() -> None:
    told = explain(RuntimeError("CUDA error: unspecified launch failure"), id="x")
    assert told.kind == "device"
    assert "Restart the engine" in told.hint
    assert "--device cpu" in told.hint
