"""System calls that a program may not make from now on (seccomp). Needs no privileges, holds for
every child, cannot be taken back.

In namespaces: those that open new ones, or that hold memory which no limit counts. Without them
also sockets, signals to others, file attributes and new processes: a process that has no children
is easy to end, and what may not be counted may not multiply.
"""

import ctypes
import os

from finetune.jail import kernel

Instruction = tuple[int, int, int, int]
Pair = tuple[int | None, int | None]
"""A call's number on x86-64 and on arm64."""

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Which of the two, and the kernel's number for the architecture."""

_ALWAYS: dict[str, Pair] = {
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "mount_setattr": (442, 442), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "msgget": (68, 186), "semget": (64, 190), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
}  # fmt: skip
_OUTSIDE: dict[str, Pair] = {  # what reaches other processes, the network, or a file's attributes
    "socket": (41, 198), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
}  # fmt: skip
_FORKS: dict[str, Pair] = {"fork": (57, None), "vfork": (58, None)}
_OF_ONESELF: dict[str, Pair] = {"kill": (62, 129), "tgkill": (234, 131), "prlimit": (302, 261)}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* bit that clone takes
_THREAD = 0x10000
_X32 = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_REFUSED, _UNKNOWN = 0x00050000 | 1, 0x00050000 | 38  # EPERM, ENOSYS
_PR_SET_SECCOMP, _FILTER_MODE = 22, 2


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def refuse(*, outside: bool, forks: bool) -> None:
    """Refuse the calls above from now on.

    Args:
        outside: nothing else keeps this process from others, so those tables hold too.
        forks: it may start processes (threads it always may).
    """
    if os.uname().machine not in MACHINES:
        raise OSError(38, f"no system call table for {os.uname().machine}")
    code = b"".join(
        operation.to_bytes(2, "little") + bytes((yes, no)) + value.to_bytes(4, "little")
        for operation, yes, no, value in _instructions(outside, forks)
    )
    program = _Program(len(code) // 8, code)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(_PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program))


def _instructions(outside: bool, forks: bool) -> list[Instruction]:
    column, architecture = MACHINES[os.uname().machine]
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _UNKNOWN),
        # Its flags lie in memory, where no filter can look; libraries fall back to clone.
        (_EQUAL, 0, 1, _CLONE3[column]),
        (_RETURN, 0, 0, _UNKNOWN),
    ]
    for table in [_ALWAYS] + [_OUTSIDE] * outside + [_FORKS] * (not forks):
        for pair in table.values():
            if (number := pair[column]) is not None:
                code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSED)]
    for name in _OF_ONESELF if outside else ():
        number = _OF_ONESELF[name][column]
        assert number is not None
        code += _only_with(number, (os.getpid(), 0) if name == "prlimit" else (os.getpid(),))
    return [*code, *_clone(_CLONE[column], forks), (_RETURN, 0, 0, _ALLOW)]


def _only_with(number: int, first: tuple[int, ...]) -> list[Instruction]:
    """The call is refused unless its first argument is one of these."""
    tests: list[Instruction] = []
    for value in first:
        tests += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW)]
    body = [(_LOAD, 0, 0, _FIRST_ARGUMENT), *tests, (_RETURN, 0, 0, _REFUSED)]
    return [(_EQUAL, 0, len(body), number), *body]


def _clone(number: int, forks: bool) -> list[Instruction]:
    body: list[Instruction] = [
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 0, 1, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _REFUSED),
    ]
    if not forks:
        body += [(_ANY_BIT, 1, 0, _THREAD), (_RETURN, 0, 0, _REFUSED)]
    body.append((_RETURN, 0, 0, _ALLOW))
    return [(_EQUAL, 0, len(body), number), *body]
