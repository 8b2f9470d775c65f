"""What the documentation ships that nobody reads as text: the recording of a terminal."""

import json
import re
from pathlib import Path

import pytest

CAST = Path(__file__).parents[1] / "docs" / "orl-chat.cast"
OPENS, CLOSES = "\x1b[?1049h", "\x1b[?1049l"

pytestmark = pytest.mark.skipif(
    not CAST.parent.is_dir(), reason="the documentation is no part of a source distribution"
)


def test_the_cast_is_a_whole_recording_of_nobodys_machine() -> None:
    header, *events = (json.loads(line) for line in CAST.read_text("utf-8").splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, 100, 30)
    times = [seconds for seconds, kind, text in events if kind == "o" and isinstance(text, str)]
    assert len(times) == len(events)
    assert times == sorted(times)
    assert 20 < times[-1] < 90
    written = "".join(text for _, _, text in events)
    assert written.startswith(OPENS)
    assert written.count(OPENS) == written.count(CLOSES) == 1
    assert written.rindex(CLOSES) > len(written) - 200
    plain = re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]", "", written)
    places = re.findall(r"(?<![\w.])/\w+/[\w./-]*", plain)
    assert places
    assert [place for place in places if not place.startswith("/tmp/home-")] == []
    for words in ("Use the demo", "tok/s", "playing", "benchmark", "with pass", "Settings"):
        assert words in plain
