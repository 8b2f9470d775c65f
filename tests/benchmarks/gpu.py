"""A first session on a card: correctness, then LLaDA2.1-mini's shape at full size, then figures.

    python -m tests.benchmarks.gpu [--no-tests] [--activations bf16|nvfp4] [--plain] [--seed N]

Needs this checkout, torch, triton, cuda-bindings and plain pytest; weights are random NVFP4, made
on the device (about 10 GB). What is printed last is one JSON object: card, versions, date; forwards
a second, 32 and 64 wide, launched one by one, as a graph, and as one whose kernels are launched
ahead of time; GB/s against a measured device copy and the share of the bound; whole answers with
and without graph and overlap, and the time between forwards that no kernel accounts for;
microseconds of each kernel, and of the experts' by other plans. `--plain` adds the same step in
plain torch (twice the memory).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch

from engine.config import DecodeConfig
from engine.decode.cuda_graphs import make_maker
from engine.decode.denoise import Denoiser
from engine.decode.graph import Graph, Work
from engine.decode.loop_launches import LoopLaunches
from engine.decode.plan import Plan
from engine.decode.step import Step
from engine.events import FinishEvent
from engine.generate import Engine
from engine.kernels import CHOICE
from engine.kernels.bounds import forward_bytes
from engine.kernels.plans import Capability, has_fp4_units, launches_ahead
from engine.machine.memory_plan import MINI
from engine.model.transformer import LLaDA2Model
from tests.benchmarks.gpu_kernels import kernel_times, plan_times
from tests.benchmarks.random_weights import random_model

ROOT = Path(__file__).parents[2]
DEVICE = "cuda"
MASK = 156_895
WORDS = 150_000
PROMPT = 1024
ANSWER = 512
REPEATS = 50

# Instructions of a lane for a weight that is decoded in registers, counted in the experts' machine
# code for sm_90 (gate and up 2.9, down 3.2): the other bound of W4A16, beside bytes.
LANE_OPS_PER_WEIGHT = 3.0
LANES_PER_PROCESSOR = 128


def main() -> None:
    """Run and print."""
    options = _parse()
    if not torch.cuda.is_available():
        sys.exit("There is no CUDA device here; this benchmark needs one.")
    figures: dict[str, Any] = {"date": date.today().isoformat(), **_machine()}
    if not options.no_tests:
        figures["tests"] = _tests()
        _say(f"tests: {figures['tests']}")
    device = torch.device(DEVICE)
    capability = torch.cuda.get_device_capability(device)
    native = options.activations == "nvfp4"
    if options.activations == "auto":
        native = has_fp4_units(capability)
    step = Step(MINI, capability, 32, 0.0, rounded=native)
    model = random_model(step, device, options.seed)
    copy = _copy_rate(device)
    figures |= {"activations": "nvfp4" if native else "bf16", "copy_gb_per_s": round(copy / 1e9)}
    plan, denoiser = _behind_a_prompt(model)
    launches, early = (
        _launches(plan, denoiser, capability, ahead=ahead)
        for ahead in (False, launches_ahead(capability))
    )
    figures |= _forwards(launches, early, device, copy, native=native)
    figures |= _kernels(denoiser, launches, capability)
    figures["answers"] = _answers(model, figures)
    if options.plain:
        figures["plain_torch_ms"] = _plain(step, device, options.seed)
    print(json.dumps(figures, indent=1))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--no-tests", action="store_true", help="measure only")
    parser.add_argument("--activations", choices=("auto", "bf16", "nvfp4"), default="auto")
    parser.add_argument("--plain", action="store_true", help="the same step in plain torch too")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _machine() -> dict[str, Any]:
    import triton

    properties = torch.cuda.get_device_properties(0)
    return {
        "card": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "memory_gb": round(properties.total_memory / 1e9),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
    }


def _tests() -> str:
    """The last line of tests/gpu."""
    command = [sys.executable, "-m", "pytest", "-q", "-c", "tests/gpu/pytest.ini", "tests/gpu"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if result.returncode:
        _say(result.stdout[-6000:] + result.stderr[-1000:])
    lines = result.stdout.strip().splitlines()
    return lines[-1] if lines else f"pytest ended with {result.returncode}"


def _copy_rate(device: torch.device) -> float:
    """Bytes a second that a copy of a gigabyte reads and writes."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / _seconds(lambda: target.copy_(source), 20)


def _seconds(run: Callable[[], object], repeats: int) -> float:
    """Of one call, on the device's clock, after three that do not count."""
    for _ in range(3):
        run()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(repeats):
        run()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / 1e3 / repeats


def _engine(model: LLaDA2Model) -> Engine:
    return Engine(model, None, mask_id=MASK, stop_ids=())


def _config(**changes: Any) -> DecodeConfig:
    """Random weights are sure of nothing: the number of tokens a step is set by hand."""
    plain = DecodeConfig(
        max_new_tokens=ANSWER, threshold=1.0, editing_threshold=2.0, min_unmask=8, mask_id=MASK,
        stop_at_end=False, stop_ids=(),
    )  # fmt: skip
    return replace(plain, **changes)


def _prompt() -> list[int]:
    generator = torch.Generator().manual_seed(7)
    return torch.randint(0, WORDS, (PROMPT,), generator=generator).tolist()


def _behind_a_prompt(model: LLaDA2Model) -> tuple[Plan, Denoiser]:
    """At the beginning of an answer."""
    engine = _engine(model)
    list(engine.generate(_prompt(), _config(max_new_tokens=64)))
    plan, denoiser = engine._prepare(_prompt(), _config(), False, None)
    denoiser.cache.reserve(plan.last_start + 64)
    return plan, denoiser


def _launches(
    plan: Plan, denoiser: Denoiser, capability: Capability, *, ahead: bool
) -> LoopLaunches:
    """Those of an answer's loop, at its beginning."""
    launches = LoopLaunches(denoiser, capability, pinned=True, ahead=ahead)
    launches.begin(denoiser)
    launches.state.begin([], plan.first_start, MASK, {"last_start": plan.last_start, "most": 9})
    return launches


def _kernels(denoiser: Denoiser, launches: LoopLaunches, capability: Capability) -> dict[str, Any]:
    """What each kernel takes, and what the experts' would by other plans."""
    launches.narrow()
    narrow = launches.launches()["narrow"]
    times = kernel_times(narrow, partial(_seconds, repeats=REPEATS))
    plans = plan_times(denoiser, capability, narrow, partial(_seconds, repeats=REPEATS))
    _say(json.dumps({"kernels": times, "plans": plans}))
    return {"kernels": times, "plans": plans}


def _forwards(
    launches: LoopLaunches, early: LoopLaunches, device: torch.device, copy: float, *, native: bool
) -> dict[str, Any]:
    """Forwards with their predictions, behind a prompt: launched one by one, as a graph, and with
    kernels that are launched `early`."""
    figures: dict[str, Any] = {}
    for width, piece, other in (
        (32, launches.narrow, early.narrow), (64, launches.wide, early.wide)
    ):  # fmt: skip
        one_by_one = _seconds(piece, REPEATS)
        together = _as_graph(piece, launches, device, ahead=False)
        ahead = _as_graph(other, early, device, ahead=True)
        distinct = _distinct(launches, "narrow" if width == 32 else "wide")
        read = forward_bytes(MINI, distinct, context=PROMPT)
        bounds = {"bytes": read / copy}
        if not native:
            bounds["instructions"] = _weights(distinct) * LANE_OPS_PER_WEIGHT / _lane_rate()
        tightest = max(bounds.values())
        figures[f"forward_{width}"] = {
            "distinct_experts": round(distinct, 1),
            "gb": round(read / 1e9, 2),
            "one_by_one_ms": round(1e3 * one_by_one, 3),
            "graph_ms": round(1e3 * together, 3),
            "graph_ahead_ms": ahead and round(1e3 * ahead, 3),
            "forwards_per_s": round(1 / together, 1),
            "gb_per_s": round(read / together / 1e9),
            "bounds_ms": {name: round(1e3 * bound, 3) for name, bound in bounds.items()},
            "share_of_bound": round(tightest / together, 3),
            "graph_over_one_by_one": round(one_by_one / together, 2),
            "ahead_over_graph": ahead and round(together / ahead, 3),
        }
        _say(f"{width} wide: {figures[f'forward_{width}']}")
    return figures


def _as_graph(
    piece: Callable[[], None], launches: LoopLaunches, device: torch.device, *, ahead: bool
) -> float | None:
    """Seconds of a piece as a graph, its kernels launched `ahead` of time or not; None where the
    card or its driver does not do that."""
    if ahead and not launches_ahead(torch.cuda.get_device_capability(device)):
        return None
    piece()
    maker, _ = make_maker(device, ahead=ahead)
    graph = maker.capture([Work(piece)], launches)
    return _seconds(partial(_launch, graph), REPEATS) if maker.ahead == ahead else None


def _launch(graph: Graph) -> None:
    graph.launch(torch.cuda.current_stream())


def _distinct(launches: LoopLaunches, piece: str) -> float:
    """Experts that a layer met in the last forward of a piece, on average."""
    met = [
        launch.arguments["ids"].unique().numel() - launch.constants["SHARED"]
        for launch in launches.launches()[piece]
        if launch.name == "router"
    ]
    return sum(met) / len(met)


def _weights(distinct: float) -> float:
    """Packed weights that a forward decodes."""
    return forward_bytes(MINI, distinct, packed_head=True, context=0) * 16 / 9


def _lane_rate() -> float:
    """Lane instructions a second."""
    properties = torch.cuda.get_device_properties(0)
    clock = getattr(properties, "clock_rate", 1_800_000) * 1e3
    return float(properties.multi_processor_count * LANES_PER_PROCESSOR * clock)


def _answers(model: LLaDA2Model, figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Whole answers; `gap` is the share of a forward's time that no kernel accounts for."""
    table = []
    for graph, ahead in ((True, True), (True, False), (False, False)):
        for overlap in (True, False):
            engine = _engine(model)
            engine.use_graph(graph, ahead=ahead)
            runs = [_answer(engine, _config(overlap=overlap)) for _ in range(3)]
            stats = min(runs, key=lambda finish: finish.stats.decode_seconds).stats
            timed = [figures[f"forward_{w}"] for w in (32, 64)]
            alone, early = ([row[f] for row in timed] for f in ("graph_ms", "graph_ahead_ms"))
            narrow, wide = (ms / 1e3 for ms in (early if ahead and all(early) else alone))
            busy = (stats.forwards - stats.fused) * narrow + stats.fused * wide
            row = {
                "graph": graph, "ahead": ahead, "overlap": overlap, "how": engine.how,
                "forwards": stats.forwards, "steps": stats.steps, "fused": stats.fused,
                "forwards_per_s": round(stats.forwards_per_second, 1),
                "tokens_per_s": round(stats.tokens_per_second, 1),
                "gap": round(1 - busy / stats.decode_seconds, 3),
            }  # fmt: skip
            _say(str(row))
            table.append(row)
    return table


def _answer(engine: Engine, config: DecodeConfig) -> FinishEvent:
    *_, finish = engine.generate(_prompt(), config)
    assert isinstance(finish, FinishEvent)
    assert finish.error is None, finish.error
    return finish


def _plain(step: Step, device: torch.device, seed: int) -> float:
    """Milliseconds of the same step in plain torch, which unpacks what it multiplies."""
    before = os.environ.get(CHOICE)
    os.environ[CHOICE] = "reference"
    try:
        model = random_model(replace(step, tiles=False), device, seed)
        begin = time.perf_counter()
        engine = _engine(model)
        list(engine.generate(_prompt()[:64], _config(max_new_tokens=32, min_unmask=32)))
        torch.cuda.synchronize()
        stats = _answer(engine, _config(max_new_tokens=32, min_unmask=8)).stats
        _say(f"plain torch: {time.perf_counter() - begin:.1f} s in all")
        return round(1e3 / stats.forwards_per_second, 1)
    finally:
        os.environ.pop(CHOICE)
        if before is not None:
            os.environ[CHOICE] = before


if __name__ == "__main__":
    main()
