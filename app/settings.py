"""The user's settings: a TOML file, `ORL_CHAT_*` variables over it, checked defaults below it.

One bad value costs that value, not the file; a file that is no TOML costs the file, and is then
never written to until it is repaired or set aside. Both are told in a sentence that names the file
and the line. Writing changes only the keys that changed: comments, order and keys of other
versions stay.
"""

import contextlib
import difflib
import json
import os
import re
import shutil
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomlkit
from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from app.paths import ensure, paths

PREFIX = "ORL_CHAT_"
Number = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class SettingsError(Exception):
    """A setting that cannot be taken or saved; the message is a sentence for the user."""


class Settings(BaseSettings):
    """Every setting with its default. None means: as the preset, the model or the hub has it."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, enable_decoding=False, extra="forbid", frozen=True
    )

    model: str = Field("auto", min_length=1)
    preset: Literal["speed", "quality", "careful"] = "quality"
    threshold: Share | None = None
    editing_threshold: Literal["off"] | Annotated[Number, Field(ge=0)] | None = None
    max_new_tokens: int = Field(1024, ge=1, le=1 << 20)
    temperature: Number = Field(0.0, ge=0, le=100)
    top_k: int | None = Field(None, ge=1)
    top_p: Share | None = None
    seed: int | None = Field(None, ge=0, lt=1 << 64)
    system: str = ""
    block_view: Literal["live", "slow", "off"] = "live"
    block_layout: Literal["auto", "grid", "text"] = "auto"
    confidence_colours: bool = True
    slow_steps_per_second: Number = Field(4.0, gt=0, le=60)
    theme: str = "textual-dark"
    ascii: bool = False
    mouse: bool = True
    keys: dict[str, str] = Field(default_factory=dict)
    offline: bool = False
    endpoint: str | None = None
    run_code: Literal["ask", "isolated", "anywhere"] = "ask"

    @classmethod
    def settings_customise_sources(cls, *_: Any, **sources: Any) -> tuple[Any, ...]:
        """Only what is passed in: `SettingsFile` reads file and environment, so that it can say
        which of them a bad value came from."""
        return (sources["init_settings"],)

    @field_validator("keys", mode="before")
    @classmethod
    def _keys_from_json(cls, value: Any) -> Any:
        return _flat(json.loads(value) if isinstance(value, str) else value)

    def decoding(self) -> dict[str, Any]:
        """The `config` of a chat request: the preset and what the user set besides it."""
        config: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("preset", "max_new_tokens", "temperature", "threshold", "top_k", "top_p")
        }
        config |= {"seed": self.seed, "editing_threshold": self.editing_threshold}
        config = {name: value for name, value in config.items() if value is not None}
        if self.editing_threshold == "off":
            config["editing_threshold"] = None
        return config


class SettingsFile:
    """Settings with the place they came from.

    Attributes:
        settings: what holds now.
        notices: sentences about what could not be taken, for the user.
        broken: the file is no TOML (or cannot be read) and will not be written to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notices: list[str] = []
        self.broken = False
        self.settings = self._load()

    @classmethod
    def open(cls, path: Path | None = None) -> Self:
        """Read `path` (the user's file when None); never raises for what stands in it."""
        return cls(paths().settings if path is None else path)

    def set(self, **changes: Any) -> Settings:
        """Check the changes, let them hold, and save them; None takes a key out of the file.

        Raises:
            SettingsError: a value is not allowed (nothing changed), or the file cannot be written
                (the change holds for this session only).
        """
        try:
            self.settings = _settings({**self.settings.model_dump(), **changes})
        except ValidationError as error:
            raise SettingsError(first_fault(error, "The setting")) from error
        # As checked: what was typed as "0.7" is saved as a number.
        values = {
            name: value if value is None else getattr(self.settings, name)
            for name, value in changes.items()
        }
        self._save(values)
        return self.settings

    def reset(self, name: str) -> Settings:
        """Let the default of `name` hold, and take it out of the file. Raises SettingsError."""
        default = Settings.model_fields[name].get_default(call_default_factory=True)
        values = {**self.settings.model_dump(), name: default}
        self.settings = _settings(values)
        self._save({name: None})
        return self.settings

    def set_aside(self) -> Path:
        """Rename a broken file, so that settings can be saved again. Raises SettingsError."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        aside = self.path.with_name(f"{self.path.stem}.broken-{stamp}{self.path.suffix}")
        try:
            self.path.rename(aside)
        except OSError as error:
            raise SettingsError(f"{self.path} cannot be renamed: {error.strerror}.") from error
        self.broken, self.notices = False, []
        return aside

    def _load(self) -> Settings:
        text = self._read()
        values = _parse(text) if text is not None else {}
        if isinstance(values, str):
            self._refuse(values)
            text, values = None, {}
        values = self._known(values, text or "")
        environment = EnvSettingsSource(Settings)()
        return self._forgiving(values, environment, text or "")

    def _read(self) -> str | None:
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            return None
        except UnicodeDecodeError as error:
            self._refuse(f"is not UTF-8 text (byte {error.start})")
        except OSError as error:
            self._refuse(f"cannot be read ({error.strerror})")
        return None

    def _refuse(self, why: str) -> None:
        self.broken = True
        self.notices.append(
            f"{self.path} {why}; the defaults hold, and nothing is saved until it is repaired or "
            "renamed."
        )

    def _known(self, values: dict[str, Any], text: str) -> dict[str, Any]:
        names = list(Settings.model_fields)
        for name in [name for name in values if name not in names]:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]!r}?" if near else "it was ignored."
            place = _place(self.path, text, name)
            self.notices.append(f"{place}: there is no setting {name!r}; {hint}")
        return {name: value for name, value in values.items() if name in names}

    def _forgiving(
        self, values: dict[str, Any], environment: dict[str, Any], text: str
    ) -> Settings:
        """The settings without the values that are not allowed, each of them told."""
        while True:
            try:
                return _settings({**values, **environment})
            except ValidationError as error:
                name = str(error.errors()[0]["loc"][0])
                source = environment if name in environment else values
                place = _place(self.path, text, name)
                where = PREFIX + name.upper() if source is environment else place
                self.notices.append(first_fault(error, where) + " The default holds instead.")
                del source[name]

    def _save(self, changes: dict[str, Any]) -> None:
        text = self._read_for_saving()
        document = tomlkit.parse(text)
        for name, value in changes.items():
            if value is not None:
                document[name] = value
            elif name in document:
                del document[name]
        try:
            _write_whole(self.path.resolve(), tomlkit.dumps(document))
        except OSError as error:
            raise SettingsError(
                f"The change holds until you quit: {self.path} cannot be written "
                f"({error.strerror})."
            ) from error

    def _read_for_saving(self) -> str:
        """The file as it is now: it may have been edited by hand since it was loaded."""
        count = len(self.notices)
        self.broken = False
        text = self._read() or ""
        if not self.broken and isinstance(values := _parse(text), str):
            self._refuse(values)
        if self.broken:
            why = self.notices.pop() if len(self.notices) > count else ""
            raise SettingsError(f"The change holds until you quit: {why}")
        return text


def _flat(keys: Any) -> Any:
    """`chat.again = "f9"` without quotes around its name is a table in TOML, and means the same."""
    if not isinstance(keys, dict):
        return keys
    flat: dict[str, Any] = {}
    for name, value in keys.items():
        inner = _flat(value) if isinstance(value, dict) else None
        more = {name: value} if inner is None else {f"{name}.{k}": v for k, v in inner.items()}
        flat.update(more)
    return flat


def _settings(values: dict[str, Any]) -> Settings:
    return Settings(**values)


def _parse(text: str) -> dict[str, Any] | str:
    """The values, or why there are none."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return f"is not valid TOML ({error})"


def first_fault(error: ValidationError, where: str) -> str:
    """The first thing that is wrong, as a sentence that begins with `where`."""
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"][:1])
    subject = f"{where} {name}" if where == "The setting" else f"{where}: {name}"
    return f"{subject} cannot be {first['input']!r}: {_lower(first['msg'])}."


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _place(path: Path, text: str, name: str) -> str:
    """The file and the line that sets `name` (or opens its table)."""
    pattern = re.compile(rf"""\s*\[?\s*["']?{re.escape(name)}["']?\s*[=.\]]""")
    for number, line in enumerate(text.splitlines(), start=1):
        if pattern.match(line):
            return f"{path}, line {number}"
    return str(path)


def _write_whole(path: Path, text: str) -> None:
    """Replace `path` in one step, so that a full disk leaves the old file. Raises OSError."""
    if not ensure(path.parent):
        raise PermissionError(13, "the folder cannot be written")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with open(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, name)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
