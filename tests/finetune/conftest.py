"""The ways to keep a program in that work on this machine."""

import pytest

from finetune.isolation import Isolation, candidates
from finetune.sandbox import Limits, run_python

WAYS = ("namespaces", "bubblewrap", "filters", "limits")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`way` is every isolation; `contained` those that keep code in even if it means harm."""
    if "way" in metafunc.fixturenames:
        metafunc.parametrize("way", WAYS, indirect=True)
    if "contained" in metafunc.fixturenames:
        metafunc.parametrize("contained", WAYS[:3], indirect=True)


@pytest.fixture(scope="session")
def working() -> dict[str, Isolation | str]:
    """Each way, or why it does not work here."""
    found: dict[str, Isolation | str] = dict.fromkeys(WAYS, "not on this system, or not for root")
    for way in candidates():
        result = run_python("print(1)", isolation=way, limits=Limits(seconds=30))
        found[way.name] = way if result.ok else f"{result.error or result.stderr}"
    return found


@pytest.fixture
def way(request: pytest.FixtureRequest, working: dict[str, Isolation | str]) -> Isolation:
    found = working[request.param]
    if isinstance(found, str):
        pytest.skip(f"{request.param}: {found}")
    return found


@pytest.fixture
def contained(request: pytest.FixtureRequest, working: dict[str, Isolation | str]) -> Isolation:
    found = working[request.param]
    if isinstance(found, str):
        pytest.skip(f"{request.param}: {found}")
    return found
