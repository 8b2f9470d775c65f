"""The drawing of the packages, held: who imports whom, what costs nothing to import, what stays
small."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = ("engine", "finetune", "app")  # each may import itself and what stands before it
ROOMS = ("config", "events", "kernels", "model", "checkpoint", "decode", "generate")
LONGEST = 300


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imported(path: Path) -> list[tuple[str, int]]:
    """Dotted names that a file imports, at any depth, and their lines."""
    return list(find_imports(path))


def find_imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} is a relative import"
            assert node.module is not None
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("package", FLOORS)
def test_imports_point_downwards(package: str) -> None:
    above = FLOORS[FLOORS.index(package) + 1 :]
    assert [
        f"{named(path)}:{line} imports {name}"
        for path in sources(package)
        for name, line in imported(path)
        if name.partition(".")[0] in above
    ] == []


def test_nothing_shipped_imports_the_tests() -> None:
    assert [
        named(path)
        for package in (*FLOORS, "assets")
        for path in sources(package)
        for name, _ in imported(path)
        if name.partition(".")[0] in ("tests", "pytest", "hypothesis")
    ] == []


def test_the_engines_rooms_point_downwards() -> None:
    wrong = []
    for path in sources("engine"):
        here = path.relative_to(ROOT / "engine").parts[0].removesuffix(".py")
        for name, line in imported(path):
            package, _, rest = name.partition(".")
            there = rest.partition(".")[0]
            if package != "engine" or here not in ROOMS or there not in ROOMS:
                continue
            # events.py names the trajectory's type, for the type checker only.
            if (here, there) != ("events", "decode") and ROOMS.index(there) > ROOMS.index(here):
                wrong.append(f"{named(path)}:{line} imports {name}")
    assert wrong == []


def test_only_the_screens_import_textual() -> None:
    assert [
        f"{named(path)}:{line}"
        for package in FLOORS
        for path in sources(package)
        for name, line in imported(path)
        if name.partition(".")[0] == "textual" and not named(path).startswith("app/tui/")
    ] == []


def test_package_files_hold_a_docstring_only() -> None:
    for package in FLOORS:
        for path in sources(package):
            if path.name != "__init__.py" or named(path) == "engine/kernels/__init__.py":
                continue
            body = parsed(path).body
            assert len(body) == 1, named(path)
            assert isinstance(body[0], ast.Expr), named(path)
            assert isinstance(body[0].value, ast.Constant), named(path)


def test_every_module_says_why_it_exists() -> None:
    assert [
        named(path)
        for package in FLOORS
        for path in sources(package)
        if not ast.get_docstring(parsed(path))
    ] == []


@pytest.mark.parametrize("package", FLOORS)
def test_files_stay_short(package: str) -> None:
    lengths = {
        named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in sources(package)
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def loaded_modules(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "engine.config", "engine.events", "engine.hardware", "app.protocol", "app.client",
        "app.commands.runs",
    ],
)  # fmt: skip
def test_what_the_terminal_imports_does_not_bring_torch(module: str) -> None:
    loaded = loaded_modules(f"import {module}")
    assert module in loaded
    assert not {"torch", "numpy", "tokenizers", "safetensors"} & loaded


def test_loading_a_model_does_not_bring_torchs_compiler() -> None:
    """A second or two of every start: some calls on the meta device import it, with sympy."""
    folder = ROOT / "tests" / "data" / "llada2_tiny"
    loaded = loaded_modules(
        f"from engine.generate import Engine\nEngine.load({str(folder)!r}, device='cpu')"
    )
    assert "torch" in loaded
    assert not {"sympy", "torch._dynamo"} & loaded
