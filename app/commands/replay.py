"""`orl-chat replay`: a recorded answer as it came, in the terminal, without a model."""

import sys
import time

from app.commands.ask import stats_line
from app.commands.running import CommandError, say
from app.protocol import Block, Chat, Done, EngineMessage, Error, Step
from app.text import printable
from app.trace import RecordedAnswer, play, read_recording


def replay(path: str, speed: float) -> int:
    """Play every answer of the trace at `path`, `speed` times as fast as it was; the exit code."""
    if not speed > 0:
        raise CommandError(f"The speed must be above 0, got {speed:g}.")
    recording = read_recording(path)
    for answer in recording.answers:
        if answer.request is not None:
            say(f"> {_question(answer.request)}")
        _play(answer, speed)
    return 0


def _play(answer: RecordedAnswer, speed: float) -> None:
    steps, ended = 0, False
    for message in play(answer.messages, _wait, speed):
        steps += isinstance(message, Step)
        ended = ended or isinstance(message, Done | Error)
        _show(message)
    if not ended:
        say("\n(the trace ends here)")
    say(f"{steps:,} steps recorded")


def _show(message: EngineMessage) -> None:
    if isinstance(message, Block):
        print(printable(message.text), end="", flush=True)
        if not sys.stdout.isatty():
            return
        say(
            f"  [block {message.index + 1}: {message.tokens} tok, {message.steps} steps, "
            f"{message.forwards} fwd, {message.seconds:.3f} s]"
        )
    elif isinstance(message, Done):
        print(flush=True)
        say(f"{message.reason} · {_figures(message)}")
    elif isinstance(message, Error):
        say(f"\n{message.message}")


def _figures(done: Done) -> str:
    try:
        return stats_line(done.stats)
    except (KeyError, TypeError, ValueError):
        return "no figures recorded"


def _question(request: Chat) -> str:
    return request.messages[-1].get("content", "") if request.messages else ""


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False
