"""The benchmark for a card, from its first line to its JSON, on the emulated one and a small model:
the time on a lent card is short, and nothing of it should go to a slip of the pen."""

import json
import sys
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.decode.loops import AHEAD, WHOLE
from engine.machine.memory_plan import MINI
from tests.ptx.library import can_build

pytestmark = [
    pytest.mark.skipif(find_spec("triton") is None, reason="needs triton"),
    pytest.mark.skipif(not can_build(), reason="needs g++"),
    pytest.mark.slow,
]

SMALL = replace(
    MINI, vocab_size=512, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=32, intermediate_size=128, moe_intermediate_size=64,
    num_experts=16, num_experts_per_tok=4, n_group=4, topk_group=2,
)  # fmt: skip


def test_every_figure_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from engine.decode.loop_launches import LoopLaunches
    from tests.benchmarks import gpu
    from tests.ptx.card import Card, emulated
    from tests.ptx.rehearsal import serve_the_host

    card = Card("sm_90", finds_races=False)
    maker, stream = serve_the_host(card, monkeypatch.setattr)

    def seconds(run: Any, repeats: int) -> float:
        run()
        stream.synchronize()
        return 1e-3

    properties = SimpleNamespace(
        name="emulated", major=9, minor=0, total_memory=1 << 37, multi_processor_count=132
    )
    unpinned = partial(LoopLaunches, pinned=False)
    small = {
        "MINI": SMALL, "DEVICE": "cpu", "MASK": 511, "WORDS": 500, "PROMPT": 32, "ANSWER": 64,
        "_seconds": seconds, "_copy_rate": lambda device: 4e12,
        "make_maker": lambda _, ahead: (replace(maker, ahead=ahead), 1),
        "LoopLaunches": lambda *given, pinned, ahead: unpinned(*given, ahead=ahead),
    }  # fmt: skip
    for name, value in small.items():
        monkeypatch.setattr(gpu, name, value)
    for name, value in {
        "is_available": lambda: True,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda _: properties,
        "current_stream": lambda *_: stream,
        "synchronize": lambda *_: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(sys, "argv", ["gpu", "--no-tests", "--plain"])
    with emulated(card):
        gpu.main()
    figures = json.loads(capsys.readouterr().out)
    assert figures["activations"] == "bf16"
    assert set(figures["forward_64"]["bounds_ms"]) == {"bytes", "instructions"}
    assert figures["kernels"]["expert_down_w4a16"]["launches"] == 1
    assert {"gate_up_us", "down_us"} == set(figures["plans"]["2 warps, 8 pairs"])
    assert figures["forward_64"]["ahead_over_graph"] == 1.0
    rows = figures["answers"]
    assert [(row["graph"], row["ahead"]) for row in rows[::2]] == [(1, 1), (1, 0), (0, 0)]
    assert rows[0]["how"] == WHOLE + AHEAD
    assert rows[2]["how"] == WHOLE
    assert len({(row["overlap"], row["steps"]) for row in rows}) == 2
    assert figures["plain_torch_ms"] > 0
