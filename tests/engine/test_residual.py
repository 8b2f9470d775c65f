"""Residual context: what a step believed enters the next one, and a replay of a recorded answer
computes what the answer was made from."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.config import DecodeConfig, ResidualConfig
from engine.decode.trajectory import StepState, Trajectory
from engine.decode.unmasking import suppress_mask
from engine.events import FinishEvent
from engine.generate import Engine
from engine.kernels import ops
from engine.model.residual import ResidualAdapter, add_residual

MASK = 500
PROMPT = list(range(40, 61))  # two whole blocks of 8 and five protected tokens

TOLERANCES = {
    # The same sums over another batch of rows and without the cache; logits reach 32.
    "replayed": 1e-4,
    # A weighted mean of embeddings of size 1, from the very same logits.
    "z": 1e-5,
    # z and entropy of another schedule of forwards: each step's rounding enters the next one's
    # input by z, and a random network makes more of it. A wrong z is off by 0.1 and more.
    "schedule": 1e-3,
}


def adapted(engine: Engine, **residual: Any) -> ResidualAdapter:
    """Give `engine` an adapter whose output is as large as an embedding."""
    config = engine.config
    generator = torch.Generator().manual_seed(1)
    adapter = ResidualAdapter(config.hidden_size, 48, config.rms_norm_eps)
    with torch.no_grad():
        for weight in (adapter.gate_proj.weight, adapter.up_proj.weight, adapter.down_proj.weight):
            weight.copy_(torch.randn(weight.shape, generator=generator) / weight.shape[1] ** 0.5)
        adapter.norm.weight.copy_(1 + 0.1 * torch.randn(config.hidden_size, generator=generator))
    engine.model.residual_adapter = adapter.requires_grad_(False)
    engine.model.residual = ResidualConfig(**residual)
    return adapter


def decode(engine: Engine, **changes: Any) -> tuple[FinishEvent, list[Tensor]]:
    """An answer of four blocks, and the logits of every model call after prefill."""
    engine.reset_cache()
    settings = {
        "max_new_tokens": 27, "block_length": 8, "mask_id": MASK, "stop_ids": [],
        "threshold": 0.6, "editing_threshold": 0.4, "max_post_steps": 3, "overlap": False,
    }  # fmt: skip
    logits: list[Tensor] = []
    hook = engine.model.register_forward_hook(lambda _, __, out: logits.append(out))
    *_, last = engine.generate(PROMPT, DecodeConfig(**(settings | changes)), record=True)
    hook.remove()
    assert isinstance(last, FinishEvent)
    return last, logits


def trajectory_of(finish: FinishEvent) -> Trajectory:
    assert finish.trajectory is not None
    return finish.trajectory


def replay(engine: Engine, trajectory: Trajectory, state: StepState) -> Tensor:
    """Logits of a recorded step from scratch: clean blocks, its canvas and z behind, no cache."""
    model, length = engine.model, trajectory.block_length
    prefix = torch.tensor(trajectory.final_ids[: state.start])
    with torch.no_grad():
        embeds = torch.cat(
            (model.embed(prefix), model.embed(state.canvas, state.z, state.undecided))
        )
        logits = model(
            embeds,
            torch.arange(len(embeds)),
            lambda _, q, k, v: ops(q).attention(q, k, v, start=0, block_length=length),
        )
    return logits[state.start :]


@pytest.mark.parametrize("residual", [{}, {"alpha": 0.5, "temperature": 1.7, "top_k": 6}])
def test_a_replayed_step_gives_the_rollouts_logits(
    own_engine: Engine, residual: dict[str, Any]
) -> None:
    adapted(own_engine, **residual)
    finish, logits = decode(own_engine)
    trajectory = trajectory_of(finish)
    assert len(trajectory.steps) == len(logits) == finish.stats.steps
    assert any(state.z is not None for state in trajectory.steps)
    for state, want in zip(trajectory.steps, logits, strict=True):
        got = replay(own_engine, trajectory, state)
        torch.testing.assert_close(got, want, atol=TOLERANCES["replayed"], rtol=0)


def test_a_replay_without_z_differs(own_engine: Engine) -> None:
    """The adapter matters here; else the test above would hold for nothing."""
    adapted(own_engine)
    finish, logits = decode(own_engine)
    trajectory = trajectory_of(finish)
    own_engine.model.residual_adapter = None
    moved = [
        (replay(own_engine, trajectory, state) - want).abs().max().item()
        for state, want in zip(trajectory.steps, logits, strict=True)
        if state.z is not None
    ]
    assert min(moved) > 100 * TOLERANCES["replayed"]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("max_post_steps", [0, 3])
def test_overlap_changes_neither_tokens_nor_trajectory(
    own_engine: Engine, temperature: float, max_post_steps: int
) -> None:
    adapted(own_engine, alpha=0.25)  # a strong one would amplify rounding from step to step
    settings: dict[str, Any] = {
        "temperature": temperature, "top_k": 4, "seed": 2, "max_post_steps": max_post_steps,
    }  # fmt: skip
    plain, _ = decode(own_engine, **settings)
    fused, _ = decode(own_engine, overlap=True, **settings)
    assert fused.stats.fused > 0
    assert fused.token_ids == plain.token_ids
    ours, theirs = trajectory_of(fused), trajectory_of(plain)
    assert ours.final_ids == theirs.final_ids
    for mine, other in zip(ours.steps, theirs.steps, strict=True):
        assert (mine.block, mine.step, mine.start) == (other.block, other.step, other.start)
        assert torch.equal(mine.canvas, other.canvas)
        assert torch.equal(mine.undecided, other.undecided)
        assert mine.entropy == pytest.approx(other.entropy, abs=TOLERANCES["schedule"])
        assert (mine.z is None) == (other.z is None)
        if mine.z is not None and other.z is not None:
            torch.testing.assert_close(mine.z, other.z, atol=TOLERANCES["schedule"], rtol=0)


def zero_alpha(engine: Engine) -> None:
    adapted(engine, alpha=0.0)


def newborn(engine: Engine) -> None:
    config = engine.config
    engine.model.residual_adapter = ResidualAdapter(config.hidden_size, 48, config.rms_norm_eps)


@pytest.mark.parametrize("attach", [zero_alpha, newborn])
def test_an_adapter_without_effect_changes_no_bit(
    own_engine: Engine, attach: Callable[[Engine], None]
) -> None:
    plain, want = decode(own_engine)
    attach(own_engine)
    finish, got = decode(own_engine)
    assert finish.token_ids == plain.token_ids
    assert len(got) == len(want)
    assert all(torch.equal(mine, other) for mine, other in zip(got, want, strict=True))
    assert any(state.z is not None for state in trajectory_of(finish).steps)


@pytest.mark.parametrize("overlap", [False, True])
def test_the_first_step_of_a_block_and_mask_free_steps_consume_no_z(
    own_engine: Engine, overlap: bool
) -> None:
    adapter = adapted(own_engine)
    calls: list[Tensor] = []
    adapter.register_forward_hook(lambda _, args, __: calls.append(args[0]))
    finish, _ = decode(own_engine, overlap=overlap)
    steps = trajectory_of(finish).steps
    for state in steps:
        expected = state.step > 0 and bool(state.undecided.any())
        assert (state.z is not None) == expected
    assert len(calls) == sum(state.z is not None for state in steps)
    assert sum(state.step == 0 for state in steps) == 4


@pytest.mark.parametrize(
    "residual", [{}, {"temperature": 0.5}, {"top_k": 5}, {"top_k": 5, "temperature": 2.0}]
)
def test_z_is_the_expected_embedding_of_the_step_before(
    own_engine: Engine, residual: dict[str, Any]
) -> None:
    adapted(own_engine, **residual)
    finish, logits = decode(own_engine)
    steps = trajectory_of(finish).steps
    table = own_engine.model.embedding_table
    seen = 0
    for before, state in zip(logits, steps[1:], strict=False):
        if state.z is None:
            continue
        seen += 1
        cold = suppress_mask(before, MASK) / residual.get("temperature", 1.0)
        if "top_k" in residual:
            least = cold.topk(residual["top_k"], dim=-1).values[:, -1:]
            cold = cold.masked_fill(cold < least, float("-inf"))
        want = cold.softmax(-1) @ table
        torch.testing.assert_close(state.z, want, atol=TOLERANCES["z"], rtol=0)
        assert state.z.dtype == torch.float32
    assert seen > 4


def test_z_of_more_tokens_than_there_are_is_all_of_them() -> None:
    logits, table = torch.randn(3, 7), torch.randn(7, 5)
    everything = ops(logits).soft_embedding(logits, table)
    assert torch.equal(ops(logits).soft_embedding(logits, table, top_k=7), everything)
    assert torch.equal(ops(logits).soft_embedding(logits, table, top_k=99), everything)
    best = ops(logits).soft_embedding(logits, table, top_k=1)
    torch.testing.assert_close(best, table[logits.argmax(-1)])


def test_only_undecided_positions_receive_it() -> None:
    embeds, residual = torch.randn(4, 8), torch.randn(4, 8)
    undecided = torch.tensor([False, True, False, True])
    mixed = add_residual(embeds, residual, undecided, 0.5)
    assert torch.equal(mixed[~undecided], embeds[~undecided])
    torch.testing.assert_close(mixed[undecided], (embeds + 0.5 * residual)[undecided])


def test_a_wide_adapter_on_a_narrow_model_keeps_the_models_dtype(golden: Any) -> None:
    engine = Engine.load(golden.folder, device="cpu", dtype="bfloat16")
    adapted(engine)
    finish, logits = decode(engine)
    assert any(state.z is not None for state in trajectory_of(finish).steps)
    assert all(torch.isfinite(rows).all() for rows in logits)


def test_without_an_adapter_no_z_is_computed(golden_engine: Engine) -> None:
    finish, _ = decode(golden_engine)
    assert all(state.z is None for state in trajectory_of(finish).steps)
