"""Lock this process in, run a program under limits, watch it, and say how it ended.

    launch.py < order.json      the answer goes to the file descriptor that the order names

The order's `mode` is "namespaces" (leave the parent's), "inside" (somebody did so already),
"filters" (the kernel refuses what is not needed) or "limits" (nothing but limits). The watcher
counts processes and memory over all of them, since the kernel's limits hold for each one alone.
It may come too late for a fork bomb: that the kernel must bound, by the number of processes of a
user, or by refusing new ones (`forks`).
"""

import json
import os
import resource
import signal
import sys
import time
from typing import Any, NoReturn

from finetune.jail import calls, kernel, landlock, namespaces, processes

INTERVAL = 0.02
PATIENCE = 2.0
SPARE_PROCESSES = 16  # the kernel's bound lies above the watcher's, which can say what it was
_CONTAINED = ("namespaces", "inside")


def main() -> None:
    kernel.die_with_parent()
    os.umask(0o022)
    order = json.loads(sys.stdin.buffer.read())
    report = order["report"]
    os.set_inheritable(report, False)
    try:
        if order["mode"] == "namespaces":
            namespaces.leave()
            if (pid := os.fork()) != 0:
                _stand_by(pid, report)
            kernel.die_with_parent()
            namespaces.furnish(order["folder"], order["readable"], order["limits"]["disk"])
        answer = _supervise(order)
    except OSError as error:
        answer = {"error": str(error)}
    os.write(report, json.dumps(answer).encode())
    os._exit(0)


def _stand_by(pid: int, report: int) -> NoReturn:
    """The process outside, which the caller can kill, and with it everything."""
    os.close(report)
    for stream in (0, 1, 2):
        os.close(stream)
    os.waitpid(pid, 0)
    os._exit(0)


def _supervise(order: dict[str, Any]) -> dict[str, Any]:
    # Whoever is ignored cannot be interrupted by what it watches.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    if sys.platform == "linux":
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    reading, writing = os.pipe()  # both close on exec
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _become(order, writing)
    os.close(writing)
    if sys.platform == "linux":
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    for stream in (0, 1, 2):  # the program's, whose other end waits for their last holder
        os.close(stream)
    failure = os.read(reading, 4096)
    status, limit = _watch(child, order, start)
    processes.kill_all(os.getpid(), PATIENCE)
    if failure:
        return {"error": failure.decode(errors="replace")}
    return {"status": status, "limit": limit, "seconds": time.monotonic() - start}


def _watch(child: int, order: dict[str, Any], start: float) -> tuple[int | None, str | None]:
    """Until the program ends or is ended: its exit status, and the limit that it ran into."""
    limits = order["limits"]
    work = {"namespaces": None, "inside": namespaces.WORK}.get(order["mode"], order["folder"])
    limit = None
    while True:
        if (status := processes.reap().get(child)) is not None:
            return status, limit
        if limit is not None and time.monotonic() - start > limits["seconds"] + PATIENCE:
            return None, limit
        limit = limit or _exceeded(limits, start, work)
        if limit is not None:
            for pid in {child, *processes.descendants(os.getpid())}:
                processes.kill(pid)
        if hasattr(signal, "sigtimedwait"):
            signal.sigtimedwait({signal.SIGCHLD}, INTERVAL)
        else:
            time.sleep(INTERVAL)


def _exceeded(limits: dict[str, Any], start: float, work: str | None) -> str | None:
    if time.monotonic() - start > limits["seconds"]:
        return "time"
    below = processes.descendants(os.getpid())
    if processes.threads(below) > limits["processes"]:
        return "processes"
    if processes.memory(below) > limits["memory"]:
        return "memory"
    if work is not None and _disk(work) > limits["disk"]:
        return "disk"
    return None


def _disk(folder: str) -> int:
    """Bytes below `folder`. More than a few thousand files count as too many."""
    total = count = 0
    for parent, folders, files in os.walk(folder):
        for name in folders + files:
            count += 1
            if count > 4096:
                return sys.maxsize
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except OSError:
                continue
    return total


def _become(order: dict[str, Any], failure: int) -> NoReturn:
    """In the child: limits, files, then the program. A failure is written to the pipe."""
    try:
        contained = order["mode"] in _CONTAINED
        work = namespaces.WORK if contained else order["folder"]
        _drop_privileges(order["user"])
        os.chdir(work)
        for name, text in order["files"].items():
            with open(name, "w", encoding="utf-8", errors="surrogatepass") as file:
                file.write(text)
        _give_input(order["stdin"])
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        kernel.die_with_parent()
        _set_limits(order)
        if order["mode"] == "filters" and landlock.version():
            devices = [f"/dev/{name}" for name in namespaces.DEVICES]
            landlock.allow_only(namespaces.visible(order["readable"]), work, devices)
        if order["mode"] != "limits":
            calls.refuse(outside=not contained, forks=order["forks"])
        environment = {**order["environment"], "HOME": work, "TMPDIR": work}
        os.execve(order["argv"][0], order["argv"], environment)
    except BaseException as error:
        os.write(failure, str(error).encode())
    os._exit(127)


def _drop_privileges(user: int | None) -> None:
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    elif os.geteuid() == 0:  # root by name only: it owns files, but may do no more than others
        kernel.prctl(kernel.PR_SET_SECUREBITS, kernel.NO_ROOT)


def _give_input(text: str) -> None:
    """`text` as stdin, through a file without a name."""
    with open(".stdin", "w", encoding="utf-8") as file:
        file.write(text)
    stdin = os.open(".stdin", os.O_RDONLY)
    os.unlink(".stdin")
    os.dup2(stdin, 0)
    os.close(stdin)


def _set_limits(order: dict[str, Any]) -> None:
    limits = order["limits"]
    seconds = max(1, round(limits["cpu_seconds"]))
    wanted = {
        "RLIMIT_CORE": (0, 0),
        "RLIMIT_CPU": (seconds, seconds + 1),
        "RLIMIT_AS": (limits["memory"],) * 2,
        "RLIMIT_FSIZE": (limits["file"],) * 2,
        "RLIMIT_NOFILE": (limits["open_files"],) * 2,
    }
    if order["running"] is not None:
        wanted["RLIMIT_NPROC"] = (limits["processes"] + order["running"] + SPARE_PROCESSES,) * 2
    for name, pair in wanted.items():
        try:
            resource.setrlimit(getattr(resource, name), pair)
        except (ValueError, OSError):
            if sys.platform == "linux":  # elsewhere some limits are not to be had
                raise


if __name__ == "__main__":
    main()
