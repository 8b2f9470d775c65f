"""The ways to keep a program in that work on this machine."""

import pytest

from finetune.isolation import Isolation, candidates
from finetune.sandbox import Limits, run_python

WAYS = ("namespaces", "bubblewrap", "filters", "limits")
BEST = "best"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`way` is the best isolation here, and each by name in the slow set; `contained` is each of
    those that keep code in even if it means harm."""
    if "way" in metafunc.fixturenames:
        every = [pytest.param(name, marks=pytest.mark.slow) for name in WAYS]
        metafunc.parametrize("way", [BEST, *every], indirect=True)
    if "contained" in metafunc.fixturenames:
        metafunc.parametrize("contained", WAYS[:3], indirect=True)


@pytest.fixture(scope="session")
def working() -> dict[str, Isolation | str]:
    """Each way, or why it does not work here; the first that works is also the best."""
    found: dict[str, Isolation | str] = dict.fromkeys(WAYS, "not on this system, or not for root")
    for way in candidates():
        result = run_python("print(1)", isolation=way, limits=Limits(seconds=30))
        found[way.name] = way if result.ok else f"{result.error or result.stderr}"
    working = (found[name] for name in WAYS if isinstance(found[name], Isolation))
    return {**found, BEST: next(working, "nothing works on this system")}


@pytest.fixture
def way(request: pytest.FixtureRequest, working: dict[str, Isolation | str]) -> Isolation:
    return _isolation(working, request.param)


@pytest.fixture
def contained(request: pytest.FixtureRequest, working: dict[str, Isolation | str]) -> Isolation:
    return _isolation(working, request.param)


def _isolation(working: dict[str, Isolation | str], name: str) -> Isolation:
    found = working[name]
    if isinstance(found, str):
        pytest.skip(f"{name}: {found}")
    return found
