"""Which implementation serves a tensor, and that Triton's stands in for the reference."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")


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
def test_what_the_engine_calls_is_there_with_the_references_signature() -> None:
    import inspect

    from engine.kernels import nvfp4_reference, reference, triton_nvfp4, triton_ops

    sources = "\n".join(path.read_text() for path in (ROOT / "engine").rglob("*.py"))
    plain = set(re.findall(r"(?<!_)\bops\([^()]*(?:\([^()]*\))?[^()]*\)\.(\w+)", sources))
    packed = set(re.findall(r"nvfp4_ops\([^()]*\)\.(\w+)", sources))
    assert {"linear", "rms_norm"} <= plain
    assert "nvfp4_linear" in packed
    for ours, theirs, names in (
        (triton_ops, reference, plain),
        (triton_nvfp4, nvfp4_reference, packed),
    ):
        for name in sorted(names):
            wanted = inspect.signature(getattr(theirs, name)).parameters
            found = inspect.signature(getattr(ours, name)).parameters
            assert [n for n in found if n != "capability"] == list(wanted), name
