"""A process's descendants: how many, how much memory, and an end to all of them.

Only Linux tells them cheaply; elsewhere there are none to be seen, and the kernel's own limits on
one process have to do.
"""

import contextlib
import os
import signal
import time

_PAGE = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> list[int]:
    """Processes below `pid`; those that are orphaned stay below it while it is a subreaper."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                children += map(int, file.read().split())
    except OSError:  # it ended meanwhile
        pass
    return children


def threads(pids: list[int]) -> int:
    """How many threads these processes have, one at least for each."""
    total = 0
    for pid in pids:
        try:
            total += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            total += 1
    return total


def memory(pids: list[int]) -> int:
    """Bytes that these processes hold for themselves."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm") as file:
                _, resident, shared = map(int, file.read().split()[:3])
        except (OSError, ValueError):
            continue
        total += (resident - shared) * _PAGE
    return total


def kill_all(pid: int, patience: float) -> None:
    """Kill what is below `pid`, which is this process, until nothing is left of it."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        left = descendants(pid)
        for child in left:
            kill(child)
        reap()
        if not left:
            return
        time.sleep(0.002)


def reap() -> dict[int, int]:
    """Exit statuses of children that ended, by pid."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def kill(pid: int) -> None:
    """Kill one process, if it is still there."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
