"""One update: what it learns from, what it touches, and what it does when something is wrong."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.config import DecodeConfig
from engine.machine.gauges import Gauges
from finetune.config import FinetuneConfig, Train, recipe
from finetune.prompts import Prompt
from finetune.rollout import answer_seed, prompts_of, roll_out
from finetune.trainer import OutOfMemoryError, Trainer
from finetune.update_event import update_event
from finetune.verifiers import Verdict
from tests.engine.stand_ins import GIB, Gpu, Nvml
from tests.finetune.tiny import (
    fails,
    passes,
    questions,
    roll_out_ended,
    tiny_config,
    tiny_engine,
)


def trainer(checkpoint: Path, verifier: Any = passes, **changes: Any) -> Trainer:
    return Trainer(tiny_engine(checkpoint), questions(6), verifier, tiny_config(**changes))


def weights(model: Any) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def ended_anyhow(checkpoint: Path, **changes: Any) -> Trainer:
    config = tiny_config(**changes)
    return Trainer(tiny_engine(checkpoint), questions(6), passes, config, roll_out=roll_out_ended)


@pytest.mark.parametrize("train", ["lora", "adapter", "full"])
def test_gradients_reach_only_what_is_trained(tiny_checkpoint: Path, train: Train) -> None:
    learner = ended_anyhow(tiny_checkpoint, train=train, threshold=0.05)
    trained = {id(p) for p in learner.trainable.parameters.values()}
    before = weights(learner.engine.model)
    reports = [learner.update(number) for number in range(2)]
    assert all(report.sums.positions > 0 for report in reports)
    moved = set()
    for name, parameter in learner.engine.model.named_parameters():
        assert parameter.grad is None
        if not torch.equal(parameter, before[name]):
            assert id(parameter) in trained
            moved.add(name)
    names = {n for n, p in learner.engine.model.named_parameters() if id(p) in trained}
    # Experts that no token chose, and rows of tokens that nobody wrote, may stay.
    assert len(moved) > 0.8 * len(names)


def test_the_base_stays_bit_for_bit(tiny_checkpoint: Path) -> None:
    plain = tiny_engine(tiny_checkpoint).logits(torch.arange(50))
    learner = ended_anyhow(tiny_checkpoint, train="adapter", adapter_lr=0.01, threshold=0.05)
    for number in range(2):
        learner.update(number)
    assert torch.equal(learner.engine.logits(torch.arange(50)), plain)
    assert learner.engine.model.residual_adapter is not None
    assert learner.engine.model.residual_adapter.down_proj.weight.abs().max() > 0


def test_an_adapter_that_nothing_consumed_learns_nothing(tiny_checkpoint: Path) -> None:
    """Blocks that are filled in one step leave no residual context."""
    learner = ended_anyhow(tiny_checkpoint, train="adapter", threshold=0.001)
    before = weights(learner.engine.model)
    report = learner.update(0)
    assert report.sums.positions > 0
    assert not report.skipped
    for name, parameter in learner.engine.model.named_parameters():
        assert torch.equal(parameter, before[name])


def test_what_the_chat_s_cache_holds_is_forgotten(tiny_checkpoint: Path) -> None:
    """After an update keys and values of the weights before it would be wrong."""
    learner = ended_anyhow(tiny_checkpoint, lr=0.05, warmup=0)
    ids, config = list(range(70)), DecodeConfig(max_new_tokens=8, threshold=0.03)

    def ask() -> Any:
        *_, last = learner.engine.generate(ids, config)
        return last

    ask()
    assert ask().stats.cached_tokens == 64
    learner.update(0)
    assert ask().stats.cached_tokens == 0


def test_wrong_answers_and_endless_ones_teach_nothing(tiny_checkpoint: Path) -> None:
    refused = trainer(tiny_checkpoint, fails)
    before = weights(refused.engine.model)
    report = refused.update(0)
    assert (report.kept, report.sums.positions) == (0, 0)
    endless = trainer(tiny_checkpoint, max_new_tokens=1)
    assert endless.update(0).kept == 0
    for name, parameter in refused.engine.model.named_parameters():
        assert torch.equal(parameter, before[name])


def test_an_update_depends_on_weights_and_number_alone(tiny_checkpoint: Path) -> None:
    one, other = (ended_anyhow(tiny_checkpoint, temperature=0.8) for _ in range(2))
    one.update(0)
    one.update(1)
    state = one.optimizer.state()
    other.optimizer.restore(state)
    a, b = one.update(2), other.update(2)
    assert [r.finish.token_ids for r in a.rollouts] == [r.finish.token_ids for r in b.rollouts]
    for name, tensor in one.optimizer.state().items():
        assert torch.equal(tensor, other.optimizer.state()[name])


def test_losses_fall_on_the_answers_they_are_of(tiny_checkpoint: Path) -> None:
    learner = ended_anyhow(tiny_checkpoint, lr=5e-3, adapter_lr=1e-3, warmup=0, updates=1000)
    rollouts = learner._roll_out(learner.engine, learner.prompts[:4], passes, learner.config, 0)
    samples = learner.samples(rollouts, 0)
    first = learner._learn(samples, 0)
    for _ in range(8):
        last = learner._learn(samples, 0)
    assert last.prediction < 0.9 * first.prediction


def test_a_loss_that_is_not_a_number_touches_nothing(tiny_checkpoint: Path) -> None:
    learner = ended_anyhow(tiny_checkpoint)
    losses = learner.losses

    def broken(*arguments: Any) -> Any:
        found = losses(*arguments)
        return replace(found, prediction=found.prediction * float("nan"))

    learner.losses = broken  # type: ignore[method-assign]
    before = weights(learner.engine.model)
    assert learner.update(0).skipped
    for name, parameter in learner.engine.model.named_parameters():
        assert torch.equal(parameter, before[name])
    learner.losses = losses  # type: ignore[method-assign]
    assert not learner.update(1).skipped


class Memory:
    """Rows of more than so many tokens do not fit."""

    def __init__(self, learner: Trainer, most: int, error: Exception) -> None:
        self.losses, self.most, self.error = learner.losses, most, error
        learner.losses = self  # type: ignore[assignment]

    def __call__(self, row: Any, responses: int) -> Any:
        if row.tokens > self.most:
            raise self.error
        return self.losses(row, responses)


def test_out_of_memory_halves_the_rows_once(tiny_checkpoint: Path) -> None:
    learner, same = (
        ended_anyhow(tiny_checkpoint, row_tokens=n, prompts_per_update=6, threshold=0.05)
        for n in (2000, 1000)
    )
    Memory(learner, 1000, RuntimeError("CUDA out of memory. Tried to allocate"))
    assert learner.update(0).sums.positions > 0
    assert learner.row_tokens == 1000
    same.update(0)
    for name, tensor in same.optimizer.state().items():
        assert torch.equal(tensor, learner.optimizer.state()[name])
    learner.losses.most = 10  # type: ignore[attr-defined]
    with pytest.raises(OutOfMemoryError, match="lower row_tokens"):
        learner.update(1)


def test_other_errors_are_not_taken_for_lack_of_memory(tiny_checkpoint: Path) -> None:
    learner = ended_anyhow(tiny_checkpoint)
    Memory(learner, 0, RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes differ"):
        learner.update(0)


def test_several_answers_to_a_prompt_differ(tiny_checkpoint: Path) -> None:
    config = tiny_config(answers_per_prompt=3, temperature=1.0)
    found = roll_out(tiny_engine(tiny_checkpoint), questions(2), passes, config, 0)
    assert [r.prompt.id for r in found] == ["0"] * 3 + ["1"] * 3
    assert len({r.finish.token_ids for r in found}) == 6
    greedy = replace(config, temperature=0.0)
    assert len(roll_out(tiny_engine(tiny_checkpoint), questions(2), passes, greedy, 0)) == 2


def test_every_prompt_comes_before_any_comes_again() -> None:
    seen: list[int] = []
    for update in range(5):
        seen += prompts_of(update, 10, 4, seed=3)
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10))
    assert prompts_of(2, 10, 4, 3) == seen[8:12]
    assert prompts_of(2, 10, 4, 4) != seen[8:12]
    assert sorted(prompts_of(0, 3, 32, 0)) == [0, 1, 2]


def test_seeds_do_not_repeat() -> None:
    seeds = {answer_seed(s, u, i) for s in range(3) for u in range(20) for i in range(20)}
    assert len(seeds) == 3 * 20 * 20


def test_the_rate_rises_and_falls_to_nothing() -> None:
    config = FinetuneConfig(updates=100, warmup=5)
    assert config.rate(0) == pytest.approx(0.2)
    assert config.rate(4) == 1.0
    assert config.rate(52) == pytest.approx(0.5, abs=0.01)
    assert 0 < config.rate(99) < 0.02
    assert all(0 < FinetuneConfig(updates=1).rate(0) <= 1 for _ in range(1))


def test_a_recipe_checks_itself() -> None:
    with pytest.raises(ValueError, match="gate must be in"):
        FinetuneConfig(gate=1.5)
    with pytest.raises(ValueError, match="updates must be a whole number >= 1"):
        FinetuneConfig(updates=0)
    with pytest.raises(ValueError, match="nothing to train"):
        FinetuneConfig(train="adapter", residual=False)
    with pytest.raises(ValueError, match="the recipe must be one of quick, normal, long"):
        recipe("huge", "lora", 128)
    config = recipe("quick", "lora", 2048, seed=4)
    assert config.lr == pytest.approx(1e-3 / 16)
    assert FinetuneConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ValueError, match="unknown to this version"):
        FinetuneConfig.from_dict({**config.to_dict(), "warp": 9})


def test_no_prompts_is_an_error(tiny_checkpoint: Path) -> None:
    with pytest.raises(ValueError, match="no prompts"):
        Trainer(tiny_engine(tiny_checkpoint), [], passes, tiny_config())


def test_verdicts_belong_to_their_answers(tiny_checkpoint: Path) -> None:
    def verifier(prompt: Prompt, text: str) -> Verdict:
        return Verdict(True, f"{prompt.id} {text}", 0.0)

    found = roll_out(tiny_engine(tiny_checkpoint), questions(5), verifier, tiny_config(), 0)
    for rollout in found:
        assert rollout.verdict.reason == f"{rollout.prompt.id} {rollout.finish.text}"


def test_the_verifiers_part_of_an_update_is_told(tiny_checkpoint: Path) -> None:
    def slow(prompt: Prompt, text: str) -> Verdict:
        time.sleep(0.02)
        return Verdict(True, "", 0.0)

    report = trainer(tiny_checkpoint, slow).update(0)
    assert 0.02 <= report.verify_seconds <= report.rollout_seconds
    assert report.card is None, "there is no card here"


def test_the_card_is_read_after_an_update(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu(free=7.8, joules=None)
    card = Gauges(Nvml(gpu), gpu)
    monkeypatch.setattr("finetune.trainer.gauges_of", lambda device: card)
    event = update_event(trainer(tiny_checkpoint).update(0))
    total, free = int(31.8 * GIB), int(7.8 * GIB)
    assert event["card"] == {
        "memory_used": total - free, "memory_total": total, "power_watts": 388.0,
        "temperature_c": 66, "utilisation": 97, "throttle": None,
    }  # fmt: skip
