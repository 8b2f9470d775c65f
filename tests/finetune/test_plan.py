"""Memory planned from shapes: the parts, their sum, and what is made smaller for a small card."""

from dataclasses import replace

import pytest

from engine.config import ModelConfig
from finetune.config import recipe
from finetune.plan import GIB, fitted, memory_plan
from tests.conftest import TINY

MINI = ModelConfig(
    vocab_size=157184, hidden_size=2048, num_hidden_layers=20, num_attention_heads=16,
    num_key_value_heads=4, head_dim=128, intermediate_size=5120, moe_intermediate_size=512,
    num_experts=256, num_experts_per_tok=8, num_shared_experts=1, first_k_dense_replace=1,
    n_group=8, topk_group=4, routed_scaling_factor=2.5, partial_rotary_factor=0.5,
    rope_theta=600000.0, rms_norm_eps=1e-6, max_position_embeddings=32768,
)  # fmt: skip
"""LLaDA2.1-mini's config.json."""


def test_the_large_model_s_weights_are_counted_right() -> None:
    config = recipe("normal", "lora", MINI.hidden_size)
    bf16 = memory_plan(MINI, config, quantised=False)
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
        return memory_plan(TINY, config, quantised=False).parts["trained, with optimizer"] / 20

    assert trained("adapter", adapter_width=10) == (3 * 10 + 1) * 64
    assert trained("lora") > trained("adapter")
    assert trained("lora", lora_rank=16) > trained("lora")
    assert trained("full") > 100_000
    assert (
        memory_plan(TINY, recipe("normal", "lora", 64, residual=False)).parts["states recorded"]
        == 0.0
    )


def test_a_card_that_is_too_small_gets_the_smallest_plan() -> None:
    plan = fitted(MINI, recipe("normal", "lora", MINI.hidden_size), 8 * GIB)
    assert not plan.fits(8 * GIB)
    assert (plan.config.rows, plan.config.row_tokens) == (4, 1024)
