"""Text to ids and back with the checkpoint's own tokenizer.json and chat template.

The template runs in Jinja's sandbox with the settings and helpers that transformers gives it. A
special token typed by a user is text: it never becomes control.
"""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import tokenizers
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.config import CheckpointError, read_json

MASK, END, ROLE_END = "<|mask|>", "<|endoftext|>", "<|role_end|>"

_PRIVATE = range(0xF0000, 0xFFFFE)


class Tokenizer:
    """A tokenizer with a chat template; `mask_id` and `stop_ids` are read from the vocabulary."""

    def __init__(self, backend: tokenizers.Tokenizer, template: str | None, source: Path) -> None:
        self._backend = backend
        self._source = source
        self._template = None if template is None else _compile(template, source)
        special = {
            token.content: id
            for id, token in backend.get_added_tokens_decoder().items()
            if token.special
        }
        self._special = special
        self._texts: dict[int, str] = {}
        self._special_pattern = (
            re.compile("|".join(re.escape(s) for s in sorted(special, key=len, reverse=True)))
            if special
            else None
        )
        self.mask_id: int | None = special.get(MASK)
        self.stop_ids = tuple(special[name] for name in (END, ROLE_END) if name in special)
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)

    @classmethod
    def from_pretrained(cls, directory: str | Path) -> "Tokenizer":
        """Read tokenizer.json and the chat template (chat_template.jinja, or the one in
        tokenizer_config.json) from `directory`. Raises CheckpointError."""
        folder = Path(directory)
        path = folder / "tokenizer.json"
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception for every fault
            raise CheckpointError(
                f"{path} is missing or damaged ({error}); download it again."
            ) from error
        # Settings of somebody's training run: here a prompt is neither cut nor padded.
        backend.no_truncation()
        backend.no_padding()
        # Typed special tokens are text; those of the template are looked up by name instead.
        backend.encode_special_tokens = True
        return cls(backend, _read_template(folder), folder)

    def encode(self, text: str) -> list[int]:
        """Ids of plain text; special-token strings in it are text too."""
        return self._backend.encode(text, add_special_tokens=False).ids

    def encode_chat(self, messages: Sequence[dict[str, str]], continue_text: str = "") -> list[int]:
        """Ids of a chat, rendered by the template with the answer's turn opened.

        `messages` are {"role", "content"}; `continue_text` is the part of the answer that is
        already written.

        Raises:
            ValueError: the checkpoint has no template, or it refuses these messages.
        """
        if self._template is None:
            raise ValueError(
                f"{self._source} has no chat template; use a checkpoint that was tuned for chat."
            )
        stand_ins = self._stand_ins([m["content"] for m in messages] + [continue_text])
        hidden = [m | {"content": _replace(m["content"], stand_ins)} for m in messages]
        rendered = self._render(hidden) + _replace(continue_text, stand_ins)
        back = {stand_in: text for text, stand_in in stand_ins.items()}
        ids: list[int] = []
        for piece in self._split(rendered):
            special = self._special.get(piece)
            ids += [special] if special is not None else self.encode(_replace(piece, back))
        return ids

    def _stand_ins(self, texts: list[str]) -> dict[str, str]:
        """A private character for every special token, none of which occurs in `texts`."""
        used = {c for text in texts for c in text if ord(c) in _PRIVATE}
        free = (chr(code) for code in _PRIVATE if chr(code) not in used)
        return {token: next(free) for token in self._special}

    def _render(self, messages: list[dict[str, str]]) -> str:
        assert self._template is not None
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, tools=None)
        except Exception as error:  # a template is foreign code, and raises what it likes
            raise ValueError(f"The chat template refuses these messages: {error}.") from error

    def _split(self, text: str) -> list[str]:
        if self._special_pattern is None:
            return [text] if text else []
        pieces = re.split(f"({self._special_pattern.pattern})", text)
        return [piece for piece in pieces if piece]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids` without special tokens; an incomplete character becomes U+FFFD."""
        return self._backend.decode(list(ids), skip_special_tokens=True)

    def token_text(self, id: int) -> str:
        """One token as text for display: special tokens by name, half characters as U+FFFD. Kept
        once made: every position of every step that is shown asks for one."""
        text = self._texts.get(id)
        if text is None:
            names = (name for name, special in self._special.items() if special == id)
            text = next(names, None) or self._backend.decode([id], skip_special_tokens=False)
            self._texts[id] = text
        return text

    def is_added(self, id: int) -> bool:
        """Whether `id` stands for a string of its own, and not for a piece of ordinary text."""
        return id in self._backend.get_added_tokens_decoder()

    def is_special(self, id: int) -> bool:
        """Whether `id` is control rather than text."""
        return id in self._special.values()


class TextStream:
    """Text of an answer whose tokens arrive in pieces.

    A character that is not complete yet waits for the next piece, and so does text that may turn
    out to be the beginning of a stop string. `text` is all that was given out.
    """

    # Tokens decoded again with each piece, for those whose text depends on their neighbours (the
    # bytes of one character, a leading space), and how many more to find a character's border.
    _CONTEXT, _SLACK = 8, 4

    def __init__(self, tokenizer: Tokenizer, stop_strings: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stops = tuple(stop_strings)
        self._ids: list[int] = []  # the last tokens, of whose text `_taken` characters are taken
        self._taken = 0
        self._full = ""
        self.text = ""
        self.stopped = False

    def push(self, ids: Sequence[int]) -> str:
        """Take the next tokens, give out the text that is now certain."""
        self._ids += ids
        text = self._tokenizer.decode(self._ids)
        # An incomplete character reads as U+FFFD: as one, or with some decoders as several.
        complete = len(text.rstrip("�"))
        self._take(text, complete)
        if complete == len(text):
            self._forget(text)
        return self._give(self._certain())

    def finish(self) -> str:
        """Give out what still waits."""
        text = self._tokenizer.decode(self._ids)
        self._take(text, len(text))
        return self._give(self._cut())

    def _take(self, text: str, end: int) -> None:
        # What waited may be more than what waits now, never less: then nothing is new.
        self._full += text[self._taken : end]
        self._taken = max(self._taken, end)

    def _forget(self, text: str) -> None:
        """Drop all tokens but the last few, if those alone read as the end of `text`."""
        for count in range(self._CONTEXT, min(self._CONTEXT + self._SLACK, len(self._ids))):
            tail = self._tokenizer.decode(self._ids[-count:])
            if text.endswith(tail):
                self._ids, self._taken = self._ids[-count:], len(tail)
                return

    def _cut(self) -> int:
        """Where the text ends: at the first stop string, else at its end."""
        found = [at for at in (self._full.find(stop) for stop in self._stops) if at >= 0]
        self.stopped = bool(found)
        return min(found, default=len(self._full))

    def _certain(self) -> int:
        end = self._cut()
        if self.stopped:
            return end
        held = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(self._full)), held, -1):
                if self._full.endswith(stop[:size]):
                    held = size
                    break
        return end - held

    def _give(self, end: int) -> str:
        new = self._full[len(self.text) : end]
        self.text += new
        return new


def _replace(text: str, table: dict[str, str]) -> str:
    # Longest first, so that a token that begins with another one is found whole.
    for old in sorted(table, key=len, reverse=True):
        text = text.replace(old, table[old])
    return text


def _read_template(folder: Path) -> str | None:
    path = folder / "chat_template.jinja"
    try:
        if path.exists():
            return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); download it again.") from error
    if not (folder / "tokenizer_config.json").exists():
        return None
    template = read_json(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):  # several named templates: "default" is the chat's
        named = [entry for entry in template if isinstance(entry, dict)]
        template = {entry.get("name"): entry.get("template") for entry in named}.get("default")
    return template if isinstance(template, str) else None


def _compile(template: str, source: Path) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(template)
    except jinja2.TemplateError as error:
        raise CheckpointError(
            f"The chat template of {source} (chat_template.jinja, or in tokenizer_config.json) "
            f"cannot be compiled ({error}); download it again."
        ) from error


def _to_json(value: Any, indent: int | None = None) -> str:
    # Jinja's own filter escapes HTML characters, which a prompt must not.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)
