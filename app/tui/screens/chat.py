"""The chat: what the keys do. What is drawn stands in `chat_view`, what happens in the session."""

from textual import events
from textual.widgets import Button, OptionList

from app.attachment import Attachment
from app.store_rows import ChatSummary
from app.store_schema import StoreError
from app.tui.screens.chat_messages import ChatMessages
from app.tui.state import Problem
from app.tui.widgets.attachments import Attachments
from app.tui.widgets.block_view import BlockView
from app.tui.widgets.card import ProblemCard
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.transcript import Transcript
from app.tui.widgets.welcome_card import WelcomeCard

SLOW_LATER = "Slow motion begins with the next answer."
"""On a card, where an answer is computed in one piece."""


class ChatScreen(ChatMessages):
    """The chat with its keys."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that would do nothing now are not offered; None still lets the key go on."""
        if action == "stop":
            turn = self.session.turn_here
            return None if turn is None or turn.stopping else True
        return self.is_useful(action, parameters)

    def on_welcome_card_asked(self, event: WelcomeCard.Asked) -> None:
        """A question of the start card."""
        self.ask(event.text)
        self.query_one(Prompt).focus()

    def on_welcome_card_opened(self, event: WelcomeCard.Opened) -> None:
        """A chat of the start card."""
        self.open(event.chat.id, event.chat.title)

    def open(self, chat_id: int, title: str, at: int | None = None) -> None:
        """Show a chat of the store, at its end or at a message that a search found."""
        try:
            self.session.open_chat(chat_id, title, at)
            self.found = at
        except StoreError as error:
            self.problem(Problem("The chat cannot be opened", str(error)))
        self.query_one(Prompt).focus()

    def action_stop(self) -> None:
        """Stop the answer; its text stays."""
        self.session.stop()
        self.refresh_bindings()

    def action_leave(self) -> None:
        """Nothing to stop: leave the field, or come back to it."""
        prompt = self.query_one(Prompt)
        self.clear_selection()
        if prompt.has_focus and self.leave_editing():
            return
        cards = self.query(OptionList)
        above = cards.first() if cards else self.query_one(Transcript)
        self.set_focus(above if prompt.has_focus else prompt)

    def on_transcript_below(self, event: Transcript.Below) -> None:
        """Below the last message is the prompt."""
        self.query_one(Prompt).focus()

    def action_attach(self) -> None:
        """Choose a file for the next message."""
        from app.tui.screens.attach import AttachScreen

        def chosen(file: Attachment | None) -> None:
            if file is not None:
                attachments = self.query_one(Attachments)
                attachments.tokens_per_character = self.session.tokens_per_character
                attachments.add(file)
            self.query_one(Prompt).focus()

        self.app.push_screen(AttachScreen(), chosen)

    def on_prompt_erased(self, event: Prompt.Erased) -> None:
        """Backspace in an empty prompt takes back the last file."""
        self.query_one(Attachments).drop()

    def action_settings(self) -> None:
        """How this chat is decoded, and its system prompt."""
        from app.tui.screens.chat_settings import ChatSettingsScreen

        self.app.push_screen(ChatSettingsScreen(self.session))

    def action_new_chat(self) -> None:
        """An empty chat; what is typed stays."""
        self.session.new_chat()
        self.query_one(Prompt).focus()

    def action_open_chat(self) -> None:
        """The list of chats."""
        from app.tui.screens.chats import ChatsScreen

        def opened(chat: ChatSummary) -> None:
            self.open(chat.id, chat.title, chat.hit.message_id if chat.hit else None)

        self.app.push_screen(ChatsScreen(self.session, opened))

    def action_block_view(self) -> None:
        """Live, slow motion, off, and round again."""
        modes = ("live", "slow", "off")
        mode = modes[(modes.index(self.session.settings.block_view) + 1) % len(modes)]
        self.session.set_block_view(mode)
        self.refresh_figures()
        self.refresh_status()
        if mode == "slow" and self.session.turn is not None and self.program.link.on_card:
            self.tell(SLOW_LATER)

    def action_block_layout(self) -> None:
        """The other of grid and running text."""
        other = "text" if self.query_one(BlockView).is_grid else "grid"
        self.session.keeper.settings(block_layout=other)
        self.refresh_look()

    def action_confidence_colours(self) -> None:
        """With or without them."""
        self.session.keeper.settings(
            confidence_colours=not self.session.settings.confidence_colours
        )
        self.refresh_look()

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
        elif event.action in ("fit", "move"):
            self._choose_room(event.action)
        elif event.action == "models":
            self.program.action_models()
            return
        elif event.action == "load":
            self.program.models.load_download()
        self.query_one(Prompt).focus()

    def _choose_room(self, action: str) -> None:
        """What to do about a context that is full; a question that is sent leaves the field."""
        session, talk = self.session, self.session.conversation
        in_field = talk.unsent is not None and not talk.unsent_aside
        act = session.fit if action == "fit" else session.move
        if self.say(act(self.draft)) and in_field:
            self.bring_back()

    def on_key(self, event: events.Key) -> None:
        """Typing while the conversation or a card in it has the focus goes to the prompt, and so
        does what was typed right behind it and still came here."""
        prompt, places = self.query_one(Prompt), Transcript | Button | Prompt
        elsewhere = self.focused is not None and not isinstance(self.focused, places)
        if elsewhere or not event.is_printable or event.key in self.active_bindings:
            return
        event.stop()
        self.set_focus(prompt)
        prompt.insert(event.character or "")
