"""Every kernel under Triton's interpreter against the reference: the files `interpreted_*.py`, in
one process of their own (Triton chooses when it is imported)."""

import importlib.util
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = sorted(path.stem for path in HERE.glob("interpreted_*.py"))

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="Triton is not installed"
    ),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """File to its tests' failures, "" for one that passed."""
    report = tmp_path_factory.mktemp("interpreted") / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [f"--junitxml={report}", *(str(HERE / f"{file}.py") for file in FILES)]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, timeout=900
    )
    assert report.exists(), done.stdout + done.stderr
    found: dict[str, list[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        wrong = [*case.iter("failure"), *case.iter("error")]
        said = f"{case.get('name')}\n{wrong[0].text}" if wrong else ""
        found.setdefault(case.get("classname", "").rpartition(".")[2], []).append(said)
    return found


@pytest.mark.parametrize("file", FILES)
def test_kernels_are_the_references(file: str, outcomes: dict[str, list[str]]) -> None:
    assert outcomes.get(file), f"{file} ran no test; the others: {sorted(outcomes)}"
    assert "".join(said for said in outcomes[file] if said) == ""
