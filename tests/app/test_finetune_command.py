"""`orl-chat finetune` and what comes after it, from the shell, on the demo model."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from app.cli import run
from app.runs import LOG
from engine.config import read_json
from tests.app.training import make_run, trainer

Cli = Any


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def call(*arguments: object) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "sums.jsonl"
    rows = [
        {
            "prompt": f"What is {a} + {a + 7}?", "answer": str(2 * a + 7),
            "verify": {"kind": "exact", "take": "bold"},
        }
        for a in (11, 24, 31, 42)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, prompts: Path) -> Path:
    """A run of two updates."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    arguments = ("--model", "demo", "--device", "cpu", "--updates", "2", "--out", str(folder))
    assert run(["finetune", str(prompts), *arguments, "--json"]) == 0
    return folder


def test_a_run_and_what_it_says(cli: Cli, trained: Path) -> None:
    code, out, err = cli("finetune", "--resume", trained, "--device", "cpu", "--json")
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert (told["state"], told["update"], told["train"]) == ("done", 2, "full")
    assert told["start"]["n"] == 1
    assert Path(told["checkpoint"]).parent.parent == trained


def test_compare(cli: Cli, trained: Path) -> None:
    code, out, _ = cli("compare", trained, "--preset", "careful", "--device", "cpu", "--json")
    told = json.loads(out)
    assert (code, told["n"], told["held_out"], told["threshold"]) == (0, 1, True, 0.95)
    assert told["base"]["tpf"] > 1
    assert list(told["frontier"]["tuned"]) == ["0.5", "0.7", "0.8", "0.9", "0.95", "0.99"]
    assert told["update"] in (0, 2)
    (item,) = told["items"]
    assert item["question"].startswith("What is")
    assert item["base"]["text"]
    assert item["tuned"]["forwards"] >= 2
    assert told["speedup"] == pytest.approx(told["tuned"]["tpf"] / told["base"]["tpf"])


def test_asking_with_the_run(cli: Cli, trained: Path) -> None:
    arguments = ("--model", "demo", "--device", "cpu", "--adapter", trained)
    code, out, _ = cli("ask", "What is 47 + 38?", *arguments)
    assert code == 0
    assert "85" in out


def test_exports(cli: Cli, prompts: Path, tmp_path: Path) -> None:
    trained, arguments = tmp_path / "run", ("--model", "demo", "--device", "cpu", "--lora")
    code, _, _ = cli("finetune", prompts, *arguments, "--updates", 1, "--out", trained)
    code, out, _ = cli("export", trained, tmp_path / "adapter")
    assert (code, (tmp_path / "adapter" / "adapter_config.json").is_file()) == (0, True)
    assert f"--adapter {tmp_path / 'adapter'}" in out
    mine = tmp_path / "mine.part"
    mine.mkdir()
    (mine / "notes").write_text("dear")
    for taken in (tmp_path / "adapter", tmp_path / "mine", mine / "notes"):
        code, _, err = cli("export", trained, taken)
        assert (code, "There is something at" in err) == (1, True)
    assert (mine / "notes").read_text() == "dear"
    shutil.rmtree(mine)
    code, _, err = cli("export", trained, tmp_path / "packed", "--quantize")
    assert code == 1
    assert "add --merge" in err
    options = ("--merge", "--quantize", "--json", "--progress")
    code, out, _ = cli("export", trained, tmp_path / "packed", *options)
    *steps, told = map(json.loads, out.splitlines())
    assert (code, f"--model {tmp_path / 'packed'}" in told["told"]) == (0, True)
    stages = dict.fromkeys(step["stage"] for step in steps)
    assert list(stages) == ["merging", "checking the merged model", "packing"]
    assert "quantization_config" in read_json(tmp_path / "packed" / "config.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter", "packed", "run"]
    code, out, _ = cli("ask", "What is 47 + 38?", "--model", tmp_path / "packed", "--device", "cpu")
    assert code == 0
    assert "What" not in out
    # Packed weights cannot be trained, so LoRA is what is usual over them.
    code, _, err = cli("finetune", prompts, "--model", tmp_path / "packed", "--plan", "--full")
    assert (code, "packed in NVFP4" in err) == (1, True)
    _, out, _ = cli("finetune", prompts, "--model", tmp_path / "packed", "--plan", "--json")
    assert json.loads(out)["24 GB"]["train"] == "lora"


def test_all_of_a_small_model_is_trained_unless_one_says(cli: Cli, prompts: Path) -> None:
    for option, train in ((), "full"), (("--lora",), "lora"), (("--adapter-only",), "adapter"):
        _, out, _ = cli("finetune", prompts, "--model", "demo", "--plan", "--json", *option)
        assert json.loads(out)["24 GB"]["train"] == train


def test_a_plan_reads_no_weight(cli: Cli, prompts: Path) -> None:
    code, out, _ = cli("finetune", prompts, "--model", "demo", "--plan", "--json")
    plans = json.loads(out)
    assert (code, list(plans)) == (0, ["32 GB", "24 GB"])
    assert plans["24 GB"]["fits"]
    assert plans["24 GB"]["total"] <= sum(plans["24 GB"]["parts"].values())


def test_one_update_is_measured_and_forgotten(cli: Cli, prompts: Path, home: Path) -> None:
    arguments = ("--model", "demo", "--device", "cpu", "--recipe", "quick")
    code, out, _ = cli("finetune", prompts, *arguments, "--dry-step", "--json", "--progress")
    *steps, told = map(json.loads, out.splitlines())
    assert code == 0
    assert [step["stage"] for step in steps] == ["loading the model", "one update"]
    assert (told["device"], told["updates"], told["answers"]) == ("cpu", 30, 3)
    update = told["rollout_seconds"] + told["learn_seconds"]
    assert told["total_seconds"] >= 30 * update > 0
    assert told["peak_bytes"] > 0 < told["disk_bytes"]
    assert not (home / "data" / "runs").exists()


def test_a_run_that_trains_is_not_gone_on_with(cli: Cli) -> None:
    run = make_run()
    with trainer(run) as process:
        for option in ([], ["--detach"]):
            code, out, err = cli("finetune", "--resume", "sums", *option)
            assert (code, out) == (1, "")
            assert f"already running (pid {process.pid})" in err
    code, _, err = cli("finetune", "--resume", "sums", "--updates", "50")
    assert (code, "begin a new run" in err) == (1, True)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; sys.exit('The disk is full.')", "The disk is full."),
        ("import os; os.kill(os.getpid(), 9)", "ended by SIGKILL"),
        ("import sys; sys.exit(1)", "ended at once"),
    ],
)
def test_a_detached_run_that_fails_says_why(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, code: str, words: str
) -> None:
    run = make_run()
    (run.path / LOG).write_text("old words\n")
    command = [sys.executable, "-c", code]
    monkeypatch.setattr("app.commands.finetune.cli_command", lambda *arguments: command)
    exit_code, out, err = cli("finetune", "--resume", run.path, "--detach")
    assert (exit_code, out, words in err) == (1, "", True)


@pytest.mark.parametrize("detach", [False, True])
def test_a_run_that_cannot_begin_is_none(
    cli: Cli, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detach: bool
) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('Device must be auto.')"]
    monkeypatch.setattr("app.commands.finetune.cli_command", lambda *arguments: command)
    arguments = ("--model", "demo", "--device", "nowhere", "--out", tmp_path / "run")
    code, _, err = cli("finetune", prompts, *arguments, *(["--detach"] if detach else []))
    assert (code, "Device must be auto" in err) == (1, True)
    assert not (tmp_path / "run").exists()


def test_a_prompt_that_is_too_long_is_left_out(
    cli: Cli, prompts: Path, trained: Path, tmp_path: Path
) -> None:
    path = tmp_path / "long.jsonl"
    row = {"prompt": "word " * 3000, "answer": "1", "verify": "number"}
    path.write_text("\n".join([*prompts.read_text().splitlines()[:2], json.dumps(row)]))
    words = "line 3 is too long for this model"
    options = ("--device", "cpu", "--json")
    code, out, err = cli("compare", trained, "--prompts", path, *options)
    assert (code, json.loads(out)["n"], words in err) == (0, 2, True)
    code, out, err = cli("prompts", "test", path, "--model", "demo", "--k", "1", *options)
    assert (code, json.loads(out)["answers"], words in err) == (0, 2, True)
    path.write_text(json.dumps(row) + "\n")
    code, _, err = cli("compare", trained, "--prompts", path, "--device", "cpu")
    assert (code, "give at least two" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["finetune"], "Name a file of prompts"),
        (["finetune", "--resume", "nothing"], "There is no run 'nothing'"),
        (["finetune", "x.jsonl", "--full", "--adapter-only"], "exclude each other"),
        (["finetune", "x.jsonl", "--full", "--lora"], "exclude each other"),
        (["finetune", "--dry-step"], "Name a file of prompts"),
        (["compare", "nothing"], "There is no run 'nothing'"),
        (["runs", "stop"], "Name the run"),
        (["runs", "dance", "x"], "takes pause, continue, save or stop"),
    ],
)
def test_what_cannot_be_done_is_said(cli: Cli, arguments: list[str], words: str) -> None:
    code, out, err = cli(*arguments)
    assert (code, out) == (1, "")
    assert words in err
    assert "Traceback" not in err
    assert "engine failed" not in err, "it is the user's next move that is wanted"
