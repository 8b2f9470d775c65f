"""The hardware check, situation by situation: cards, memory and systems.

What is asserted of each: what was found, what is needed, what mends it, and what still runs.
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from engine.hardware import pick_device, probe
from tests.engine.stand_ins import (
    CPU_TORCH,
    GIB,
    H100,
    LAPTOP,
    NO_TORCH_GPU,
    RTX_3090,
    UNKNOWN,
    Gpu,
    Nvml,
    NvmlError,
    Torch,
    machine,
    no_nvml,
    only_the_demo,
    raising,
    row,
)

ROOT = Path(__file__).parents[2]


# --- the card -------------------------------------------------------------------------------------


def test_a_laptop() -> None:
    hardware = machine(Nvml(LAPTOP), Torch(LAPTOP), on_battery=True)
    assert hardware.runs_large, "it fits"
    assert row(hardware, "Chat memory").state == "ok"
    found = row(hardware, "GPU speed")
    assert found.state == "warn"
    for part in ("896 GB/s", "50% of a desktop RTX 5090", "battery"):
        assert part in found.found
    assert "charger" in found.fix
    plugged = row(machine(Nvml(LAPTOP), Torch(LAPTOP), on_battery=False), "GPU speed")
    assert plugged.state == "ok"
    assert "50%" in plugged.found


def test_a_lowered_power_limit() -> None:
    gpu = Gpu(power=400)
    found = row(machine(Nvml(gpu), Torch(gpu)), "GPU speed")
    assert found.state == "warn"
    assert "power limit 400 W of 575 W" in found.found
    assert found.fix == "sudo nvidia-smi -i 0 -pl 575"


def test_too_little_free_memory_names_who_holds_it() -> None:
    held = [(41, 20.0), (42, 2.5), (43, None)]
    names = {41: "/home/jane/venv/bin/python3 -m train --secret", 42: "/usr/lib/xorg/Xorg"}
    gpu = Gpu(free=6.0, processes=held)
    hardware = machine(Nvml(gpu, names=names), Torch(gpu))
    only_the_demo(hardware)
    assert "too little free memory" in hardware.summary
    found = row(hardware, "Chat memory")
    assert found.state == "no"
    assert "6.0 GiB free" in found.found
    assert "python3 (20.0 GiB), Xorg (2.5 GiB), process 43" in found.found
    assert "jane" not in str(hardware.gpus)
    assert "secret" not in found.found
    for part in ("experts 8.0", "KV cache 0.3", "CUDA 0.6"):
        assert part in found.found
    assert found.need == "5.3 GiB more"
    assert "close python3" in found.fix
    assert "--allow-spill" in found.fix
    assert "may fail" in found.fix
    under_windows = machine(Nvml(gpu, names=names), Torch(gpu), wsl=True)
    assert "slow memory" in row(under_windows, "Chat memory").fix


def test_a_card_that_is_too_small() -> None:
    small = replace(RTX_3090, total=8.0, free=7.5)
    found = row(machine(Nvml(small), Torch(small)), "Chat memory")
    assert found.state == "no"
    assert "too small" in found.fix


def test_memory_for_a_shorter_context_only() -> None:
    gpu = Gpu(free=11.1)
    hardware = machine(Nvml(gpu), Torch(gpu))
    found = row(hardware, "Chat memory")
    assert found.state == "warn"
    assert hardware.runs_large
    assert hardware.chat_memory is not None
    assert 1024 < hardware.chat_memory.context < 8192
    assert f"{hardware.chat_memory.context:,} tokens" in found.fix
    assert not hardware.finetunes_large
    assert "for finetuning it memory is too short" in hardware.summary


def test_memory_that_nobody_knows() -> None:
    class Blind(Torch):
        def __init__(self, gpu: Gpu) -> None:
            super().__init__(gpu)
            self.cuda.mem_get_info = raising(RuntimeError("no"))  # type: ignore[method-assign]

    gpu = Gpu(total=None)
    hardware = machine(Nvml(gpu), Blind(gpu))
    assert row(hardware, "Chat memory").state == "warn"
    assert "not known" in row(hardware, "Chat memory").found


def test_the_display_keeps_a_reserve() -> None:
    gpu = Gpu(display=True)
    hardware = machine(Nvml(gpu), Torch(gpu))
    assert hardware.chat_memory is not None
    assert hardware.chat_memory.free == int(29.9 * GIB) - GIB
    assert "drives a display (1.0 GiB" in row(hardware, "GPU 0").found
    assert "after 1.0 GiB for the display" in row(hardware, "Chat memory").found


def test_several_cards_by_uuid_whatever_the_order() -> None:
    gpu = Gpu()
    hardware = machine(Nvml(RTX_3090, gpu), Torch(gpu, RTX_3090))
    assert hardware.gpu is not None
    assert (hardware.gpu.index, hardware.device) == (1, "cuda:0")
    assert "this one is used" in row(hardware, "GPU 1").found
    assert "not used, GPU 1 suits better" in row(hardware, "GPU 0").found
    assert "Ampere, no FP4 units" in row(hardware, "GPU 0").found
    assert "GPU 1" in hardware.summary


def test_of_two_blackwells_the_emptier_one_and_never_a_full_one() -> None:
    busy, empty = Gpu(free=14.0), Gpu(uuid="GPU-99990000-1111")
    assert machine(Nvml(busy, empty), Torch(busy, empty)).device == "cuda:1"
    full = Gpu(free=2.0, processes=[(1, 29.0)])
    hardware = machine(Nvml(full, RTX_3090, names={1: "game"}), Torch(full, RTX_3090))
    assert "held by game (29.0 GiB); not used" in row(hardware, "GPU 0").found
    assert hardware.device == "cuda:1", "better without FP4 units than without room"
    assert hardware.runs_large


def test_cuda_visible_devices_is_honoured() -> None:
    gpu = Gpu()
    hardware = machine(Nvml(gpu, RTX_3090), Torch(RTX_3090), visible_devices="1")
    assert hardware.gpu is not None
    assert (hardware.gpu.index, hardware.device) == (1, "cuda:0")
    hidden = row(hardware, "GPU 0")
    assert hidden.state == "ok", "it was asked for"
    assert "hidden by CUDA_VISIBLE_DEVICES" in hidden.found


@pytest.mark.parametrize("value", ["", "-1", "7"])
def test_cuda_visible_devices_that_hides_every_card(value: str) -> None:
    hardware = machine(Nvml(Gpu()), Torch(), visible_devices=value)
    only_the_demo(hardware)
    found = row(hardware, "GPU 0")
    assert found.state == "no"
    assert found.fix == "unset CUDA_VISIBLE_DEVICES"


def test_cuda_that_does_not_start_for_a_reason_of_its_own() -> None:
    torch = Torch(error="CUDA unknown error - this may be due to an incorrect setup\nmore lines")
    found = row(machine(Nvml(Gpu()), torch), "GPU 0")
    assert found.state == "no"
    assert "CUDA unknown error" in found.found
    assert "more lines" not in found.found


def test_a_mig_instance_counts_with_its_own_memory() -> None:
    part = Gpu("NVIDIA H100 MIG 3g.40gb", (9, 0), 39.4, 39.0, "MIG-77770000-1111", power=None)
    whole = replace(H100, mig=[part])
    hardware = machine(Nvml(whole), Torch(part))
    assert hardware.gpu is not None
    assert (hardware.gpu.name, hardware.gpu.total) == (part.name, int(39.4 * GIB))
    assert hardware.gpu.capability == (9, 0)
    assert hardware.runs_large
    as_the_whole = machine(Nvml(whole), Torch(replace(part, uuid=H100.uuid)))
    assert as_the_whole.gpu is not None
    assert as_the_whole.gpu.name == part.name


def test_mig_without_an_instance() -> None:
    hardware = machine(Nvml(replace(H100, mig=[])), Torch())
    only_the_demo(hardware)
    found = row(hardware, "GPU 0")
    assert "MIG mode without an instance" in found.found
    assert found.fix == "sudo nvidia-smi -i 0 -mig 0"


def test_a_card_older_than_ampere() -> None:
    turing = Gpu("NVIDIA GeForce RTX 2080 Ti", (7, 5), 11.0, 10.5, "GPU-20800000")
    hardware = machine(Nvml(turing), Torch(turing))
    only_the_demo(hardware)
    assert hardware.device == "cpu"
    assert "too old" in row(hardware, "GPU 0").found


def test_unified_memory() -> None:
    spark = Gpu("NVIDIA GB10", (12, 1), None, 0, "GPU-12100000", bus=None)
    hardware = machine(Nvml(spark), Torch(spark), memory=119 * GIB, memory_free=110 * GIB)
    assert hardware.runs_large
    assert hardware.fp4 == "native"
    assert "shares the machine's memory" in row(hardware, "GPU 0").found
    assert "110.0 GiB free" in row(hardware, "Chat memory").found


# --- the system -----------------------------------------------------------------------------------


def test_wsl() -> None:
    hardware = machine(wsl=True, release="6.6.87-microsoft-standard-WSL2", nvidia_on_bus=False)
    assert hardware.streaming == "block"
    assert hardware.runs_large
    found = row(hardware, "System")
    assert found.state == "ok"
    assert "WSL 2" in found.found
    assert "block by block" in found.found
    blind = machine(no_nvml(), NO_TORCH_GPU, wsl=True, nvidia_on_bus=False)
    assert "install its driver there" in row(blind, "NVIDIA driver").fix
    old = machine(Nvml(Gpu(), driver="566.1", cuda=12070), NO_TORCH_GPU, wsl=True)
    assert "in Windows, never inside of WSL" in row(old, "NVIDIA driver").fix


def test_windows_itself() -> None:
    hardware = machine(Nvml(Gpu()), CPU_TORCH, name="Windows", triton=None)
    found = row(hardware, "System")
    assert (found.state, found.fix) == ("warn", "wsl --install")
    assert row(hardware, "Triton").fix == "wsl --install"
    assert "cu130" in row(hardware, "PyTorch").fix


def test_macos() -> None:
    hardware = machine(
        no_nvml(), CPU_TORCH, name="Darwin", release="25.0", architecture="arm64",
        nvidia_on_bus=False,
    )  # fmt: skip
    only_the_demo(hardware)
    assert row(hardware, "System").found == "macOS 25.0 arm64"


def test_little_memory() -> None:
    hardware = machine(no_nvml(), CPU_TORCH, memory_free=GIB // 2, limited=True)
    found = row(hardware, "Memory")
    assert found.state == "warn"
    assert "container's limit" in found.found
    assert row(hardware, "Chat memory").state == "warn"
    assert "demo" in row(hardware, "Chat memory").fix


# --- this machine, for real -----------------------------------------------------------------------


def test_this_machine() -> None:
    hardware = probe()
    assert hardware.can_chat
    assert str(pick_device("auto")) == hardware.device
    assert {found.state for found in hardware.rows} <= {"ok", "warn", "no"}


def test_nothing_is_imported_before_it_is_asked() -> None:
    code = (
        "import sys, engine.hardware, engine.machine.self_test, engine.machine.room\n"
        "print([n for n in ('torch', 'pynvml', 'triton') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("value", ["tpu", "cuda:x", "mps", ""])
def test_devices_that_there_are_not(value: str) -> None:
    with pytest.raises(ValueError, match="must be auto, cpu, cuda or cuda:N"):
        pick_device(value)


@pytest.mark.parametrize("error", [NvmlError(UNKNOWN), RuntimeError(), KeyError("x"), OSError(5)])
def test_sources_that_fail_in_any_way(error: Exception) -> None:
    for hardware in (machine(raising(error), raising(error)), machine(Nvml(fail=error))):
        assert hardware.rows
        assert hardware.summary
