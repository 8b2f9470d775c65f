"""`orl-chat doctor`: what it says in words, as data and with its exit code."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from app import doctor
from app.cli import run
from app.doctor import DEFAULT, Report, examine, large_of
from app.models import DEFAULT_REPO, ModelFolder
from app.settings import SettingsFile
from engine.config import CheckpointError
from engine.hardware import Hardware, Large, Row
from engine.machine.self_test import NAME
from tests.engine.stand_ins import CPU_TORCH, Gpu, Nvml, Torch, machine, no_nvml, raising, row

GOOD = Row(NAME, "ok", "agrees with the reference")


def passes(device: str) -> Row:
    return GOOD


def no_card() -> Hardware:
    return machine(no_nvml(), CPU_TORCH, nvidia_on_bus=False)


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Which models are on this machine: the demo is, the large one is not."""
    folders = {"demo": tmp_path / "demo"}
    folders["demo"].mkdir()

    def resolve(name: str) -> ModelFolder:
        if name not in folders:
            raise CheckpointError(f"no {name}")
        return ModelFolder(name, folders[name])

    monkeypatch.setattr(doctor, "resolve_model", resolve)
    monkeypatch.setattr(doctor, "is_whole", lambda folder: not folder.name.startswith("half"))
    return folders


def found(report: Report, name: str) -> Row:
    return row(report, name)  # type: ignore[arg-type]


def test_a_machine_with_a_card() -> None:
    report = examine(machine(), passes)
    assert report.can_chat
    assert report.summary == "Chat with LLaDA2.1-mini in NVFP4 and finetuning it can run on " + (
        "GPU 0 (NVIDIA GeForce RTX 5090)."
    )
    text = report.to_text()
    for name in ("Python", "System", "Memory", "NVIDIA driver", "GPU 0", "PyTorch", "Triton",
                 "CUDA graphs", "GPU speed", "Chat memory", "Finetune memory", NAME, "Demo model",
                 "Large model", "Disk", "Settings", "Chats", "Terminal"):  # fmt: skip
        assert f"  {name} " in text
    assert "(need 580 or newer, since" in text
    assert f"-> orl-chat download {DEFAULT_REPO}" in text


def test_lines_are_short_but_for_commands_which_stay_whole() -> None:
    report = examine(machine(Nvml(Gpu()), CPU_TORCH), passes)
    lines = report.to_text(width=60).splitlines()
    fix = found(report, "PyTorch").fix
    assert any(line.endswith(f"-> {fix}") for line in lines)
    assert max(len(line) for line in lines if "->" not in line) <= 60


def test_a_machine_without_a_card_chats_with_the_demo() -> None:
    report = examine(no_card(), passes)
    assert report.can_chat
    assert report.can_finetune
    assert "chat download" not in report.to_text(), "it would not run here"
    assert "Disk" not in {row.name for row in report.rows}


def test_without_any_model_chat_cannot_run(models: dict[str, Path]) -> None:
    models.clear()
    report = examine(no_card(), passes)
    assert not report.can_chat
    assert found(report, "Demo model").fix == "reinstall orl-chat."


def test_the_large_model_alone_counts_where_it_runs(models: dict[str, Path]) -> None:
    models[DEFAULT_REPO] = models.pop("demo")
    assert examine(machine(), passes).can_chat
    assert not examine(no_card(), passes).can_chat


def test_a_download_that_is_not_whole(models: dict[str, Path], tmp_path: Path) -> None:
    models[DEFAULT_REPO] = tmp_path / "half"
    large = found(examine(machine(), passes), "Large model")
    assert large.state == "warn"
    assert "is not whole" in large.found


def test_without_torch_nothing_is_tested() -> None:
    asked: list[str] = []

    def never(device: str) -> Row:
        asked.append(device)
        return GOOD

    report = examine(machine(no_nvml(), raising(ImportError("no torch"))), never)
    assert (report.can_chat, asked) == (False, [])


def test_the_self_test_runs_on_the_device_that_is_used() -> None:
    asked: list[str] = []

    def record(device: str) -> Row:
        asked.append(device)
        return GOOD

    gpu = Gpu()
    examine(machine(Nvml(gpu), Torch(Gpu(free=1.0, uuid="GPU-0"), gpu)), record)
    examine(no_card(), record)
    assert asked == ["cuda:1", "cpu"]


def test_a_card_that_multiplies_wrongly_is_not_used() -> None:
    def wrong_on_card(device: str) -> Row:
        return GOOD if device == "cpu" else Row(NAME, "no", "is wrong", "", "report it.")

    report = examine(machine(), wrong_on_card)
    assert report.can_chat, "the processor is left"
    assert "--device cpu" in report.summary
    assert [row.state for row in report.rows if row.name == NAME] == ["no", "ok"]
    data = report.to_json()
    assert (data["device"], data["runs_large"]) == ("cpu", False)


def test_a_processor_that_multiplies_wrongly_is_the_end() -> None:
    report = examine(no_card(), lambda device: Row(NAME, "no", "is wrong"))
    assert not report.can_chat
    assert not report.can_finetune
    assert "cannot run here" in report.summary


def test_as_data(models: dict[str, Path]) -> None:
    data = json.loads(json.dumps(examine(machine(), passes).to_json()))
    (gpu,) = data["gpus"]
    assert (gpu["label"], gpu["id"], gpu["used"], gpu["capability"]) == (
        "GPU 0", "GPU-4c1f", True, [12, 0],
    )  # fmt: skip
    assert "uuid" not in gpu
    chat = data["memory"]["chat"]
    assert sum(chat["parts"].values()) == chat["total"] < chat["free"]
    assert (chat["fits"], chat["context"]) == (True, 32768)
    assert data["memory"]["finetune"]["total"] > chat["total"]
    assert data["versions"]["driver"] == "590.44"
    assert (data["device"], data["fp4"], data["conditional_nodes"], data["streaming"]) == (
        "cuda:0", "native", True, "step",
    )  # fmt: skip


@pytest.mark.parametrize(("chat", "code"), [(True, 0), (False, 1)])
def test_the_exit_code_says_whether_chat_can_run(
    chat: bool, code: int, models: dict[str, Path], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if not chat:
        models.clear()
    monkeypatch.setattr(doctor, "probe", lambda large: no_card())
    for arguments in (["doctor"], ["doctor", "--json"], ["doctor", "--report", "--json"]):
        assert run(arguments) == code
        out: Any = capsys.readouterr().out
        if "--json" in arguments:
            assert json.loads(out)["can_chat"] is chat
        else:
            assert "no NVIDIA card" in out


def test_memory_and_disk_are_judged_by_the_settings_model(models: dict[str, Path]) -> None:
    default = large_of(DEFAULT_REPO)
    bf16 = large_of("inclusionAI/LLaDA2.1-mini")
    assert (default.name, bf16.name) == ("LLaDA2.1-mini in NVFP4", "LLaDA2.1-mini in bf16")
    SettingsFile.open().set(model="inclusionAI/LLaDA2.1-mini")
    report = examine(machine(large=bf16), passes)
    assert found(report, "Large model").found == "not on this machine"
    chat = found(report, "Chat memory")
    assert (chat.state, "LLaDA2.1-mini in bf16 needs" in chat.found) == ("no", True)
    report = examine(machine(), passes, model="inclusionAI/LLaDA2.1-mini")
    assert "orl-chat download inclusionAI/LLaDA2.1-mini" in found(report, "Large model").fix
    assert found(report, "Disk").need == "30.3 GiB for LLaDA2.1-mini in bf16"
    assert examine(machine(), passes, model=DEFAULT_REPO).to_json()["runs_large"]


def test_a_folder_is_judged_by_its_own_config(models: dict[str, Path], tmp_path: Path) -> None:
    folder = models["mine"] = tmp_path / "mine"
    shutil.copytree(Path(__file__).parents[2] / "assets" / "demo", folder)
    mine = large_of("mine")
    assert mine.config.num_hidden_layers < 20
    assert mine.name == "mine"
    report = examine(machine(no_nvml(), CPU_TORCH, large=mine), passes, model="mine")
    assert "very slow" not in found(report, "Chat memory").found, "it is small"
    assert "too large" not in found(report, "Finetune memory").found
    assert found(report, "Large model").found == str(folder)


@pytest.mark.parametrize("model", ["auto", "demo", "somebody/unknown", "/no/such/folder"])
def test_what_says_nothing_counts_as_the_default(model: str, models: dict[str, Path]) -> None:
    if model not in ("auto", "demo"):
        assert large_of(model) == DEFAULT
    report = examine(no_card(), passes, model=model)
    assert "LLaDA2.1-mini in NVFP4 needs" in found(report, "Chat memory").found


def test_the_command_passes_the_model_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Large] = []

    def record(large: Large) -> Hardware:
        asked.append(large)
        return no_card()

    monkeypatch.setattr(doctor, "probe", record)
    assert run(["doctor", "--json", "--model", "inclusionAI/LLaDA2.0-mini"]) == 0
    capsys.readouterr()
    assert [large.name for large in asked] == ["LLaDA2.0-mini in bf16"]
