"""The chat as it is drawn: the parts of the screen, and what each says when the session tells.

Mounting takes time, and the session goes on meanwhile. So nothing is drawn from what was told:
whatever changes asks for a look, and the look takes the state as it is by then.
"""

import time
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Static

from app.attachment import join, split
from app.store import ChatSummary
from app.store_schema import StoreError
from app.tui import status
from app.tui.session import ChatSession
from app.tui.state import Problem, Turn
from app.tui.tabs import CHAT
from app.tui.widgets.attachments import Attachments
from app.tui.widgets.bars import KeyBar, StatusLine, TopBar
from app.tui.widgets.block_view import BlockView
from app.tui.widgets.card import ProblemCard
from app.tui.widgets.live_panel import LiveLine, LivePanel
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.transcript import Transcript
from app.tui.widgets.welcome_card import WelcomeCard

if TYPE_CHECKING:
    from app.tui.app import OrlChat

TICK = 0.25
"""Seconds between looks at the clock while an answer is written."""
RECENT = 4
EDITING = "Edit, and send as a new version (esc: leave it as it was)"
REFUSAL_SECONDS = 3.0


class ChatView(Screen[None]):
    """One conversation, its figures, the open block and the prompt."""

    _refusal: str | None = None
    _word: str | None = None
    _typed: str = ""
    """What was in the field when editing an earlier message began."""

    def compose(self) -> ComposeResult:
        yield TopBar(CHAT)
        with Horizontal(id="middle"):
            yield Transcript()
            yield LivePanel(id="live-panel")
        yield BlockView()
        yield LiveLine(id="live-line")
        yield Attachments()
        yield Prompt(self._history, self.ask)
        yield StatusLine()
        yield KeyBar()
        yield Static("orl-chat needs a window of 60 x 20 at least.", id="too-small")

    @property
    def program(self) -> "OrlChat":
        """The app, by its own type."""
        return cast("OrlChat", self.app)

    @property
    def draft(self) -> str:
        """What is typed and not sent, with the files that were to go along."""
        return join(self.query_one(Prompt).text, self.query_one(Attachments).files)

    @draft.setter
    def draft(self, message: str) -> None:
        """Put it into the field, unless somebody types already."""
        if message and not self.draft:
            text, files = split(message)
            self.query_one(Prompt).put(text)
            self.query_one(Attachments).add(*files)

    @property
    def session(self) -> ChatSession:
        """The chat behind this screen."""
        return self.program.session

    def on_mount(self) -> None:
        """Everything is drawn before the engine is started."""
        self._clock = self.set_interval(TICK, self.refresh_status, pause=True)
        self.query_one(Prompt).focus()
        self.conversation_changed()
        self.engine_changed()

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
        if not talk.entries and not self.query(WelcomeCard):
            await transcript.show_top(WelcomeCard(self.session.engine, self._recent()))

    def _offer_draft(self) -> None:
        """A message that did not fit is the user's again."""
        talk = self.session.conversation
        if talk.unsent is not None and talk.editing is not None:
            self.begin_editing(talk.unsent.content)
            return
        self._show_editing()
        if talk.unsent is not None:
            self.draft = talk.unsent.content

    def begin_editing(self, message: str) -> None:
        """The field holds `message`, to be sent as a version; what was typed waits."""
        if not self.query_one(Prompt).border_title:
            self._typed = self.draft
        self._fill(message)
        self.query_one(Prompt).focus()

    def leave_editing(self) -> bool:
        """What was typed before is in the field again; False when nothing is edited."""
        talk = self.session.conversation
        if talk.editing is None:
            return False
        talk.editing = None
        self._bring_back()
        return True

    def _bring_back(self) -> None:
        typed, self._typed = self._typed, ""
        self._fill(typed)

    def _fill(self, message: str) -> None:
        text, files = split(message)
        attachments, prompt = self.query_one(Attachments), self.query_one(Prompt)
        attachments.take_all()
        attachments.add(*files)
        prompt.put(text)
        self._show_editing()

    def _show_editing(self) -> None:
        editing = self.session.conversation.editing is not None
        self.query_one(Prompt).border_title = EDITING if editing else ""

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

    def refresh_top(self) -> None:
        """What answers, and how far a download is."""
        self.program.refresh_top()

    def refresh_figures(self) -> None:
        """The Live panel and the open block."""
        session = self.session
        turn = session.shown_turn
        before = session.before if turn is session.last else session.last
        self.query_one(LivePanel).show(turn, before, session.engine)
        self.query_one(LiveLine).show(turn, session.engine)
        block = self.query_one(BlockView)
        mode = session.settings.block_view
        seen = mode != "off" and turn is not None and turn.live.picture is not None
        block.set_class(not seen, "-off")
        over = turn is not None and turn is not session.turn
        note = "last picture" if over else "slow motion" if mode == "slow" else ""
        block.show(turn.live if turn else None, note)

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
        attachments, editing = self.query_one(Attachments), self.session.conversation.editing
        sent = self.say(self.session.ask(join(text, attachments.files)))
        if sent:
            attachments.take_all()
        if sent and editing is not None:
            self.call_later(self._bring_back)
        return sent

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

    def _history(self) -> list[str]:
        """Prompts of this window and of this chat, each once, the latest last."""
        said = [*self.session.asked, *self.session.conversation.prompts]
        prompts = [text for text in (split(message)[0] for message in said) if text.strip()]
        return list(dict.fromkeys(reversed(prompts)))[::-1]
