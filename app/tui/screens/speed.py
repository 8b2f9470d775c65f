"""The Speed tab: the last answers, figure by figure and block by block."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from app.store import Message
from app.store_schema import StoreError
from app.tui import speed
from app.tui.screens.tab import TabScreen
from app.tui.widgets.curve import Curve
from app.tui.widgets.live_panel import RowsPanel

ANSWERS = 200


class SpeedScreen(TabScreen):
    """Figures on the left, blocks on the right, curves over the last answers below."""

    TAB = "speed"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "older", "older answer", id="speed.older"),
        Binding("right", "newer", "newer answer", id="speed.newer"),
        Binding("up", "blocks(-1)", "blocks", id="speed.up", show=False),
        Binding("down", "blocks(1)", "blocks", id="speed.down"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._answers: list[Message] = []
        self._at = -1
        self._block = 0

    def body(self) -> ComposeResult:
        with Horizontal(id="speed-top"):
            yield RowsPanel(id="speed-figures")
            with Vertical(id="speed-right"):
                yield RowsPanel(id="speed-blocks")
                yield RowsPanel(id="speed-time")
        with Horizontal(id="speed-curves"):
            yield Curve(id="speed-rates")
            yield Curve(id="speed-tpf")

    def on_mount(self) -> None:
        """Name the parts."""
        for id, title in (
            ("figures", "Answer"), ("blocks", "Blocks"), ("time", "Where the time went"),
            ("rates", "tok/s of the last answers"), ("tpf", "TPF of the last answers"),
        ):  # fmt: skip
            self.query_one(f"#speed-{id}").border_title = title

    def look(self) -> None:
        """Read the answers again; the newest is shown."""
        try:
            self._answers = self.program.session.store.answers(ANSWERS)
        except StoreError as error:
            self._answers = []
            self.say(str(error), alert=True)
        self._at, self._block = len(self._answers) - 1, 0
        self._show()

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
            self.query_one("#speed-figures", RowsPanel).show([[(words, "note")]])
            return
        stats, rates = self._stats, [speed.rate_of(m.stats or {}) for m in self._answers]
        place = f"Answer {self._at + 1} of {len(self._answers)}"
        figures, blocks, time = (
            self.query_one(f"#speed-{id}", RowsPanel) for id in ("figures", "blocks", "time")
        )
        figures.border_title = place
        figures.show(speed.figure_rows(stats, figures.content_size.width))
        blocks.show(speed.block_rows(stats, blocks.content_size.width, first=self._block))
        time.show(speed.time_rows(stats, time.content_size.width))
        self.query_one("#speed-rates", Curve).show([r.tokens_per_second for r in rates])
        self.query_one("#speed-tpf", Curve).show([r.tpf for r in rates])
        self.say(speed.heading(self._answers[self._at]))
