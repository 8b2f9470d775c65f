"""Every kernel compiled for a card and run on the emulated one, against the reference: each file
`tests/triton/cases_*.py` in a process of its own, and what `tests/gpu` asks of a card before it is
there. They also fail where a launch races, or touches memory misaligned or outside of its tensors.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.ptx.library import can_build

ROOT = Path(__file__).parents[2]
CASES = sorted(path.name for path in (ROOT / "tests" / "triton").glob("cases_*.py"))
# One of each kind of matrix unit: mma.sync alone, wgmma, and block-scaled NVFP4.
ARCHITECTURES = ["sm_80", "sm_90", "sm_120"]

pytestmark = [
    pytest.mark.skipif(find_spec("triton") is None, reason="needs triton"),
    pytest.mark.skipif(not can_build(), reason="needs g++"),
    pytest.mark.slow,
]


def emulated(arch: str, *arguments: str) -> str:
    """What pytest prints of tests in a process of their own, which must pass."""
    result = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
            "-p", "tests.ptx.plugin", *arguments,
        ],
        cwd=ROOT,
        env=os.environ | {"EMULATED_CARD": arch, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
    return result.stdout


@pytest.mark.parametrize("file", CASES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_equal_the_reference(arch: str, file: str) -> None:
    printed = emulated(arch, f"tests/triton/{file}")
    # What is left out multiplies on FP4 units (`tests/triton/target.py`).
    if arch == "sm_120" or file not in ("cases_matrix.py", "cases_launches.py"):
        assert "skipped" not in printed


@pytest.mark.parametrize("file", [f"cases_{n}.py" for n in ("forward", "qkv", "router", "soft")])
@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
def test_kernels_that_wait_for_the_one_before(
    arch: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that ask for weights meanwhile, and what a step is made of."""
    monkeypatch.setenv("EMULATED_AHEAD", "1")
    emulated(arch, f"tests/triton/{file}")


@pytest.mark.parametrize("file", ["test_kernels_on_card.py", "test_last_programs_on_card.py"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_cards_own_tests(arch: str, file: str) -> None:
    plugin, settings = ("-p", "tests.ptx.rehearsal"), ("-c", "tests/gpu/pytest.ini")
    assert "skipped" not in emulated(arch, *plugin, *settings, f"tests/gpu/{file}")


def test_the_demos_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """By graph and step by step; the golden ones are `test_graphs.py`'s."""
    monkeypatch.setenv("EMULATED_RACES", "0")  # looked for above; it would take twice as long
    plugin, settings = ("-p", "tests.ptx.rehearsal"), ("-c", "tests/gpu/pytest.ini")
    file, chosen = "tests/gpu/test_answers_on_card.py", ("-k", "demo or one_graph or ahead_find")
    assert "skipped" not in emulated("sm_90", *plugin, *settings, file, *chosen)
