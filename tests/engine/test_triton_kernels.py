"""The Triton kernels without a GPU: their numbers under the interpreter, their code offline."""

import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.machine.memory_plan import MINI

ROOT = Path(__file__).parents[2]
INTERPRETED = Path(__file__).parent / "interpreted"
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")

ARCHITECTURES = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
NATIVE = ["sm_100", "sm_120"]


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(path.name for path in INTERPRETED.glob("test_*.py")))
def test_kernels_equal_the_reference(file: str) -> None:
    """In a process of its own: whether triton interprets is settled when it is imported."""
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(INTERPRETED / file)],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
    assert "skipped" not in result.stdout


@cache
def compiled(arch: str, rounded: bool, packed: bool, tokens: int = 32):
    """(name, figures) of the distinct kernels of a step of LLaDA2.1-mini."""
    from engine.kernels.offline import ARCHITECTURES, compile_distinct
    from engine.kernels.step import Step, step_kernels

    step = Step(
        MINI, ARCHITECTURES[arch], tokens, distinct=163, rounded=rounded,
        packed_linears=packed, packed_head=packed, packed_experts=packed,
    )  # fmt: skip
    kernels = list(step_kernels(step))
    return list(
        zip((kernel.name for kernel in kernels), compile_distinct(kernels, arch), strict=True)
    )


def assert_fits(arch: str, kernels: list) -> None:
    from engine.kernels.offline import SHARED_LIMIT

    assert {name: c for name, c in kernels if c.spills or c.stack} == {}
    assert {name: c for name, c in kernels if c.shared > SHARED_LIMIT[arch]} == {}


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True], ids=["bf16", "w4a16"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_compile_without_spills(arch: str, packed: bool) -> None:
    kernels = compiled(arch, False, packed)
    assert_fits(arch, kernels)
    products = {name: c.instruction for name, c in kernels if "linear" in name or "_up" in name}
    assert all("mma" in instruction for instruction in products.values()), products
    assert all("bf16" in instruction or "f16" in instruction for instruction in products.values())


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("arch", NATIVE)
def test_fp4_units_multiply_w4a4(arch: str) -> None:
    kernels = compiled(arch, True, True)
    assert_fits(arch, kernels)
    experts = [c.instruction for name, c in kernels if name.startswith(("expert_gate", "expert_d"))]
    assert len(experts) == 2
    assert all("mxf4nvf4" in instruction for instruction in experts)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_w4a4_is_computed_on_decoded_weights_elsewhere(arch: str) -> None:
    kernels = compiled(arch, True, True)
    assert_fits(arch, kernels)
    assert not any("mxf4" in c.instruction for _, c in kernels)


def test_a_cpu_brings_no_triton() -> None:
    script = (
        "import sys, torch; from engine.kernels import ops, nvfp4_ops; import app.cli\n"
        "x = torch.zeros(1)\n"
        "print(ops(x).__name__, nvfp4_ops(x).__name__, 'triton' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == [
        "engine.kernels.reference",
        "engine.kernels.nvfp4_reference",
        "False",
    ]


@needs_triton
def test_the_triton_operations_have_the_references_names_and_signatures() -> None:
    import inspect

    from engine.kernels import nvfp4_reference, reference, triton_nvfp4, triton_ops

    for ours, theirs in ((triton_ops, reference), (triton_nvfp4, nvfp4_reference)):
        for name in ("linear", "expert_mlp", "nvfp4_linear", "nvfp4_expert_mlp", "rms_norm"):
            if not hasattr(theirs, name):
                continue
            wanted = inspect.signature(getattr(theirs, name)).parameters
            found = inspect.signature(getattr(ours, name)).parameters
            assert [n for n in found if n != "capability"] == list(wanted), name
