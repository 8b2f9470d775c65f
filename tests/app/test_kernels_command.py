"""`orl-chat kernels`: its bounds by hand, its words without triton, its numbers with it."""

import json
from importlib.util import find_spec

import pytest

from app.cli import run
from app.commands import kernels as command
from engine.kernels.bounds import (
    GOAL,
    MEASURES,
    REACHED,
    Measure,
    bounds,
    forward_bytes,
    least_tpf,
    token_bytes,
    tokens_per_s,
)
from engine.machine.memory_plan import MINI

EXPERT = 3 * 512 * 2048 * 9 / 16  # gate, up and down at nine bits for two codes and their scale


def test_bytes_of_a_forward_are_the_weights_it_meets() -> None:
    one, many = (forward_bytes(MINI, n, context=0) for n in (100, 101))
    assert many - one == pytest.approx(19 * EXPERT)
    rest = one - 19 * 100 * EXPERT
    attention = 20 * 2048 * (3072 + 2048)
    linears = (attention + 3 * 2048 * 5120 + 19 * 3 * 2048 * 512) * 9 / 16
    assert rest == pytest.approx(linears + 19 * 2 * 2048 * 256 + 2 * 2048 * 157184)
    # Keys and values in bf16: 40,960 bytes a token.
    assert forward_bytes(MINI, 100, context=10) - one == 10 * 40960


def test_bounds_are_bandwidth_over_bytes() -> None:
    found = {(b.card, b.distinct): b for b in bounds(MINI, packed_linears=False)}
    bound = found["RTX 5090", 163]
    # All but the experts in bf16: 6.8 GB.
    assert bound.bytes == pytest.approx(6.8e9, rel=0.01)
    assert bound.forwards_per_s == pytest.approx(1792e9 / bound.bytes)
    with_z = bound.bytes + 2 * 2048 * 157184
    assert bound.forwards_per_s_with_z == pytest.approx(1792e9 / with_z)
    assert found["H200", 64].forwards_per_s > found["H200", 256].forwards_per_s


def test_what_is_read_for_a_token() -> None:
    table = 2 * 2048 * 157184
    plain, packed, cut, overlapped, without = MEASURES
    # 8 tokens a step: a block of 32 in 4 steps, each of which reads the table too.
    narrow = forward_bytes(MINI, 100) + table
    assert token_bytes(MINI, 100, 8, plain) == pytest.approx(4 * narrow / 32)
    saved = table * (1 - 9 / 32)
    assert token_bytes(MINI, 100, 8, packed) == pytest.approx(4 * (narrow - saved) / 32)
    narrow = forward_bytes(MINI, 100, packed_head=True) + 64 * 32 * 2 * 2048
    assert token_bytes(MINI, 100, 8, cut) == pytest.approx(4 * narrow / 32)
    # Two steps of the four become one that meets the experts of two blocks.
    wide = narrow + 19 * (256 * (1 - (156 / 256) ** 2) - 100) * EXPERT
    assert token_bytes(MINI, 100, 8, overlapped) == pytest.approx((2 * narrow + wide) / 32)
    assert token_bytes(MINI, 100, 8, without) < token_bytes(MINI, 100, 8, overlapped)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("distinct", [64, 163, 256])
def test_the_goal_is_possible_from_there_on(measure: Measure, distinct: int) -> None:
    least = least_tpf(MINI, "RTX 5090", distinct, measure)
    assert least is not None
    rates = [tokens_per_s(MINI, "RTX 5090", distinct, n, measure) for n in (least - 0.1, least)]
    assert rates[0] * REACHED < GOAL <= rates[1] * REACHED


def test_without_triton_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert run(["kernels", "--arch", "sm_120"]) == 1
    assert "pip install triton" in capsys.readouterr().err


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--arch", "sm_70"], "--arch must be one of sm_80"),
        (["--arch", "sm_120", "--activations", "int8"], "--activations must be one of auto"),
        (["--arch", "sm_120", "--tokens", "0"], "--tokens must be from 1"),
        (["--arch", "sm_120", "--z", "half"], "--z must be one of none, whole, top-k"),
    ],
)
def test_what_is_not_known_is_named(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["kernels", *arguments]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
@pytest.mark.slow
def test_the_json_holds_every_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kernels", "--arch", "sm_120", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"arch", "kernels", "launches_per_step", "bytes_per_step", "bounds"} == set(found)
    experts = [k for k in found["kernels"] if "expert" in k["name"] and k["instruction"]]
    assert len(experts) == 2
    assert all("mxf4nvf4" in kernel["instruction"] for kernel in experts)
    # A register or two may be the assembler's choice: 8 bytes in the router with Triton 3.8.
    assert all(kernel["spills"] <= 16 for kernel in found["kernels"])
    # The two expert products read 163.3 experts in each of 19 layers, and little else.
    read = sum(kernel["bytes"] for kernel in experts)
    assert read == pytest.approx(19 * 163.3 * EXPERT, rel=0.02)
    assert found["bytes_per_step"] == sum(kernel["bytes"] for kernel in found["kernels"])
    # z reads the embedding table, and the adapter three matrices of the hidden size.
    context = {k["name"]: k for k in found["kernels"] if k["part"] == "residual context"}
    assert context["soft_mix"]["bytes"] == pytest.approx(2 * 2048 * 157184, rel=0.03)
    products = [k["bytes"] for name, k in context.items() if name.startswith("adapter")]
    assert products == pytest.approx(3 * [2 * 2048 * 2048], rel=0.05)
    layers = [k["launches"] for k in found["kernels"] if k["part"] == "expert layer"]
    assert sum(layers) == 19 * 8
