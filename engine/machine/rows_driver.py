"""Rows about NVIDIA's driver: is it there, does it answer, is it new enough."""

from engine.machine.commands import (
    install,
    install_driver,
    load_driver,
    load_uvm,
    may_open,
    needed_driver,
)
from engine.machine.facts import Driver, Facts, Row, State, System

CONDITIONAL_NODES = (12, 4)
"""CUDA version from which a graph can hold a loop."""

_NAME = "NVIDIA driver"


def driver_rows(facts: Facts) -> list[Row]:
    """The driver, who may use it, and what its graphs can do."""
    driver, system = facts.driver, facts.system
    if driver.version is None:
        rows = [_silent_row(facts)]
    elif driver.trouble is not None:
        rows = [_silent_row(facts, f"{driver.version}, but ")]
    else:
        rows = [_version_row(facts)]
    if system.denied and driver.trouble != "no rights":
        rows.append(_rights_row(facts))
    elif system.no_uvm and not facts.torch.devices:
        rows.append(Row(
            "Rights", "no", "the driver's memory module (nvidia-uvm) is not loaded, so CUDA cannot "
            "start", "/dev/nvidia-uvm", load_uvm(system),
        ))  # fmt: skip
    if driver.cuda is not None:
        rows.append(graphs_row(driver))
    return rows


def has_conditional_nodes(driver: Driver) -> bool:
    """Whether a CUDA graph can loop by itself; else the host drives the loop, a step at a time."""
    return driver.cuda is not None and driver.cuda >= CONDITIONAL_NODES


def graphs_row(driver: Driver) -> Row:
    assert driver.cuda is not None
    need = "CUDA 12.4 or newer"
    if has_conditional_nodes(driver):
        return Row("CUDA graphs", "ok", "loops within a graph", need)
    found = f"CUDA {_dotted(driver.cuda)} has no loops within a graph; the processor drives them"
    return Row("CUDA graphs", "warn", found, need, "a newer driver makes answers a little faster.")


def _version_row(facts: Facts) -> Row:
    driver, torch = facts.driver, facts.torch
    found = f"{driver.version}" + (f", CUDA {_dotted(driver.cuda)}" if driver.cuda else "")
    if torch.cuda is None:
        return Row(_NAME, "ok", found, "570 or newer; 580 for CUDA 13")
    branch = needed_driver(torch.cuda)
    need = f"{branch} or newer, since PyTorch was built for CUDA {_dotted(torch.cuda)}"
    fix = install_driver(facts.system, branch)
    if is_too_old(facts):
        return Row(_NAME, "no", f"{found}; too old for this PyTorch", need, fix)
    if _branch(driver) < branch:
        return Row(_NAME, "warn", f"{found}; older than this PyTorch's CUDA", need, fix)
    return Row(_NAME, "ok", found, need)


def is_too_old(facts: Facts) -> bool:
    """Whether the driver is why torch offers no card: it serves only its own CUDA major version
    and older ones (within one it serves newer minor versions too, if not all of them)."""
    driver, torch = facts.driver, facts.torch
    if driver.version is None or torch.cuda is None or torch.devices:
        return False
    if driver.cuda is None:
        return _branch(driver) < needed_driver(torch.cuda)
    return driver.cuda[0] < torch.cuda[0]


def _silent_row(facts: Facts, prefix: str = "") -> Row:
    """A driver that does not answer, and why."""
    driver, system = facts.driver, facts.system
    # torch found its way without NVML's help
    state: State = "warn" if facts.torch.devices or not _card_expected(facts) else "no"
    found, fix = _silence(driver, system, card=_card_expected(facts))
    return Row(_NAME, state, prefix + found, "570 or newer; 580 for CUDA 13", fix)


def _card_expected(facts: Facts) -> bool:
    told = facts.driver.trouble not in ("no library", "no package")
    return facts.system.nvidia_on_bus or told or bool(facts.driver.cards)


def _silence(driver: Driver, system: System, *, card: bool) -> tuple[str, str]:
    """What is the matter, and what mends it."""
    said = f" ({driver.detail})" if driver.detail else ""
    match driver.trouble:
        case "no package":
            return f"nvidia-ml-py cannot be used{said}", install(system, "nvidia-ml-py")
        case "no library":
            return _no_library(system, card=card)
        case "not loaded":
            return "the driver is installed but not loaded", load_driver(system)
        case "no rights":
            return f"this user may not ask the driver{said}", may_open(system)
        case "version mismatch":
            return "the driver was updated since it was loaded", "sudo reboot"
        case "lost":
            return f"a card does not answer any more{said}", "sudo reboot"
        case "power":
            return "a card gets too little power", "switch off and plug in the card's power cables."
        case _:
            return f"NVML does not answer{said}", "run nvidia-smi; if it fails too: sudo reboot"


def _no_library(system: System, *, card: bool) -> tuple[str, str]:
    if system.wsl:
        fix = "if Windows has an NVIDIA card: install its driver there, then run wsl --shutdown"
        return "none that WSL 2 can see", fix
    if not card:
        return "none, and no NVIDIA card was found", ""
    if system.container:
        return "none in this container, but the machine has an NVIDIA card", load_driver(system)
    return "none, but there is an NVIDIA card", install_driver(system)


def _rights_row(facts: Facts) -> Row:
    found = f"this user may not open {', '.join(facts.system.denied)}"
    state: State = "warn" if facts.torch.devices else "no"
    return Row("Rights", state, found, "read and write", may_open(facts.system))


def _branch(driver: Driver) -> int:
    number = (driver.version or "").split(".")[0]
    return int(number) if number.isdigit() else 0


def _dotted(version: tuple[int, int] | None) -> str:
    return "" if version is None else f"{version[0]}.{version[1]}"
