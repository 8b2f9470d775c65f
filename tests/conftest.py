"""Checkpoints that tests make for themselves: small, random, from a seed."""

import json
import os
from pathlib import Path

# Before torch is imported, here and in the processes that tests start: several of them share the
# cores, and threads that wait for each other's cores take many times as long as one alone.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from engine.config import ModelConfig

SPECIAL = ("<|startoftext|>", "<|endoftext|>", "<|role_end|>", "<role>", "</role>", "<|mask|>")

TEMPLATE = """\
{%- for m in messages -%}
{%- set role = {"system": "SYSTEM", "user": "HUMAN", "assistant": "ASSISTANT"}[m.role] -%}
<role>{{ role }}</role>{{ m.content }}<|role_end|>
{%- endfor -%}
{%- if add_generation_prompt %}<role>ASSISTANT</role>{% endif -%}
"""

TINY = ModelConfig(
    vocab_size=272,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    intermediate_size=96,
    moe_intermediate_size=32,
    num_experts=8,
    num_experts_per_tok=2,
    num_shared_experts=1,
    first_k_dense_replace=1,
    n_group=4,
    topk_group=2,
    routed_scaling_factor=2.5,
    partial_rotary_factor=0.5,
    rope_theta=10000.0,
    rms_norm_eps=1e-6,
    max_position_embeddings=512,
)


def write_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer without merges, LLaDA2's special tokens behind the 256 bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: id for id, symbol in enumerate(alphabet)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random LLaDA2 checkpoint folder with a byte tokenizer; treat it as read-only."""
    import torch

    from engine.checkpoint.write import save_checkpoint
    from engine.model.transformer import LLaDA2Model, initialise

    folder = tmp_path_factory.mktemp("tiny")
    model = initialise(LLaDA2Model(TINY), seed=0, std=0.15)
    # The output side resembles the input side, so that decided tokens mostly stay: an answer of a
    # random model then takes tens of steps instead of running into every limit.
    with torch.no_grad():
        model.lm_head.weight.copy_(model.embedding_table + 0.5 * model.lm_head.weight)
    save_checkpoint(model, folder, dtype=torch.float32)
    write_tokenizer(folder)
    return folder
