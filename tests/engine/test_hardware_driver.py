"""The hardware check, situation by situation: drivers, torch and Triton.

What is asserted of each: what was found, what is needed, what mends it, and what still runs.
"""

from typing import Any

import pytest

from tests.engine.stand_ins import (
    CPU_TORCH,
    DRIVER_NOT_LOADED,
    H100,
    LAPTOP,
    LOST,
    MISMATCH,
    NO_PERMISSION,
    NO_TORCH_GPU,
    OPERATING_SYSTEM,
    RTX_3090,
    UNKNOWN,
    Gpu,
    Nvml,
    Torch,
    machine,
    no_nvml,
    only_the_demo,
    raising,
    row,
)

# --- all is well ----------------------------------------------------------------------------------


def test_a_workstation_with_one_blackwell_card() -> None:
    hardware = machine()
    assert {row.state for row in hardware.rows} == {"ok"}
    assert (hardware.device, hardware.fp4, hardware.conditional_nodes) == ("cuda:0", "native", True)
    assert hardware.can_chat
    assert hardware.runs_large
    assert hardware.finetunes_large
    assert hardware.streaming == "step"
    assert "GPU 0 (NVIDIA GeForce RTX 5090)" in hardware.summary
    card = row(hardware, "GPU 0").found
    for part in ("compute 12.0", "Blackwell, FP4 units", "31.8 GiB, 29.9 GiB free", "id GPU-4c1f"):
        assert part in card
    assert "590.44, CUDA 13.1" in row(hardware, "NVIDIA driver").found
    assert "580 or newer" in row(hardware, "NVIDIA driver").need
    assert "1,792 GB/s" in row(hardware, "GPU speed").found
    assert "575 W" in row(hardware, "GPU speed").found
    assert hardware.versions == {
        "python": "3.12.3", "torch": "2.13.0+cu130", "torch_cuda": "13.0", "driver": "590.44",
        "driver_cuda": "13.1", "triton": "3.7.1",
    }  # fmt: skip


def test_nvml_is_closed_again() -> None:
    nvml = Nvml(Gpu())
    machine(nvml)
    assert not nvml.open


def test_versions_are_held_against_what_is_needed() -> None:
    hardware = machine()
    needs = {name: row(hardware, name).need for name in ("NVIDIA driver", "PyTorch", "Triton")}
    assert needs["PyTorch"] == "2.11 or newer"
    assert needs["Triton"].startswith("3.6 or newer")
    assert needs["NVIDIA driver"].startswith("580")


# --- no card, no driver ---------------------------------------------------------------------------


def test_no_nvidia_gpu() -> None:
    hardware = machine(no_nvml(), CPU_TORCH, nvidia_on_bus=False)
    only_the_demo(hardware)
    assert (hardware.device, hardware.gpu, hardware.fp4) == ("cpu", None, None)
    found = row(hardware, "Graphics card")
    assert found.state == "warn"
    assert "no NVIDIA card or driver found" in found.found
    assert "very slow" in found.found
    assert row(hardware, "NVIDIA driver").state == "warn"
    memory = row(hardware, "Chat memory")
    assert memory.state == "ok"
    assert "of this machine's memory" in memory.found
    assert "a processor is very slow" in memory.found
    assert "Triton" not in {row.name for row in hardware.rows}


def test_a_card_without_a_driver() -> None:
    hardware = machine(no_nvml(), NO_TORCH_GPU, distribution="ubuntu")
    only_the_demo(hardware)
    found = row(hardware, "NVIDIA driver")
    assert found.state == "no"
    assert "there is an NVIDIA card" in found.found
    assert found.fix == "sudo apt install nvidia-driver-580-open"
    assert row(hardware, "Graphics card").state == "no"


def test_a_container_that_was_started_without_its_cards() -> None:
    hardware = machine(no_nvml(), NO_TORCH_GPU, container=True)
    assert "docker run --gpus all" in row(hardware, "NVIDIA driver").fix


# --- the driver -----------------------------------------------------------------------------------


def test_a_driver_too_old_for_the_torch_build() -> None:
    gpu = Gpu()
    nvml = Nvml(gpu, driver="575.51", cuda=12090)
    torch = Torch(error="The NVIDIA driver on your system is too old (found version 12090).")
    hardware = machine(nvml, torch, distribution="ubuntu")
    only_the_demo(hardware)
    found = row(hardware, "NVIDIA driver")
    assert found.state == "no"
    assert "575.51, CUDA 12.9" in found.found
    assert "too old" in found.found
    assert found.need == "580 or newer, since PyTorch was built for CUDA 13.0"
    assert found.fix == "sudo apt install nvidia-driver-580-open"
    assert "driver is too old" in row(hardware, "GPU 0").found
    assert "RTX 5090) cannot be used: the driver is too old" in hardware.summary


def test_a_driver_that_is_older_than_the_build_but_works() -> None:
    nvml = Nvml(RTX_3090, driver="550.54", cuda=12040)
    hardware = machine(nvml, Torch(RTX_3090, version="2.11.0+cu128", cuda="12.8"))
    found = row(hardware, "NVIDIA driver")
    assert (found.state, found.need[:3]) == ("warn", "570")
    assert hardware.runs_large


def test_a_driver_without_conditional_nodes() -> None:
    nvml = Nvml(RTX_3090, driver="535.183", cuda=12020)
    hardware = machine(nvml, Torch(RTX_3090, version="2.13.0+cu126", cuda="12.6"))
    assert not hardware.conditional_nodes
    assert hardware.runs_large, "the processor drives the loop instead"
    found = row(hardware, "CUDA graphs")
    assert found.state == "warn"
    assert "CUDA 12.2 has no loops within a graph" in found.found
    assert "12.4" in found.need


@pytest.mark.parametrize(
    ("code", "words", "said", "fix"),
    [
        (DRIVER_NOT_LOADED, "Driver Not Loaded", "not loaded", "sudo modprobe nvidia"),
        (NO_PERMISSION, "Insufficient Permissions", "may not ask", "sudo usermod -aG render $USER"),
        (OPERATING_SYSTEM, "Operating System", "may not ask", "sudo usermod -aG render $USER"),
        (MISMATCH, "Driver/library version mismatch", "was updated", "sudo reboot"),
        (LOST, "GPU is lost", "does not answer any more", "sudo reboot"),
        (8, "Insufficient External Power", "too little power", "power cables"),
        (UNKNOWN, "Unknown Error", "NVML does not answer (Unknown Error)", "nvidia-smi"),
    ],
)
def test_nvml_that_does_not_come_up(code: int, words: str, said: str, fix: str) -> None:
    hardware = machine(no_nvml(code, words), NO_TORCH_GPU, denied_group="render")
    only_the_demo(hardware)
    found = row(hardware, "NVIDIA driver")
    assert found.state == "no"
    assert said in found.found
    assert fix in found.fix


def test_broken_nvml_beside_a_torch_that_works() -> None:
    gpu = Gpu()
    hardware = machine(no_nvml(UNKNOWN, "Unknown Error"), Torch(gpu))
    assert row(hardware, "NVIDIA driver").state == "warn"
    assert hardware.device == "cuda:0"
    assert hardware.runs_large, "torch knows the free memory"
    assert "29.9 GiB free" in row(hardware, "GPU 0").found


def test_without_nvidia_ml_py() -> None:
    missing = raising(ModuleNotFoundError("No module named 'pynvml'"))
    hardware = machine(missing, Torch(Gpu()))
    found = row(hardware, "NVIDIA driver")
    assert found.state == "warn"
    assert found.fix == "pip install --upgrade nvidia-ml-py"
    assert hardware.runs_large
    without = machine(missing, CPU_TORCH, nvidia_on_bus=False)
    assert row(without, "NVIDIA driver").state == "warn"
    assert without.can_chat


def test_a_card_that_fell_off_the_bus_does_not_hide_the_other() -> None:
    dead = Gpu(dead=True)
    hardware = machine(Nvml(dead, RTX_3090), Torch(RTX_3090))
    assert hardware.gpu is not None
    assert hardware.gpu.name == RTX_3090.name
    found = row(hardware, "NVIDIA driver")
    assert "GPU 0: GPU is lost" in found.found
    assert found.fix == "sudo reboot"


def test_nvml_functions_that_are_missing_or_unsupported_are_no_failure() -> None:
    class Old(Nvml):
        def __getattribute__(self, name: str) -> Any:
            if name in ("nvmlDeviceGetMigMode", "nvmlSystemGetCudaDriverVersion_v2"):
                raise AttributeError(name)
            return super().__getattribute__(name)

    hardware = machine(Old(LAPTOP), Torch(LAPTOP))
    assert hardware.runs_large
    assert row(hardware, "NVIDIA driver").found == "590.44"


def test_a_user_without_rights() -> None:
    denied = {"denied": ("/dev/nvidia0", "/dev/nvidiactl"), "denied_group": "video"}
    hardware = machine(Nvml(Gpu()), NO_TORCH_GPU, **denied)
    only_the_demo(hardware)
    found = row(hardware, "Rights")
    assert found.state == "no"
    assert "/dev/nvidia0" in found.found
    assert found.fix == "sudo usermod -aG video $USER, then log in again."
    assert "see Rights" in row(hardware, "GPU 0").fix
    closed = machine(Nvml(Gpu()), NO_TORCH_GPU, denied=("/dev/nvidia0",), denied_group="root")
    assert row(closed, "Rights").fix == "sudo chmod a+rw /dev/nvidia*"


def test_the_memory_module_of_the_driver_is_not_loaded() -> None:
    hardware = machine(Nvml(Gpu()), NO_TORCH_GPU, no_uvm=True)
    assert row(hardware, "Rights").fix == "sudo modprobe nvidia-uvm"
    assert "see Rights" in row(hardware, "GPU 0").fix


# --- torch and triton -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "cuda", "wheels"),
    [
        (Gpu(), 13010, "pip install --force-reinstall --index-url {}/cu130 torch"),
        (Gpu(), 12080, 'pip install --force-reinstall --index-url {}/cu128 "torch==2.11.*"'),
        (RTX_3090, 12040, "pip install --force-reinstall --index-url {}/cu126 torch"),
    ],
)
def test_a_cpu_only_torch_beside_a_card(gpu: Gpu, cuda: int, wheels: str) -> None:
    hardware = machine(Nvml(gpu, cuda=cuda), CPU_TORCH)
    only_the_demo(hardware)
    assert hardware.device == "cpu"
    found = row(hardware, "PyTorch")
    assert found.state == "no"
    assert "CPU-only" in found.found
    assert found.fix == wheels.format("https://download.pytorch.org/whl")
    assert row(hardware, "GPU 0").state == "no"
    assert row(hardware, "GPU 0").fix == "see PyTorch."


def test_a_card_that_no_torch_runs_on_with_this_driver() -> None:
    hardware = machine(Nvml(Gpu(), driver="560.1", cuda=12060), CPU_TORCH, distribution="arch")
    assert row(hardware, "PyTorch").fix.startswith("sudo pacman -S nvidia-open, then: pip install")


def test_commands_for_an_installation_by_uv() -> None:
    hardware = machine(Nvml(Gpu()), CPU_TORCH, uv_tool=True)
    fix = row(hardware, "PyTorch").fix
    assert fix.startswith('uv pip install --python "$(uv tool dir)/orl-chat" --reinstall-package')


def test_a_torch_that_lacks_the_cards_architecture() -> None:
    gpu = Gpu()
    torch = Torch(gpu, version="2.11.0+cu126", cuda="12.6", architectures=["sm_80", "sm_90"])
    hardware = machine(Nvml(gpu), torch)
    only_the_demo(hardware)
    assert hardware.device == "cpu"
    found = row(hardware, "PyTorch")
    assert found.state == "no"
    assert "without kernels for sm_120" in found.found
    assert "built with sm_120" in found.need
    assert "/whl/cu130" in found.fix
    assert "no kernels for it" in row(hardware, "GPU 0").found


@pytest.mark.parametrize(
    ("torch", "said"),
    [
        (raising(ModuleNotFoundError("No module named 'torch'")), "No module named 'torch'"),
        (raising(OSError("libcudart.so.13: cannot open")), "libcudart.so.13"),
        (Torch(version="2.9.1+cpu", cuda=None), "2.9.1"),
    ],
)
def test_without_a_torch_that_is_new_enough_nothing_runs(torch: Any, said: str) -> None:
    hardware = machine(no_nvml(), torch, nvidia_on_bus=False)
    assert not hardware.can_chat
    assert not hardware.can_finetune
    assert "cannot run here" in hardware.summary
    found = row(hardware, "PyTorch")
    assert (found.state, found.need) == ("no", "2.11 or newer")
    assert said in found.found
    assert found.fix == 'pip install --upgrade "torch>=2.11"'


def test_an_old_python() -> None:
    hardware = machine(python=(3, 10, 2))
    assert not hardware.can_chat
    assert row(hardware, "Python").state == "no"


def test_triton_is_missing_or_old() -> None:
    missing = row(machine(triton=None), "Triton")
    assert missing.state == "warn"
    assert "not installed" in missing.found
    assert missing.fix == 'pip install --upgrade "triton>=3.6"'
    old = row(machine(triton="3.5.1"), "Triton")
    assert (old.state, old.found) == ("warn", "3.5.1")
    assert "3.6 or newer" in old.need
    assert machine(triton=None).runs_large, "plain torch operations serve every card"


def test_triton_without_fp4_emulation_on_a_card_without_fp4_units() -> None:
    hardware = machine(Nvml(H100), Torch(H100), triton="3.7.1")
    assert hardware.fp4 == "w4a16"
    assert "W4A16" in row(hardware, "Triton").found
    assert "W4A16" not in row(machine(Nvml(H100), Torch(H100), triton="3.8.0"), "Triton").found
    assert "W4A16" not in row(machine(triton="3.7.1"), "Triton").found


def test_torch_for_amd_cards_is_not_taken_for_nvidias() -> None:
    radeon = Gpu("AMD Radeon RX 7900 XTX", (11, 0), 24.0, 23.0, "GPU-a3d0")
    torch = Torch(radeon, version="2.13.0+rocm7", cuda=None, hip="7.0")
    hardware = machine(no_nvml(), torch, nvidia_on_bus=False)
    assert hardware.device == "cuda:0"
    assert hardware.fp4 is None
    assert "ROCm" in row(hardware, "PyTorch").found
    assert "Thor" not in row(hardware, "GPU 0").found
