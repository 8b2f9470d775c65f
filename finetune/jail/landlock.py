"""Files that a program may not touch from now on (Landlock). Needs no privileges, holds for every
child, cannot be taken back.

Left out: a file's attributes and whether it exists, which Landlock does not guard.
"""

import ctypes
import os
from collections.abc import Iterable

from finetune.jail import kernel

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_ASK_VERSION = 1
_PATH_RULE = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1, 2, 4, 8
_MAKE_CHARACTER_DEVICE, _MAKE_BLOCK_DEVICE, _DEVICE_CONTROL = 1 << 6, 1 << 11, 1 << 15
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # version to how many rights over files it knows
_MOST_RIGHTS = 16
_TCP, _SCOPES = 0b11, 0b11
_WITH_TCP, _WITH_SCOPES = 4, 6


class _Ruleset(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("files", "network", "scopes")]


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("rights", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def version() -> int:
    """How much the kernel's Landlock can do; 0 without it."""
    try:
        return kernel.syscall(_CREATE, "landlock", None, ctypes.c_size_t(0), _ASK_VERSION)
    except OSError:
        return 0


def allow_only(readable: Iterable[str], writable: str | None, devices: Iterable[str]) -> None:
    """No file but those below `readable` (to read and run), `writable` and `devices`."""
    known = version()
    everything = (1 << _RIGHTS.get(known, _MOST_RIGHTS)) - 1
    tcp, scopes = known >= _WITH_TCP, known >= _WITH_SCOPES
    rules = _Ruleset(everything, _TCP * tcp, _SCOPES * scopes)
    size = ctypes.c_size_t(8 * (1 + tcp + scopes))
    ruleset = kernel.syscall(_CREATE, "landlock", ctypes.byref(rules), size, 0)
    for path in readable:
        folder = _READ_FOLDER if os.path.isdir(path) else 0
        _allow(ruleset, path, _EXECUTE | _READ_FILE | folder)
    for path in devices:
        _allow(ruleset, path, _READ_FILE | _WRITE_FILE)
    dangerous = _MAKE_CHARACTER_DEVICE | _MAKE_BLOCK_DEVICE | _DEVICE_CONTROL
    if writable is not None:
        _allow(ruleset, writable, everything & ~dangerous)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.syscall(_RESTRICT, "landlock_restrict_self", ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = ctypes.byref(_Rule(rights, folder))
    try:
        kernel.syscall(_ADD_RULE, f"landlock {path}", ruleset, _PATH_RULE, rule, 0)
    finally:
        os.close(folder)
