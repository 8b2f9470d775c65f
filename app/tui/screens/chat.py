"""The chat: a thin screen over `ChatSession`. It draws what the session tells and sends it keys."""

import time
from typing import TYPE_CHECKING, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from app.store import ChatSummary
from app.store_schema import StoreError
from app.tui import status
from app.tui.session import ChatSession
from app.tui.state import Problem, Turn
from app.tui.widgets.bars import KeyBar, StatusLine, TopBar
from app.tui.widgets.block_view import BlockView
from app.tui.widgets.card import ProblemCard
from app.tui.widgets.live_panel import LiveLine, LivePanel
from app.tui.widgets.messages import Answer, UserMessage
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.transcript import Transcript
from app.tui.widgets.welcome_card import WelcomeCard

if TYPE_CHECKING:
    from app.tui.app import OrlChat

TICK = 0.25
"""Seconds between looks at the clock while an answer is written."""
RECENT = 4
VIEW_HELP = "the open block: live, in slow motion, not at all"


class ChatScreen(Screen[None]):
    """One conversation, its figures, the open block and the prompt."""

    BINDINGS = [
        Binding("escape", "stop", "stop", id="chat.stop", tooltip="stop the answer, keep its text"),
        Binding("ctrl+r", "again", "again", id="chat.again", tooltip="answer once more"),
        Binding("ctrl+t", "block_view", "view", id="view.block", tooltip=VIEW_HELP),
        Binding("ctrl+n", "new_chat", "new", id="chat.new", tooltip="an empty chat"),
        Binding("ctrl+o", "open_chat", "chats", id="chat.open", tooltip="search, open, rename"),
    ]

    def compose(self) -> ComposeResult:
        yield TopBar()
        with Horizontal(id="middle"):
            yield Transcript()
            yield LivePanel(id="live-panel")
        yield BlockView()
        yield LiveLine(id="live-line")
        yield Prompt(self._history)
        yield StatusLine()
        yield KeyBar()
        yield Static("orl-chat needs a window of 60 x 20 at least.", id="too-small")

    @property
    def program(self) -> "OrlChat":
        """The app, by its own type."""
        return cast("OrlChat", self.app)

    @property
    def session(self) -> ChatSession:
        """The chat behind this screen."""
        return self.program.session

    def on_mount(self) -> None:
        """Everything is drawn before the engine is started."""
        self._clock = self.set_interval(TICK, self._refresh_status, pause=True)
        self.query_one(Prompt).focus()
        self.conversation_changed()
        self.engine_changed()

    # --- the session's view -------------------------------------------------------------------

    def engine_changed(self) -> None:
        """Top bar, status line, device figures, and the start card's words."""
        engine = self.session.engine
        self.query_one(TopBar).show(status.what_answers(engine, self.session.settings))
        for card in self.query(WelcomeCard):
            card.show(engine)
        self._refresh_figures()
        self._refresh_status()

    def conversation_changed(self) -> None:
        """Draw the conversation on screen."""
        self.call_later(self._show_conversation)
        self.refresh_bindings()
        self._refresh_figures()
        self._refresh_status()

    def turn_began(self, turn: Turn) -> None:
        """Draw the question and its empty answer."""
        self.call_later(self._show_turn, turn)
        self._clock.resume()
        self.refresh_bindings()
        self._refresh_figures()
        self._refresh_status()

    def text_added(self, turn: Turn, text: str) -> None:
        """Let the answer grow."""
        self.call_later(self._sync, turn)

    def live_changed(self, turn: Turn) -> None:
        """Figures and block; painted as often as the terminal keeps up."""
        if turn is self.session.turn_here:
            self._refresh_figures()
        self._refresh_status()

    def turn_ended(self, turn: Turn) -> None:
        """The final figures stay on screen."""
        self.call_later(self._sync, turn)
        self._clock.pause()
        self.refresh_bindings()
        self._refresh_figures()
        self._refresh_status()

    def turn_unsent(self, turn: Turn) -> None:
        """Give the text back, unless something new is being typed."""
        self._clock.pause()
        self.refresh_bindings()
        self.call_later(self._take_back, turn)

    def engine_wanted(self) -> None:
        """A message waits for an engine that nobody has started."""
        self.program.start_engine()

    def problem(self, problem: Problem) -> None:
        """Put a card at the conversation's end."""
        self.call_later(self._show_card, problem)

    # --- drawing ------------------------------------------------------------------------------

    async def _show_conversation(self) -> None:
        session = self.session
        talk = session.conversation
        transcript = self.query_one(Transcript)
        transcript.border_title = talk.title or "New chat"
        await transcript.show(talk)
        if not talk.entries:
            await transcript.show_top(WelcomeCard(session.engine, self._recent()))
        prompt = self.query_one(Prompt)
        if talk.unsent is not None and not prompt.text:
            prompt.put(talk.unsent.content)

    async def _show_turn(self, turn: Turn) -> None:
        transcript = self.query_one(Transcript)
        talk = turn.conversation
        if talk is not self.session.conversation:
            return
        transcript.border_title = talk.title
        await self.query(WelcomeCard).remove()
        new: list[Widget] = []
        if len(talk.entries) > 1 and talk.entries[-2] is turn.question:
            new.append(UserMessage(turn.question))
        new.append(Answer(turn.answer, attempt=talk.attempt(turn.answer)))
        await transcript.add(*new)

    async def _sync(self, turn: Turn) -> None:
        answer = self.query_one(Transcript).answer(turn.answer)
        if answer is not None:
            answer.sync()

    async def _take_back(self, turn: Turn) -> None:
        await self.query_one(Transcript).drop(turn.question, turn.answer)
        prompt = self.query_one(Prompt)
        if not prompt.text and turn.conversation is self.session.conversation:
            prompt.put(turn.question.content)

    async def _show_card(self, problem: Problem) -> None:
        await self.query_one(Transcript).add(ProblemCard(problem))

    def _refresh_figures(self) -> None:
        session = self.session
        turn = session.shown_turn
        before = session.before if turn is session.last else session.last
        self.query_one(LivePanel).show(turn, before, session.engine)
        self.query_one(LiveLine).show(turn, session.engine)
        block = self.query_one(BlockView)
        mode = session.settings.block_view
        seen = mode != "off" and turn is not None and turn.live.picture is not None
        block.set_class(not seen, "-off")
        block.show(turn.live if turn else None, "slow motion" if mode == "slow" else "")

    def _refresh_status(self) -> None:
        session = self.session
        here = session.turn is session.turn_here
        words = status.doing(session.engine, session.turn, here=here, now=time.monotonic())
        alert = session.turn is None and not session.engine.usable and not session.engine.coming
        self.query_one(StatusLine).show(words, status.viewing(session.settings), alert=alert)

    def _recent(self) -> list[ChatSummary]:
        try:
            return self.session.store.chats(limit=RECENT)
        except StoreError:
            return []

    def _history(self) -> list[str]:
        return self.session.conversation.prompts

    # --- what the user does -------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that would do nothing now are not offered; None still lets the key go on."""
        if action == "stop":
            turn = self.session.turn_here
            return None if turn is None or turn.stopping else True
        if action == "again":
            free = self.session.turn is None and self.session.conversation.entries
            return True if free else None
        return True

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        """Enter: the text leaves the field only when it was taken."""
        self._ask(event.text, self.query_one(Prompt).take)

    def _ask(self, text: str, taken: "object" = None) -> None:
        refusal = self.session.ask(text)
        if refusal is not None:
            self.notify(refusal, markup=False, timeout=3)
        elif callable(taken):
            taken()

    def on_welcome_card_asked(self, event: WelcomeCard.Asked) -> None:
        """A question of the start card."""
        self._ask(event.text)
        self.query_one(Prompt).focus()

    def on_welcome_card_opened(self, event: WelcomeCard.Opened) -> None:
        """A chat of the start card."""
        self.open(event.chat.id, event.chat.title)

    def open(self, chat_id: int, title: str) -> None:
        """Show a chat of the store."""
        try:
            self.session.open_chat(chat_id, title)
        except StoreError as error:
            self.problem(Problem("The chat cannot be opened", str(error)))
        self.query_one(Prompt).focus()

    def action_stop(self) -> None:
        """Stop the answer; its text stays."""
        self.session.stop()
        self.refresh_bindings()

    def key_escape(self) -> None:
        """Nothing to stop: leave the field, or come back to it."""
        prompt = self.query_one(Prompt)
        self.clear_selection()
        self.set_focus(self.query_one(Transcript) if prompt.has_focus else prompt)

    def action_again(self) -> None:
        """Answer the last question once more."""
        refusal = self.session.again()
        if refusal is not None:
            self.notify(refusal, markup=False, timeout=3)

    def action_new_chat(self) -> None:
        """An empty chat; what is typed stays."""
        self.session.new_chat()
        self.query_one(Prompt).focus()

    def action_open_chat(self) -> None:
        """The list of chats."""
        from app.tui.screens.chats import ChatsScreen

        def opened(chat: ChatSummary | None) -> None:
            if chat is not None:
                self.open(chat.id, chat.title)

        self.app.push_screen(ChatsScreen(self.session), opened)

    def action_block_view(self) -> None:
        """Live, slow motion, off, and round again."""
        modes = ("live", "slow", "off")
        mode = modes[(modes.index(self.session.settings.block_view) + 1) % len(modes)]
        self.session.set_block_view(mode)
        self._refresh_figures()
        self._refresh_status()

    def set_preset(self, name: str) -> None:
        """Another preset, from the next answer on."""
        self.session.keeper.settings(preset=name)
        self.engine_changed()

    def on_prompt_at_top(self, event: Prompt.AtTop) -> None:
        """Above an empty chat's prompt is the start card."""
        for card in self.query(WelcomeCard):
            card.take_focus()

    def on_prompt_scroll(self, event: Prompt.Scroll) -> None:
        """Page keys in the prompt move the conversation."""
        transcript = self.query_one(Transcript)
        if event.direction < 0:
            transcript.scroll_page_up(animate=False)
        else:
            transcript.scroll_page_down(animate=False)

    def on_problem_card_chosen(self, event: ProblemCard.Chosen) -> None:
        """A card's button."""
        if event.action == "details":
            from app.tui.screens.text import TextScreen

            self.app.push_screen(TextScreen(event.card.problem.title, event.card.problem.detail))
            return
        event.card.remove()
        if event.action == "restart":
            self.program.start_engine()
        elif event.action == "again":
            self.action_again()
        self.query_one(Prompt).focus()

    def on_key(self, event: events.Key) -> None:
        """Typing while the conversation has the focus goes to the prompt."""
        prompt = self.query_one(Prompt)
        if self.focused is not self.query_one(Transcript) or not event.is_printable:
            return
        event.stop()
        prompt.focus()
        prompt.insert(event.character or "")
