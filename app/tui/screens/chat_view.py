"""The chat as it is drawn: the parts of the screen, and what each says when the session tells.

Mounting takes time, and the session goes on meanwhile. So nothing is drawn from what was told:
whatever changes asks for a look, and the look takes the state as it is by then.
"""

import time

from textual.app import ComposeResult
from textual.containers import Horizontal

from app.attachment import join
from app.store_rows import ChatSummary
from app.store_schema import StoreError
from app.tui import status
from app.tui.screens.chat_field import ChatField
from app.tui.state import Problem, Turn
from app.tui.tabs import CHAT
from app.tui.widgets.attachments import Attachments
from app.tui.widgets.bars import KeyBar, StatusLine, TopBar
from app.tui.widgets.block_view import BlockPicture, BlockView
from app.tui.widgets.card import ProblemCard
from app.tui.widgets.live_panel import LiveLine, LivePanel
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.too_small import TooSmall
from app.tui.widgets.transcript import Transcript
from app.tui.widgets.welcome_card import WelcomeCard

TICK = 0.25
"""Seconds between looks at the clock while an answer is written."""
RECENT = 4
REFUSAL_SECONDS = 3.0


class ChatView(ChatField):
    """One conversation, its figures, the open block and the prompt."""

    _refusal: str | None = None
    found: int | None = None
    """The message that a search found, until it is shown."""
    _word: str | None = None

    def compose(self) -> ComposeResult:
        yield TopBar(CHAT)
        with Horizontal(id="middle"):
            yield Transcript()
            yield LivePanel(id="live-panel")
        yield BlockView()
        yield LiveLine(id="live-line")
        yield Attachments()
        yield Prompt(self._history, self.send)
        yield StatusLine()
        yield KeyBar()
        yield TooSmall()

    def on_mount(self) -> None:
        """Everything is drawn before the engine is started."""
        self._clock = self.set_interval(TICK, self.refresh_status, pause=True)
        self.set_focus(self.query_one(Prompt))  # now: keys may wait already
        self.refresh_look()
        self.conversation_changed()
        self.engine_changed()

    def on_screen_resume(self) -> None:
        """Chats may have been deleted, renamed or imported over it."""
        for card in self.query(WelcomeCard):
            card.offer(self._recent())

    def on_resize(self) -> None:
        """What is drawn by width is drawn again, once the parts have theirs."""
        self.call_after_refresh(self.refresh_figures)

    # --- what the session tells (state.View) --------------------------------------------------

    def engine_changed(self) -> None:
        """Top bar, status line, device figures, and the start card's words."""
        engine = self.session.engine
        self.refresh_top()
        for card in self.query(WelcomeCard):
            card.show(engine)
        self.refresh_figures()
        self.refresh_status()

    def conversation_changed(self) -> None:
        """Draw the conversation on screen."""
        self.call_later(self._draw)
        self.call_later(self._offer_draft)
        self.refresh_top()
        self.refresh_bindings()
        self.refresh_figures()
        self.refresh_status()

    def turn_began(self, turn: Turn) -> None:
        """Draw the question and its empty answer, or the answer that goes on."""
        self.call_later(self._draw)
        self.call_later(self._sync, turn)
        self._clock.resume()
        self.refresh_bindings()
        self.refresh_figures()
        self.refresh_status()

    def text_added(self, turn: Turn, text: str) -> None:
        """Let the answer grow."""
        self.call_later(self._sync, turn)

    def live_changed(self, turn: Turn) -> None:
        """Figures and block; painted as often as the terminal keeps up."""
        if turn is self.session.turn_here:
            self.refresh_figures()
        self.refresh_status()

    def turn_ended(self, turn: Turn) -> None:
        """The final figures stay on screen."""
        self.call_later(self._sync, turn)
        self._clock.pause()
        self.refresh_bindings()
        self.refresh_figures()
        self.refresh_status()

    def turn_unsent(self, turn: Turn) -> None:
        """Give the text back, unless something new is being typed."""
        self._clock.pause()
        self.conversation_changed()

    def engine_wanted(self) -> None:
        """A message waits for an engine that nobody has started."""
        self.program.start_engine()

    def problem(self, problem: Problem) -> None:
        """Put a card at the conversation's end."""
        self.call_later(self._show_card, problem)

    # --- drawing ------------------------------------------------------------------------------

    async def _draw(self) -> None:
        """The conversation as it is by now; whoever changes it asks for this again."""
        talk = self.session.conversation
        transcript = self.query_one(Transcript)
        transcript.title(talk.title)
        transcript.can_focus = bool(talk.entries)
        with self.app.batch_update():
            if talk.entries:
                await self.query(WelcomeCard).remove()
            await transcript.sync(talk)
        found, self.found = self.found, None
        if found is not None:
            await transcript.show_found(found)
        if not talk.entries and not self.query(WelcomeCard):
            await transcript.show_top(WelcomeCard(self.session.engine, self._recent()))

    async def _sync(self, turn: Turn) -> None:
        answer = self.query_one(Transcript).answer(turn.answer)
        if answer is not None:
            answer.sync()

    async def _show_card(self, problem: Problem) -> None:
        card, prompt = ProblemCard(problem), self.query_one(Prompt)
        await self.query_one(Transcript).add(card)
        # Nothing can be asked before a restart, nor before the choice of what does not fit; who is
        # typing goes on typing.
        waiting = "restart" in problem.actions and prompt.has_focus and not prompt.text
        if waiting or "fit" in problem.actions:
            card.take_focus()

    @property
    def what_answers(self) -> str:
        """Model, device and preset of the chat on screen, in words."""
        return status.what_answers(self.session.engine, self.session.settings_here)

    def refresh_top(self) -> None:
        """What answers, and how far a download is."""
        self.program.refresh_top()

    def refresh_figures(self) -> None:
        """The Live panel and the open block."""
        session = self.session
        turn = session.shown_turn
        before = session.before if turn is session.last else session.last
        context = session.conversation.context
        self.query_one(LivePanel).show(turn, before, session.engine, context)
        self.query_one(LiveLine).show(turn, session.engine, context)
        block = self.query_one(BlockView)
        mode = session.settings.block_view
        seen = mode != "off" and turn is not None and turn.live.picture is not None
        block.set_class(not seen, "-off")
        over = turn is not session.turn
        live = turn.live if turn is not None else None
        block.show(BlockPicture.of(live, over=over, slow=mode == "slow"))

    def refresh_look(self) -> None:
        """How the block is drawn, as the settings have it."""
        settings = self.session.settings
        block = self.query_one(BlockView)
        block.prefer(settings.block_layout, colours=settings.confidence_colours)

    def refresh_status(self) -> None:
        """What is going on, and the clock."""
        session = self.session
        here = session.turn is session.turn_here
        words = status.doing(session.engine, session.turn, here=here, now=time.monotonic())
        lost = session.turn is None and not session.engine.usable and not session.engine.coming
        alert = lost or self._refusal is not None
        words = self._refusal or self._word or words
        self.query_one(StatusLine).show(words, status.viewing(session.settings), alert=alert)

    def _recent(self) -> list[ChatSummary]:
        try:
            return self.session.store.chats(limit=RECENT)
        except StoreError:
            return []

    def ask(self, text: str) -> bool:
        """Send a message, and the files that go along; False, and a word about it, when it cannot
        be sent now."""
        attachments = self.query_one(Attachments)
        sent = self.say(self.session.ask(join(text, attachments.files)))
        if sent:
            attachments.take_all()
        return sent

    def send(self, text: str) -> None:
        """Send what is in the field, which then holds what waited for that."""
        if self.ask(text):
            self.bring_back()

    def say(self, refusal: str | None) -> bool:
        """Show for a moment why something was not done; True when nothing was refused."""
        self._show(refusal, None)
        return refusal is None

    def tell(self, word: str) -> None:
        """Show for a moment what was done."""
        self._show(None, word)

    def _show(self, refusal: str | None, word: str | None) -> None:
        self._refusal, self._word = refusal, word
        if refusal or word:
            self.set_timer(REFUSAL_SECONDS, lambda: self._forget(refusal, word))
        self.refresh_status()

    def _forget(self, refusal: str | None, word: str | None) -> None:
        if (self._refusal, self._word) == (refusal, word):
            self._show(None, None)
