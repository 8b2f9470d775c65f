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
from engine.kernels.bounds import (
    CONTEXT,
    DISTINCT,
    GOAL,
    MEASURES,
    REACHED,
    TPF,
    Bound,
    bounds,
    least_tpf,
    tokens_per_s,
)
from engine.machine.memory_plan import MINI

if TYPE_CHECKING:
    from engine.decode.step import StepKernel
    from engine.kernels.offline import Compiled

ACTIVATIONS = ("auto", "bf16", "nvfp4")
RESIDUAL = ("none", "whole", "top-k")


@dataclass(frozen=True)
class Kernels:
    """A call: the architecture, of activations, tokens of a forward, NVFP4 beside the experts, and
    the residual context."""

    arch: str
    activations: str = "auto"
    tokens: int = 32
    experts_only: bool = False
    z: str = "whole"
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
    from engine.decode.step import Step, expected_distinct, step_kernels
    from engine.kernels.offline import ARCHITECTURES, compile_distinct
    from engine.kernels.plans import has_fp4_units

    if call.arch not in ARCHITECTURES:
        raise CommandError(f"--arch must be one of {', '.join(ARCHITECTURES)}, got {call.arch}")
    for name, value, known in (
        ("--activations", call.activations, ACTIVATIONS), ("--z", call.z, RESIDUAL),
    ):  # fmt: skip
        if value not in known:
            raise CommandError(f"{name} must be one of {', '.join(known)}, got {value}")
    if not 1 <= call.tokens <= 64:
        raise CommandError(f"--tokens must be from 1 to 64 (two blocks), got {call.tokens}")
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
        z=call.z,
    )
    listed = step_kernels(step)
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
                "part": kernel.part,
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
        f"{'part':<18}{'kernel':<32}{'launches':>9}{'registers':>10}{'spills':>7}{'stack':>6}"
        f"{'shared':>8}{'MB':>9}{'GFLOP':>8}  instruction",
    ]
    for kernel, compiled in zip(listed, figures, strict=True):
        lines.append(
            f"{kernel.part:<18}{kernel.name:<32}{kernel.count:>9}{compiled.registers:>10}{compiled.spills:>7}"
            f"{compiled.stack:>6}{compiled.shared:>8}{kernel.bytes / 1e6:>9.1f}"
            f"{kernel.flops / 1e9:>8.1f}  {compiled.instruction or '-'}"
        )
    context = [kernel for kernel in listed if kernel.part == "residual context"]
    lines += [
        "",
        f"Listed: {_totals(listed)} a step. An expert layer has "
        f"{sum(k.count for k in listed if k.part == 'expert layer') // _expert_layers()} launches.",
        f"Residual context, for models with an adapter, are {_totals(context)} of these.",
        "",
        *_bounds_table(limits),
        "",
        *_speed_table("RTX 5090"),
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


def _totals(kernels: Sequence["StepKernel"]) -> str:
    launches, read = sum(k.count for k in kernels), sum(k.bytes for k in kernels)
    return f"{launches} launches and {read / 1e9:.2f} GB"


def _expert_layers() -> int:
    return MINI.num_hidden_layers - MINI.first_k_dense_replace


def _speed_table(card: str) -> list[str]:
    """Tokens a second by measure, experts and tokens a step, and where GOAL is possible."""
    lines = [
        f"Tokens a second at most on an {card}, at {' / '.join(map(str, TPF))} tokens a step, and",
        f"the tokens a step from which {GOAL:,} are possible at {REACHED:.0%} of that speed:",
        "",
        f"{'':<30}" + "".join(f"{f'{n} experts':>26}" for n in DISTINCT),
    ]
    for measure in MEASURES:
        cells = []
        for distinct in DISTINCT:
            rates = (tokens_per_s(MINI, card, distinct, tpf, measure) for tpf in TPF)
            least = least_tpf(MINI, card, distinct, measure)
            needed = "never" if least is None else f"from {least:.1f}"
            cells.append(f"{'/'.join(f'{rate:.0f}' for rate in rates)} {needed}")
        lines.append(f"{measure.name:<30}" + "".join(f"{cell:>26}" for cell in cells))
    return lines
