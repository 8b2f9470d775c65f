"""The golden data, and engines to hold against it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from engine.config import DecodeConfig
from engine.generate import Engine

DATA = Path(__file__).parents[1] / "data" / "llada2_tiny"


@dataclass(frozen=True)
class Golden:
    """The reference's numbers; `forwards` and `runs` hold each sequence's and run's arguments."""

    folder: Path
    arrays: dict[str, Tensor]
    forwards: dict[str, dict[str, Any]]
    runs: dict[str, dict[str, Any]]

    def __getitem__(self, name: str) -> Tensor:
        return self.arrays[name]

    def tokens(self, name: str) -> list[int]:
        """An array of ids as a list."""
        return self.arrays[name].tolist()

    def config(self, run: str, **changes: Any) -> DecodeConfig:
        """The run's arguments in our words."""
        args = self.runs[run]
        return DecodeConfig(
            **{
                "max_new_tokens": args["gen_length"],
                "block_length": args["block_length"],
                "threshold": args["threshold"],
                "editing_threshold": args["editing_threshold"],
                "max_post_steps": args["max_post_steps"],
                "min_unmask": args["num_to_transfer"],
                "stop_at_end": args["eos_early_stop"],
                "stop_ids": [args["eos_id"]],
                "mask_id": args["mask_id"],
                **changes,
            }
        )


def load_engine(dtype: torch.dtype = torch.float32) -> Engine:
    return Engine.load(DATA, device="cpu", dtype=dtype)


@pytest.fixture(scope="session")
def golden() -> Golden:
    meta = json.loads((DATA / "golden_meta.json").read_text())
    arrays = load_file(DATA / "golden.safetensors")
    return Golden(DATA, arrays, meta["forwards"], meta["generate"])


@pytest.fixture(scope="session")
def shared_engine() -> Engine:
    return load_engine()


@pytest.fixture
def golden_engine(shared_engine: Engine) -> Engine:
    """The golden checkpoint in float32 and an empty cache; shared, so do not touch its weights."""
    shared_engine.reset_cache()
    return shared_engine


@pytest.fixture
def own_engine() -> Engine:
    """The golden checkpoint in float32, loaded for one test, which may change it."""
    return load_engine()
