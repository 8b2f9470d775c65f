"""Which implementation serves a tensor, and that Triton's stands in for the reference."""

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
