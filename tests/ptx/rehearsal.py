"""A pytest plugin, beside `tests.ptx.plugin`, under which the card's own tests (`tests/gpu`) run on
the emulated card: what lies in the host's memory is served as what lies on a card is, by Triton's
kernels and, whole answers, by a graph of them."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from engine.decode.graph import GraphMaker
    from tests.ptx.card import Card
    from tests.ptx.graphs import Stream


def pytest_configure(config: pytest.Config) -> None:
    from tests.ptx.plugin import CARD

    serve_the_host(config.stash[CARD], setattr)


def serve_the_host(
    card: "Card", put: Callable[[Any, str, Any], None]
) -> "tuple[GraphMaker, Stream]":
    """`put` what the engine asks of a card in its place (setattr, or monkeypatch's); returns what
    makes graphs, and the stream that answers run on."""
    import engine.kernels
    from engine import generate
    from engine.kernels import CHOICE, triton_matrix, triton_nvfp4
    from engine.kernels.plans import launches_ahead
    from tests.ptx.graphs import make_loops, make_maker

    maker, runtime = make_maker(card)
    stream = runtime.new_stream()

    def on_the_card(model: Any, *, graph: bool, ahead: bool = False) -> tuple[Any, str]:
        if not graph:
            return None, "Without a CUDA graph, step by step: as asked."
        maker.ahead = ahead and launches_ahead(card.capability)
        return make_loops(card, maker, stream), ""

    put(generate, "make_loops", on_the_card)
    put(engine.kernels, "runs_triton", lambda _: CHOICE not in os.environ)
    for module in (triton_matrix, triton_nvfp4):
        put(module, "capability_of", lambda _: card.capability)
    return maker, stream
