"""Stop strings across any cut of a text."""

from __future__ import annotations

import random

import pytest

from worker.stop_strings import MAX_CHARACTERS, StopAutomaton, StopMatcher


def feed(strings: list[str], pieces: list[str]) -> tuple[str, str]:
    matcher = StopMatcher(StopAutomaton(strings))
    out = ""
    for piece in pieces:
        text, word = matcher.feed(piece)
        out += text
        if word:
            return out, word
    return out + matcher.finish(), ""


def naive(strings: list[str], text: str) -> tuple[str, str]:
    """The match that ends first; of several that end there, the longest."""
    for end in range(1, len(text) + 1):
        matching = [string for string in strings if string and text[:end].endswith(string)]
        if matching:
            word = max(matching, key=len)
            return text[: end - len(word)], word
    return text, ""


@pytest.mark.parametrize(
    ("strings", "pieces", "expected"),
    [
        ([], ["ab", "c"], ("abc", "")),
        (["bc"], ["ab", "cd"], ("a", "bc")),
        (["abcd"], ["ab", "c"], ("abc", "")),
        (["aab"], ["aa", "aab"], ("aa", "aab")),
        (["x", "yx"], ["..y", "x.."], ("..", "yx")),
        (["", "a"], ["ba"], ("b", "a")),
    ],
)
def test_matching(strings: list[str], pieces: list[str], expected: tuple[str, str]) -> None:
    assert feed(strings, pieces) == expected


def test_what_may_be_a_beginning_is_held_back_and_nothing_else() -> None:
    matcher = StopMatcher(StopAutomaton(["STOP"]))
    assert matcher.feed("so ST") == ("so ", "")
    assert matcher.feed("A") == ("STA", "")
    assert matcher.feed("STO") == ("", "")
    assert matcher.finish() == "STO"


def test_any_cut_gives_what_the_whole_text_gives() -> None:
    rng = random.Random(1)
    for _ in range(500):
        strings = ["".join(rng.choices("ab", k=rng.randint(1, 4))) for _ in range(rng.randint(0, 4))]
        text = "".join(rng.choices("abc", k=rng.randint(0, 20)))
        pieces, rest = [], text
        while rest:
            size = rng.randint(1, 4)
            pieces.append(rest[:size])
            rest = rest[size:]
        assert feed(strings, pieces) == naive(strings, text)


def test_ten_thousand_strings_are_no_burden() -> None:
    strings = [f"stop number {number}!" for number in range(10_000)]
    assert feed(strings, ["we stop number 77", "77! here"]) == ("we ", "stop number 7777!")


def test_there_is_a_limit() -> None:
    with pytest.raises(ValueError, match="characters"):
        StopAutomaton(["x" * (MAX_CHARACTERS + 1)])
