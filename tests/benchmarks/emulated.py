"""A step of LLaDA2.1-mini on the emulated card: what each kernel moves, instruction by instruction.

    python -m tests.benchmarks.emulated [--arch sm_90] [--activations bf16|nvfp4] [--tokens 32]
        [--plain] [--context 96] [--vocabulary 16384] [--races] [--seed N]

Real shapes, but one dense and one expert layer and a smaller vocabulary; random weights, packed as
NVFP4 unless `--plain`. Printed for each launch: programs, warps and the instructions that warps
execute; bytes that lanes ask for, and those of the 32-byte sectors that are moved for them; passes
through shared memory and the least possible; the instructions that lose most. And last the logits'
error against the model's own modules in float32, beside that of the same modules in bfloat16.

It takes minutes and needs triton and g++, but no card: the figures are counts and no times.
"""

import argparse
import copy
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.config import DecodeConfig
from engine.decode.forward_launches import ForwardLaunches, Shared
from engine.decode.kv_cache import KVCache
from engine.decode.step import Step
from engine.kernels import reference
from engine.kernels.launch import Launch
from engine.kernels.loop_state import LoopState
from engine.kernels.offline import ARCHITECTURES
from engine.kernels.triton_sampling import Sampler
from engine.machine.memory_plan import MINI
from engine.model.tiles import tile_weights
from engine.model.transformer import LLaDA2Model
from tests.benchmarks.random_weights import random_model
from tests.ptx.card import Card, Run, emulated
from tests.ptx.library import Counters

CPU = torch.device("cpu")
BLOCK = 32
SECTOR = 32
WORST = 4


@dataclass(frozen=True)
class Inputs:
    """The open blocks' tokens, and what stands before them: keys and values of every layer."""

    tokens: Tensor
    keys: list[Tensor]
    values: list[Tensor]

    @property
    def start(self) -> int:
        return self.keys[0].shape[1]


def main() -> None:
    """Run and print."""
    options = _parse()
    config = replace(MINI, num_hidden_layers=2, vocab_size=options.vocabulary)
    packed, capability = not options.plain, ARCHITECTURES[options.arch]
    step = Step(
        config, capability, options.tokens, 0.0, rounded=options.activations == "nvfp4" and packed,
        packed_linears=packed, packed_experts=packed, tiles=False,
    )  # fmt: skip
    card = Card(options.arch, options.seed, finds_races=options.races, ledger=[])
    with torch.no_grad():
        model = _timed("a model with random weights", lambda: random_model(step, CPU, options.seed))
        inputs = _draw(step, options.context, options.seed)
        narrow = _timed("its logits in bfloat16", lambda: _by_modules(model, inputs))
        # Tiled only now, and a copy of it: the modules read weights as they were drawn.
        ours = copy.deepcopy(model)
        wide = model.float()
        exact = _timed("its logits in float32", lambda: _by_modules(wide, inputs))
        tile_weights(ours, capability)
        with emulated(card):
            found = _run(ours, step, inputs, card)
    _print_errors(found, narrow, exact)


def _print_errors(found: Tensor, narrow: Tensor, exact: Tensor) -> None:
    """Of the middle row: a row for which a last bit tips the choice of an expert is another row."""
    ours, theirs = ((logits - exact).abs().mean(-1) for logits in (found, narrow))
    size, error, allowed = (x.median().item() for x in (exact.abs().mean(-1), ours, theirs))
    print(
        f"logits of a row: mean {size:.4f}, off by {error:.5f}; bfloat16 modules by {allowed:.5f}"
    )
    print(f"error over that of bfloat16: {error / allowed:.2f}")
    tipped = [int((rows > 3 * allowed).sum()) for rows in (ours, theirs)]
    print(f"rows with other experts, of {len(found)}: {tipped[0]}; of the modules' {tipped[1]}")
    print(f"same argmax: {(found.argmax(-1) == narrow.argmax(-1)).float().mean().item():.3f}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--arch", choices=sorted(ARCHITECTURES), default="sm_90")
    parser.add_argument("--activations", choices=("bf16", "nvfp4"), default="bf16")
    parser.add_argument("--plain", action="store_true", help="weights in bfloat16")
    parser.add_argument("--tokens", type=int, choices=(BLOCK, 2 * BLOCK), default=BLOCK)
    parser.add_argument("--context", type=int, default=96, help="tokens before the open blocks")
    parser.add_argument("--vocabulary", type=int, default=16384)
    parser.add_argument("--races", action="store_true", help="look for them: slower, more memory")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _timed(what: str, make: Callable[[], Any]) -> Any:
    begin = time.perf_counter()
    made = make()
    print(f"{what}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    return made


def _draw(step: Step, start: int, seed: int) -> Inputs:
    config, generator = step.config, torch.Generator().manual_seed(seed + 1)
    shape = config.num_key_value_heads, start, config.head_dim
    keys, values = (
        [torch.randn(shape, generator=generator).bfloat16() for _ in range(2)] for _ in range(2)
    )
    tokens = torch.randint(0, config.vocab_size, (step.tokens,), generator=generator)
    return Inputs(tokens, keys, values)


def _cache(model: LLaDA2Model, inputs: Inputs) -> KVCache:
    """With the inputs' keys and values, and room for the open blocks."""
    cache = KVCache(model.config, CPU, model.embedding_table.dtype)
    cache.keep_prefix([], BLOCK)
    cache.reserve(inputs.start + len(inputs.tokens))
    for ours, theirs in zip(cache.buffers, (inputs.keys, inputs.values), strict=True):
        for mine, given in zip(ours, theirs, strict=True):
            mine[:, : inputs.start] = given
    cache.commit([0] * inputs.start)
    return cache


def _by_modules(model: LLaDA2Model, inputs: Inputs) -> Tensor:
    """Logits, as plain torch computes them."""
    positions = torch.arange(inputs.start, inputs.start + len(inputs.tokens))
    attend = _cache(model, inputs).attend(inputs.start)
    logits: Tensor = model(model.embed(inputs.tokens), positions, attend)
    return logits.float()


def _launches(model: LLaDA2Model, step: Step, inputs: Inputs, logits: Tensor) -> list[Launch]:
    """Of the forward and its predictions."""
    config, cache = model.config, _cache(model, inputs)
    keys, values = cache.buffers
    cos, sin = reference.rotary_tables(
        torch.arange(cache.capacity), config.rotary_dim, config.rope_theta, torch.bfloat16
    )
    state = LoopState.empty(BLOCK, CPU)
    state.begin([], inputs.start, config.vocab_size - 1, {"last_start": inputs.start, "most": 1})
    blocks = step.tokens // BLOCK
    state.tokens.flatten()[: step.tokens].copy_(inputs.tokens)
    shared = Shared(
        state.tokens, state.undecided, state.states, state.flag("start"), keys, values, cos, sin,
        None,
    )  # fmt: skip
    greedy = DecodeConfig(mask_id=config.vocab_size - 1)
    sampler = Sampler(greedy, step.tokens, config.vocab_size, 0, state.states[:blocks])
    forward = ForwardLaunches(model, step.tokens, step.capability).forward(shared, logits)
    return forward + sampler.launches(logits)


def _run(model: LLaDA2Model, step: Step, inputs: Inputs, card: Card) -> Tensor:
    """Logits of the emulated card; each launch is printed when it has run."""
    logits = torch.full((step.tokens, model.config.vocab_size), float("nan")).bfloat16()
    for launch in _launches(model, step, inputs, logits):
        _timed(launch.name, launch.run)
        assert card.ledger
        print(_described(launch.name, card.ledger.pop()), flush=True)
    return logits.float()


def _described(name: str, run: Run) -> str:
    """Figures of a launch, and its instructions that lose most."""
    total = Counters(*(sum(getattr(c, n) for c in run.counters) for n, _ in Counters._fields_))
    x, y, z = run.grid.size
    lines = [
        f"{name}: {x * y * z} programs of {run.grid.warps} warps, {run.grid.shared} bytes shared, "
        f"{total.executed:,} instructions; asked {total.bytes:,} bytes, moved "
        f"{total.sectors * SECTOR:,}; {total.wavefronts:,} shared passes, least {total.least:,}"
    ]
    lost = sorted(zip(map(_lost, run.counters), run.texts, run.counters, strict=True), reverse=True,
                  key=lambda row: row[0])  # fmt: skip
    for loss, text, one in lost[:WORST]:
        if loss > 0:
            lines.append(
                f"    {' '.join(text.split())[:60]}: {one.executed:,} times, asked {one.bytes:,}, "
                f"moved {one.sectors * SECTOR:,}, passes {one.wavefronts:,} of {one.least:,}"
            )
    return "\n".join(lines)


def _lost(one: Counters) -> float:
    """In sectors and passes, which are about as dear."""
    return one.sectors - one.bytes / SECTOR + one.wavefronts - one.least


if __name__ == "__main__":
    main()
