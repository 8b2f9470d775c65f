"""A replay is the rollout over again: the same logits, the same losses, however it is packed."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.config import DecodeConfig
from engine.decode.trajectory import StepState, Trajectory
from engine.events import FinishEvent
from engine.generate import Engine
from engine.kernels import ops
from finetune.losses import combine, position_terms
from finetune.replay import replay
from finetune.rows import Row, make_row, pack
from finetune.samples import Sample, select
from finetune.staircase import CLEAN, FlexStaircase, Staircase, token_places
from tests.finetune.tiny import (
    Decisions,
    active_engine,
    ids_of,
    question,
    questions,
    tiny_config,
)

TOLERANCE = 1e-4
"""The same sums in another order; logits reach 10."""

SETTINGS: dict[str, dict[str, Any]] = {
    "editing": {"overlap": False},
    "overlap": {},
    "no editing": {"editing_threshold": None},
    "sampled": {"temperature": 0.7, "seed": 4},
    "post steps": {"editing_threshold": 0.1, "max_post_steps": 2},
}


def decode(**changes: Any) -> DecodeConfig:
    settings: dict[str, Any] = {
        "max_new_tokens": 32, "block_length": 16, "threshold": 0.3, "editing_threshold": 0.5,
        "stop_at_end": False,
    }  # fmt: skip
    return DecodeConfig(**(settings | changes))


def trajectories(engine: Engine, config: DecodeConfig, count: int = 3) -> list[Trajectory]:
    found = []
    for ids in ids_of(engine, questions(count)):
        engine.reset_cache()
        *_, last = engine.generate(ids, config, record=True)
        assert isinstance(last, FinishEvent)
        assert last.trajectory is not None
        found.append(last.trajectory)
    return found


def whole(trajectory: Trajectory) -> Sample:
    """Every state with every position, trained or not."""
    length = trajectory.block_length
    every = tuple(range(length))
    return Sample(
        trajectory.final_ids, length, trajectory.steps, (every,) * len(trajectory.steps), ()
    )


def logits_of(engine: Engine, row: Row, attend: Any = None) -> Tensor:
    with torch.no_grad():
        hidden = replay(engine.model, row, attend or Staircase(row))
        return engine.model.lm_head(hidden).float()


def alone(engine: Engine, final_ids: tuple[int, ...], state: StepState) -> Tensor:
    """A state's hidden states [B, d] from a forward of its own, without packing and cache."""
    model, length = engine.model, len(state.canvas)
    prefix = torch.tensor(final_ids[: state.start], dtype=torch.long)
    embeds = torch.cat((model.embed(prefix), model.embed(state.canvas, state.z, state.undecided)))
    hidden = model.trunk(
        embeds,
        torch.arange(len(embeds)),
        lambda _, q, k, v: ops(q).attention(q, k, v, start=0, block_length=length),
    )
    return model.model.norm(hidden[state.start :])


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_replayed_logits_are_the_rollouts(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    engine, _ = active_engine(tiny_checkpoint)
    decisions = Decisions(monkeypatch)
    found = trajectories(engine, decode(**settings))
    states = [state for trajectory in found for state in trajectory.steps]
    assert len(states) == len(decisions.logits)
    assert any(state.z is not None for state in states)
    want = torch.cat(decisions.logits)
    packed = logits_of(engine, make_row([whole(t) for t in found]))
    torch.testing.assert_close(packed, want, atol=TOLERANCE, rtol=0)
    one_each = torch.cat([logits_of(engine, make_row([whole(t)])) for t in found])
    torch.testing.assert_close(one_each, want, atol=TOLERANCE, rtol=0)


def test_batched_rollouts_replay_too(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = active_engine(tiny_checkpoint)
    ids = ids_of(engine, questions(3))
    ends = engine.generate_many(ids, decode(), record=True, rows=2)
    decisions = Decisions(monkeypatch)
    for end in ends:
        assert end.trajectory is not None
        with torch.no_grad():
            replayed = engine.model.lm_head(
                replay(engine.model, row := make_row([whole(end.trajectory)]), Staircase(row))
            )
        entropies = (
            -(replayed.softmax(-1) * replayed.log_softmax(-1))
            .sum(-1)
            .view(len(end.trajectory.steps), -1)
        )
        for state, own in zip(end.trajectory.steps, entropies, strict=True):
            if state.undecided.any():
                # The recorded entropy leaves out the mask token, which is unlikely here.
                assert float(own[state.undecided].mean()) == pytest.approx(state.entropy, abs=0.05)
    assert not decisions.logits


def test_lora_and_adapter_matter(tiny_checkpoint: Path) -> None:
    engine, trainable = active_engine(tiny_checkpoint)
    (trajectory,) = trajectories(engine, decode(), 1)
    row = make_row([whole(trajectory)])
    now = logits_of(engine, row)
    with trainable.start() as start:
        assert start is engine.model
        before = logits_of(engine, row)
    assert (now - before).abs().max() > 100 * TOLERANCE
    assert torch.equal(now, logits_of(engine, row))
    assert row.z is not None
    moved = logits_of(engine, replace(row, z=row.z + 1.0))
    assert (now - moved).abs().max() > 100 * TOLERANCE


def test_one_packed_step_is_one_forward_per_state(tiny_checkpoint: Path) -> None:
    """The same losses and the same gradients."""
    engine, trainable = active_engine(tiny_checkpoint)
    config, mask_id = tiny_config(), engine.mask_id
    assert mask_id is not None
    samples = [
        sample
        for trajectory in trajectories(engine, decode(stop_at_end=True))
        if (sample := select(trajectory, engine.stop_ids, 9, random.Random(1))) is not None
    ]
    row = make_row(samples)
    assert len(row.pairs) > 3

    def gradients(hidden: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        terms = position_terms(hidden, engine.model.lm_head, row.targets, mask_id, None)
        losses = combine(terms, row, config, len(samples))
        for parameter in trainable.parameters.values():
            parameter.grad = None
        losses.total(config).backward()
        grads = {n: p.grad.clone() for n, p in trainable.parameters.items() if p.grad is not None}
        return losses.total(config).detach(), grads

    packed, packed_grads = gradients(replay(engine.model, row, Staircase(row)))
    hidden = torch.cat(
        [alone(engine, sample.final_ids, state) for sample in samples for state in sample.states]
    )
    apart, apart_grads = gradients(hidden[row.places])
    torch.testing.assert_close(packed, apart, atol=1e-5, rtol=1e-5)
    assert packed_grads.keys() == apart_grads.keys() == trainable.parameters.keys()
    for name, grad in packed_grads.items():
        torch.testing.assert_close(grad, apart_grads[name], atol=1e-5, rtol=1e-3)


def test_several_rows_add_up_to_one(tiny_checkpoint: Path) -> None:
    engine, trainable = active_engine(tiny_checkpoint)
    config, mask_id = tiny_config(), engine.mask_id
    assert mask_id is not None
    samples = [
        sample
        for trajectory in trajectories(engine, decode(stop_at_end=True), 4)
        if (sample := select(trajectory, engine.stop_ids, 6, random.Random(1))) is not None
    ]
    found = []
    for row_tokens in (10**6, 300):
        rows = pack(samples, row_tokens)
        for parameter in trainable.parameters.values():
            parameter.grad = None
        for row in rows:
            hidden = replay(engine.model, row, Staircase(row), checkpointed=len(rows) > 1)
            terms = position_terms(hidden, engine.model.lm_head, row.targets, mask_id, None)
            combine(terms, row, config, len(samples)).total(config).backward()
        found.append((len(rows), [p.grad for p in trainable.parameters.values()]))
    assert found[0][0] == 1 < found[1][0]
    for one, several in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(one, several, atol=1e-5, rtol=1e-3)


# Eager on the CPU, where the mask is what matters; torch warns that this is slow.
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_sees_the_same(tiny_checkpoint: Path) -> None:
    engine, _ = active_engine(tiny_checkpoint)
    row = make_row([whole(t) for t in trajectories(engine, decode(max_new_tokens=16), 2)])
    flex = logits_of(engine, row, FlexStaircase(row, compiled=False))
    torch.testing.assert_close(flex, logits_of(engine, row), atol=TOLERANCE, rtol=0)


def test_who_sees_whom(tiny_checkpoint: Path) -> None:
    """Changing one token changes exactly what may see it."""
    engine, _ = active_engine(tiny_checkpoint)
    found = trajectories(engine, decode(max_new_tokens=20), 2)
    row = make_row([whole(trajectory) for trajectory in found])
    first, last, block, state = token_places(row)
    before = logits_of(engine, row)
    of_place = row.clean.shape[0] + row.places
    for token in range(0, row.tokens, 19):
        clean, canvas = row.clean.clone(), row.canvas.clone()
        if token < len(clean):
            clean[token] = (clean[token] + 1) % 200
        else:
            flat = canvas.view(-1)
            flat[token - len(clean)] = (flat[token - len(clean)] + 1) % 200
        after = logits_of(engine, replace(row, clean=clean, canvas=canvas))
        changed = (after - before).abs().amax(-1) > 0
        mine = (first[token] <= first[of_place]) & (first[of_place] < last[token])
        sees = mine & (
            ((state[token] == CLEAN) & (block[token] < block[of_place]))
            | ((state[of_place] == state[token]) & (block[of_place] == block[token]))
        )
        assert torch.equal(changed, sees)


def test_no_answer_in_its_own_context(tiny_checkpoint: Path) -> None:
    engine, _ = active_engine(tiny_checkpoint)
    for trajectory in trajectories(engine, decode(), 3):
        sample = select(trajectory, engine.stop_ids, 8, random.Random(0))
        assert sample is not None
        assert sample.clean_tokens == max(state.start for state in sample.states)
        for state, own in zip(sample.states, sample.trained, strict=True):
            assert all(bool(state.undecided[i]) for i in own)


@pytest.mark.parametrize("editing", [None, 0.5])
def test_no_target_is_undecided(tiny_checkpoint: Path, editing: float | None) -> None:
    """With editing off an answer may end before its last block is filled."""
    engine, _ = active_engine(tiny_checkpoint)
    config = decode(stop_at_end=True, editing_threshold=editing)
    # A random model ends when whatever it writes first counts as the end.
    (first,) = trajectories(engine, config, 1)
    ends = first.final_ids[len(first.prompt_ids)]
    config = replace(config, stop_ids=(ends,))
    (trajectory,) = trajectories(engine, config, 1)
    sample = select(trajectory, (ends,), 12, random.Random(0))
    assert sample is not None
    assert (engine.mask_id in trajectory.final_ids) is (editing is None)
    row = make_row([sample])
    assert engine.mask_id not in row.targets.tolist()
    assert engine.mask_id not in row.clean.tolist()


@pytest.mark.parametrize("row_tokens", [10**6, 400], ids=["one row", "several"])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_several_answers_to_a_prompt_replay_behind_one_context(
    tiny_checkpoint: Path, row_tokens: int
) -> None:
    """As if every one of them had a row of its own: the same losses, the same gradients."""
    engine, trainable = active_engine(tiny_checkpoint)
    config, mask_id = tiny_config(), engine.mask_id
    assert mask_id is not None
    asked = [question("What is to be done about rather long prompts? " * 2, "a"), *questions(1)]
    ids = [ids for ids in ids_of(engine, asked) for _ in range(4)]
    ends = engine.generate_many(
        ids, decode(temperature=1.0), record=True, rows=8, seeds=list(range(8))
    )
    samples = []
    for end in ends:
        assert end.trajectory is not None
        sample = select(end.trajectory, (), 6, random.Random(1))
        assert sample is not None
        samples.append(sample)
    packed = pack(samples, row_tokens)
    apart = [make_row([sample]) for sample in samples]
    assert len(packed) < len(apart)
    spared = sum(row.tokens for row in apart) - sum(row.tokens for row in packed)
    assert spared >= (3 if len(packed) == 1 else 1) * len(ids[0]) // 16 * 16
    found = []
    for rows in (apart, packed):
        for parameter in trainable.parameters.values():
            parameter.grad = None
        total = torch.zeros(())
        for row in rows:
            hidden = replay(engine.model, row, Staircase(row))
            terms = position_terms(hidden, engine.model.lm_head, row.targets, mask_id, None)
            loss = combine(terms, row, config, len(samples)).total(config)
            loss.backward()
            total += loss.detach()
        found.append((total, [p.grad for p in trainable.parameters.values()]))
    (total, gradients), (packed_total, packed_gradients) = found
    torch.testing.assert_close(packed_total, total, atol=1e-5, rtol=1e-5)
    for one, other in zip(gradients, packed_gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-3)
    for row in packed:
        flex = logits_of(engine, row, FlexStaircase(row, compiled=False))
        torch.testing.assert_close(flex, logits_of(engine, row), atol=TOLERANCE, rtol=0)
