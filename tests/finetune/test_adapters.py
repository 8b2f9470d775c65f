"""What is trained, what stays frozen, and what is written."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from engine.checkpoint.adapter import load_adapter
from engine.config import CheckpointError, DecodeConfig
from engine.events import FinishEvent
from engine.generate import Engine
from finetune.adapters import merge_lora, prepare, save_adapter
from finetune.config import Train
from tests.finetune.tiny import active_engine, ids_of, questions, stir, tiny_config, tiny_engine

BASE = {"model": "tiny", "revision": ""}
IDS = torch.arange(60)


def answers(engine: Engine) -> list[FinishEvent]:
    config = DecodeConfig(max_new_tokens=40, block_length=8, threshold=0.3)
    return engine.generate_many(ids_of(engine, questions(3)), config, record=True)


@pytest.mark.parametrize("train", ["lora", "adapter", "full"])
def test_a_newborn_adapter_changes_no_bit(tiny_checkpoint: Path, train: Train) -> None:
    plain = tiny_engine(tiny_checkpoint)
    want, said = plain.logits(IDS), answers(plain)
    engine = tiny_engine(tiny_checkpoint)
    trainable = prepare(engine.model, tiny_config(train=train))
    assert torch.equal(engine.logits(IDS).detach(), want)
    assert [end.token_ids for end in answers(engine)] == [end.token_ids for end in said]
    assert [end.stats.steps for end in answers(engine)] == [end.stats.steps for end in said]
    with trainable.start() as start, torch.no_grad():
        assert torch.equal(start.lm_head.weight, plain.model.lm_head.weight)


@pytest.mark.parametrize("train", ["lora", "adapter"])
def test_switched_off_the_model_is_the_start(tiny_checkpoint: Path, train: Train) -> None:
    want = tiny_engine(tiny_checkpoint).logits(IDS)
    engine, trainable = active_engine(tiny_checkpoint, train=train)
    with trainable.start() as start:
        assert start is engine.model
        assert start.residual_adapter is None
        assert torch.equal(engine.logits(IDS), want)
    assert engine.model.residual_adapter is not None
    changed = not torch.equal(engine.logits(IDS), want)
    assert changed == (train == "lora")  # without z the adapter says nothing


def test_what_is_trained(tiny_checkpoint: Path) -> None:
    groups = {}
    for train in ("lora", "adapter", "full"):
        engine = tiny_engine(tiny_checkpoint)
        trainable = prepare(engine.model, tiny_config(train=train))
        groups[train] = trainable
        learning = {n for n, p in engine.model.named_parameters() if p.requires_grad}
        assert learning == set(dict(engine.model.named_parameters())) & {
            n for n, p in engine.model.named_parameters()
            if any(p is own for own in trainable.parameters.values())
        }  # fmt: skip
        assert len(trainable.adapter) == 4
    layers = {name.rsplit(".lora_", 1)[0] for name in groups["lora"].trunk}
    assert layers == {
        f"model.layers.{i}.{part}"
        for i, parts in enumerate((
            ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
            ("mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj",
             "mlp.shared_experts.down_proj"),
        ))
        for part in ("attention.query_key_value", "attention.dense", *parts)
    }  # fmt: skip
    assert groups["adapter"].trunk == {}
    assert "lm_head.weight" in groups["full"].trunk


def test_the_start_of_an_adapter_s_weights_follows_from_the_seed(tiny_checkpoint: Path) -> None:
    def weights(seed: int) -> list[Tensor]:
        trainable = prepare(tiny_engine(tiny_checkpoint).model, tiny_config(seed=seed))
        return [p.detach() for p in trainable.parameters.values()]

    assert all(torch.equal(a, b) for a, b in zip(weights(1), weights(1), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(weights(1), weights(2), strict=True))


def test_saved_and_loaded_it_is_the_same_model(tiny_checkpoint: Path, tmp_path: Path) -> None:
    engine, _ = active_engine(tiny_checkpoint)
    save_adapter(engine.model, tmp_path, alpha=16.0, base=BASE)
    unfolded = tiny_engine(tiny_checkpoint)
    load_adapter(unfolded.model, tmp_path)
    assert torch.equal(unfolded.logits(IDS), engine.logits(IDS))
    again = Engine.load(tiny_checkpoint, device="cpu", adapter=tmp_path)
    torch.testing.assert_close(again.logits(IDS), engine.logits(IDS), atol=1e-4, rtol=1e-4)
    for mine, other in zip(answers(engine), answers(again), strict=True):
        assert mine.token_ids == other.token_ids
        assert mine.stats.steps == other.stats.steps


def test_lora_is_in_peft_s_format(tiny_checkpoint: Path, tmp_path: Path) -> None:
    engine, _ = active_engine(tiny_checkpoint)
    save_adapter(engine.model, tmp_path, alpha=16.0, base=BASE)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 2, 16.0)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    stem = "base_model.model.model.layers.0.attention.query_key_value"
    assert tensors[f"{stem}.lora_A.weight"].shape == (2, 64)
    assert tensors[f"{stem}.lora_B.weight"].shape == (128, 2)
    named = {name.removeprefix("base_model.model.").rsplit(".lora_", 1)[0] for name in tensors}
    assert named == set(config["target_modules"])


def test_an_adapter_refuses_another_base(tiny_checkpoint: Path, tmp_path: Path) -> None:
    engine, _ = active_engine(tiny_checkpoint)
    save_adapter(engine.model, tmp_path, alpha=16.0, base={"model": "other", "revision": "abc"})
    with pytest.raises(CheckpointError, match="trained on another checkpoint"):
        Engine.load(tiny_checkpoint, device="cpu", adapter=tmp_path)


def test_merged_lora_is_the_same_function(tiny_checkpoint: Path) -> None:
    engine, _ = active_engine(tiny_checkpoint)
    want = engine.logits(IDS)
    merge_lora(engine.model)
    assert not any(".lora_" in name for name, _ in engine.model.named_parameters())
    torch.testing.assert_close(engine.logits(IDS), want, atol=1e-4, rtol=1e-4)


def test_a_start_s_own_adapter_goes_on_and_is_the_anchor(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    first, trainable = active_engine(tiny_checkpoint, train="adapter")
    save_adapter(first.model, tmp_path, alpha=16.0, base=BASE)
    engine = tiny_engine(tiny_checkpoint)
    load_adapter(engine.model, tmp_path)
    again = prepare(engine.model, tiny_config())
    for name, parameter in trainable.adapter.items():
        assert torch.equal(again.adapter[name], parameter)
    stir(again)
    with again.start() as start:
        assert start.residual_adapter is not None
        for name, parameter in start.residual_adapter.named_parameters():
            assert torch.equal(parameter, trainable.adapter[f"residual_adapter.{name}"])
