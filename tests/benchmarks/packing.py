"""One training step over packed rows against one forward and backward a state.

    python -m tests.benchmarks.packing [--model DIR] [--threads N]

The demo, and 50 M random weights behind short and behind long prompts, with one answer a prompt and
with 16. Processor time.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from engine.config import DecodeConfig, ModelConfig
from engine.generate import Engine
from engine.model.transformer import LLaDA2Model, initialise
from finetune.config import FinetuneConfig
from finetune.prompts import Prompt
from finetune.rollout import prompt_ids
from finetune.rows import make_row
from finetune.trainer import Trainer
from tests.benchmarks.orl import DEMO, training_prompts, verify


def fifty_million() -> Engine:
    """About 50 M random weights."""
    config = ModelConfig(
        vocab_size=8192, hidden_size=512, num_hidden_layers=6, num_attention_heads=8,
        num_key_value_heads=2, head_dim=64, intermediate_size=1536, moe_intermediate_size=384,
        num_experts=8, num_experts_per_tok=2, num_shared_experts=1, first_k_dense_replace=1,
        n_group=4, topk_group=2, routed_scaling_factor=2.5, partial_rotary_factor=0.5,
        rope_theta=10000.0, rms_norm_eps=1e-6, max_position_embeddings=1024,
    )  # fmt: skip
    return Engine(initialise(LLaDA2Model(config), 0).eval(), None, mask_id=8000, stop_ids=())


def run_packing(model: Path) -> None:
    """One step over packed rows against one forward and backward a state; both from one rollout."""

    def demo() -> Engine:
        return Engine.load(model, device="cpu")

    engine = demo()
    asked = [prompt_ids(engine, prompt) for prompt in training_prompts(6, 0)]
    config = DecodeConfig(max_new_tokens=96, threshold=0.9, editing_threshold=0.9)
    # Random weights have nothing to say: four tokens a step, which is about what real text takes.
    steady = replace(config, min_unmask=4, stop_at_end=False)
    long = [[(7 * i + 11 * row) % 1000 for i in range(256)] for row in range(6)]
    for name, make, prompts, decode in (
        ("demo", demo, asked, config),
        ("50 M, short prompts", fifty_million, asked, steady),
        ("50 M, prompts of 256 tokens", fifty_million, long, steady),
        ("demo, 16 answers a prompt", demo, asked[:1] * 16, sampled(config)),
        ("50 M, 16 answers to 256 tokens", fifty_million, long[:1] * 16, sampled(steady)),
    ):
        engine = make()
        ends = engine.generate_many(prompts, decode, record=True, seeds=list(range(len(prompts))))
        trainer = Trainer(engine, [Prompt((), None, "", 0, "")], verify, FinetuneConfig())
        finished = [replace(end, reason="end") for end in ends]
        rollouts = [_Kept(end) for end in finished]
        samples = trainer.samples(rollouts, 0)  # type: ignore[arg-type]
        packed = _seconds(lambda t=trainer, s=samples: t._accumulate(s))
        apart = _seconds(lambda t=trainer, s=samples: _one_by_one(t, s))
        states = sum(len(sample.states) for sample in samples)
        print(
            f"{name}: {states} states of {len(samples)} answers, packed {packed:.2f} s, one "
            f"forward a state {apart:.2f} s: {apart / packed:.1f} times",
            flush=True,
        )


def sampled(config: DecodeConfig) -> DecodeConfig:
    """Greedy answers to one prompt would all be the same."""
    return replace(config, temperature=1.0)


@dataclass(frozen=True)
class _Kept:
    finish: Any
    kept: bool = True

    @property
    def trajectory(self) -> Any:
        return self.finish.trajectory


def _one_by_one(trainer: Trainer, samples: Sequence[Any]) -> None:
    """Every state with a context of its own; pairs are lost, which only makes this cheaper."""
    for sample in samples:
        for state, own in zip(sample.states, sample.trained, strict=True):
            single = replace(sample, states=(state,), trained=(own,), pairs=())
            losses = trainer.losses(make_row([single]), len(samples))
            torch.autograd.backward(losses.total(trainer.config))


def _seconds(work: Callable[[], Any], repeats: int = 2) -> float:
    """Of processor time, all threads together: other programs make wall time say nothing."""
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=DEMO)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    run_packing(arguments.model)


if __name__ == "__main__":
    main()
