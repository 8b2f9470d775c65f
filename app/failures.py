"""Every failure as one sentence and a next move; the traceback is for the log."""

import traceback

from app.protocol import Error
from app.trace import TraceError
from engine.config import CheckpointError, PromptTooLongError
from finetune.runs import RunError


class AnswerFailedError(Exception):
    """The engine gave an answer up; the message is its sentence."""


_UNUSABLE = (CheckpointError, TraceError, ValueError, OSError, ImportError)

_MEMORY_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory")

_MEMORY_HINT = (
    "Close other programs that use this memory, shorten the chat, or use a smaller model."
)
_DEVICE_WORDS = ("cuda error", "cudaerror", "cublas", "device-side assert", "nvrtc", "cuda driver")
_DEVICE_HINT = (
    "Restart the engine; after a suspend or a driver update this is usual. If it happens again, "
    "see `orl-chat doctor`; the processor works too: --device cpu."
)
_INTERNAL_HINT = "Try again; if it happens again, restart the engine and look into the log."


def explain(error: BaseException, *, id: str | None = None, loading: bool = False) -> Error:
    """`error` in words. `id` is the chat request that it ends; `loading` says that a load failed.

    `detail` is the traceback, which shows no local variables.
    """
    detail = "".join(traceback.format_exception(error)).strip()
    kind = _kind(error, loading)
    counts = {}
    if isinstance(error, PromptTooLongError):
        counts = {"prompt": error.prompt_tokens, "context": error.context_length}
    return Error(kind, _message(error, kind), _HINTS.get(kind, ""), detail, id, counts)


def _kind(error: BaseException, loading: bool) -> str:
    if isinstance(error, PromptTooLongError):
        return "prompt_too_long"
    if _is_memory(error):
        return "memory"
    if _is_device(error):
        return "device"
    if loading and isinstance(error, _UNUSABLE):
        return "load"
    if isinstance(error, ValueError | TraceError | CheckpointError | RunError):
        return "bad_request"
    return "internal"


_HINTS = {
    "memory": _MEMORY_HINT,
    "device": _DEVICE_HINT,
    "internal": _INTERNAL_HINT,
}


def _is_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in _MEMORY_WORDS)


def _is_device(error: BaseException) -> bool:
    """The card or its driver failed: nothing more can be computed on it in this process."""
    text = str(error).lower()
    named = type(error).__name__ == "AcceleratorError"
    return named or (
        isinstance(error, RuntimeError) and any(words in text for words in _DEVICE_WORDS)
    )


def _message(error: BaseException, kind: str) -> str:
    if kind == "memory":
        return "Memory ran out."
    if kind == "device":
        return f"The graphics card failed ({' '.join(str(error).split())[:200]})."
    if isinstance(error, ImportError):
        name = error.name or str(error)
        return f"The Python package {name} cannot be imported; install orl-chat again."
    if isinstance(error, OSError) and error.strerror:
        # Of a copy that fails, the place that it goes to is the one to look at.
        what = error.filename2 or error.filename or "the operating system reports"
        return sentence(f"{what}: {error.strerror}")
    text = " ".join(str(error).split())
    if kind == "internal" and not isinstance(error, AnswerFailedError):
        return f"The engine failed ({type(error).__name__}{': ' + text[:200] if text else ''})."
    return sentence(text or type(error).__name__)


def sentence(text: str) -> str:
    """`text` with a capital letter and a full stop."""
    text = text.strip()
    if text[:1].isalpha() and text.split(maxsplit=1)[0].isalpha():
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."
