"""The one command that mends it, for the ways in which this program is installed."""

from engine.machine.facts import Capability, System, Version

_WHEELS = "https://download.pytorch.org/whl"
_DRIVERS: dict[Version, int] = {(12, 6): 560, (12, 8): 570, (12, 9): 575, (13, 0): 580}
"""CUDA version to the oldest driver branch that comes with it (CUDA's release notes)."""
_NEWEST_DRIVER = 580
_DRIVER_PAGE = "https://www.nvidia.com/drivers"
_EXPOSE = "start the container with its cards: docker run --gpus all ..."


def needed_driver(cuda: Version | None) -> int:
    """The oldest driver branch for a torch that was built for CUDA `cuda`.

    Drivers of a CUDA major version serve its later minors only in part, so the minor counts too;
    within CUDA 13 every branch from 580 on will do.
    """
    if cuda is None or cuda >= (13, 0):
        return _NEWEST_DRIVER
    known = [branch for version, branch in _DRIVERS.items() if version <= cuda]
    return max(known, default=min(_DRIVERS.values()))


def install(system: System, requirement: str, *, index: str = "") -> str:
    """The command that puts a package into this program's environment.

    With `index` it replaces what is there: to pip a CPU build of torch is as good as any.
    """
    quoted = f'"{requirement}"' if set("<>=*") & set(requirement) else requirement
    name = requirement.split("=")[0].rstrip("<>")
    if system.uv_tool:
        options = f" --reinstall-package {name} --index-url {index}" if index else " --upgrade"
        return f'uv pip install --python "$(uv tool dir)/orl-chat"{options} {quoted}'
    options = f" --force-reinstall --index-url {index}" if index else " --upgrade"
    return f"pip install{options} {quoted}"


def install_torch(system: System, driver: Version | None, capability: Capability | None) -> str:
    """The command for a torch with CUDA that this driver can run and that knows this card; where
    there is none, the driver comes first.

    Wheels for CUDA 12.8, the first that knows Blackwell, end with torch 2.11; those for 12.6 go
    on, and run on every driver of CUDA 12.
    """
    newest = install(system, "torch", index=f"{_WHEELS}/cu130")
    if driver is None or driver >= (13, 0):
        return newest
    blackwell = capability is not None and capability >= (10, 0)
    if blackwell and driver >= (12, 8):
        return install(system, "torch==2.11.*", index=f"{_WHEELS}/cu128")
    if not blackwell and driver >= (12, 0):
        return install(system, "torch", index=f"{_WHEELS}/cu126")
    return f"{install_driver(system)}, then: {newest}"


def install_driver(system: System, branch: int = _NEWEST_DRIVER) -> str:
    """How to get a driver of this branch or a newer one."""
    if system.wsl:
        return f"install driver {branch} or newer in Windows, never inside of WSL: {_DRIVER_PAGE}"
    if system.container:
        return f"install driver {branch} or newer on the machine that runs this container."
    command = {
        "ubuntu": f"sudo apt install nvidia-driver-{branch}-open",
        "arch": "sudo pacman -S nvidia-open",
    }.get(system.distribution)
    return command or f"install driver {branch} or newer: {_DRIVER_PAGE}"


def load_driver(system: System) -> str:
    """How a driver that is installed starts to work."""
    return _EXPOSE if system.container else "sudo modprobe nvidia"


def load_uvm(system: System) -> str:
    """How the driver's memory module is loaded; without it CUDA does not start."""
    return _EXPOSE if system.container else "sudo modprobe nvidia-uvm"


def may_open(system: System) -> str:
    """How a user gets at device files that are closed to them."""
    if system.container:
        return _EXPOSE
    if system.denied_group not in ("", "root"):
        return f"sudo usermod -aG {system.denied_group} $USER, then log in again."
    return "sudo chmod a+rw /dev/nvidia*"
