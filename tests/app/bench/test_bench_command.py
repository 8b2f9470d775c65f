"""`orl-chat bench` from the shell: on a small model, over a trace, beside a server, interrupted."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.backend import narrate
from app.bench.recorded import counted, replayed
from app.bench.sample import stats_of
from app.cli import run
from app.protocol import Chat, Prefill
from app.trace import TraceWriter, read_recording
from engine.config import DecodeConfig
from engine.events import FinishEvent
from engine.generate import Engine
from tests.app.bench.chat_server import ChatServer, serving

ROOT = Path(__file__).parents[3]
KEY = "sk-this-is-secret"
CONDITIONS = (
    "orl_chat", "date", "prompts", "prompts_hash", "prompt_count", "repeat", "warm_up", "model",
    "revision", "device", "card", "processor", "threads", "driver", "torch", "triton", "dtype",
)  # fmt: skip


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
def questions(tmp_path: Path) -> str:
    path = tmp_path / "questions.txt"
    path.write_text("What is 7 times 6?\nName a colour.\n")
    return str(path)


@pytest.fixture
def bench(cli: Any, tiny_checkpoint: Path, questions: str) -> Any:
    def call(*arguments: str) -> Result:
        own = [] if {"--prompts", "--set"} & set(arguments) else ["--prompts", questions]
        return cli(
            "bench", "--model", str(tiny_checkpoint), "--device", "cpu", "--max-new-tokens", "32",
            "--warmup", "0", *own, *arguments,
        )  # fmt: skip

    return call


def test_figures_with_their_conditions(bench: Any, tmp_path: Path, tiny_checkpoint: Path) -> None:
    result = bench("--preset", "speed", "--preset", "quality", "--repeat", "2", "--json",
                   "--out", str(tmp_path / "a.json"))  # fmt: skip
    assert result.code == 0
    assert result.out.count("\n") == 1
    data = json.loads(result.out)
    assert json.loads((tmp_path / "a.json").read_text()) == data
    conditions = data["conditions"]
    assert set(CONDITIONS) <= set(conditions)
    assert (conditions["model"], conditions["device"], conditions["prompts"]) == (
        tiny_checkpoint.name, "cpu", "questions.txt",
    )  # fmt: skip
    speed, quality = data["runs"]
    assert (speed["label"], quality["label"]) == ("speed", "quality")
    assert speed["conditions"]["threshold"] == 0.5
    for row in data["runs"]:
        assert len(row["answers"]) == row["figures"]["answers"] == 4
        assert [answer["repetition"] for answer in row["answers"]] == [0, 0, 1, 1]
        assert row["figures"]["accuracy"] is None
        for spread in row["figures"]["spreads"].values():
            assert spread["p10"] <= spread["p50"] <= spread["p90"] <= spread["peak"]
    first, again = speed["answers"][0], speed["answers"][2]
    assert (first["text"], first["forwards"]) == (again["text"], again["forwards"])


def test_nothing_of_a_prompt_is_in_the_cache_when_it_is_measured(
    bench: Any, tmp_path: Path
) -> None:
    long = tmp_path / "long.txt"
    long.write_text("word " * 30)
    data = json.loads(bench("--prompts", str(long), "--preset", "speed", "--json").out)
    (answer,) = data["runs"][0]["answers"]
    assert answer["prefill_tokens"] > 32


def test_a_table_in_which_no_peak_stands_alone(bench: Any) -> None:
    result = bench("--preset", "speed")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    (head,) = (line.split() for line in lines if "p10" in line and "peak" in line and "50" in line)
    assert head == ["p10", "p50", "p90", "peak", "all"]
    rows = lines[lines.index("tok/s (decode)") :]
    assert len(rows[1].split()) == 6
    assert max(map(len, lines)) <= 100
    for word in ("torch", "threshold 0.5", "revision", "2 prompts of questions.txt", "1 thread"):
        assert word in result.out


def test_a_trace_has_its_own_figures(cli: Any, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Every answer's figures are those that `ask` told, and the blocks add up to them."""
    for number, options in enumerate((["--preset", "speed"], ["--no-overlap"])):
        path = str(tmp_path / f"{number}.gz")
        told = cli(
            "ask", "What is 7 times 6?", "--model", str(tiny_checkpoint), "--device", "cpu",
            "--max-new-tokens", "100", "--trace", path, "--json", *options,
        )  # fmt: skip
        figures = json.loads(told.out)
        result = cli("bench", "--trace", path, "--json")
        assert (result.code, result.err) == (0, "")
        (row,) = json.loads(result.out)["runs"]
        (answer,) = row["answers"]
        assert row["label"] == figures["preset"]
        own = {name: answer[name] for name in figures if name in answer}
        assert len(own) > 10
        assert own == {name: figures[name] for name in own}
        spreads = row["figures"]["spreads"]
        for name in ("tokens_per_second", "tokens_per_second_whole", "tpf", "tpf_steps"):
            assert spreads[name]["p50"] == pytest.approx(figures[name])
        (recorded,) = read_recording(path).answers
        count = counted(recorded)
        known = stats_of({**figures, "first_block_seconds": count.first_block_seconds})
        assert (count.tokens, count.steps, count.commits, count.forwards, count.fused) == (
            known.tokens, known.steps, known.commits, known.forwards, known.fused,
        )  # fmt: skip
        assert count.decode_seconds == pytest.approx(known.decode_seconds)
        assert len(count.blocks) > 2


def test_a_stopped_answer_has_its_own_figures(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Stopped within a block: what was decided of it stays, and time runs until the stop."""
    engine = Engine.load(tiny_checkpoint, device="cpu")
    assert engine.tokenizer is not None
    trace = TraceWriter(tmp_path / "t.gz")
    trace.put(0.0, Chat("a", [{"role": "user", "content": "?"}]))
    config, asked = DecodeConfig(max_new_tokens=100), iter(range(100))
    narrator = narrate("a", engine, "tiny", config)
    ids = engine.tokenizer.encode_chat([{"role": "user", "content": "word " * 20}])
    for event in engine.generate(
        ids, config, stop=lambda: next(asked) == 20,
        on_prefill=lambda done, total, cached, seconds: trace.put(
            seconds, Prefill("a", done, total, cached, seconds)
        ),
    ):  # fmt: skip
        trace.put(*narrator.tell(event))
    trace.close()
    assert isinstance(event, FinishEvent)
    found = replayed(read_recording(tmp_path / "t.gz"), "t.gz")
    assert found.doubts == ()
    ((own,),) = [run.samples for run in found.result.runs]
    assert (own.reason, own.stats.tokens) == ("stopped", event.stats.tokens)
    assert own.stats.forwards == event.stats.forwards
    assert own.stats.decode_seconds == event.stats.decode_seconds
    assert own.stats.first_block_seconds == event.stats.first_block_seconds


def test_accuracy_and_a_frontier_where_answers_are_verified(bench: Any, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    rows = [{"prompt": f"{n}?", "answer": str(n), "verify": "number"} for n in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "a.json"
    text = bench(
        "--prompts", str(path), "--frontier", "--max-new-tokens", "1", "--out", str(out)
    ).out
    runs = json.loads(out.read_text())["runs"]
    assert len(runs) > 4
    assert {run["conditions"]["editing_threshold"] for run in runs} == {0.5}
    assert all(run["figures"]["accuracy"]["n"] == 3 for run in runs)
    assert "95 % interval" in text
    assert "a threshold 0.5, b threshold 0.6" in text
    refused = bench("--frontier")
    assert (refused.code, refused.out) == (1, "")
    assert "needs prompts whose answers are verified" in refused.err


def test_code_is_not_run_without_leave(bench: Any) -> None:
    arguments = ("--set", "code", "--n", "2", "--preset", "speed", "--json")
    result = bench(*arguments)
    assert result.code == 0
    assert "2 prompts are timed only" in result.err
    assert json.loads(result.out)["runs"][0]["figures"]["accuracy"] is None
    allowed = bench(*arguments, "--run-code")
    assert json.loads(allowed.out)["runs"][0]["figures"]["accuracy"]["n"] == 2


# --- a server -------------------------------------------------------------------------------------


def test_a_server_stands_in_the_same_table(
    bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    out = tmp_path / "a.json"
    with serving() as server:
        result = bench("--preset", "speed", "--endpoint", server.url, "--out", str(out))
    assert result.code == 0
    assert set(server.keys) == {f"Bearer {KEY}"}
    rows = result.out.splitlines()
    at = rows.index("TPF")
    assert rows[at + 1].split()[0] == "speed"
    assert rows[at + 2].split() == ["endpoint", *["\u2013"] * 5]
    rates = rows[rows.index("tok/s (whole)") + 2].split()
    assert rates[0] == "endpoint"
    assert "\u2013" not in rates
    assert "small · tokens by usage" in result.out
    assert KEY not in result.out + result.err + out.read_text()
    asked = [body["messages"][-1]["content"] for body in server.bodies]
    assert asked == ["What is 7 times 6?", "Name a colour."]


def test_a_server_that_fails_on_the_way_leaves_what_was_measured(cli: Any, questions: str) -> None:
    class Failing(ChatServer):
        def events(self) -> Any:
            if len(self.bodies) == 2:
                self.lines = ["data: {"]
            return super().events()

    with serving() as server:
        server.__class__ = Failing
        result = cli("bench", "--endpoint", server.url, "--only-endpoint", "--warmup", "0",
                     "--prompts", questions)  # fmt: skip
    assert result.code == 1
    assert "Interrupted: this is what was measured until then." in result.out
    assert "broke off" in result.err


def test_ctrl_c_prints_what_was_measured(questions: str, tmp_path: Path) -> None:
    """A real process; the third answer hangs, and the interrupt comes then."""
    out = tmp_path / "a.json"
    with serving(hold=True) as server:
        command = [
            sys.executable, "-m", "app.cli", "bench", "--only-endpoint", "--endpoint", server.url,
            "--warmup", "0", "--repeat", "9", "--prompts", questions, "--out", str(out),
        ]  # fmt: skip
        child = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        for _ in range(3):
            assert server.asked.acquire(timeout=60)
        child.send_signal(signal.SIGINT)
        server.released.set()
        text, errors = child.communicate(timeout=60)
    assert child.returncode == 130, errors
    assert "Interrupted: this is what was measured until then." in text
    data = json.loads(out.read_text())
    assert data["interrupted"]
    assert len(data["runs"][0]["answers"]) == 2


def test_neither_a_server_nor_results_need_torch(questions: str, tmp_path: Path) -> None:
    with serving() as server:
        script = (
            "import sys\nfrom app.cli import run\n"
            f"assert run(['bench', '--only-endpoint', '--endpoint', {server.url!r}, '--prompts', "
            f"{questions!r}, '--out', {str(tmp_path / 'a.json')!r}]) == 0\n"
            f"assert run(['bench', 'compare', {str(tmp_path / 'a.json')!r}, "
            f"{str(tmp_path / 'a.json')!r}]) == 0\n"
            "assert 'torch' not in sys.modules and 'textual' not in sys.modules\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 0, done.stderr
    assert "The conditions are the same." in done.stdout


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--prompts", "a", "--set", "chat"], "not with both"),
        (["--prompts", "/none.txt"], "/none.txt cannot be read (No such file or directory)"),
        (["--set", "nine"], "There is no set 'nine'"),
        (["--preset", "fast"], "Preset must be one of speed, quality, careful, got 'fast'."),
        (["--repeat", "0"], "--repeat must be at least 1"),
        (["--n", "0"], "must be at least 1, got 0"),
        (["--max-new-tokens", "0"], "max_new_tokens"),
        (["--only-endpoint"], "Name it with --endpoint URL."),
        (["--endpoint", "ftp://x"], "is no address of a server"),
        (["--endpoint", "http://127.0.0.1:9"], "does not answer (Connection refused)"),
        (["--frontier", "--preset", "speed", "--preset", "quality"], "name only one"),
        (["--out", "/none/a.json"], "/none/a.json cannot be written"),
        (["--model", "/none"], "There is no folder '/none'"),
        (["--trace", "/none.gz"], "The trace /none.gz cannot be read"),
        (["compare", "/none.json", "/none.json"], "/none.json cannot be read"),
    ],
)
def test_failures_are_one_sentence(cli: Any, arguments: list[str], why: str) -> None:
    result = cli("bench", *arguments)
    assert (result.code, result.out) == (1, "")
    (line,) = result.err.splitlines()
    assert why in line


def test_a_file_without_a_prompt(bench: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    result = bench("--prompts", str(tmp_path / "empty.txt"))
    assert result.code == 1
    assert "There is no prompt to measure" in result.err


def test_a_prompt_that_does_not_fit_is_left_out(bench: Any, tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text("word " * 400 + "\nshort\n")
    result = bench("--prompts", str(path), "--preset", "speed", "--json")
    assert result.code == 0
    assert "line 1 is too long for this model" in result.err
    assert len(json.loads(result.out)["runs"][0]["answers"]) == 1
