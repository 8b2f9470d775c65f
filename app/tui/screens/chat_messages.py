"""What the chat's keys do with one message: answer again, continue, edit, copy, other versions,
replay.

They act on the selected message, and without one on the last that they make sense for.
"""

from app.tui.clipboard import copied, in_tmux
from app.tui.conversation import Entry, request_messages, why_complete
from app.tui.copying import Copies, has_code
from app.tui.screens.chat_view import ChatView
from app.tui.widgets.transcript import Transcript


class ChatMessages(ChatView):
    """The actions on messages."""

    def __init__(self) -> None:
        super().__init__()
        self._copies = Copies()

    def is_useful(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether an action would do something now; None still lets its key go on."""
        session, talk = self.session, self.session.conversation
        selected = self.query_one(Transcript).selected
        match action:
            case "replay":
                useful = bool(talk.entries)
            case "again" | "edit":
                useful = session.turn is None and bool(talk.entries)
            case "go_on":
                answer = talk.last_answer
                cut = answer is not None and why_complete(answer) is None
                useful = cut and session.turn is None
            case "copy":
                entry = selected or talk.last_answer
                code = parameters == ("code",)
                useful = entry is not None and (not code or has_code(entry.content))
            case "keep":
                useful = self._answer_to_keep() is not None
            case "leaf":
                useful = selected is not None and selected.versions > 1
            case _:
                useful = True
        return True if useful else None

    def action_again(self) -> None:
        """Answer the selected question, else the last one, once more."""
        self.say(self.session.again(self.query_one(Transcript).selected))

    def action_go_on(self) -> None:
        """Continue the last answer."""
        self.say(self.session.go_on())

    def action_copy(self, what: str) -> None:
        """Copy the selected message, else the last answer: as text, as Markdown, or its code."""
        transcript = self.query_one(Transcript)
        entry = transcript.selected or self.session.conversation.last_answer
        if entry is None or not entry.content.strip():
            self.say("There is nothing to copy yet.")
            return
        piece = self._copies.take(entry, what)
        if piece is None:
            self.say("There is no code block in this message.")
            return
        self.app.copy_to_clipboard(piece.text)
        self.tell(copied(piece.name, piece.text, tmux=in_tmux()))

    def _answer_to_keep(self) -> int | None:
        """Where the selected answer stands, else the newest whole one; None without one."""
        selected, entries = self.query_one(Transcript).selected, self.session.conversation.entries
        whole = [i for i, e in enumerate(entries) if e.role == "assistant" and e.reason == "end"]
        return next((i for i in whole if entries[i] is selected), max(whole, default=None))

    def action_keep(self) -> None:
        """Keep the selected answer, else the last one, as a prompt with a verifier."""
        at = self._answer_to_keep()
        if at is None:
            self.say("There is no whole answer to keep yet.")
            return
        from app.tui.screens.keep import KeepScreen

        talk = self.session.conversation
        system = talk.settings.over(self.session.settings).system
        messages = request_messages(talk.entries[:at], system)

        def kept(words: str | None) -> None:
            if words is not None:
                self.tell(words)

        self.app.push_screen(KeepScreen(messages, talk.entries[at].content), kept)

    def action_leaf(self, step: int) -> None:
        """The version before or after the selected message."""
        transcript, talk = self.query_one(Transcript), self.session.conversation
        entry = transcript.selected or talk.last_answer
        if entry is None or not talk.holds(entry):  # it went, and what is here is not drawn yet
            return
        place = talk.index(entry)
        if self.say(self.session.leaf(entry, step)):
            self.call_later(self._show_version, place)

    async def _show_version(self, place: int) -> None:
        entries = self.session.conversation.entries
        if place < len(entries):
            await self.query_one(Transcript).show_entry(entries[place])

    def action_edit(self) -> None:
        """Put the selected question, else the last one, into the field, to be sent as a version."""
        if self.say(self.session.edit(self.query_one(Transcript).selected)):
            editing = self.session.conversation.editing
            assert editing is not None
            self.begin_editing(editing.content)

    def action_replay(self) -> None:
        """The selected answer step by step, else the newest that was recorded."""
        selected = self.query_one(Transcript).selected
        entries = [selected] if selected else self.session.conversation.entries[::-1]
        if not any(entry.role == "assistant" and self._replay(entry) for entry in entries):
            self.say("This was not recorded." if selected else "No answer here was recorded.")

    def _replay(self, answer: Entry) -> bool:
        """Show an answer's recording; False where there is none."""
        session = self.session
        film = session.recordings.film(
            session.conversation, answer, session.shown_turn, session.engine.ready
        )
        if film is None:
            return False
        from app.tui.screens.replay import ReplayScreen

        self.app.push_screen(ReplayScreen([film], session.settings))
        return True
