"""The Speed tab: the last answers, figure by figure and block by block."""

import json
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from app.models import BUILT_IN
from app.protocol import Gpu, Ready
from app.store_rows import Message
from app.store_schema import StoreError
from app.tui import panel, speed
from app.tui.exports import export_path
from app.tui.figures import rate
from app.tui.screens.tab import TabScreen
from app.tui.setup_words import wrapped
from app.tui.state import Turn
from app.tui.widgets.live_panel import RowsPanel
from app.tui.widgets.plot import Frame, Line, Plot

if TYPE_CHECKING:
    from app.bench.prompts import BenchSet

ANSWERS = 200
BENCH = "measure every preset over a set of prompts"
COMPARE = "this question with every preset, side by side"
EXPORT = "save this answer's figures as JSON and this screen as SVG"
GLANCE = 0.5
"""Seconds between two looks at what happens by itself."""
PROMPTS = 12
REPLAY = "this answer once more, step by step"
REPEAT = 3


class SpeedScreen(TabScreen):
    """Figures on the left, blocks on the right, curves over the last answers below."""

    TAB = "speed"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "older", "older", id="speed.older", tooltip="older answer"),
        Binding("right", "newer", "newer", id="speed.newer", tooltip="newer answer"),
        Binding("up", "blocks(-1)", "blocks", id="speed.up", show=False),
        Binding("down", "blocks(1)", "blocks", id="speed.down"),
        Binding("space,f6", "replay", "replay", id="speed.replay", tooltip=REPLAY),
        Binding("b", "bench", "benchmark", id="speed.bench", tooltip=BENCH),
        Binding("c", "compare", "presets", id="speed.compare", tooltip=COMPARE),
        Binding("e", "export", "export", id="speed.export", tooltip=EXPORT),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._answers: list[Message] = []
        self._at = -1
        self._block = 0
        self._card: Gpu | None = None
        self._last: Turn | None = None

    def body(self) -> ComposeResult:
        with Horizontal(id="speed-top"):
            yield RowsPanel(id="speed-figures")
            with Vertical(id="speed-right"):
                yield RowsPanel(id="speed-blocks")
                yield RowsPanel(id="speed-time")
        with Horizontal(id="speed-curves"):
            yield Plot(id="speed-rates", mark=rate, legend="oldest to newest")
            yield Plot(id="speed-tpf", mark=rate, legend="oldest to newest")

    def on_mount(self) -> None:
        """Name the parts."""
        for id, title in (
            ("figures", "Answer"), ("blocks", "Blocks"), ("time", "Where the time went"),
            ("rates", "tok/s of the last answers"), ("tpf", "TPF of the last answers"),
        ):  # fmt: skip
            self.query_one(f"#speed-{id}").border_title = title
        self.set_interval(GLANCE, self._follow)

    def look(self) -> None:
        """Read the answers again. A new one is shown; else the one that was."""
        before, session = self._answers, self.program.session
        self._last = session.last
        try:
            self._answers = session.store.answers(ANSWERS)
        except StoreError as error:
            self._answers = []
            self.say(str(error), alert=True)
        if [answer.id for answer in before] != [answer.id for answer in self._answers]:
            self._at, self._block = len(self._answers) - 1, 0
            self.refresh_bindings()
        self._show()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Without an answer there is nothing to look at."""
        about = ("older", "newer", "blocks", "replay", "compare", "export")
        return bool(self._answers) if action in about else True

    def on_resize(self) -> None:
        """What fits beside a figure depends on the width."""
        self.call_after_refresh(self._show)

    def action_older(self) -> None:
        """The answer before the one shown."""
        self._go(-1)

    def action_newer(self) -> None:
        """The answer after the one shown."""
        self._go(1)

    def action_blocks(self, step: int) -> None:
        """Scroll the blocks of a long answer."""
        stats = self._stats
        last = max(0, len(speed.block_rows(stats, 80)) - 2)
        self._block = min(last, max(0, self._block + step))
        self._show()

    def action_replay(self) -> None:
        """The shown answer, step by step."""
        if not self._answers:
            return
        session = self.program.session
        film = session.recordings.stored_film(
            self._answers[self._at], session.last, session.engine.ready
        )
        if film is None:
            self.say("No recording of this answer is kept.", alert=True)
            return
        from app.tui.screens.replay import ReplayScreen

        self.app.push_screen(ReplayScreen([film], session.settings))

    def action_bench(self) -> None:
        """Measure over prompts that the model can be expected to answer."""
        ready = self._free_engine()
        if ready is None:
            return
        from app.bench.sets import load_set

        name = "demo" if ready.model in BUILT_IN else "chat"
        self._measure(load_set(name).some(PROMPTS), ready)

    def action_compare(self) -> None:
        """The shown answer's question, with every preset."""
        ready = self._free_engine()
        if ready is None or not self._answers:
            return
        from app.bench.prompts import BenchSet
        from finetune.prompts import Prompt, prompt_id

        messages = self._question()
        prompt = Prompt(messages, None, "", 0, prompt_id(messages))
        self._measure(BenchSet("this question", (prompt,)), ready, repeat=REPEAT)

    def _measure(self, found: "BenchSet", ready: Ready, *, repeat: int = 1) -> None:
        from app.tui.screens.bench import BenchScreen

        screen = BenchScreen(found, ready, repeat=repeat, side_by_side=repeat > 1)
        self.app.push_screen(screen, lambda _: self.look())

    def _free_engine(self) -> Ready | None:
        """What the engine is, when it can be asked now; else a word about why not."""
        session = self.program.session
        if session.turn is not None:
            self.say("An answer is being written; the benchmark waits for nobody.", alert=True)
        elif session.engine.ready is None or not session.engine.usable:
            self.say("The engine is not ready.", alert=True)
        else:
            return session.engine.ready
        return None

    def _question(self) -> tuple[dict[str, str], ...]:
        """What the shown answer answered, without the chat before it."""
        answer = self._answers[self._at]
        asked = [m for m in self.program.session.store.messages(answer.chat_id) if m.role == "user"]
        before = [m for m in asked if m.id < answer.id] or asked
        return ({"role": "user", "content": before[-1].content if before else ""},)

    def action_export(self) -> None:
        """Figures for a program, a picture for people."""
        if not self._answers:
            return
        try:
            path = export_path("answer", "json")
            path.write_text(json.dumps(dict(self._stats), indent=1) + "\n", encoding="utf-8")
            picture = path.with_suffix(".svg")
            picture.write_text(self.app.export_screenshot(title="orl-chat"), encoding="utf-8")
        except OSError as error:
            self.say(
                f"It cannot be saved: {error.strerror}; see the folder in orl-chat paths.",
                alert=True,
            )
            return
        self.notify(f"{path} and {picture.name}", title="Saved", markup=False)

    def _go(self, step: int) -> None:
        if self._answers:
            self._at = min(len(self._answers) - 1, max(0, self._at + step))
            self._block = 0
            self._show()

    @property
    def _stats(self) -> speed.Stats:
        return (self._answers[self._at].stats or {}) if self._answers else {}

    def _show(self) -> None:
        if not self._answers:
            words = "No answer yet: ask something in the chat, and its figures are here."
            figures = self.query_one("#speed-figures", RowsPanel)
            figures.show(wrapped(words, figures.content_size.width, "note"))
            return
        stats, rates = self._stats, [speed.rate_of(m.stats or {}) for m in self._answers]
        place = f"Answer {self._at + 1} of {len(self._answers)}"
        figures, blocks, time = (
            self.query_one(f"#speed-{id}", RowsPanel) for id in ("figures", "blocks", "time")
        )
        figures.border_title = place
        self._show_figures(figures)
        blocks.show(speed.block_rows(stats, blocks.content_size.width, first=self._block))
        time.show(speed.time_rows(stats, time.content_size.width))
        self._draw("#speed-rates", [r.tokens_per_second for r in rates])
        self._draw("#speed-tpf", [r.tpf for r in rates])
        self.say(speed.heading(self._answers[self._at]))

    def _show_figures(self, figures: RowsPanel) -> None:
        """The answer's, and those of the card, which change by themselves."""
        engine = self.program.session.engine
        self._card = engine.gpu
        rows = speed.figure_rows(self._stats, figures.content_size.width)
        figures.show([*rows, *panel.device_rows(engine)])

    def _follow(self) -> None:
        """Now and then: an answer that ended meanwhile, and what the card does by now."""
        session = self.program.session
        if not self.is_current:
            return
        if session.last is not self._last:
            self.look()
        elif self._answers and session.engine.gpu != self._card:
            self._show_figures(self.query_one("#speed-figures", RowsPanel))

    def _draw(self, plot: str, values: list[float | None]) -> None:
        """Values from left to right, over a scale that begins at zero; None is a gap."""
        points = [(float(at), value) for at, value in enumerate(values) if value is not None]
        top = max((value for _, value in points), default=1.0)
        frame = Frame(max(1.0, len(values) - 1.0), 0.0, top)
        self.query_one(plot, Plot).show([Line(points, "dots")], frame)
