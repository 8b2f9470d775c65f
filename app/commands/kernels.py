"""`orl-chat kernels`: every kernel compiled for a card, without the card, and what it costs.

Compiled are the kernels that the program has, at LLaDA2.1-mini's shapes; a step's launches and
bytes are those of the kernels listed. Nothing here is measured: the bounds are arithmetic.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from app.commands.running import CommandError, say
from engine.kernels.bounds import CONTEXT, Bound, bounds
from engine.machine.memory_plan import MINI

if TYPE_CHECKING:
    from engine.kernels.offline import Compiled
    from engine.kernels.step import StepKernel

ACTIVATIONS = ("auto", "bf16", "nvfp4")


@dataclass(frozen=True)
class Kernels:
    """A call: the architecture, of activations, tokens of a forward, NVFP4 beside the experts."""

    arch: str
    activations: str = "auto"
    tokens: int = 32
    experts_only: bool = False
    as_json: bool = False


def kernels(call: Kernels) -> int:
    """Compile, count and print."""
    if find_spec("triton") is None:
        raise CommandError(
            "Compiling kernels needs triton, which is not installed; install it: pip install triton"
        )
    listed, figures = _compile(call)
    limits = list(bounds(MINI, packed_linears=not call.experts_only))
    if call.as_json:
        print(json.dumps(_to_json(call, listed, figures, limits)))
    else:
        print(_to_text(call, listed, figures, limits))
    return 0


def _compile(call: Kernels) -> tuple[list["StepKernel"], list["Compiled"]]:
    from engine.kernels.offline import ARCHITECTURES, compile_distinct
    from engine.kernels.plans import has_fp4_units
    from engine.kernels.step import Step, expected_distinct, step_kernels

    if call.arch not in ARCHITECTURES:
        raise CommandError(f"--arch must be one of {', '.join(ARCHITECTURES)}, got {call.arch}")
    if call.activations not in ACTIVATIONS:
        raise CommandError(
            f"--activations must be one of {', '.join(ACTIVATIONS)}, got {call.activations}"
        )
    if not 1 <= call.tokens <= 4096:
        raise CommandError(f"--tokens must be from 1 to 4096, got {call.tokens}")
    capability = ARCHITECTURES[call.arch]
    rounded = call.activations == "nvfp4" or (
        call.activations == "auto" and has_fp4_units(capability)
    )
    step = Step(
        MINI,
        capability,
        call.tokens,
        expected_distinct(MINI, call.tokens),
        rounded,
        packed_linears=not call.experts_only,
    )
    listed = list(step_kernels(step))
    say(f"Compiling for {call.arch}; this takes a minute or two.")
    return listed, compile_distinct((kernel.launch for kernel in listed), call.arch)


def _to_json(
    call: Kernels,
    listed: Sequence["StepKernel"],
    figures: Sequence["Compiled"],
    limits: list[Bound],
) -> dict[str, Any]:
    return {
        "arch": call.arch,
        "kernels": [
            {
                "name": kernel.name,
                **asdict(compiled),
                "launches": kernel.count,
                "bytes": round(kernel.bytes),
                "flops": round(kernel.flops),
            }
            for kernel, compiled in zip(listed, figures, strict=True)
        ],
        "launches_per_step": sum(kernel.count for kernel in listed),
        "bytes_per_step": round(sum(kernel.bytes for kernel in listed)),
        "bounds": [asdict(bound) for bound in limits],
    }


def _to_text(
    call: Kernels,
    listed: Sequence["StepKernel"],
    figures: Sequence["Compiled"],
    limits: list[Bound],
) -> str:
    lines = [
        f"LLaDA2.1-mini on {call.arch}, a forward of {call.tokens} tokens. Bytes and FLOPs are of",
        "all a kernel's launches in a forward; spills and stack are bytes of a thread.",
        "",
        f"{'kernel':<32}{'launches':>9}{'registers':>10}{'spills':>7}{'stack':>6}"
        f"{'shared':>8}{'MB':>9}{'GFLOP':>8}  instruction",
    ]
    for kernel, compiled in zip(listed, figures, strict=True):
        lines.append(
            f"{kernel.name:<32}{kernel.count:>9}{compiled.registers:>10}{compiled.spills:>7}"
            f"{compiled.stack:>6}{compiled.shared:>8}{kernel.bytes / 1e6:>9.1f}"
            f"{kernel.flops / 1e9:>8.1f}  {compiled.instruction or '-'}"
        )
    total = sum(kernel.bytes for kernel in listed)
    lines += [
        "",
        f"Listed: {sum(kernel.count for kernel in listed)} launches and {total / 1e9:.2f} GB a "
        "forward.",
        "",
        *_bounds_table(limits),
    ]
    return "\n".join(lines)


def _bounds_table(limits: list[Bound]) -> list[str]:
    """One line a card, one column a number of distinct experts."""
    columns = sorted({bound.distinct for bound in limits})
    lines = [
        "Forwards a second at most, by the memory's speed, where a layer meets so many distinct",
        f"experts, with {CONTEXT:,} tokens of context (with the embedding table read for z):",
        "",
        f"{'card':<18}{'GB/s':>6}" + "".join(f"{n:>14}" for n in columns),
    ]
    for card in dict.fromkeys(bound.card for bound in limits):
        own = {bound.distinct: bound for bound in limits if bound.card == card}
        cells = (
            f"{own[n].forwards_per_s:.0f} ({own[n].forwards_per_s_with_z:.0f})" for n in columns
        )
        lines.append(
            f"{card:<18}{own[columns[0]].gb_per_s:>6}" + "".join(f"{cell:>14}" for cell in cells)
        )
    return lines
