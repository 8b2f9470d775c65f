"""The engine against a plain loop, and both against what this processor could do.

    python -m tests.benchmarks.cpu [--model demo|large|both] [--threads N]

The plain loop is the published generate(): every step forwards the whole window, prompt
included, with logits for all of it. It takes the same decisions in the same number of steps, which
is checked. The bound is the larger of two times: bytes of the weights that a step reads over the
measured copy rate, and its FLOPs over the measured matmul rate.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from engine.config import DecodeConfig, ModelConfig
from engine.decode.canvas import Canvas
from engine.decode.unmasking import edit, predict, suppress_mask, unmask
from engine.events import FinishEvent, Stats
from engine.generate import Engine
from engine.model.moe import Experts
from engine.model.transformer import LLaDA2Model, initialise

DEMO = Path(__file__).parents[2] / "assets" / "demo"

LARGE = ModelConfig(
    vocab_size=32768,
    hidden_size=1024,
    num_hidden_layers=8,
    num_attention_heads=16,
    num_key_value_heads=4,
    head_dim=64,
    intermediate_size=2560,
    moe_intermediate_size=512,
    num_experts=8,
    num_experts_per_tok=2,
    num_shared_experts=1,
    first_k_dense_replace=1,
    n_group=4,
    topk_group=2,
    routed_scaling_factor=2.5,
    partial_rotary_factor=0.5,
    rope_theta=600000.0,
    rms_norm_eps=1e-6,
    max_position_embeddings=1024,
)


@dataclass(frozen=True)
class Rates:
    """What the processor was measured to do: bytes/s copied (read and written), FLOP/s."""

    copy: float
    matmul: float


def best_time(work, repeats: int = 5) -> float:
    """Seconds of the fastest of several runs, the one that other programs disturbed least."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def measure_rates() -> Rates:
    source = torch.ones(32 * 2**20)
    target = torch.empty_like(source)
    copy = 2 * source.nbytes / best_time(lambda: target.copy_(source))
    left, right = torch.randn(1024, 2048), torch.randn(2048, 2048)
    matmul = 2 * 1024 * 2048 * 2048 / best_time(lambda: left @ right)
    return Rates(copy, matmul)


def large_engine() -> Engine:
    """About 200 M random weights; nothing to load, nothing to say."""
    model = initialise(LLaDA2Model(LARGE), seed=0).eval().requires_grad_(False)
    mask = LARGE.vocab_size - 1
    return Engine(model, None, mask_id=mask, stop_ids=())


def plain_loop(engine: Engine, prompt: list[int], config: DecodeConfig) -> tuple[list[int], int]:
    """The published loop: tokens behind the prompt, and steps; no cache, no overlap."""
    length, total = config.block_length, len(prompt) + config.max_new_tokens
    assert engine.mask_id is not None
    ids = list(prompt)
    steps = 0
    for start in range(len(prompt) // length * length, total, length):
        canvas = Canvas.open(start, length, ids[start:], engine.mask_id, engine.device)
        final = False
        while not final:
            window = ids[:start] + canvas.tokens.tolist()
            logits = engine.logits(window, block_length=length)[start:]
            logits = suppress_mask(logits, engine.mask_id)
            prediction = predict(logits, config, seed=0, start=start, step=canvas.step)
            new = unmask(prediction, canvas.undecided, config)
            changed = edit(prediction, canvas.tokens, canvas.editable, config)
            tokens = torch.where(new, prediction.tokens, canvas.tokens)
            tokens = torch.where(changed, prediction.best, tokens)
            undecided = canvas.undecided & ~new
            post = canvas.post_steps + canvas.filled
            filled = not bool(undecided.any())
            settled = canvas.filled and not bool(changed.any())
            final = settled or (filled and post >= config.max_post_steps)
            canvas = replace(
                canvas, tokens=tokens, undecided=undecided, filled=filled,
                step=canvas.step + 1, post_steps=post,
            )  # fmt: skip
            steps += 1
        ids[start:] = canvas.tokens.tolist()
    return ids[len(prompt) : total], steps


def run_engine(engine: Engine, prompt: list[int], config: DecodeConfig) -> FinishEvent:
    engine.reset_cache()
    *_, last = engine.generate(prompt, config)
    assert isinstance(last, FinishEvent)
    return last


def experts_per_step(engine: Engine, prompt: list[int], config: DecodeConfig) -> float:
    """Distinct routed experts that a decoding forward reads, mean over forwards and layers."""
    counts: list[int] = []

    def count(_: nn.Module, inputs: tuple) -> None:
        ids = inputs[1]
        if ids.shape[0] <= 2 * config.block_length:
            counts.append(ids.unique().numel())

    hooks = [
        module.register_forward_pre_hook(count)
        for module in engine.model.modules()
        if isinstance(module, Experts)
    ]
    run_engine(engine, prompt, config)
    for hook in hooks:
        hook.remove()
    return sum(counts) / len(counts)


def step_bound(engine: Engine, experts: float, rates: Rates) -> tuple[float, float]:
    """(seconds for the bytes, seconds for the FLOPs) of a 32-token step."""
    config = engine.config
    one = 3 * config.moe_intermediate_size * config.hidden_size
    moe_layers = config.num_hidden_layers - config.first_k_dense_replace
    stacks = moe_layers * config.num_experts * one
    always = engine.parameters - stacks - engine.model.embedding_table.numel()
    read = always + moe_layers * experts * one
    used = always + moe_layers * config.num_experts_per_tok * one
    size = engine.model.embedding_table.element_size()
    return read * size / rates.copy, 2 * 32 * used / rates.matmul


def report(name: str, engine: Engine, prompt: list[int], config: DecodeConfig) -> None:
    rates = measure_rates()
    run_engine(engine, prompt, replace(config, max_new_tokens=64))
    fast = run_engine(engine, prompt, config)
    begin = time.perf_counter()
    tokens, steps = plain_loop(engine, prompt, config)
    plain = time.perf_counter() - begin
    stats: Stats = fast.stats
    assert stats.steps == steps
    assert list(fast.token_ids) == tokens
    # Every block edited until the limit: the same steps, and no forward shared by two blocks.
    restless = run_engine(engine, prompt, replace(config, editing_threshold=0.0)).stats
    experts = experts_per_step(engine, prompt, replace(config, max_new_tokens=64))
    by_bytes, by_flops = step_bound(engine, experts, rates)
    bound = 1 / max(by_bytes, by_flops)
    print(
        f"\n{name}: {engine.parameters / 1e6:.1f} M parameters, {engine.dtype}, "
        f"{len(prompt)} prompt + {stats.tokens} new tokens, {torch.get_num_threads()} threads"
    )
    print(
        f"  this processor: copy {rates.copy / 1e9:.1f} GB/s, matmul "
        f"{rates.matmul / 1e9:.0f} GFLOP/s; {experts:.1f} of {engine.config.num_experts} "
        "experts a step"
    )
    print(f"  {'':14}{'forwards/s':>12}{'tokens/s':>12}{'seconds':>10}")
    rows: Iterator[tuple[str, float, float, float]] = iter((
        ("engine", stats.forwards_per_second, stats.tokens_per_second_whole, stats.whole_seconds),
        ("none settles", restless.forwards_per_second, restless.tokens_per_second_whole,
         restless.whole_seconds),
        ("plain loop", steps / plain, stats.tokens / plain, plain),
        ("bound", bound, bound * stats.tpf, stats.forwards / bound),
    ))  # fmt: skip
    for label, forwards, rate, seconds in rows:
        print(f"  {label:14}{forwards:12.1f}{rate:12.1f}{seconds:10.2f}")
    print(
        f"  engine over plain loop {plain / stats.whole_seconds:.1f} times "
        f"({plain / steps * restless.steps / restless.whole_seconds:.1f} if no block settles); "
        f"engine at {stats.forwards_per_second / bound:.2f} of the bound "
        f"(bytes {by_bytes * 1e3:.2f} ms, FLOPs {by_flops * 1e3:.2f} ms a step)"
    )
    print(f"  steps {stats.steps}, forwards {stats.forwards}, TPF {stats.tpf:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("demo", "large", "both"), default="both")
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    # Eight tokens a step, then one that settles the block: about what real text takes, from weights
    # that have nothing to say. No probability is above the editing threshold, so blocks settle;
    # the line "none settles" is for the opposite, where random weights edit to the limit.
    config = DecodeConfig(
        max_new_tokens=512, threshold=1.0, min_unmask=8, editing_threshold=1.0,
        max_post_steps=1, stop_at_end=False, stop_ids=(),
    )  # fmt: skip
    prompt = [7 * i % 1000 for i in range(256)]
    if arguments.model in ("demo", "both"):
        engine = Engine.load(DEMO, device="cpu")
        if arguments.threads:
            torch.set_num_threads(arguments.threads)
        report("demo", engine, prompt, config)
    if arguments.model in ("large", "both"):
        torch.set_num_threads(arguments.threads or torch.get_num_threads())
        report("large", large_engine(), prompt, config)


if __name__ == "__main__":
    main()
