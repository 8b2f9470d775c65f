"""What a model takes, from its config alone, and the refusal of one that will not fit."""

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import ModelConfig
from engine.decode.kv_cache import KVCache
from engine.generate import Engine
from engine.hardware import Large
from engine.machine.facts import System
from engine.machine.memory_plan import (
    EXPERTS,
    LINEARS,
    MINI,
    Fit,
    MemoryPlan,
    kv_bytes_per_token,
    memory_plan,
    parameters,
    weight_bytes,
)
from engine.machine.room import NotEnoughRoomError, require_room, require_room_for
from engine.model.transformer import LLaDA2Model
from tests.conftest import TINY
from tests.engine.stand_ins import machine

CONFIGS = {
    "mini": MINI,
    "tiny": TINY,
    "odd": replace(TINY, num_shared_experts=0, first_k_dense_replace=0, num_hidden_layers=3),
    "dense": replace(TINY, first_k_dense_replace=5),
    "two shared": replace(TINY, num_shared_experts=2, head_dim=24),
}
GB = 1e9


def model(config: ModelConfig) -> LLaDA2Model:
    with torch.device("meta"):
        return LLaDA2Model(config)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_parameters_are_those_of_the_model(name: str) -> None:
    counted = sum(p.numel() for p in model(CONFIGS[name]).parameters())
    assert sum(parameters(CONFIGS[name]).values()) == counted


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_bytes_are_those_of_the_model(name: str, width: int) -> None:
    whole = model(CONFIGS[name])
    buffers = sum(b.nbytes for b in whole.buffers())
    counted = width * sum(p.numel() for p in whole.parameters()) + buffers
    assert sum(weight_bytes(CONFIGS[name], width=width).values()) == counted


def test_bytes_by_kind() -> None:
    routed = [p for name, p in model(MINI).named_parameters() if ".mlp.experts." in name]
    assert parameters(MINI)["routed experts"] == sum(p.numel() for p in routed)
    head = parameters(MINI)["output head"]
    assert head == parameters(MINI)["embeddings"] == 157184 * 2048


@pytest.mark.parametrize(
    ("quantised", "width", "gigabytes"),
    # Counted by hand: bf16, experts in NVFP4, every linear in NVFP4, that in a processor's float32.
    [(frozenset(), 2, 32.5), (EXPERTS, 2, 10.5), (LINEARS, 2, 10.1), (LINEARS, 4, 11.4)],
)
def test_the_sizes_of_mini(quantised: frozenset[Any], width: int, gigabytes: float) -> None:
    total = sum(weight_bytes(MINI, quantised, width=width).values())
    assert total / GB == pytest.approx(gigabytes, abs=0.05)


def test_an_nvfp4_weight_takes_a_code_and_a_sixteenth_of_a_scale() -> None:
    quantised, whole = weight_bytes(MINI, EXPERTS), weight_bytes(MINI)
    assert quantised["routed experts"] / parameters(MINI)["routed experts"] == 0.5625
    assert quantised["attention"] == whole["attention"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_kv_cache_is_counted_as_it_is_allocated(dtype: torch.dtype) -> None:
    cache = KVCache(TINY, torch.device("cpu"), dtype)
    cache.reserve(96)
    tensors: Iterable[torch.Tensor] = (*cache._keys, *cache._values)
    allocated = sum(tensor.nbytes for tensor in tensors)
    assert allocated == 96 * kv_bytes_per_token(TINY, dtype.itemsize)


def test_a_plan_adds_up_and_names_its_parts() -> None:
    plan = memory_plan(MINI, EXPERTS, context_length=32768)
    assert [part.name for part in plan.parts] == [
        "experts", "other layers", "embeddings and head", "KV cache", "workspace", "CUDA",
    ]  # fmt: skip
    assert plan.total == sum(part.bytes for part in plan.parts)
    assert {p.name: p.bytes for p in plan.parts}["KV cache"] == 32768 * 40960
    weights = sum(part.bytes for part in plan.parts[:3])
    assert weights == sum(weight_bytes(MINI, EXPERTS).values())


def test_a_processor_counts_in_float32_and_a_running_torch_not_at_all() -> None:
    there = memory_plan(TINY, device="cpu", running=True)
    assert [part.name for part in there.parts][-1] == "workspace"
    assert memory_plan(TINY, device="cpu").total - there.total == 400 << 20
    assert there.parts[0].bytes == 4 * parameters(TINY)["routed experts"]


def test_the_context_that_fits_is_the_context_that_fits() -> None:
    plan = memory_plan(MINI, EXPERTS)
    for free in (plan.total, plan.total + (300 << 20), plan.total - (100 << 20)):
        context = plan.context_within(free, 32768)
        assert memory_plan(MINI, EXPERTS, context_length=context).total <= free
        assert memory_plan(MINI, EXPERTS, context_length=context + 1).total >= free - 2
    assert plan.context_within(1 << 30, 32768) == 0
    assert plan.context_within(1 << 50, 32768) == 32768
    assert memory_plan(TINY, context_length=1 << 20).context_length == 512


def test_a_fit() -> None:
    plan = MemoryPlan(memory_plan(MINI).parts, 8192, 50_000.0)
    short = Fit(plan, plan.total - 1, 32768)
    assert (short.fits, short.missing, short.usable) == (False, 1, True)
    assert Fit(plan, plan.total, 32768).context == 8192
    unknown = Fit(plan, None, 32768)
    assert (unknown.fits, unknown.missing, unknown.context) == (True, 0, 32768)


def test_without_a_plan_of_finetuning_nothing_is_said_of_it() -> None:
    hardware = machine(large=Large())
    assert "Finetune memory" not in {row.name for row in hardware.rows}
    assert (hardware.finetune_memory, hardware.finetunes_large) == (None, False)
    assert hardware.summary.endswith("can run on GPU 0 (NVIDIA GeForce RTX 5090).")
    assert "finetuning" not in hardware.summary


# --- before a load --------------------------------------------------------------------------------


def test_what_will_not_fit_is_refused_in_words() -> None:
    with pytest.raises(NotEnoughRoomError) as refusal:
        require_room(MINI, device="cuda:0", free=24 << 30, width=2)
    said = str(refusal.value)
    for part in ("30.9 GiB on cuda:0", "24.0 GiB are free", "experts 28.5", "--allow-spill"):
        assert part in said
    require_room(MINI, device="cuda:0", free=24 << 30, width=2, quantised=EXPERTS)


@pytest.fixture
def full_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.machine.room.read_system", lambda: System(memory_free=1 << 20))


@pytest.mark.usefixtures("full_machine")
def test_the_engine_asks_before_it_loads(tiny_checkpoint: Path) -> None:
    read: list[int] = []
    with pytest.raises(NotEnoughRoomError, match="GiB of memory"):
        Engine.load(tiny_checkpoint, device="cpu", progress=lambda done, total: read.append(done))
    assert read == [], "no weight was read"
    assert Engine.load(tiny_checkpoint, device="cpu", allow_spill=True).parameters > 0


@pytest.mark.parametrize("declared", ["in config.json", "beside it", "nowhere"])
def test_quantised_weights_are_counted_as_such(
    declared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data: dict[str, Any] = {**asdict(MINI), "model_type": "llada2_moe"}
    if declared == "in config.json":
        data["quantization_config"] = {"quant_method": "modelopt"}
    if declared == "beside it":
        (tmp_path / "hf_quant_config.json").write_text("{}")
    (tmp_path / "config.json").write_text(json.dumps(data))
    monkeypatch.setattr("engine.machine.room.read_system", lambda: System(memory_free=20 << 30))
    if declared == "nowhere":
        with pytest.raises(NotEnoughRoomError):
            require_room_for(tmp_path, "cpu", 2)
    else:
        require_room_for(tmp_path, "cpu", 2)
