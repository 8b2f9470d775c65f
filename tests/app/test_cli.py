"""The command line: what it prints, where, with which exit code, and that no failure is a trace."""

import io
import json
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import app.cli
from app.answer import NO_STATS, Conditions, answer_figures
from app.cli import run
from app.trace import read_recording
from app.version import VERSION

ROOT = Path(__file__).parents[2]
FIGURES = list(answer_figures("", "end", NO_STATS, Conditions("", "", "")))
QUESTION = "What is 7 times 6?"


class Result:
    """One command line's outcome."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> Result:
        code = run(arguments)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def ask(cli: Any, tiny_checkpoint: Path) -> Any:
    def call(prompt: str, *arguments: str) -> Result:
        return cli(
            "ask", prompt, "--model", str(tiny_checkpoint), "--device", "cpu",
            "--max-new-tokens", "40", *arguments,
        )  # fmt: skip

    return call


def sentence(result: Result) -> str:
    """What a failed command said: one line, no traceback, nothing on stdout."""
    assert result.code == 1
    assert result.out == ""
    assert "Traceback" not in result.err
    (line,) = result.err.splitlines()
    return line


# --- ask ----------------------------------------------------------------------------------------


def test_an_answer_on_stdout_and_nothing_else(ask: Any) -> None:
    result = ask(QUESTION)
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith("\n")
    assert len(result.out) > 1
    assert ask(QUESTION).out == result.out


def test_json_is_one_object_with_exactly_these_keys(ask: Any, tiny_checkpoint: Path) -> None:
    text = ask(QUESTION, "--preset", "speed").out
    result = ask(QUESTION, "--preset", "speed", "--json")
    assert (result.code, result.err) == (0, "")
    assert result.out.count("\n") == 1
    figures = json.loads(result.out)
    assert list(figures) == FIGURES
    assert set(figures["blocks"][0]) == {"tokens", "steps", "forwards", "seconds"}
    assert figures["tokens"] == sum(block["tokens"] for block in figures["blocks"])
    assert figures["tpf"] == pytest.approx(figures["tokens"] / figures["forwards"])
    assert (figures["model"], figures["device"], figures["preset"]) == (
        tiny_checkpoint.name, "cpu", "speed",
    )  # fmt: skip
    assert "".join(c for c in figures["text"] if c.isprintable()) == "".join(
        c for c in text if c.isprintable()
    )


def test_options_reach_the_engine(ask: Any) -> None:
    sampled = [
        json.loads(ask(QUESTION, "--json", "--temperature", "1", "--seed", seed).out)
        for seed in ("1", "1", "2")
    ]
    assert [figures["seed"] for figures in sampled] == [1, 1, 2]
    assert sampled[0]["text"] == sampled[1]["text"] != sampled[2]["text"]
    off = json.loads(ask(QUESTION, "--json", "--editing-threshold", "off").out)
    assert (off["preset"], off["edits"]) == ("custom", 0)
    apart = json.loads(ask(QUESTION, "--json", "--no-overlap").out)
    joined = json.loads(ask(QUESTION, "--json").out)
    assert apart["text"] == joined["text"]
    assert apart["forwards"] == apart["steps"] + apart["commits"]
    system = json.loads(ask(QUESTION, "--json", "--system", "Be brief. " * 10).out)
    assert system["prefill_tokens"] > joined["prefill_tokens"]


def test_settings_are_the_defaults_and_a_preset_is_the_preset(ask: Any, home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").write_text('preset = "careful"\nthreshold = 0.9\nx = 1\n')
    custom = ask(QUESTION, "--json")
    assert json.loads(custom.out)["preset"] == "custom"
    assert "there is no setting 'x'" in custom.err
    assert json.loads(ask(QUESTION, "--json", "--preset", "speed").out)["preset"] == "speed"


def test_the_prompt_from_stdin(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    direct = ask("Größe?\nzwei").out

    def piped(data: bytes) -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return ask("-")

    assert piped("Größe?\nzwei\r\n".encode()).out == direct
    assert piped(b"\xef\xbb\xbf" + "Größe?\nzwei".encode()).out == direct
    assert piped(b"\xff\xfe broken").code == 0
    assert "empty" in sentence(piped(b"\n"))


def test_special_tokens_in_a_prompt_are_text(ask: Any) -> None:
    result = ask("<|mask|><|role_end|><|endoftext|> \udcff", "--json")
    figures = json.loads(result.out)
    assert figures["prefill_tokens"] >= 32, "every character of them is a token of this tokenizer"


def test_trace_and_replay(ask: Any, cli: Any, tmp_path: Path) -> None:
    trace = tmp_path / "t.gz"
    text = ask(QUESTION, "--trace", str(trace)).out
    (answer,) = read_recording(trace).answers
    assert answer.request is not None
    assert answer.request.messages == [{"role": "user", "content": QUESTION}]
    played = cli("replay", str(trace), "--speed", "1000")
    assert played.code == 0
    assert played.out == text
    assert QUESTION in played.err
    assert "TPF" in played.err


def test_a_stats_line_when_stdout_is_a_terminal(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.commands.ask.is_terminal", lambda: True)
    assert "tok/s · TPF" in ask(QUESTION).err
    assert ask(QUESTION, "--json").err == ""


def test_ctrl_c_keeps_the_text_so_far(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.text import printable

    def interrupted(text: str) -> str:
        signal.raise_signal(signal.SIGINT)
        return printable(text)

    whole = ask(QUESTION, "--preset", "speed").out
    monkeypatch.setattr("app.commands.ask.printable", interrupted)
    result = ask(QUESTION, "--preset", "speed")
    assert result.code == 130
    assert result.err == ""
    assert 1 < len(result.out) < len(whole)
    assert whole.startswith(result.out.rstrip("\n"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_does_not_wait(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(text: str) -> str:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return text

    monkeypatch.setattr("app.commands.ask.printable", impatient)
    result = ask(QUESTION)
    assert (result.code, result.err) == (130, "")


# --- what cannot be done --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ask"], "PROMPT"),
        (["ask", ""], "The prompt is empty"),
        (["ask", " \n "], "The prompt is empty"),
        (["ask", "x", "--preset", "fast"], "speed, quality, careful, got 'fast'"),
        (["ask", "x", "--threshold", "1.4"], "hreshold must be in [0, 1], got 1.4"),
        (["ask", "x", "--threshold", "nan"], "hreshold must be in [0, 1], got nan"),
        (["ask", "x", "--threshold", "much"], "--threshold"),
        (["ask", "x", "--editing-threshold", "no"], "a number or off, got 'no'"),
        (["ask", "x", "--max-new-tokens", "0"], "ax_new_tokens must be"),
        (["ask", "x", "--temperature", "-1"], "emperature must be"),
        (["ask", "x", "--top-k", "0"], "op_k must be"),
        (["ask", "x", "--top-p", "7"], "op_p must be"),
        (["ask", "x", "--seed", "-3"], "eed must be"),
        (["ask", "x", "--model", "/no/such/folder"], "There is no folder '/no/such/folder'"),
        (["ask", "x", "--model", "nobody/nothing-here"], "nobody/nothing-here"),
        (["ask", "x", "--model", __file__], "is a file"),
        (["eval", "--n", "0"], "at least 1"),
        (["eval", "--preset", "fast"], "got 'fast'"),
        (["replay", "/no/such/trace"], "The trace /no/such/trace cannot be read"),
        (["replay", __file__], "is no trace"),
        (["replay", __file__, "--speed", "0"], "speed must be above 0"),
        (["replay", __file__, "--speed", "nan"], "speed must be above 0"),
        (["dance"], "dance"),
        (["--dance"], "--dance"),
    ],
)
def test_bad_input_is_one_sentence(
    cli: Any, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert said in sentence(cli(*arguments))


def test_without_a_terminal_the_terminal_program_says_so(cli: Any) -> None:
    assert "orl-chat ask" in sentence(cli())


def test_a_trace_that_cannot_be_written(ask: Any) -> None:
    assert "/no/such/t.gz cannot be written" in sentence(ask("x", "--trace", "/no/such/t.gz"))


def test_a_prompt_that_does_not_fit_is_not_cut(ask: Any) -> None:
    said = sentence(ask("x" * 5000))
    assert "5,0" in said
    assert "512" in said


@pytest.mark.parametrize(
    "damage", ["empty", "no_weights", "cut", "foreign", "no_tokenizer", "json"]
)
def test_damaged_checkpoints(cli: Any, tiny_checkpoint: Path, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    if damage != "empty":
        for file in tiny_checkpoint.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
    weights = next(iter(folder.glob("*.safetensors")), folder)
    config = folder / "config.json"
    if damage == "no_weights":
        weights.unlink()
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif damage == "foreign":
        config.write_text(config.read_text().replace("llada2_moe", "llama"))
    elif damage == "no_tokenizer":
        (folder / "tokenizer.json").unlink()
    elif damage == "json":
        config.write_text("{")
    assert "model" in sentence(cli("ask", "x", "--model", str(folder), "--device", "cpu"))


def test_tensors_without_a_place_are_listed_until_a_map_places_them(
    cli: Any, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    folder, placed = tmp_path / "model", tmp_path / "map.toml"
    shutil.copytree(tiny_checkpoint, folder)
    strays = {f"z_context.{name}": torch.zeros(64, 64) for name in ("a", "b")}
    save_file(strays, folder / "z_context.safetensors")
    asked = ("ask", QUESTION, "--model", str(folder), "--device", "cpu", "--max-new-tokens", "8")
    said = sentence(cli(*asked))
    for words in ("z_context.a [64, 64]", "z_context.b [64, 64]", "--residual-map"):
        assert words in said
    placed.write_text('form = "mlp"\n[tensors]\nup = "z_context.a"\ndown = "z_context.b"\n')
    assert cli(*asked, "--residual-map", str(placed)).code == 0
    assert "nowhere.toml cannot be read" in sentence(
        cli(*asked, "--residual-map", str(tmp_path / "nowhere.toml"))
    )


def test_what_nobody_foresaw_is_a_sentence_and_a_log(
    ask: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        secret = "hf_secret"
        raise RuntimeError(f"broke, {len(secret)} letters")

    monkeypatch.setattr("app.commands.ask.narrate", broken)
    said = sentence(ask("x"))
    log = home / "state" / "log" / "orl-chat.log"
    assert str(log) in said
    assert "RuntimeError: broke" in said
    assert "Traceback" in log.read_text()
    assert "hf_secret" not in log.read_text()


def test_memory_that_runs_out(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes")

    monkeypatch.setattr("app.commands.ask.narrate", broken)
    assert "Memory ran out." in sentence(ask("x"))


# --- the other commands ---------------------------------------------------------------------------


def test_version_is_that_of_the_project(cli: Any) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
    assert cli("--version").out == f"orl-chat {VERSION}\n"


def test_help_names_every_command(cli: Any) -> None:
    result = cli("--help")
    assert result.code == 0
    for name in ("ask", "eval", "doctor", "paths", "replay"):
        assert name in result.out
        assert cli(name, "-h").code == 0


def test_paths(cli: Any, home: Path) -> None:
    result = cli("paths")
    assert result.code == 0
    assert f"{home}/config/config.toml" in result.out
    assert not home.exists(), "asking makes nothing"


def test_doctor_as_text_and_as_json(cli: Any) -> None:
    text = cli("doctor")
    assert "PyTorch" in text.out
    report = json.loads(cli("doctor", "--json").out)
    assert report["version"] == VERSION
    assert {row["state"] for row in report["rows"]} <= {"ok", "warn", "no"}
    assert text.code == (0 if report["can_chat"] else 1)


def test_eval_as_table_and_as_json(
    cli: Any, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import finetune.evaluate
    from finetune.evaluate import Evaluation, Result

    def measure(engine: Any, items: Any, config: Any, progress: Any = None) -> Evaluation:
        stats = replace(NO_STATS, tokens=30, forwards=6, steps=5, decode_seconds=0.1)
        return Evaluation(
            tuple(Result(item.task, "", n % 2 == 0, stats) for n, item in enumerate(items))
        )

    monkeypatch.setattr(finetune.evaluate, "evaluate", measure)
    model = ("--model", str(tiny_checkpoint), "--device", "cpu", "--n", "4")
    table = cli("eval", *model)
    assert (table.code, table.err) == (0, "")
    assert "4 held-out questions" in table.out
    for name in ("speed", "quality", "careful"):
        line = next(line for line in table.out.splitlines() if line.startswith(name))
        assert line.split() == [name, "50.0%", "15.0%", "to", "85.0%", "5.00", "6.00", "300"]
    result = json.loads(cli("eval", *model, "--preset", "speed", "--json").out)
    assert set(result) == {"model", "device", "n", "seed", "presets"}
    speed = result["presets"]["speed"]
    assert (speed["n"], speed["right"], speed["tpf"]) == (4, 2, 5.0)
    assert sum(task["n"] for task in speed["tasks"].values()) == 4


def test_typer_runs_it_too(tiny_checkpoint: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(app.cli.app, ["--version"]).output == f"orl-chat {VERSION}\n"
    assert runner.invoke(app.cli.app, ["replay", "/no/such"]).exit_code == 1
    result = runner.invoke(
        app.cli.app,
        ["ask", "hi", "--model", str(tiny_checkpoint), "--json", "--max-new-tokens", "20"],
    )
    assert result.exit_code == 0
    assert list(json.loads(result.stdout)) == FIGURES


# --- as a process ---------------------------------------------------------------------------------


def process(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    code = "import app.cli; app.cli.main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, stderr=subprocess.PIPE, **options
    )


def test_a_reader_that_has_enough_is_no_failure_to_report() -> None:
    child = process("--help", stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.close()
    assert child.stderr is not None
    assert child.stderr.read() == b""
    child.stderr.close()
    assert child.wait() in (0, 1)


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        ("<&-", 0, ""),
        ("> /dev/full", 1, "The operating system reports: No space left on device.\n"),
    ],
)
def test_streams_that_are_closed_or_full(redirection: str, code: int, said: str) -> None:
    command = f"'{sys.executable}' -m app.cli paths {redirection}"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, said)


def test_ctrl_c_while_waiting_is_quiet() -> None:
    child = process("ask", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    time.sleep(1.5)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert (child.returncode, out, err) == (130, b"", b"")


def test_an_encoding_without_the_characters(tiny_checkpoint: Path) -> None:
    child = process(
        "paths", stdout=subprocess.PIPE,
        env={"ORL_CHAT_HOME": "/tmp/größe 你", "PYTHONIOENCODING": "ascii", "PATH": ""},
    )  # fmt: skip
    out, err = child.communicate(timeout=120)
    assert (child.returncode, err) == (0, b"")
    assert b"gr??" in out or b"gr?" in out
