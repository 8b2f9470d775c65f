"""Where a forward's time goes on a card, launch by launch, and whether other plans for the experts
would take less: part of `tests.benchmarks.gpu`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any
from unittest.mock import patch

from engine.decode import forward_launches
from engine.decode.denoise import Denoiser
from engine.decode.loop_launches import LoopLaunches
from engine.kernels.launch import Launch
from engine.kernels.plans import Capability, Plan, expert_plan

Seconds = Callable[[Callable[[], object]], float]
"""Runs something often enough and says how long it takes."""


def kernel_times(launches: Sequence[Launch], seconds: Seconds) -> dict[str, dict[str, float]]:
    """Of each kernel of a forward: how often it is launched, the microseconds of one launch, and of
    all of them. Launched again and again, a small one finds what it reads in the card's cache."""
    times: dict[str, dict[str, float]] = {}
    for launch in launches:
        if launch.name not in times:
            one = 1e6 * seconds(launch.run)
            times[launch.name] = {"launches": 0, "us": round(one, 2)}
        times[launch.name]["launches"] += 1
    for figures in times.values():
        figures["all_us"] = round(figures["launches"] * figures["us"], 1)
    return times


def plan_times(
    denoiser: Denoiser, capability: Capability, routed: Sequence[Launch], seconds: Seconds
) -> dict[str, dict[str, float]]:
    """Microseconds of gate and up and of down for every number of warps and of pairs a slot that
    compiles, beside the plan that is used; `routed` are the launches of the same forward before the
    first experts, which fill the slots."""
    times: dict[str, dict[str, float]] = {}
    for warps, rows in product((2, 4, 8), (8, 16)):

        def plan(*given: Any, warps: int = warps, rows: int = rows, **named: Any) -> Plan:
            return replace(expert_plan(*given, **named), warps=warps, rows=rows)

        name = f"{warps} warps, {rows} pairs"
        try:
            with patch.object(forward_launches, "expert_plan", plan):
                launches = LoopLaunches(denoiser, capability, pinned=False).launches()["narrow"]
            times[name] = _first_experts(launches, routed, seconds)
        except Exception as error:  # what a card refuses is an answer too
            times[name] = {type(error).__name__: 0.0}
    return times


def _first_experts(
    launches: Sequence[Launch], routed: Sequence[Launch], seconds: Seconds
) -> dict[str, float]:
    """Of the first layer with experts, for the hidden states that its router was given in `routed`:
    other launches of the same forward."""
    index = next(i for i, one in enumerate(launches) if one.name == "router")
    router, gate_up, down = launches[index : index + 3]
    before = next(one for one in routed if one.name == "router")
    router.arguments["hidden"].copy_(before.arguments["hidden"])
    router.run()
    return {
        "gate_up_us": round(1e6 * seconds(gate_up.run), 2),
        "down_us": round(1e6 * seconds(down.run), 2),
    }
