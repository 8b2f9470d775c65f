"""The ways to keep a program in, best first: what each one lacks, and how it is started."""

import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from finetune.jail import calls, landlock, namespaces

Name = Literal["namespaces", "bubblewrap", "filters", "limits", "none"]

_MODES = {"namespaces": "namespaces", "bubblewrap": "inside", "filters": "filters"}
_WORDS: dict[Name, str] = {
    "namespaces": "with processes, files and a network of its own (Linux namespaces)",
    "bubblewrap": "with processes, files and a network of its own (bubblewrap)",
    "filters": "without sockets, further processes or files but those in a temporary folder",
    "limits": "under limits on time, memory and files",
}
_FILES, _CUTS = "read and change your files", "cut your files short"
_EVERYTHING = (_FILES, "use the network", "end your other programs")
_START = "import sys; sys.path[:0] = sys.argv[1:]; from finetune.jail.launch import main; main()"
_PACKAGE = Path(__file__).resolve().parent
_NOBODY = 65534
_UNUSED_USERS = 1_900_000_000  # ids from here on belong to nobody
_GUARDS_LENGTH = 3  # the version of Landlock from which files cannot be cut short


@dataclass(frozen=True)
class Isolation:
    """One way to keep a program in.

    Attributes:
        missing: what the program could do nevertheless, or why none can be run.
        refused: better ways that this system does not allow, each with its reason.
    """

    name: Name
    missing: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.words

    @property
    def contains(self) -> bool:
        """Whether code that means harm cannot do any."""
        return not self.missing

    @property
    def words(self) -> str:
        """A sentence or two for the user."""
        if self.name == "none":
            return f"Code cannot be run here: {'; '.join(self.missing)}."
        text = f"Code runs in a process of its own, {_WORDS[self.name]}."
        if not self.missing:
            return text
        return f"{text} Code that means harm could {', '.join(self.missing)}."

    @property
    def mode(self) -> str:
        """What the launcher calls it."""
        return _MODES.get(self.name, "limits")

    def command(self, disk: int) -> list[str]:
        """The launcher's command line; `disk` bounds the program's files, in bytes."""
        if self.name == "bubblewrap":
            return _bubblewrap(disk)
        return _launcher(str(_PACKAGE.parent))

    def user(self) -> int | None:
        """An id without any rights, another one each time, where this process may give it."""
        if os.geteuid() != 0 or self.name == "bubblewrap":
            return None
        if self.name == "filters" and not all(map(_open_to_others, interpreter())):
            return None
        return _UNUSED_USERS + secrets.randbelow(1 << 24)

    @property
    def forks(self) -> bool:
        """Whether the program may start processes: only where the kernel counts them."""
        return self.name != "filters" and (os.geteuid() != 0 or self.name == "namespaces")

    def running(self) -> int | None:
        """Threads that the kernel counts already when it limits the program's; None where it
        shall not count, since it counts a whole user's."""
        if self.name == "filters":
            return None
        return _threads_of_user() if self.name == "limits" else 0


def candidates() -> Iterator[Isolation]:
    """What may work here, best first."""
    if os.name != "posix":
        yield Isolation("none", ("it needs Linux or macOS; on Windows use WSL 2",))
        return
    if sys.platform == "linux":
        yield Isolation("namespaces")
        if shutil.which("bwrap"):
            yield Isolation("bubblewrap")
        if os.uname().machine in calls.MACHINES:
            version = landlock.version()
            cut = () if version >= _GUARDS_LENGTH else (_CUTS,)
            yield Isolation("filters", cut if version else (_FILES,))
    if os.geteuid() != 0:
        yield Isolation("limits", _EVERYTHING)
        return
    yield Isolation("none", ("nothing here would keep it from acting as root; use another user",))


def interpreter() -> list[str]:
    """The folders that this interpreter and its packages lie in, as they are called and as they
    really are."""
    named = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    named.add(os.path.dirname(os.path.dirname(os.path.realpath(sys.executable))))
    return sorted((named | {os.path.realpath(path) for path in named}) - {"/"})


def _launcher(folder: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _START, folder]


def _bubblewrap(disk: int) -> list[str]:
    program = shutil.which("bwrap") or "bwrap"
    arguments = [
        program, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv",
        "--cap-drop", "ALL", "--uid", str(_NOBODY), "--gid", str(_NOBODY),
    ]  # fmt: skip
    visible = namespaces.visible(interpreter())
    for path in visible:
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        else:
            arguments += ["--ro-bind", path, path]
    for name in ("__init__.py", "jail"):
        arguments += ["--ro-bind", str(_PACKAGE / name), f"/launcher/finetune/{name}"]
    arguments += ["--proc", "/proc", "--remount-ro", "/proc"]
    arguments += ["--dev", "/dev", "--remount-ro", "/dev"]
    arguments += ["--size", str(disk), "--perms", "0755", "--tmpfs", namespaces.WORK]
    if not any(path.startswith("/tmp/") for path in visible):
        arguments += ["--symlink", namespaces.WORK, "/tmp"]
    return [*arguments, "--remount-ro", "/", "--", *_launcher("/launcher")]


def _threads_of_user() -> int:
    threads = 0
    for process in psutil.process_iter():
        try:
            threads += process.num_threads() if process.uids().real == os.getuid() else 0
        except psutil.Error:
            continue
    return threads


def _open_to_others(folder: str) -> bool:
    """Whether a user without rights gets to this folder."""
    path = Path(folder)
    return all(part.stat().st_mode & 0o001 for part in (path, *path.parents))
