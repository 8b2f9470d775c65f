"""Code that tries to get out, one attack a test: to the network, files, secrets, other programs.

They need the kernel's help, and are skipped, with its reason, where it refuses. A door that is
open is not walked through: an attack that succeeds fails the test, and does no harm.
"""

import os
import platform
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from finetune.isolation import Isolation
from tests.finetune.attacks import assert_gone, attack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="attacks are written for Linux")

SECRET = "hf_dont_tell_anybody"
SLEEPER = [sys.executable, "-c", "import time; time.sleep(20)"]
TRY_ALL = """
for number, attempt in enumerate(attempts):
    try: attempt()
    except OSError: continue
    print("done:", number)
"""


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder in which everybody may do everything, and one file like that."""
    (tmp_path / "victim").write_text(SECRET)
    (tmp_path / "victim").chmod(0o666)
    tmp_path.chmod(0o777)
    return tmp_path


def test_connecting_to_the_network(contained: Isolation) -> None:
    code = """
        import socket
        # A network of its own may have a 127.0.0.1, where nobody listens.
        try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", udp))
        except OSError: pass
        attempts = (
            lambda: socket.create_connection(("127.0.0.1", tcp), 2),
            lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).connect(("1.1.1.1", 443)),
            lambda: socket.getaddrinfo("example.com", 80),
        )
    """
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.bind(("127.0.0.1", 0))
        server.setblocking(False)
        datagrams.setblocking(False)
        ports = {"tcp": server.getsockname()[1], "udp": datagrams.getsockname()[1]}
        result = attack(code, contained, ports, then=TRY_ALL)
        assert (result.stdout, result.stderr) == ("", "")
        with pytest.raises(BlockingIOError):
            server.accept()
        with pytest.raises(BlockingIOError):
            datagrams.recv(10)


def test_connecting_to_a_program_on_this_machine(contained: Isolation, open_folder: Path) -> None:
    addresses = [str(open_folder / "s"), f"\0orl-{os.getpid()}"]
    code = """
        import socket
        def connect(address): socket.socket(socket.AF_UNIX).connect(address)
        attempts = [lambda address=address: connect(address) for address in addresses]
    """
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as nameless:
        for server, address in zip((named, nameless), addresses, strict=True):
            server.bind(address)
            server.listen()
        os.chmod(addresses[0], 0o777)
        result = attack(code, contained, {"addresses": addresses}, then=TRY_ALL)
    assert (result.stdout, result.stderr) == ("", "")


def test_writing_outside(contained: Isolation, open_folder: Path) -> None:
    code = """
        import os, sys
        attempts = (
            lambda: open(victim, "w").write("x"), lambda: open(folder + "/new", "w"),
            lambda: os.truncate(victim, 0), lambda: os.unlink(victim),
            lambda: os.chmod(victim, 0), lambda: os.rename(victim, victim + "2"),
            lambda: os.mkdir(folder + "/new"), lambda: os.link(victim, "mine"),
            lambda: os.rmdir("/new") if os.mkdir("/new") else None,
            lambda: open(sys.executable, "r+b"), lambda: open(os.__file__, "r+b"),
            lambda: open("/dev/shm/orl-new", "w"), lambda: open("/usr/orl-new", "w"),
            lambda: open("/proc/sys/kernel/core_pattern", "r+b"),
        )
    """
    names = {"folder": str(open_folder), "victim": str(open_folder / "victim")}
    result = attack(code, contained, names, then=TRY_ALL)
    assert (result.stdout, result.stderr, result.exit_code) == ("", "", 0)
    assert (open_folder / "victim").read_text() == SECRET
    assert os.listdir(open_folder) == ["victim"]


def test_reading_files_of_the_user(contained: Isolation, open_folder: Path) -> None:
    code = """
        paths = (victim, "/etc/shadow", "/etc/passwd", "/dev/mem", "/dev/sda", "/dev/vda")
        attempts = [lambda path=path: open(path, "rb").read(1) for path in paths]
    """
    names = {"victim": str(open_folder / "victim")}
    result = attack(code, contained, names, then=TRY_ALL)
    assert (result.stdout, result.stderr) == ("", "")


def test_symlinks_out_of_the_folder(contained: Isolation, open_folder: Path) -> None:
    code = """
        import os, shutil
        folder = os.path.dirname(victim)
        os.symlink(victim, "file"); os.symlink(folder, "folder")
        os.symlink("/", "root"); os.symlink("/proc/1/root", "proc")
        paths = ("file", "folder/victim", "root" + victim, "proc" + victim)
        attempts = [lambda path=path, mode=mode: open(path, mode) for path in paths
                    for mode in ("r", "r+", "a")]
        attempts.append(lambda: os.listdir("folder"))
        attempts.append(lambda: shutil.rmtree(os.path.realpath("folder")))
    """
    result = attack(code, contained, {"victim": str(open_folder / "victim")}, then=TRY_ALL)
    assert (result.stdout, result.stderr) == ("", "")
    assert (open_folder / "victim").read_text() == SECRET


def test_secrets_of_other_programs_in_proc(contained: Isolation) -> None:
    code = """
        names = ("environ", "cmdline", "maps", "mem", "fd/0", "cwd/x", "root/etc/passwd")
        for pid in (*pids, *range(1, 8)):
            for name in names:
                try: print(open(f"/proc/{pid}/{name}", "rb").read(4096))
                except OSError as error: print(type(error))
    """
    with subprocess.Popen([*SLEEPER, SECRET], env={"HF_TOKEN": SECRET}) as victim:
        result = attack(code, contained, {"pids": [os.getpid(), victim.pid]})
        victim.kill()
    assert result.exit_code == 0
    assert SECRET not in result.stdout
    assert "root:" not in result.stdout


def test_a_debugger_on_the_parent(contained: Isolation) -> None:
    code = """
        import ctypes, os
        seize, libc = 0x4206, ctypes.CDLL(None)
        print([libc.ptrace(seize, pid, 0, 0) for pid in (os.getppid(), parent)])
    """
    assert attack(code, contained, {"parent": os.getpid()}).stdout == "[-1, -1]\n"


def test_killing_the_watcher(contained: Isolation) -> None:
    mark = f"watcher-{os.getpid()}-{contained.name}"
    code = """
        import os, subprocess, time
        try: subprocess.Popen([*sleeper, mark], start_new_session=True)
        except PermissionError: pass
        try: os.kill(os.getppid(), 9)
        except OSError: pass
        time.sleep(20)
    """
    result = attack(code, contained, {"sleeper": SLEEPER, "mark": mark}, seconds=1)
    assert not result.ok
    assert_gone(mark)


def test_ending_or_hindering_other_programs(contained: Isolation) -> None:
    code = """
        import ctypes, os, resource
        def send():
            if ctypes.CDLL(None).syscall(tgkill, pid, pid, 9) < 0: raise OSError
        attempts = (
            lambda: os.kill(pid, 9), lambda: os.killpg(pid, 9), send,
            lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
            lambda: os.sched_setaffinity(pid, {0}),
            lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (0, 0)),
        )
    """
    tgkill = 234 if platform.machine() == "x86_64" else 131
    with subprocess.Popen(SLEEPER, start_new_session=True) as bystander:
        result = attack(code, contained, {"pid": bystander.pid, "tgkill": tgkill}, then=TRY_ALL)
        alive = bystander.poll() is None
        bystander.kill()
    assert alive
    assert (result.stdout, result.stderr) == ("", "")


def test_memory_that_no_process_owns(contained: Isolation) -> None:
    code = """
        import os
        bomb = os.memfd_create("bomb")
        for _ in range(100): os.write(bomb, bytes(1 << 20))
        print("stored")
    """
    assert "stored" not in attack(code, contained).stdout


def test_further_namespaces_and_mounts(contained: Isolation) -> None:
    code = """
        import ctypes
        libc = ctypes.CDLL(None)
        new_user, private, clone3 = 0x10000000, 0x44000, 435
        print(libc.unshare(new_user), libc.setns(0, 0), libc.umount2(b"/proc", 2),
              libc.mount(b"none", b"/", None, private, None), libc.syscall(clone3, 0, 0),
              libc.shmget(0, 1 << 20, 0o1600))
    """
    assert attack(code, contained).stdout == "-1 -1 -1 -1 -1 -1\n"


def test_becoming_somebody_else(contained: Isolation) -> None:
    code = """
        import os
        attempts = (
            lambda: os.setuid(os.getuid() + 1), lambda: os.setgroups([0]),
            lambda: os.chroot("/"), lambda: os.mknod("disk", 0o60600, os.makedev(8, 0)),
        )
    """
    assert attack(code, contained, then=TRY_ALL).stdout == ""
