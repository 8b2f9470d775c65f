"""The rules behind the rows: architectures, commands, and how the sources are read."""

from pathlib import Path
from typing import Any

import pytest

from engine.machine import system
from engine.machine.cards import fp4_plan, generation, has_kernels, merge
from engine.machine.commands import install, needed_driver
from engine.machine.facts import Capability, Card, System, TorchDevice
from engine.machine.nvml import read_driver
from engine.machine.system import read_system
from engine.machine.torch_build import parse_version, read_torch
from tests.engine.stand_ins import GIB, Gpu, Nvml, raising


@pytest.mark.parametrize(
    ("capability", "name", "plan"),
    [
        ((7, 5), "older than Ampere", None), ((8, 0), "Ampere", "w4a16"),
        ((8, 6), "Ampere", "w4a16"), ((8, 9), "Ada", "w4a16"), ((9, 0), "Hopper", "w4a16"),
        ((10, 0), "B200", "native"), ((10, 3), "B300", "native"), ((11, 0), "Thor", "native"),
        ((12, 0), "Blackwell", "native"), ((12, 1), "DGX Spark", "native"),
        ((14, 0), "newer than this program", "w4a16"),
    ],
)  # fmt: skip
def test_generations(capability: Capability, name: str, plan: str | None) -> None:
    assert name in generation(capability)
    assert fp4_plan(capability) == plan


@pytest.mark.parametrize(
    ("architecture", "runs_on", "not_on"),
    [
        ("sm_80", [(8, 0), (8, 6), (8, 9)], [(9, 0), (12, 0), (7, 5)]),
        ("sm_86", [(8, 6), (8, 9)], [(8, 0)]),
        ("sm_90a", [(9, 0)], [(10, 0)]),
        ("sm_100", [(10, 0), (10, 3)], [(12, 0), (11, 0)]),
        ("sm_103a", [(10, 3)], [(10, 0)]),
        ("sm_120", [(12, 0), (12, 1)], [(10, 0)]),
        ("sm_120f", [(12, 0), (12, 1)], [(10, 0)]),
        ("compute_90", [(9, 0), (10, 0), (12, 0)], [(8, 9)]),
        ("compute_90a", [(9, 0)], [(10, 0)]),
        ("gfx1100", [], [(11, 0)]),
    ],
)
def test_which_code_runs_where(
    architecture: str, runs_on: list[Capability], not_on: list[Capability]
) -> None:
    assert all(has_kernels((architecture,), capability) for capability in runs_on)
    assert not any(has_kernels((architecture,), capability) for capability in not_on)


def test_cards_are_told_by_uuid() -> None:
    cards = (Card(0, "GPU-AAAA-1", "a"), Card(1, "GPU-bbbb-1", "b"), Card(2, "", "c"))
    devices = (
        TorchDevice(0, "bbbb-1", "b", (8, 6), 1),
        TorchDevice(1, "aaaa-1", "a", (9, 0), 2),
        TorchDevice(2, "", "unknown", (8, 0), 3),
    )
    merged = merge(cards, devices, lambda index: 10 * index)
    assert [card.torch_index for card in merged] == [1, 0, None, 2]
    assert [card.capability for card in merged] == [(9, 0), (8, 6), None, (8, 0)]
    assert [(card.total, card.free) for card in merged] == [(2, 10), (1, 0), (None, None), (3, 20)]
    assert merged[3].label == "GPU 2"


@pytest.mark.parametrize(
    ("cuda", "branch"),
    [((12, 6), 560), ((12, 8), 570), ((12, 9), 575), ((13, 0), 580), ((13, 2), 580), (None, 580),
     ((12, 1), 560)],
)  # fmt: skip
def test_drivers(cuda: Any, branch: int) -> None:
    assert needed_driver(cuda) == branch


def test_commands_can_be_copied() -> None:
    assert install(System(), "torch>=2.11") == 'pip install --upgrade "torch>=2.11"'
    uv = install(System(uv_tool=True), "torch==2.11.*", index="https://x/cu128")
    assert uv == (
        'uv pip install --python "$(uv tool dir)/orl-chat" --reinstall-package torch '
        '--index-url https://x/cu128 "torch==2.11.*"'
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.13.0+cu130", (2, 13)), ("13.0", (13, 0)), ("2.15.0a0+git", (2, 15)), ("2.11rc1", (2, 11)),
     ("", None), (None, None), ("main", None), ("3", None)],
)  # fmt: skip
def test_versions(text: str | None, version: Any) -> None:
    assert parse_version(text) == version


def test_nvml_that_speaks_in_bytes() -> None:
    class Bytes(Nvml):
        def nvmlDeviceGetName(self, gpu: Gpu) -> Any:
            return gpu.name.encode()

        def nvmlSystemGetDriverVersion(self) -> Any:
            return b"570.1"

    driver = read_driver(lambda: Bytes(Gpu()))
    assert driver.version == "570.1"
    assert driver.cards[0].name == "NVIDIA GeForce RTX 5090"


def test_a_program_on_a_card_counts_once_and_without_its_folder() -> None:
    class Both(Nvml):
        nvmlDeviceGetGraphicsRunningProcesses = Nvml.nvmlDeviceGetComputeRunningProcesses

    names = {7: r"C:\Users\Jane Doe\game.exe", 8: "/opt/my app/tool --key=hf_x"}
    driver = read_driver(lambda: Both(Gpu(processes=[(7, 1), (8, 3)]), names=names))
    (card,) = driver.cards
    assert [(p.name, p.memory) for p in card.processes] == [("tool", 3 * GIB), ("game.exe", GIB)]


def test_this_machines_sources_answer() -> None:
    driver = read_driver()
    assert driver.version is not None or driver.trouble is not None
    assert read_torch().version is not None
    facts = read_system()
    assert facts.cores >= 1
    assert 0 < facts.memory_free <= facts.memory


def test_a_broken_torch_says_why_in_one_line() -> None:
    found = read_torch(raising(OSError("libc10.so: cannot open\nmore")))
    assert (found.version, found.error) == (None, "libc10.so: cannot open")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"memory.max": "4294967296\n", "memory.current": "1073741824\n",
          "memory.stat": "anon 5\ninactive_file 536870912\n"}, (4.0, 3.5, True)),
        ({"memory.max": "max\n", "memory.current": "1\n"}, None),
        ({"memory.max": "9" * 18, "memory.current": "1"}, None),
        ({"memory.max": "1073741824", "memory.current": "2147483648"}, (1.0, 0.0, True)),
        ({}, None),
    ],
)  # fmt: skip
def test_a_containers_limit_counts(
    files: dict[str, str], expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(system, "_CGROUP", tmp_path)

    class Memory:
        total, available = 64 * GIB, 50 * GIB

    monkeypatch.setattr(system.psutil, "virtual_memory", Memory)
    total, free, limited = system._memory()
    assert (total / GIB, free / GIB, limited) == (expected or (64.0, 50.0, False))
