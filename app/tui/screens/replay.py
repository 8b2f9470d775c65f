"""An answer once more, step by step: what was decided when, and where it was hard."""

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from app.settings import Settings
from app.text import printable
from app.tui import film_export, slots
from app.tui.exports import export_path, not_saved
from app.tui.film import Film, Frame, Projector
from app.tui.spark import meter
from app.tui.widgets.bars import KeyBar, TopBar
from app.tui.widgets.block_view import BlockPicture, BlockView, Layout
from app.tui.widgets.heat_strip import HeatStrip
from app.tui.widgets.too_small import TooSmall

TICK = 1 / 15
"""Seconds between two pictures, at most as many as while an answer is written."""
TAIL = 6_000
"""Characters of the answer that are drawn anew with each picture."""


def _key(key: str, action: str, word: str, id: str, tooltip: str) -> Binding:
    return Binding(key, action, word, id=f"replay.{id}", tooltip=tooltip)


class ReplayScreen(Screen[None], inherit_bindings=False):
    """Shows `films`, one at a time. The keys that scroll a screen are the replay's here."""

    BINDINGS = [
        _key("space", "play", "play", "play", "play, or stand still"),
        _key("right", "move(1)", "step", "next", "a step on"),
        _key("left", "move(-1)", "step back", "previous", "a step back"),
        _key("down", "block(1)", "block", "next_block", "the next block"),
        _key("up", "block(-1)", "block back", "previous_block", "the block before"),
        _key("plus,equals_sign", "faster(1)", "faster", "faster", "faster"),
        _key("minus", "faster(-1)", "slower", "slower", "slower"),
        _key("home", "go(0)", "first", "first", "the first step"),
        _key("end", "go(-1)", "last", "last", "the end"),
        _key("f7", "layout", "grid/text", "layout", "the block: a grid, or running text"),
        _key("e", "json", "JSON", "json", "save all steps and figures as JSON"),
        _key("s", "svg", "SVG", "svg", "save this picture as SVG"),
        _key("n", "film(1)", "next answer", "next_answer", "the next answer of the recording"),
        _key("escape,q", "leave", "close", "close", "close the replay"),
    ]

    def __init__(self, films: Sequence[Film], settings: Settings, at: int = 0) -> None:
        super().__init__()
        self._films = list(films)
        self._at = at
        self._settings = settings
        self.projector = Projector(films[at])

    def compose(self) -> ComposeResult:
        yield TopBar()
        with Horizontal(id="middle"):
            with VerticalScroll(id="said", can_focus=False):
                yield Static(id="answer", markup=False)
            with Vertical(id="heat"):
                yield HeatStrip()
        yield BlockView()
        yield Static(id="note", markup=False)
        yield Static(id="place", markup=False)
        yield KeyBar()
        yield TooSmall()

    def on_mount(self) -> None:
        """The first picture, standing still."""
        layout, colours = self._settings.block_layout, self._settings.confidence_colours
        self.query_one(BlockView).prefer(layout, colours=colours)
        self.query_one("#heat").border_title = "Tokens set per step"
        self._clock = self.set_interval(TICK, self._tick, pause=True)
        self._show_film()

    def on_resize(self) -> None:
        """The line of places fits the width."""
        self.call_after_refresh(self._draw)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Another answer is offered where there is one."""
        return action != "film" or len(self._films) > 1

    # --- keys ---------------------------------------------------------------------------------

    def action_play(self) -> None:
        """Play, or stand still."""
        self.projector.toggle()
        self._draw()

    def action_move(self, frames: int) -> None:
        """A step on, or back."""
        self.projector.move(frames)
        self._draw()

    def action_block(self, blocks: int) -> None:
        """To the next block, or the one before."""
        frame = self.projector.frame
        if frame is not None:
            self.projector.go(frame.block + blocks)
        self._draw()

    def action_go(self, end: int) -> None:
        """To the beginning (0), or the end."""
        self.projector.move(len(self.projector.film.frames) * (1 if end else -1))
        self._draw()

    def action_faster(self, by: int) -> None:
        """Faster, or slower."""
        self.projector.faster(by)
        self._draw()

    def action_layout(self) -> None:
        """The other of grid and running text, for this replay."""
        block = self.query_one(BlockView)
        other: Layout = "text" if block.is_grid else "grid"
        block.prefer(other, colours=self._settings.confidence_colours)

    def action_film(self, by: int) -> None:
        """Another answer of the recording."""
        self._at = (self._at + by) % len(self._films)
        self._show_film()

    def action_json(self) -> None:
        """All of it, for other programs."""
        self._save(film_export.as_json(self.projector.film), "json")

    def action_svg(self) -> None:
        """What is on screen."""
        self._save(self.app.export_screenshot(title="orl-chat replay"), "svg")

    def action_leave(self) -> None:
        """Back to where it was opened, or out."""
        if len(self.app.screen_stack) > 1:
            self.dismiss()
        else:
            self.app.exit(0)

    def on_heat_strip_chosen(self, event: HeatStrip.Chosen) -> None:
        """A step of the strip."""
        self.projector.go(event.block, event.step)
        self._draw()

    # --- drawing ------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self.projector.advance(TICK) or not self.projector.playing:
            self._draw()

    def _show_film(self) -> None:
        film = self._films[self._at]
        self.projector = Projector(film)
        which = f"answer {self._at + 1} of {len(self._films)}" if len(self._films) > 1 else ""
        words = ("replay", film.source, which)
        self.query_one(TopBar).show(" · ".join(word for word in words if word))
        question = " ".join(printable(film.question).split())
        self.query_one("#said").border_title = Content(question or "Replay")
        self.query_one("#note", Static).update(Text(film.note, no_wrap=True, overflow="ellipsis"))
        self.query_one("#note").display = bool(film.note)
        self.query_one(HeatStrip).show(film.blocks)
        self._draw()

    def _draw(self) -> None:
        """The frame that is shown, everywhere."""
        projector = self.projector
        if projector.playing:
            self._clock.resume()
        else:
            self._clock.pause()
        frame = projector.frame
        if frame is not None:
            picture = picture_of(projector.film, frame)
            self.query_one(BlockView).show(picture)
            self.query_one(HeatStrip).mark(frame.block, frame.step)
            self.query_one("#answer", Static).update(_so_far(projector.film, frame, picture))
            self.query_one("#said", VerticalScroll).scroll_end(animate=False)
        self.query_one("#place", Static).update(self._place())

    def _place(self) -> Text:
        """Playing or not, where, and how fast."""
        projector, width = self.projector, self.size.width - 2
        state = "▶ playing" if projector.playing else "‖ paused"
        left, right = f"{state} · {projector.speed}", projector.place()
        line = Text(f"{left}  ", no_wrap=True, overflow="ellipsis")
        room = width - len(left) - len(right) - 4
        if room >= 6:
            share = projector.index / max(1, len(projector.film.frames) - 1)
            full, empty = meter(share, room)
            line.append(full, "bold").append(empty, "dim").append("  ")
        return line.append(right)

    def _save(self, text: str, kind: str) -> None:
        """Beside the other exports; a word about it either way."""
        try:
            path = export_path("replay", kind)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            self.notify(not_saved(error), severity="error", markup=False)
        else:
            self.notify(str(path), title="Saved", markup=False)


def picture_of(film: Film, frame: Frame) -> BlockPicture:
    """A frame as the block view shows it."""
    parsed = slots.parse(frame.slots)
    decided = sum(slot.state != "u" for slot in parsed)
    of = film.taken(frame.block)
    parts = [f"Block {frame.block + 1}", f"step {frame.step} of {of}" if of else ""]
    if frame.final:
        parts = [f"Block {frame.block + 1}", "final", f"{of} steps"]
    parts.append(f"{decided} of {len(parsed)} set" if parsed else "no pictures recorded")
    title = " · ".join(part for part in parts if part)
    return BlockPicture(slots.frozen(parsed) if frame.final else parsed, title)


def _so_far(film: Film, frame: Frame, picture: BlockPicture) -> Text:
    """The answer up to this frame: final blocks as they are, the open one with its gaps."""
    text = printable(film.text_before(frame.block + frame.final))
    shown = Text(f"…{text[-TAIL:]}" if len(text) > TAIL else text)
    if not frame.final:
        for slot in picture.slots:
            if slot.state == "u":
                shown.append("░", "dim")
            elif slot.state != "p" and slot.text not in slots.ENDS:
                shown.append(printable(slot.text), "bold" if slot.state == "n" else "")
    return shown
