"""The open block as exact text: grid, running text, and tokens of every awkward kind."""

from rich.cells import cell_len

from app.tui.slots import Slot, grid, label, parse, plain, running, visible


def test_the_grid_keeps_every_word_in_its_place() -> None:
    words = ["the", "list", "is", "sorted", "first", "by", ",", "which"]
    states = "snsespuu"
    slots = [Slot(f" {word}", 0.95, state) for word, state in zip(words, states, strict=True)]
    assert plain(grid([*slots, *slots[::-1]], 96)) == [
        "the         list        is          sorted*     first       \u203aby         "
        "░░░         ░░░",
        "░░░         ░░░         \u203aby         first       sorted*     is          "
        "list        the",
    ]


def test_no_cell_is_wider_than_its_column() -> None:
    texts = [
        "<|endoftext|>",
        "internationalisation",
        "漢字漢字漢字漢字",
        "👩‍💻 emoji",
        "a" * 500,
        "\t\t",
    ]
    for state in "nse":
        (row,) = grid([Slot(text, 0.5, state) for text in texts], 96)
        assert cell_len("".join(text for text, _ in row)) == 12 * len(texts)
        assert all(cell_len(text) <= 12 for text, _ in row)
    assert label(Slot("a" * 50, 0.5, "e")).endswith("*")
    (row,) = grid([Slot("a" * 50, 0.5, "e")], 96)
    assert plain([row]) == ["aaaaaaaaa…*"]


def test_what_has_no_shape_is_made_visible() -> None:
    assert visible("\n") == "↵"
    assert visible(".\n\n") == ".↵↵"
    assert visible("  ") == "␣␣"
    assert visible("\ufffd") == "·"
    assert visible(" caf\ufffd") == " caf·"
    assert visible("") == "·"
    assert visible("\x1b[31mred\x1b[0m") == "[31mred[0m"
    assert visible("\x07\x00") == "·"
    assert visible("a\r\nb\rc") == "a↵b↵c"
    assert visible("\tx") == "⇥x"
    assert visible("\u202eabc") == "abc"
    assert visible("\u200d") == "·"
    assert visible("\u0301a") == "·\u0301a"
    assert visible("e\u0301") == "e\u0301"
    assert visible("\u200d💻") == "💻"
    assert visible("👩\u200d💻") == "👩\u200d💻"


def test_states_differ_without_colour_and_confidence_is_a_look() -> None:
    looks = [Slot("x", c, s).look for c, s in ((0.95, "n"), (0.9, "n"), (0.7, "n"), (0.69, "n"))]
    assert looks == ["new-sure", "new-sure", "new-likely", "new-unsure"]
    assert Slot("x", 0.2, "e").look == "edited-unsure"
    assert [Slot("x", 0.5, state).look for state in "usp"] == ["undecided", "set", "prompt"]


def test_malformed_slots_are_undecided() -> None:
    raw = [[1, "a", 0.5, "s"], [], [1, "a"], [1, None, 0.5, "s"], [1, "a", "b", "s"],
           [1, "a", 0.5, "x"], [1, "a", 1, "n"]]  # fmt: skip
    assert "".join(slot.state for slot in parse(raw)) == "suuuuun"


def test_running_text_wraps_and_keeps_the_end() -> None:
    slots = [Slot(" one", 1, "s"), Slot(" two", 1, "n"), Slot("", 0, "u"), Slot(" three", 1, "e"),
             Slot("\n", 1, "s"), Slot("four", 1, "s"), Slot(" five", 1, "s")]  # fmt: skip
    assert plain(running(slots, 40, 2)) == [" one two░ three*↵four five"]
    assert plain(running(slots, 10, 2)) == ["three*↵", "four five"]
    (row,) = running([Slot("  word", 1, "e")], 40, 2)
    assert row == [("  ", ""), ("word*", "edited-sure")]
    assert plain(running([Slot("x" * 100, 1, "s")], 20, 2)) == ["x" * 20]
