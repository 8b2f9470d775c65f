"""`orl-chat quantize` in the shell: a checkpoint that answers, a report, and refusals."""

import json
from pathlib import Path

import pytest

from app.cli import run

LONG = "x" * 300


@pytest.mark.parametrize("style", ["modelopt", "compressed-tensors"])
def test_the_result_answers_and_the_report_stands_on_stdout(
    style: str, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "packed"
    options = ["--format", style, "--experts-only"]
    assert run(["quantize", str(tiny_checkpoint), str(target), *options]) == 0
    told = capsys.readouterr()
    head, *rows = told.out.splitlines()
    assert head.split() == ["tensors", "before", "after", "rms", "error", "largest"]
    figures = {row[:14].strip(): row[14:].split() for row in rows}
    assert set(figures) >= {"routed experts", "attention", "norms", "total"}
    assert figures["attention"][-1] == "exact"
    assert figures["routed experts"][-2] == "%"
    assert told.err == f"{target} is ready: orl-chat --model {target}\n"
    declared = json.loads((target / "config.json").read_text())["quantization_config"]
    assert declared["quant_method"] == style
    asked = ["ask", "What is 7 times 6?", "--model", str(target), "--device", "cpu"]
    assert run([*asked, "--max-new-tokens", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["forwards"] > 0


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        ("full", [], "is not empty; name a new folder."),
        ("file", [], "is a file; name a new folder."),
        ("file/inside", [], "Not a directory."),
        (LONG, [], "File name too long."),
        ("new", ["--format", "gguf"], "--format is modelopt or compressed-tensors, got 'gguf'."),
    ],
)
def test_what_cannot_be_is_a_sentence_and_writes_nothing(
    target: str,
    options: list[str],
    said: str,
    tiny_checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    work = tmp_path / "work"
    (work / "full").mkdir(parents=True)
    (work / "full" / "notes.txt").write_text("mine")
    (work / "file").write_text("mine")
    before = sorted(work.rglob("*"))
    assert run(["quantize", str(tiny_checkpoint), str(work / target), *options]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.rstrip().endswith(said)
    assert sorted(work.rglob("*")) == before
