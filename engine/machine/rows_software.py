"""Rows about Python, the system, memory, torch and Triton."""

from engine.machine.cards import LEAST, fp4_plan, has_kernels
from engine.machine.commands import install, install_torch
from engine.machine.facts import Card, Facts, Row, System, TorchBuild
from engine.machine.room import gib
from engine.machine.torch_build import parse_version

LEAST_PYTHON = (3, 11)
LEAST_TORCH = (2, 11)
LEAST_TRITON = (3, 6)
_DEMO_MEMORY = 1 << 30


def software_rows(facts: Facts) -> list[Row]:
    """Everything that is no card."""
    system = facts.system
    rows = [python_row(system), system_row(system), processor_row(system), ram_row(system)]
    rows.append(torch_row(facts))
    if facts.cards:
        rows.append(triton_row(facts))
    return rows


def blocking_rows(facts: Facts) -> list[Row]:
    """The rows without which nothing runs, not even the demo on the processor."""
    rows = [] if facts.system.python >= LEAST_PYTHON else [python_row(facts.system)]
    return rows if _has_torch(facts.torch) else [*rows, torch_row(facts)]


def python_row(system: System) -> Row:
    found = ".".join(map(str, system.python))
    if system.python >= LEAST_PYTHON:
        return Row("Python", "ok", found, "3.11 or newer")
    fix = "uv tool install --python 3.13 orl-chat" if system.uv_tool else "install Python 3.11."
    return Row("Python", "no", found, "3.11 or newer", fix)


def system_row(system: System) -> Row:
    name = "macOS" if system.name == "Darwin" else system.name
    found = " ".join(filter(None, (name, system.release, system.architecture)))
    if system.wsl:
        return Row(
            "System", "ok",
            f"WSL 2, {found}: the driver is the one of Windows, and text comes block by block",
        )  # fmt: skip
    if system.name == "Windows":
        return Row(
            "System", "warn", f"{found}: Triton has no build of its own for Windows",
            "Linux or WSL 2", "wsl --install",
        )  # fmt: skip
    return Row("System", "ok", found + (", in a container" if system.container else ""))


def processor_row(system: System) -> Row:
    return Row("Processor", "ok", f"{system.cores} cores usable")


def ram_row(system: System) -> Row:
    found = f"{gib(system.memory)}, {gib(system.memory_free)} free"
    found += " within this container's limit" if system.limited else ""
    if system.memory_free > _DEMO_MEMORY:
        return Row("Memory", "ok", found, "1 GiB free for the demo")
    return Row("Memory", "warn", found, "1 GiB free for the demo", "close other programs.")


def torch_row(facts: Facts) -> Row:
    """The installed torch: too old, broken, without CUDA beside a card, or without its kernels."""
    torch, system = facts.torch, facts.system
    need = "2.11 or newer"
    if torch.version is None:
        found = f"does not import ({torch.error})"
        return Row("PyTorch", "no", found, need, install(system, "torch>=2.11"))
    if not _has_torch(torch):
        fix = install(system, "torch>=2.11")
        return Row("PyTorch", "no", f"{torch.version}, {_build(torch)}", need, fix)
    found = f"{torch.version}, {_build(torch)}"
    if not facts.cards:
        return Row("PyTorch", "ok", found, need)
    card = best_on_bus(facts.cards)
    fix = install_torch(system, facts.driver.cuda, card.capability)
    if torch.cuda is None and not torch.rocm:
        found = f"{torch.version} is a CPU-only build, and there is an NVIDIA card"
        return Row("PyTorch", "no", found, f"{need}, built for CUDA", fix)
    lacking = lacks_kernels(torch, card)
    if lacking:
        found += f", without kernels for {lacking}"
        return Row("PyTorch", "no", found, f"{need}, built with {lacking}", fix)
    return Row("PyTorch", "ok", found, need)


def _has_torch(torch: TorchBuild) -> bool:
    return (
        torch.version is not None and (parse_version(torch.version) or LEAST_TORCH) >= LEAST_TORCH
    )


def lacks_kernels(torch: TorchBuild, card: Card) -> str:
    """The architecture that the card needs and torch was not built for, or ""."""
    if torch.rocm or not torch.architectures or card.capability is None:
        return ""  # torch lists nothing while it offers no card; the reason is another row's
    if card.capability < LEAST or has_kernels(torch.architectures, card.capability):
        return ""
    return f"sm_{card.capability[0]}{card.capability[1]}"


def best_on_bus(cards: tuple[Card, ...]) -> Card:
    """The card that this machine was bought for, whatever torch can do with it now."""
    return max(cards, key=lambda card: (fp4_plan(card.capability) == "native", card.total or 0))


def _build(torch: TorchBuild) -> str:
    if torch.rocm:
        return "built for AMD's ROCm"
    if torch.cuda is None:
        return "CPU build"
    return f"built for CUDA {torch.cuda[0]}.{torch.cuda[1]}"


def triton_row(facts: Facts) -> Row:
    """Triton compiles the kernels; without it a card runs plain torch operations."""
    system, found = facts.system, facts.system.triton
    need = "3.6 or newer for compiled kernels"
    if found is None:
        fix = "wsl --install" if system.name == "Windows" else install(system, "triton>=3.6")
        return Row("Triton", "warn", "not installed: plain torch operations only", need, fix)
    if (parse_version(found) or LEAST_TRITON) < LEAST_TRITON:
        return Row("Triton", "warn", found, need, install(system, "torch>=2.11"))
    native = fp4_plan(best_on_bus(facts.cards).capability) == "native"
    if not native and (parse_version(found) or (0, 0)) < (3, 8):
        found += ", which cannot emulate FP4 products: 4-bit weights are decoded first (W4A16)"
    return Row("Triton", "ok", found, need)
