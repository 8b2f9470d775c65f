"""The terminal program beside a bare one, and what long use costs it.

    python -m tests.benchmarks.ui [PART ...] [--idle SECONDS]

Parts: start, quit, stream, turns, chats, idle; all of them where none is named. Programs run on
pseudo-terminals that are read at once. Times are medians of interleaved runs; "CPU" is processor
time of the process with the screens, user and system, and not of the engine beside it.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from app.client import EngineClient, worker_command
from app.paths import paths
from app.protocol import Chat, LoadModel, encode
from app.settings import SettingsFile
from app.store import Store
from app.tui.app import OrlChat
from app.tui.look import Look
from app.tui.parts import furnishing
from app.tui.widgets.messages import Answer
from app.tui.widgets.transcript import Transcript
from tests.app.pseudo_terminal import PseudoTerminal, pseudo_terminal
from tests.app.tui.driver import Window
from tests.app.tui.recording import Script

START = ("-m", "app.start")
TURNS, CHATS = 1000, 2000
RATE, STREAMED, ANSWERS = 3000, 3200, 5
STARTS = 11
SETTLED = 3.0
"""Seconds without anything to do before the processor is looked at."""
ANSWER = (
    "### Part {n}\n\nA paragraph with **bold** words, `code` and what else there is.\n\n"
    "1. first\n2. second\n\n```python\nprint({n})\n```\n\nTogether: **{n}**"
)
BARE = """
from textual.app import App
from textual.widgets import Static

class Bare(App):
    def compose(self):
        yield Static("Ask something")

Bare().run()
"""
PACED_UI = """
import sys
from app.tui.app import run
raise SystemExit(run("demo", engine=sys.argv[1:]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--idle", type=float, default=120.0)
    options = parser.parse_args()
    measures: dict[str, Callable[[Path], None]] = {
        "start": start, "quit": quit_, "stream": stream, "turns": turns, "chats": chats,
        "idle": lambda folder: idle(folder, options.idle),
    }  # fmt: skip
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f} at the beginning, {sys.version.split()[0]}")
    for part in options.parts or measures:
        with tempfile.TemporaryDirectory() as folder:
            measures[part](Path(folder))
    print(f"load {os.getloadavg()[0]:.1f} at the end")


def row(what: str, value: str, beside: str = "") -> None:
    print(f"  {what:46} {value:>12}  {beside}", flush=True)


def seconds(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} s"


def over(ours: list[float], theirs: list[float]) -> str:
    return f"{statistics.median(ours) / statistics.median(theirs):.2f} times"


# --- start and quit: whole processes ----------------------------------------------------------


def first_paint(
    arguments: tuple[str, ...], home: Path, wanted: bytes, typed: str = ""
) -> tuple[float, float]:
    """Seconds from the start of the process until `wanted` is painted, clock and processor, or
    until `typed` is, which waits in the terminal from the beginning."""
    with pseudo_terminal(arguments, home) as terminal:
        terminal.send(typed)
        clock = terminal.wait(wanted) - terminal.started
        if typed:  # the terminal itself shows it until the program takes over
            clock = terminal.wait(typed.encode(), terminal.written.find(wanted)) - terminal.started
        used = [process.cpu_times() for process in terminal.family]
        return clock, sum(times.user + times.system for times in used)


def start(folder: Path) -> None:
    print("\nstart: from the start of the process to the first frame, clock and CPU")
    full = folder / "full"
    fill_chats(full, CHATS)
    for home in (folder / "empty", full):  # the model was chosen on an earlier day
        (home / "config").mkdir(parents=True, exist_ok=True)
        (home / "config" / "config.toml").write_text('model = "demo"\n')
    frame, empty = b"sk something", folder / "empty"  # the cursor is on the A
    variants = {
        "bare Textual": (("-c", BARE), folder / "bare", frame, ""),
        "orl-chat": (START, empty, frame, ""),
        f"orl-chat with {CHATS} chats": (START, full, frame, ""),
        "orl-chat, until the whole chat is there": (START, empty, b"quality preset", ""),
        "orl-chat, until a key pressed at once is drawn": (START, empty, frame, "wxyz"),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for _ in range(STARTS):
        for name, arguments in variants.items():
            times[name].append(first_paint(*arguments))
    for kind, what in enumerate(("clock", "CPU")):
        bare = [pair[kind] for pair in times["bare Textual"]]
        for name, pairs in times.items():
            ours = [pair[kind] for pair in pairs]
            least = f"least {min(ours):.3f} s, {min(ours) / min(bare):.2f} times"
            row(f"{name}, {what}", seconds(ours), f"{over(ours, bare)}; {least}")


def quit_(folder: Path) -> None:
    print("\nquit: from Ctrl+Q to the end of the process")
    clocks: dict[str, list[float]] = {"bare Textual": [], "orl-chat": [], "while it answers": []}
    script = Script().answer(" ".join(["word"] * 4000))
    replay = ("-c", PACED_UI, *worker_command("--replay", str(script.write(folder / "t"))))
    for _ in range(7):
        with pseudo_terminal(("-c", BARE), folder) as terminal:
            terminal.wait(b"sk something")
            clocks["bare Textual"].append(time_to_end(terminal))
        for name in ("orl-chat", "while it answers"):
            with pseudo_terminal(replay, folder) as terminal:
                terminal.wait(b"Ready")
                if name == "while it answers":
                    terminal.wait(b"Answering", terminal.send("long\r"))
                    time.sleep(0.5)
                clocks[name].append(time_to_end(terminal))
    for name, times in clocks.items():
        row(name, seconds(times), over(times, clocks["bare Textual"]))


def time_to_end(terminal: PseudoTerminal) -> float:
    begin = time.perf_counter()
    terminal.send("\x11")
    terminal.process.wait(60)
    return time.perf_counter() - begin


# --- streaming: the engine's rate, and what the screens use -----------------------------------


def paced(results: Path) -> list[str]:
    module = "tests.benchmarks.paced_engine"
    return [sys.executable, "-m", module, str(RATE), str(STREAMED), str(results)]


def stream(folder: Path) -> None:
    print(f"\nstream: answers of {STREAMED} tokens from an engine that waits for {RATE} tok/s")
    alone, attached, used = folder / "alone", folder / "attached", []
    for _ in range(2):
        engine_alone(alone)
        used.append(engine_attached(attached, folder))
    rates = [engine_rate(alone), engine_rate(attached)]
    row("engine alone", f"{rates[0]:.0f} tok/s")
    row("engine with the screens", f"{rates[1]:.0f} tok/s", f"{rates[1] / rates[0]:.3f} times")
    row("CPU of the screens a second of answer", f"{statistics.median(used) * 100:.0f} %")


def engine_rate(results: Path) -> float:
    pairs = [[float(word) for word in line.split()] for line in results.read_text().splitlines()]
    return sum(tokens for tokens, _ in pairs) / sum(took for _, took in pairs)


def engine_alone(results: Path) -> None:
    with subprocess.Popen(paced(results), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as engine:
        assert engine.stdin is not None
        assert engine.stdout is not None
        engine.stdin.write(encode(LoadModel("demo")))
        for number in range(ANSWERS):
            engine.stdin.write(encode(Chat(f"a{number}", [])))
            engine.stdin.flush()
            while b'"type":"done"' not in engine.stdout.readline()[:100]:
                pass
        engine.stdin.close()


def engine_attached(results: Path, home: Path) -> float:
    """CPU of the screens for each second in which an answer was written."""
    before = lines(results)
    with pseudo_terminal(("-c", PACED_UI, *paced(results)), home) as terminal:
        terminal.wait(b"Ready")
        screens, busy, clock = psutil.Process(terminal.process.pid), 0.0, 0.0
        for number in range(ANSWERS):
            begin, used = time.perf_counter(), cpu(screens)
            terminal.send("go on\r")
            while lines(results) < before + number + 1:
                time.sleep(0.02)
            clock += time.perf_counter() - begin
            busy += cpu(screens) - used
            time.sleep(SETTLED)
        return busy / clock


def lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def megabytes(process: psutil.Process) -> str:
    return f"{process.memory_info().rss / 1e6:.0f} MB"


# --- long use: the program in this process ----------------------------------------------------


def fill_chats(home: Path, count: int) -> None:
    os.environ["ORL_CHAT_HOME"] = str(home)
    store = Store.open(paths().store)
    for number in range(count):
        chat = store.create_chat()
        store.add_message(chat, "user", f"Question {number} about many things")
        answer = store.add_message(chat, "assistant", ANSWER.format(n=number))
        store.update_message(answer, reason="end")
    store.close()


def fill_turns(home: Path, count: int) -> None:
    os.environ["ORL_CHAT_HOME"] = str(home)
    store = Store.open(paths().store)
    chat = store.create_chat()
    for number in range(count):
        store.add_message(chat, "user", f"Question {number}")
        answer = store.add_message(chat, "assistant", ANSWER.format(n=number))
        store.update_message(answer, reason="end")
    store.close()


def program(trace: Path) -> OrlChat:
    command = worker_command("--replay", str(trace), "--speed", "50")
    furnish = furnishing(
        file=SettingsFile.open(),
        store=Store.open(paths().store),
        model="demo",
        make_client=lambda: EngineClient(command, log=paths().engine_log),
    )
    return OrlChat(Look(), furnish)


async def in_window(trace: Path, work: Callable) -> None:
    app = program(trace)
    async with app.run_test(size=(110, 34)) as pilot:
        shown = Window(app, pilot)
        await shown.ready()
        await work(shown)
        await app.link.close()
    app.session.store.close()


def turns(folder: Path) -> None:
    print(f"\nturns: a chat of {TURNS} turns in this process, no terminal behind it")
    fill_turns(folder, TURNS)
    trace = Script(pace=0.001).answer("Well. " * 300).write(folder / "t")
    asyncio.run(in_window(trace, use_turns))


async def use_turns(shown: Window) -> None:
    me, app = psutil.Process(), shown.app
    row("memory before it is open", megabytes(me))
    (chat,) = app.session.store.chats(limit=1)
    clock, used = time.perf_counter(), time.process_time()
    app.session.open_chat(chat.id, chat.title)
    transcript = app.chat.query_one(Transcript)
    await shown.until(lambda: len(app.chat.query(Answer)) > 0)
    await quiet(shown)
    used = time.process_time() - used
    row("open it", f"{time.perf_counter() - clock:.2f} s", f"{used:.2f} s of CPU")
    row("memory, and answers mounted", megabytes(me), f"{len(app.chat.query(Answer))}")
    costs = await append_costs(shown)
    row("append a block and draw it, CPU", f"{statistics.median(costs) * 1e3:.1f} ms", worst(costs))
    costs, most, clock = [], 0, time.perf_counter()
    while not at_top(transcript):
        before = time.process_time()
        transcript.scroll_page_up(animate=False)
        await shown.until(lambda: not transcript._moving)
        await quiet(shown, 0.0)
        costs.append(time.process_time() - before)
        most = max(most, len(app.chat.query(Answer)))
        if len(costs) > 20 * TURNS:
            raise SystemExit("the first turn is never reached")
    row("scroll to the first turn", f"{time.perf_counter() - clock:.0f} s", f"{len(costs)} pages")
    row("a page up, CPU", f"{statistics.median(costs) * 1e3:.1f} ms", worst(costs))
    row("memory, and most answers mounted", megabytes(me), f"{most}")
    clock = time.perf_counter()
    await transcript.action_scroll_end()
    await quiet(shown)
    row("back at the end", f"{time.perf_counter() - clock:.2f} s", megabytes(me))


def worst(costs: list[float]) -> str:
    return f"worst {max(costs) * 1e3:.1f} ms"


def at_top(transcript: Transcript) -> bool:
    return not transcript._part.hidden(-1) and transcript.scroll_y <= 0


async def append_costs(shown: Window) -> list[float]:
    """Processor time of each of 30 appends to the last answer, drawn."""
    app = shown.app
    answer = list(app.chat.query(Answer))[-1]
    costs = []
    for number in range(30):
        begin = time.process_time()
        answer.entry.content += f" and {number} " + "more of it " * 10
        answer.sync()
        await shown.until(lambda: answer.query_one("SafeMarkdown").source == answer.entry.content)
        await quiet(shown, 0.0)
        costs.append(time.process_time() - begin)
    return costs


async def quiet(shown: Window, extra: float = 0.2) -> None:
    """Wait until what was asked for is mounted and drawn."""
    await asyncio.sleep(extra)
    for _ in range(3):
        drawn = asyncio.Event()
        shown.app.call_after_refresh(drawn.set)
        await drawn.wait()


def chats(folder: Path) -> None:
    print(f"\nchats: the list of {CHATS} chats")
    fill_chats(folder, CHATS)
    trace = Script().answer("Well.").write(folder / "t")

    async def work(shown: Window) -> None:
        for what, keys in (("open it", ["ctrl+o"]), ("search in it", ["1", "9"])):
            clock, used = time.perf_counter(), time.process_time()
            for key in keys:
                await shown.press(key)
            await quiet(shown)
            used = time.process_time() - used
            row(what, f"{time.perf_counter() - clock - 0.2:.2f} s", f"{used:.2f} s of CPU")

    asyncio.run(in_window(trace, work))


def idle(folder: Path, length: float) -> None:
    print(f"\nidle: nothing to do for {length:.0f} s")
    trace = Script().answer("Well. " * 100).write(folder / "t")
    replay = ("-c", PACED_UI, *worker_command("--replay", str(trace)))
    with pseudo_terminal(replay, folder) as terminal:
        terminal.wait(b"Ready")
        terminal.send("a question\r")
        terminal.wait(b"fwd")
        time.sleep(SETTLED)
        family = terminal.family
        before = [cpu(process) for process in family]
        time.sleep(length)
        for process, used in zip(family, before, strict=True):
            name = "engine" if "replay" in " ".join(process.cmdline()[3:5]) else "process"
            share = (cpu(process) - used) / length
            row(f"{name} {process.pid}", f"{share * 100:.2f} %", megabytes(process))


if __name__ == "__main__":
    main()
