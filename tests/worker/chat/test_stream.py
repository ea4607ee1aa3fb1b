"""The primitives that parsers are written with."""

from __future__ import annotations

from collections.abc import Callable

from worker.chat.pieces import Content, Piece, Reasoning
from worker.chat.stream import Markers, Steps, Stream, StreamParser


def _run(program: Callable[[Stream], Steps[None]], *fragments: str) -> list[list[Piece]]:
    parser = StreamParser(program)
    return [*(parser.feed(fragment) for fragment in fragments), parser.finish()]


def test_only_what_may_become_a_marker_is_held_back() -> None:
    assert Markers(("<tool_call>",)).held_back("a <tool") == 5
    assert Markers(("<tool_call>",)).held_back("a <b") == 0
    assert Markers(("<<",)).held_back("<<<") == 1
    assert Markers(()).held_back("text") == 0


def test_the_earliest_marker_is_found_and_the_longest_of_a_place() -> None:
    markers = Markers(("</a>", "</a>!", "."))
    assert markers.find("x</a>!.") == (1, "</a>!")
    assert markers.find("x. </a>") == (1, ".")
    assert markers.find("x") is None
    assert Markers(()).find("x") is None


def test_text_streams_at_once_up_to_a_possible_marker() -> None:
    def program(stream: Stream) -> Steps[None]:
        marker = yield from stream.until(("<end>",), stream.content)
        stream.reasoning(marker)

    assert _run(program, "Hello <e", "ra> and ", "<end>x") == [
        [Content("Hello ")],
        [Content("<era> and ")],
        [Reasoning("<end>"), Content("x")],
        [],
    ]


def test_of_two_markers_at_one_place_the_longer_wins() -> None:
    def program(stream: Stream) -> Steps[None]:
        stream.reasoning((yield from stream.until(("</a>", "</a>!"), stream.content)))

    assert _run(program, "x</a>", "!")[1] == [Reasoning("</a>!")]
    assert _run(program, "x</a>", "?")[1] == [Reasoning("</a>"), Content("?")]
    assert _run(program, "x</a>")[1] == [Reasoning("</a>")]


def test_a_marker_inside_of_what_may_become_another_waits() -> None:
    def program(stream: Stream) -> Steps[None]:
        stream.reasoning((yield from stream.until(("<ab>", "b"), stream.content)))

    assert _run(program, "x<ab", ">")[1] == [Reasoning("<ab>")]
    assert _run(program, "x<ab", "c")[1] == [Content("<a"), Reasoning("b"), Content("c")]


def test_an_attempt_puts_back_what_it_took() -> None:
    def program(stream: Stream) -> Steps[None]:
        stream.attempt()
        yield from stream.accept("a")
        yield from stream.spaces()
        assert not (yield from stream.accept("b"))
        stream.give_up()

    assert _run(program, "a", " ", " c")[2] == [Content("a  c")]


def test_a_head_is_bounded() -> None:
    seen: list[tuple[str, str]] = []

    def program(stream: Stream) -> Steps[None]:
        seen.append((yield from stream.head((">",), 4)))

    _run(program, "ab", ">c")
    _run(program, "abcdefgh")
    _run(program, "ab")
    assert seen == [("ab", ">"), ("abcd", ""), ("ab", "")]


def test_what_a_parser_leaves_is_content() -> None:
    def program(stream: Stream) -> Steps[None]:
        yield from stream.accept("x")

    assert _run(program, "xyz", "more") == [[Content("yz")], [Content("more")], []]
