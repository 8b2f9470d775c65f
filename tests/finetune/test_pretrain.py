import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor

from engine.config import ModelConfig
from engine.kernels import reference
from engine.model.transformer import LLaDA2Model, initialise
from finetune.demo.corpus import training
from finetune.demo.learner import Learner, Recipe, packed_logits
from finetune.demo.noise import IGNORE, Copy, Example, Noise, NoiseConfig, encode
from finetune.demo.staircase import COPIES, StaircaseAttention, pack, row_positions, staircase
from finetune.muon import orthogonalise
from finetune.pretrain import demo_config

DEMO = Path(__file__).parents[2] / "assets" / "demo"
BLOCK = 4


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(DEMO / "tokenizer.json"))


def tiny_config(vocab_size: int) -> ModelConfig:
    return ModelConfig(
        vocab_size=vocab_size, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, intermediate_size=48, moe_intermediate_size=16,
        num_experts=4, num_experts_per_tok=2, num_shared_experts=1, first_k_dense_replace=1,
        n_group=2, topk_group=1, routed_scaling_factor=2.5, partial_rotary_factor=0.5,
        rope_theta=10000.0, rms_norm_eps=1e-6, max_position_embeddings=128,
    )  # fmt: skip


def row(blocks: int, start: int, rng: random.Random) -> tuple[Example, tuple[Copy, ...]]:
    """A random example of `blocks` blocks with every answer-block position a target."""
    ids = tuple(rng.randrange(50) for _ in range(blocks * BLOCK))
    first = start // BLOCK * BLOCK
    copies = []
    for _ in range(COPIES):
        inputs = tuple(rng.randrange(50) for _ in ids[first:])
        copies.append(Copy(inputs, ids[first:], (1.0,) * len(inputs)))
    return Example(ids, start, BLOCK), tuple(copies)


def tiny_model() -> LLaDA2Model:
    return initialise(LLaDA2Model(tiny_config(64)), seed=0, std=0.2).double()


def block_causal_logits(model: LLaDA2Model, ids: Sequence[int]) -> Tensor:
    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return reference.attention(q, k, v, start=0, block_length=BLOCK)

    return model(model.embed(torch.tensor(ids)), torch.arange(len(ids)), attend)


def test_packed_logits_equal_a_forward_of_each_block_alone() -> None:
    model, rng = tiny_model(), random.Random(0)
    rows = [row(4, 5, rng), row(3, 0, rng), row(4, 6, rng)]
    logits = packed_logits(model, pack(rows))
    expected = []
    for example, copies in sorted(rows, key=lambda r: r[0].shape):
        first = example.shape[1] * BLOCK
        for copy in copies:
            for at in range(0, len(copy.inputs), BLOCK):
                seen = [*example.ids[: first + at], *copy.inputs[at : at + BLOCK]]
                expected.append(block_causal_logits(model, seen)[-BLOCK:])
    torch.testing.assert_close(logits, torch.cat(expected), atol=1e-5, rtol=1e-5)


def test_a_noisy_block_sees_earlier_clean_blocks_and_itself_only() -> None:
    model, rng = tiny_model(), random.Random(1)
    packed = pack([row(3, 5, rng)])
    attend = StaircaseAttention(packed)
    before = model.trunk(model.embed(packed.ids), packed.positions, attend)
    seen = staircase((3, 1), BLOCK)
    for column in range(len(packed.ids)):
        ids = packed.ids.clone()
        ids[column] = (ids[column] + 1) % 50
        after = model.trunk(model.embed(ids), packed.positions, attend)
        changed = (after - before).abs().amax(-1) > 1e-12
        assert torch.equal(changed, seen[:, column])


def test_staircase_never_shows_an_answer_to_its_own_noisy_block() -> None:
    shape = (4, 1)
    numbers = torch.tensor(row_positions(shape, BLOCK)) // BLOCK
    mask, clean = staircase(shape, BLOCK), 3 * BLOCK
    noisy_to_clean = mask[clean:, :clean]
    later = numbers[None, :clean] >= numbers[clean:, None]
    assert not (noisy_to_clean & later).any()
    assert mask[clean:, :clean].any()


def test_copies_hide_complementary_positions(tokenizer: Tokenizer) -> None:
    noise = Noise(tokenizer, NoiseConfig(), random.Random(0))
    whole = 0
    for item in islice(training(seed=0), 60):
        example = encode(tokenizer, item, 32)
        first = example.shape[1] * 32
        hidden = [
            {first + i for i, token in enumerate(copy.inputs) if token == noise.mask}
            for copy in noise.copies(example)
        ]
        assert hidden[0].isdisjoint(hidden[1])
        assert hidden[0] | hidden[1] == set(range(example.start, len(example.ids)))
        whole += any(set(range(at, at + 32)) <= hidden[0] for at in range(first, 256, 32))
    assert whole > 5


def test_targets_are_the_right_tokens_at_hidden_wrong_and_some_kept_positions(
    tokenizer: Tokenizer,
) -> None:
    noise = Noise(tokenizer, NoiseConfig(spoilt_blocks=1.0), random.Random(0))
    wrong = kept = 0
    for item in islice(training(seed=1), 60):
        example = encode(tokenizer, item, 32)
        first = example.shape[1] * 32
        for copy in noise.copies(example):
            for i, (shown, target) in enumerate(zip(copy.inputs, copy.targets, strict=True)):
                right = example.ids[first + i]
                assert target in (right, IGNORE)
                assert (target == IGNORE) == (copy.weights[i] == 0)
                if first + i < example.start:
                    assert (shown, target) == (right, IGNORE)
                elif shown != right:
                    assert target == right
                    wrong += shown != noise.mask
                else:
                    kept += target == right
    assert wrong > 50
    assert kept > 50


def test_a_few_steps_reduce_the_loss(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    model = initialise(LLaDA2Model(tiny_config(tokenizer.get_vocab_size())), seed=0)
    recipe = Recipe(steps=12, batch=6, processes=1, lr=1e-2, warmup=2)
    learner = Learner(model, tokenizer, recipe, rank=0)
    losses = [learner.step(number) for number in range(recipe.steps)]
    assert losses[0] > 7
    assert losses[-1] < losses[0] - 1
    assert all(router.expert_bias.abs().sum() > 0 for router in learner.routers)


def test_training_experts_equal_the_engine_s(tokenizer: Tokenizer) -> None:
    model = initialise(LLaDA2Model(tiny_config(tokenizer.get_vocab_size())), seed=0, std=0.2)
    moe = model.model.layers[1].mlp
    x = torch.randn(40, 32, generator=torch.Generator().manual_seed(0))
    before = moe(x)
    Learner(model, tokenizer, Recipe(steps=1, batch=2, processes=1), rank=0)
    torch.testing.assert_close(moe(x), before, atol=1e-5, rtol=1e-5)


def test_orthogonalise_evens_out_singular_values() -> None:
    matrix = torch.randn(3, 24, 16, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(matrix))
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_the_rate_warms_up_holds_and_decays_to_nothing() -> None:
    recipe = Recipe(steps=1000, lr=1.0, warmup=10, hold=0.4)
    assert recipe.rate(0) == pytest.approx(0.1)
    assert recipe.rate(300) == 1.0
    assert recipe.rate(700) == pytest.approx(0.5)
    assert recipe.rate(999) < 0.01


def test_demo_shape_is_fit_for_packing() -> None:
    config = demo_config()
    for width in (config.hidden_size, config.intermediate_size, config.moe_intermediate_size):
        assert width % 16 == 0
    assert config.vocab_size % 16 == 0
