"""The few system calls that Python has no function for. Every one raises OSError."""

import ctypes
import os
import sys
from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
PR_SET_SECUREBITS, NO_ROOT = 28, 0b11  # user 0 gains nothing on exec, for good
_SIGKILL = 9
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
ATTR_READ_ONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
_MNT_DETACH = 2

_libc: Any = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def syscall(number: int, what: str, *arguments: object) -> int:
    """The system call of this number; `what` names it in an error."""
    return _check(_libc.syscall(ctypes.c_long(number), *arguments), what)


def prctl(option: int, value: int, pointer: object = None) -> None:
    """One of the process's own switches."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), pointer, 0, 0), f"prctl {option}")


def die_with_parent() -> None:
    """Be killed when the thread that started this process ends."""
    if sys.platform == "linux":
        prctl(PR_SET_PDEATHSIG, _SIGKILL)


def unshare(flags: int) -> None:
    """Leave the parent's namespaces."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount a file system, or bind `source` onto `target`."""
    texts = [None if text is None else text.encode() for text in (source, target, kind)]
    done = _libc.mount(*texts, ctypes.c_ulong(flags), options.encode() or None)
    _check(done, f"mount {target}")


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def restrict_mount(target: str, attributes: int, *, recursive: bool = True) -> None:
    """Add ATTR_* to the mount at `target`, and to those below it."""
    wanted = _MountAttributes(attributes, 0, 0, 0)
    syscall(
        _MOUNT_SETATTR, f"mount_setattr {target}", _AT_FDCWD, target.encode(),
        _AT_RECURSIVE if recursive else 0, ctypes.byref(wanted), ctypes.sizeof(wanted),
    )  # fmt: skip


def make_root(folder: str) -> None:
    """Make the mount at `folder` the root, and let the old one go."""
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(38, f"no system call table for {os.uname().machine}")
    os.chdir(folder)
    syscall(number, "pivot_root", b".", b".")
    _check(_libc.umount2(b".", _MNT_DETACH), "umount the old root")
    os.chdir("/")
