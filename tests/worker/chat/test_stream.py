"""The primitives that parsers are written with."""

from __future__ import annotations

from collections.abc import Callable

from worker.chat.pieces import Content, Piece, Reasoning
from worker.chat.stream import Steps, Stream, StreamParser, held_back


def _run(program: Callable[[Stream], Steps[None]], *fragments: str) -> list[list[Piece]]:
    parser = StreamParser(program)
    return [*(parser.feed(fragment) for fragment in fragments), parser.finish()]


def test_only_what_may_become_a_marker_is_held_back() -> None:
    assert held_back("a <tool", ("<tool_call>",)) == 5
    assert held_back("a <b", ("<tool_call>",)) == 0
    assert held_back("<<<", ("<<",)) == 1
    assert held_back("text", ()) == 0


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
