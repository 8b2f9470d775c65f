"""The sandbox: what an ordinary program sees, and what it is told when a limit ends it."""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from finetune import isolation as ways
from finetune import sandbox
from finetune.isolation import Isolation
from finetune.sandbox import Limits, run_python, sandbox_kind

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="code is not run on Windows")


def test_an_ordinary_program(way: Isolation) -> None:
    code = "import sys; print(sys.stdin.read() * 2); print('ü', file=sys.stderr); sys.exit(3)"
    result = run_python(code, isolation=way, stdin="äb")
    assert (result.stdout, result.stderr) == ("äbäb\n", "ü\n")
    assert (result.exit_code, result.limit, result.error, result.ok) == (3, None, None, False)
    assert 0 < result.seconds < 10


def test_it_finds_its_files_packages_and_a_temporary_folder(way: Isolation) -> None:
    code = (
        "import jinja2, tempfile\n"
        "with tempfile.TemporaryFile() as file: file.write(b'x' * 100)\n"
        "open('new.txt', 'w').write('hello')\n"
        "seven = jinja2.Template('{{ x }}').render(x=7)\n"
        "print(open('given.txt').read(), open('new.txt').read(), seven)"
    )
    result = run_python(code, isolation=way, files={"given.txt": "42"}, limits=Limits(seconds=20))
    assert (result.stdout, result.stderr) == ("42 hello 7\n", "")
    assert result.ok


def test_it_may_start_processes_where_they_are_counted(way: Isolation) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(7)'])"
    result = run_python(code, isolation=way)
    if way.forks:
        assert (result.stdout, result.stderr) == ("7\n", "")
    else:
        assert result.stderr.splitlines()[-1].startswith("PermissionError")


def test_nothing_remains(way: Isolation, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.tempfile, "tempdir", str(tmp_path))
    code = "import os\nos.makedirs('a/b')\nopen('a/b/c', 'w').write('x')\nos.mkdir('d', 0)"
    assert run_python(code, isolation=way).ok
    assert os.listdir(str(tmp_path)) == []


def test_an_exception_and_a_signal(way: Isolation) -> None:
    result = run_python("1 / 0", isolation=way)
    assert result.exit_code == 1
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")
    crash = run_python("import ctypes; ctypes.string_at(0)", isolation=way)
    assert crash.exit_code == -11
    assert crash.limit is None


def test_code_that_is_no_text_and_no_python(way: Isolation) -> None:
    assert "SyntaxError" in run_python("def", isolation=way).stderr
    assert run_python("x = '\ud800'", isolation=way).exit_code == 1
    assert run_python("", isolation=way).ok


def test_several_at_once(way: Isolation) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda n: run_python(f"print({n} ** 2)", isolation=way), range(6))
    assert [result.stdout for result in results] == [f"{n**2}\n" for n in range(6)]


def test_no_descriptor_or_thread_is_left_open(way: Isolation) -> None:
    run_python("pass", isolation=way)
    before = len(os.listdir("/dev/fd")), threading.active_count()
    for code in ("pass", "1 / 0", "import os; os.kill(os.getpid(), 9)"):
        run_python(code, isolation=way)
    assert (len(os.listdir("/dev/fd")), threading.active_count()) == before


# --- which isolation there is -------------------------------------------------------------------


def test_the_kind_is_told_in_words() -> None:
    kind = sandbox_kind()
    assert str(kind).endswith(".")
    assert kind is sandbox_kind()
    limits = Isolation("limits", ("use the network",))
    assert not limits.contains
    assert "Code that means harm could use the network." in limits.words


def test_where_nothing_works_that_is_told_and_nothing_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ways, "_launcher", lambda folder: [sys.executable, "-c", "print(1)"])
    sandbox_kind.cache_clear()
    try:
        kind = sandbox_kind()
        assert kind.name == "none"
        assert kind.words.startswith("Code cannot be run here: ")
        assert kind.refused
        result = run_python("print(1)")
        assert (result.exit_code, result.ok, result.error) == (None, False, kind.words)
    finally:
        sandbox_kind.cache_clear()


def test_an_interpreter_that_cannot_start_is_the_sandbox_s_fault(
    way: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "sys", type("S", (), {"executable": "/no/such/python"}))
    result = run_python("print(1)", isolation=way)
    assert result.exit_code is None
    assert result.error is not None
    assert result.error.startswith("The sandbox cannot start")


@pytest.mark.parametrize("name", ["seconds", "memory", "processes", "output"])
def test_limits_check_themselves(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be above 0, got 0"):
        Limits(**{name: 0})


def test_the_time_starts_with_the_program_and_is_kept(way: Isolation) -> None:
    start = time.monotonic()
    result = run_python("import time; time.sleep(60)", isolation=way, limits=Limits(seconds=0.3))
    assert result.limit == "time"
    assert 0.3 <= result.seconds < 3
    assert time.monotonic() - start < 15
