"""Code that eats resources or will not end, one attack a test.

All must fail even where there is nothing but limits. Every attack has a fuse of its own: one that
succeeds fails the test, and not the machine it runs on.
"""

import os
import sys

import pytest

from finetune.isolation import Isolation
from tests.finetune.attacks import assert_gone, attack, is_refused

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="attacks are written for Linux")

SLEEPER = [sys.executable, "-c", "import time; time.sleep(20)"]


def test_cpu_spin(way: Isolation) -> None:
    code = """
        import time
        while time.time() < start + 90: pass
    """
    assert attack(code, way, cpu_seconds=1, seconds=90).limit == "cpu"


def test_sleeping_for_ever(way: Isolation) -> None:
    assert attack("import time; time.sleep(20)", way, seconds=0.3).limit == "time"


def test_memory_bomb(way: Isolation) -> None:
    code = """
        held = []
        for _ in range(300): held.append(bytearray(1 << 22))
    """
    result = attack(code, way, memory=200 << 20)
    assert result.limit == "memory" or "MemoryError" in result.stderr


def test_memory_bomb_of_many_processes(way: Isolation) -> None:
    code = """
        import os, time
        for _ in range(12):
            if os.fork() == 0:
                held = bytearray(60 << 20)
                break
        time.sleep(8)
    """
    result = attack(code, way, memory=200 << 20)
    assert result.limit == "memory" or is_refused(result, way)


def test_fork_bomb(way: Isolation) -> None:
    code = """
        import os, time
        for _ in range(8):
            try: os.fork()
            except BlockingIOError: pass
        time.sleep(8)
        print("alive")
    """
    result = attack(code, way)
    assert result.limit == "processes" or is_refused(result, way)
    assert "alive" not in result.stdout


def test_thread_bomb(way: Isolation) -> None:
    code = """
        import threading, time
        for _ in range(300): threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
    """
    result = attack(code, way)
    assert result.limit == "processes" or "can't start new thread" in result.stderr


def test_file_size_bomb(way: Isolation) -> None:
    code = """
        file = open("big", "wb")
        for _ in range(100): file.write(bytes(1 << 20)); file.flush()
    """
    assert "File too large" in attack(code, way, file=4 << 20).stderr


def test_many_files(way: Isolation) -> None:
    code = """
        import time
        for n in range(100): open(f"f{n}", "wb").write(bytes(1 << 20))
        time.sleep(2)
    """
    result = attack(code, way, disk=8 << 20)
    assert result.limit == "disk" or "No space left" in result.stderr


def test_many_empty_files(way: Isolation) -> None:
    code = """
        import time
        for n in range(9000): open(f"f{n}", "w").close()
        time.sleep(1)
    """
    result = attack(code, way)
    assert result.limit == "disk" or "No space left" in result.stderr


def test_infinite_output(way: Isolation) -> None:
    code = """
        import sys
        for _ in range(3000): sys.stdout.write("x" * 100_000)
    """
    result = attack(code, way, output=1 << 20, kept=1000)
    assert result.limit == "output"
    assert len(result.stdout) < 1100
    assert "bytes left out" in result.stdout


def test_infinite_output_of_a_grandchild(way: Isolation) -> None:
    code = """
        import os
        if os.fork() == 0:
            os.setsid()
            for _ in range(100_000): os.write(2, b"y" * 4096)
        os._exit(0)
    """
    result = attack(code, way, output=1 << 20)
    assert result.limit in (None, "output")
    assert result.ok or result.limit or is_refused(result, way)


def test_huge_traceback(way: Isolation) -> None:
    result = attack("raise ValueError('z' * 3_000_000 + ' the end')", way, kept=2000)
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback")
    assert result.stderr.endswith("z the end\n")
    assert len(result.stderr) < 2200


def test_endless_recursion(way: Isolation) -> None:
    code = """
        import sys
        sys.setrecursionlimit(10**9)
        def dig(): dig()
        dig()
    """
    assert not attack(code, way, memory=200 << 20, seconds=1).ok


def test_ignoring_signals(way: Isolation) -> None:
    code = """
        import signal, time
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while time.time() < start + 20: time.sleep(1)
    """
    assert attack(code, way, seconds=0.5).limit == "time"


def test_orphaned_grandchildren(way: Isolation) -> None:
    mark = f"orphan-{os.getpid()}-{way.name}"
    code = """
        import os, subprocess, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0: subprocess.Popen([*sleeper, mark], start_new_session=True)
            os._exit(0)
        os.wait()
        time.sleep(0.3)
        print("left")
    """
    result = attack(code, way, {"sleeper": SLEEPER, "mark": mark})
    assert result.stdout == "left\n" or is_refused(result, way)
    assert_gone(mark)


def test_children_of_a_program_that_is_ended(way: Isolation) -> None:
    mark = f"ended-{os.getpid()}-{way.name}"
    code = """
        import subprocess, time
        subprocess.Popen([*sleeper, mark], start_new_session=True)
        time.sleep(20)
    """
    result = attack(code, way, {"sleeper": SLEEPER, "mark": mark}, seconds=0.6)
    assert result.limit == "time" or is_refused(result, way)
    assert_gone(mark)


def test_closing_all_descriptors(way: Isolation) -> None:
    code = """
        import os, time
        os.closerange(0, 4096)
        time.sleep(0.3)
        os._exit(5)
    """
    assert attack(code, way).exit_code == 5


def test_closing_all_descriptors_and_staying(way: Isolation) -> None:
    code = """
        import os, time
        os.closerange(0, 4096)
        time.sleep(20)
    """
    assert attack(code, way, seconds=0.5).limit == "time"


def test_no_descriptor_is_inherited(way: Isolation) -> None:
    code = """
        import os
        def is_open(number):
            try: return bool(os.fstat(number))
            except OSError: return False
        print([number for number in range(3, 4096) if is_open(number)])
    """
    assert attack(code, way).stdout == "[]\n"


def test_secrets_in_the_environment(way: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_dont_tell")
    result = attack("import os; print(dict(os.environ))", way)
    assert result.ok
    assert "hf_dont_tell" not in result.stdout


def test_a_folder_that_becomes_a_symlink(way: Isolation, tmp_path_factory: object) -> None:
    assert isinstance(tmp_path_factory, pytest.TempPathFactory)
    keep = tmp_path_factory.mktemp("keep")
    (keep / "file").write_text("whole")
    code = """
        import os
        os.mkdir("a"); os.rename("a", "b"); os.symlink(keep, "a")
        os.mkdir("c", 0o000); os.symlink("c", "d"); os.symlink(keep, ".hidden")
    """
    assert attack(code, way, {"keep": str(keep)}).ok
    assert (keep / "file").read_text() == "whole"
