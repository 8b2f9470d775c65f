"""`orl-chat doctor --report`: fit for a bug report, without a word about whose machine it is."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from app import doctor, report
from app.cli import run
from app.doctor import Report, examine
from app.report import PACKAGES, anonymous, for_bug_report, private_words, short_hash
from engine.hardware import Hardware, Row
from tests.engine.stand_ins import Gpu, Nvml, Torch, machine, raising

USER, HOST, FULL_NAME = "janedoe", "janes-tower", "Jane Doe"
HOME = f"/home/{USER}"
GPU = Gpu(
    free=4.0,
    processes=[(1, 20.0), (2, 1.0)],
    uuid="GPU-4c1f7a20-89ab-4cde-8f01-23456789abcd",
)
NAMES = {1: f"{HOME}/bin/python3 -m x", 2: f"/usr/bin/{USER}-game"}
TORCH_ERROR = f"{HOME}/.venv/lib/libc10.so: cannot open, says {USER}@{HOST} ({FULL_NAME})"


@pytest.fixture(autouse=True)
def jane(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This test runs as somebody, on a machine with a name, with all folders at home."""
    monkeypatch.setenv("HOME", HOME)
    for name in ("USER", "LOGNAME"):
        monkeypatch.setenv(name, USER)
    for name in ("ORL_CHAT_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(report.socket, "gethostname", lambda: f"{HOST}.lan")
    monkeypatch.setattr(doctor, "ensure", lambda folder: False)


def personal() -> dict[str, Report]:
    """Reports of machines whose every source talks about its user."""

    def good(device: str) -> Row:
        return Row("FP4 self-test", "ok", f"fine, {HOME}/cache, {GPU.uuid}")

    class Chatty(Nvml):
        def nvmlDeviceGetName(self, gpu: Gpu) -> str:
            return f"{gpu.name} of {HOST}"

    machines: dict[str, Hardware] = {
        "card": machine(Chatty(GPU, names=NAMES), Torch(GPU)),
        "broken torch": machine(Nvml(GPU, names=NAMES), raising(OSError(TORCH_ERROR))),
        "broken driver": machine(Nvml(fail=RuntimeError(f"no {HOME}/x of {USER}")), Torch(GPU)),
        "cuda": machine(Nvml(GPU), Torch(error=TORCH_ERROR)),
    }
    return {name: examine(hardware, good) for name, hardware in machines.items()}


@pytest.mark.parametrize("name", ["card", "broken torch", "broken driver", "cuda"])
def test_nothing_personal_is_left(name: str) -> None:
    whole = personal()[name]
    assert USER in str(whole.rows), "the test would show nothing otherwise"
    shown = for_bug_report(whole)
    for text in (shown.to_text(), shown.to_text(10_000), json.dumps(shown.to_json())):
        for secret in (USER, HOST, HOME, "/home", "4c1f", "89ab", GPU.uuid[-12:]):
            assert secret.lower() not in text.lower()


def test_what_a_bug_report_needs_is_left() -> None:
    shown = for_bug_report(personal()["card"])
    text = shown.to_text(10_000)
    for part in ("590.44, CUDA 13.1", "2.13.0+cu130", "RTX 5090", "compute 12.0", "4.0 GiB free",
                 "python3 (20.0 GiB)", "experts 8.0", short_hash(GPU.uuid), "Linux"):  # fmt: skip
        assert part in text
    for name in PACKAGES:
        assert name in text
    assert {row.name for row in personal()["card"].rows} < {row.name for row in shown.rows}
    broken = for_bug_report(personal()["broken torch"]).to_text(10_000)
    assert "does not import (~/.venv/lib/libc10.so: cannot open, says <user>@<host>" in broken


def test_two_cards_stay_apart() -> None:
    other = Gpu(uuid="GPU-4c1f0000-89ab-4cde-8f01-23456789abcd")
    hardware = machine(Nvml(GPU, other), Torch(GPU, other))
    shown = for_bug_report(examine(hardware, lambda device: Row("FP4 self-test", "ok", "")))
    ids = re.findall(r"id (#[0-9a-f]{6})", shown.to_text(10_000))
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in /srv/models/secret-project/x.bin: no", "in <folder>: no"),
        (r"C:\Users\Jane\x.dll is missing", "<folder> is missing"),
        (r"\\server\share\x", "<folder>"),
        ("may not open /dev/nvidia0, /proc/driver/nvidia", None),
        ("see https://download.pytorch.org/whl/cu130 torch", None),
        ('uv pip install --python "$(uv tool dir)/orl-chat" torch', None),
        ("sudo chmod a+rw /dev/nvidia*", None),
        ("1,792 GB/s, 30/32, 2.13.0+cu130", None),
        ("MIG-4c1f7a20-89ab-4cde-8f01-23456789abcd", short_hash(
            "MIG-4c1f7a20-89ab-4cde-8f01-23456789abcd")),
    ],
)  # fmt: skip
def test_folders_and_ids(text: str, expected: str | None) -> None:
    assert anonymous(text, {}) == (text if expected is None else expected)


def test_names_are_replaced_as_words_whatever_their_case() -> None:
    private = {"jan": "<user>", "/home/jan": "~", "tower": "<host>"}
    assert anonymous("/home/jan/x JAN jan_run.py January towers Tower", private) == (
        "~/x <user> <user>_run.py January towers <host>"
    )


def test_names_of_nobody_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER"):
        monkeypatch.setenv(name, "root")
    monkeypatch.setenv("HOME", "/root")
    monkeypatch.setattr(report.socket, "gethostname", lambda: "localhost")
    monkeypatch.setattr(report, "_user_names", lambda: ["root", "ab", ""])
    words = private_words()
    assert "root" not in words
    assert "localhost" not in words
    assert "ab" not in words
    assert words["/root"] == "~"


def test_on_the_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr(doctor, "probe", lambda large: machine(Nvml(GPU, names=NAMES), Torch(GPU)))
    monkeypatch.setattr(doctor, "self_test", lambda device: Row("FP4 self-test", "ok", ""))
    run(["doctor", "--report"])
    out = capsys.readouterr().out
    assert USER not in out
    assert "Packages" in out
