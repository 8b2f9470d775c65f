"""A world of its own: processes, network, mounts and IPC in new namespaces.

The new root is a small file system in memory that holds the system and the interpreter, read-only,
and a working folder, which is as large as the limit allows and gone with the last process. Without
privileges a user namespace comes first; root needs none, and gives the code an unused user id
instead, so that the kernel's limit on processes holds for it too.
"""

import os
from collections.abc import Iterable

from finetune.jail import kernel

WORK = "/sandbox"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/nix/store", "/gnu/store")
FILES = ("/etc/ld.so.cache",)
DEVICES = ("null", "zero", "random", "urandom")

_NEW_MOUNTS, _NEW_UTS, _NEW_IPC, _NEW_USER, _NEW_PIDS, _NEW_NETWORK = (
    0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip


def leave() -> None:
    """Leave the parent's namespaces; the next fork is the first process of the new ones."""
    flags = _NEW_MOUNTS | _NEW_UTS | _NEW_IPC | _NEW_PIDS | _NEW_NETWORK
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        kernel.unshare(flags)
        return
    kernel.unshare(flags | _NEW_USER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")


def furnish(root: str, readable: Iterable[str], size: int) -> None:
    """Build the file system at the empty folder `root` and make it this process's root.

    `readable` is what the interpreter needs besides the system; `size` bounds the working folder.
    """
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    plain = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", root, "tmpfs", plain, "size=1m,mode=755")
    for path in visible(readable):
        _show(path, root)
    os.makedirs(f"{root}/proc")
    kernel.mount("proc", f"{root}/proc", "proc", plain | kernel.MS_NOEXEC)
    # Root's own settings of the kernel stand in /proc/sys.
    kernel.restrict_mount(f"{root}/proc", kernel.ATTR_READ_ONLY)
    _devices(root)
    os.makedirs(root + WORK)
    if not os.path.lexists(f"{root}/tmp"):
        os.symlink(WORK, f"{root}/tmp")
    kernel.mount(
        "tmpfs", root + WORK, "tmpfs", plain, f"size={size},nr_inodes=4096,mode=1777"
    )  # fmt: skip
    kernel.restrict_mount(root, kernel.ATTR_READ_ONLY, recursive=False)
    kernel.make_root(root)


def visible(readable: Iterable[str]) -> list[str]:
    """The paths that the code may read, each once, and none that lies inside another."""
    wanted = sorted({p for p in (*SYSTEM, *FILES, *readable) if os.path.lexists(p)})
    kept: list[str] = []
    for path in wanted:
        if path != "/" and not any(path.startswith(f"{outer}/") for outer in kept):
            kept.append(path)
    return kept


def _show(path: str, root: str) -> None:
    target = root + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):  # /bin is usually /usr/bin
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        _write(target, "")
    kernel.mount(path, target, None, kernel.MS_BIND | kernel.MS_REC)
    protection = kernel.ATTR_READ_ONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV
    kernel.restrict_mount(target, protection)


def _devices(root: str) -> None:
    os.makedirs(f"{root}/dev")
    for name in DEVICES:
        _write(f"{root}/dev/{name}", "")
        kernel.mount(f"/dev/{name}", f"{root}/dev/{name}", None, kernel.MS_BIND)
    os.symlink("/proc/self/fd", f"{root}/dev/fd")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
