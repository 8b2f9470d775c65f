"""Memory planned from shapes: the parts, their sum, and what is made smaller for a small card."""

from dataclasses import replace

import pytest
import torch

from engine.config import ModelConfig
from engine.machine.memory_plan import EXPERTS, LINEARS, MINI, UNQUANTISED
from engine.machine.memory_plan import memory_plan as chat_plan
from engine.model.lora import lora_parameters
from engine.model.transformer import LLaDA2Model
from finetune.adapters import add_lora
from finetune.config import Train, recipe
from finetune.plan import GIB, fitted, memory_plan, trained_weights, usual_run
from tests.conftest import TINY


def test_the_large_model_s_weights_are_counted_right() -> None:
    config = recipe("normal", "lora", MINI.hidden_size)
    bf16 = memory_plan(MINI, config, quantised=UNQUANTISED)
    assert bf16.parts["weights"] / GIB == pytest.approx(30.28, abs=0.01)
    packed = memory_plan(MINI, config)
    # 15.6 B linear weights at 4.5 bits, embedding and head in bf16.
    assert packed.parts["weights"] / 1e9 == pytest.approx(10.07, abs=0.05)
    assert memory_plan(MINI, config, stored=11e9).parts["weights"] == 11e9


@pytest.mark.parametrize(("card", "rows"), [(31.5, 32), (23.5, 4)])
def test_the_large_model_fits_both_cards(card: float, rows: int) -> None:
    config = recipe("normal", "lora", MINI.hidden_size, lora_rank=16, answers_per_prompt=1)
    plan = fitted(MINI, config, card * GIB)
    assert plan.fits(card * GIB)
    assert plan.total < card * GIB
    assert plan.config.rows >= rows
    assert plan.config.row_tokens >= 1024
    assert replace(plan.config, rows=32, row_tokens=4096) == config


def test_rollouts_and_learning_take_turns() -> None:
    plan = memory_plan(MINI, recipe("normal", "lora", MINI.hidden_size))
    assert max(plan.parts.values()) < plan.total < sum(plan.parts.values())


def test_what_is_trained_is_counted() -> None:
    def trained(train: str, **changes: object) -> float:
        config = recipe("normal", train, 64, **changes)  # type: ignore[arg-type]
        plan = memory_plan(TINY, config, quantised=UNQUANTISED)
        return plan.parts["trained, with optimizer"] / 20

    assert trained("adapter", adapter_width=10) == (3 * 10 + 1) * 64
    assert trained("lora") > trained("adapter")
    assert trained("lora", lora_rank=16) > trained("lora")
    assert trained("full") > 100_000
    assert (
        memory_plan(TINY, recipe("normal", "lora", 64, residual=False)).parts["states recorded"]
        == 0.0
    )


def described(config: ModelConfig) -> LLaDA2Model:
    with torch.device("meta"):
        return LLaDA2Model(config)


@pytest.mark.parametrize("config", [TINY, MINI, replace(TINY, num_shared_experts=0)])
@pytest.mark.parametrize("train", ["adapter", "lora", "full"])
def test_what_is_counted_from_the_config_is_what_is_made(config: ModelConfig, train: Train) -> None:
    settings = recipe("normal", train, config.hidden_size, residual=train == "adapter")
    model = described(config)
    if train == "full":
        made = sum(p.numel() for p in model.parameters())
    elif train == "lora":
        add_lora(model, settings.lora_rank, settings.lora_alpha, torch.Generator())
        made = sum(p.numel() for p in lora_parameters(model).values())
    else:
        made = (3 * config.hidden_size + 1) * config.hidden_size
    assert trained_weights(config, settings) == made


@pytest.mark.parametrize("config", [TINY, MINI])
def test_the_largest_layer(config: ModelConfig) -> None:
    layers = described(config).model.layers
    largest = max(sum(p.numel() for p in layer.parameters()) for layer in layers)
    plan = memory_plan(config, recipe("normal", "lora", config.hidden_size))
    assert plan.parts["one layer unpacked"] == 2 * largest


@pytest.mark.parametrize("quantised", [UNQUANTISED, EXPERTS, LINEARS])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_machine_check_has_the_same_figures(quantised: frozenset, device: str) -> None:
    settings = recipe("normal", "lora", MINI.hidden_size)
    plan = memory_plan(MINI, settings, quantised=quantised, device=device)
    checked = usual_run(MINI, quantised, device)
    assert checked.total == pytest.approx(plan.total, abs=4)
    assert checked.parts[0].bytes == pytest.approx(plan.parts["weights"], abs=1)
    assert chat_plan(MINI, quantised, device=device).total < checked.total


def test_the_large_model_can_be_tuned_on_a_card_of_24() -> None:
    assert usual_run(MINI, EXPERTS, "cuda").total < 23 * GIB


def test_a_card_that_is_too_small_gets_the_smallest_plan() -> None:
    plan = fitted(MINI, recipe("normal", "lora", MINI.hidden_size), 8 * GIB)
    assert not plan.fits(8 * GIB)
    assert (plan.config.rows, plan.config.row_tokens) == (4, 1024)
