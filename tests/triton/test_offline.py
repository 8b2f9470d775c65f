"""The small kernels at LLaDA2.1-mini's shapes, compiled for every card the engine supports: no
spills, no stack, and no more shared memory than the card gives."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Bytes a program may have (CUDA programming guide, technical specifications by capability).
SHARED = {
    "sm_80": 163 << 10,
    "sm_86": 99 << 10,
    "sm_89": 99 << 10,
    "sm_90": 227 << 10,
    "sm_100": 227 << 10,
    "sm_120": 99 << 10,
}
KERNELS = {
    "norm", "qkv", "attention", "attention_combine", "router_scores", "router_choice", "scan",
    "scan_combine", "cut", "draw", "draw_combine", "soft_sums", "soft_mix", "soft_add",
    "soft_list", "soft_gather", "decide",
}  # fmt: skip

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="Triton is not installed"
    ),
    pytest.mark.slow,
]


@pytest.mark.parametrize("arch", SHARED)
def test_every_kernel_fits_the_card(arch: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.triton.offline", arch],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    compiled = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["name"] for one in compiled} == KERNELS
    assert [one for one in compiled if one["spills"] or one["stack"]] == []
    assert [one for one in compiled if one["shared"] > SHARED[arch]] == []
    products = {one["name"] for one in compiled if one["instructions"]}
    assert {"attention", "soft_mix"} <= products  # on the matrix units, whatever they are called
