"""From tokens to deltas: characters, stop strings, what is held and what is sent."""

from __future__ import annotations

from protocol.generate import PromptProgress, TokenLogprob, ToolCallDelta
from worker.chat.pieces import Content, Piece, Reasoning
from worker.indentation import IndentGuard
from worker.stop_strings import StopAutomaton
from worker.text_output import UNSTREAMED_CHARACTERS, TextOutput


def output(*stops: str, **options: object) -> TextOutput:
    return TextOutput(7, 1, StopAutomaton(stops), **options)  # type: ignore[arg-type]


def test_a_character_is_sent_when_its_bytes_are_complete() -> None:
    out = output()
    emoji = "😀".encode()
    for token, byte in enumerate(emoji[:3]):
        out.feed(token, bytes([byte]))
        assert out.delta(flush=False) is None
    out.feed(3, emoji[3:] + b"!")
    delta = out.delta(flush=False)
    assert delta is not None
    assert (delta.request, delta.index, delta.text, delta.n_tokens, delta.extra) == (7, 1, "😀!", 4, None)
    assert out.delta(flush=True) is None


def test_a_character_that_is_never_finished_is_dropped() -> None:
    out = output()
    out.feed(1, b"ok" + "é".encode()[:1])
    out.end()
    delta = out.delta(flush=True)
    assert delta is not None
    assert delta.text == "ok"


def test_held_text_comes_with_its_tokens_and_probabilities() -> None:
    out = output("END", with_tokens=True)
    out.feed(1, b"E", TokenLogprob(1, -0.1, b"E"))
    assert out.delta(flush=False) is None
    out.feed(2, b"x", TokenLogprob(2, -0.2, b"x"))
    delta = out.delta(flush=False)
    assert delta is not None
    assert delta.text == "Ex"
    assert delta.extra is not None
    assert delta.extra.tokens == (1, 2)
    assert [logprob.token for logprob in delta.extra.logprobs] == [1, 2]


def test_a_stop_string_ends_the_text() -> None:
    out = output("END")
    out.feed(1, b"so E")
    out.feed(2, b"ND more")
    out.end()
    assert out.word == "END"
    delta = out.delta(flush=True)
    assert delta is not None
    assert (delta.text, delta.n_tokens) == ("so ", 2)


def test_an_answer_that_is_not_streamed_comes_in_few_pieces() -> None:
    out = output(streamed=False)
    out.feed(1, b"a" * 10)
    assert out.delta(flush=False) is None
    out.feed(2, b"b" * UNSTREAMED_CHARACTERS)
    delta = out.delta(flush=False)
    assert delta is not None
    assert delta.n_tokens == 2


class Shouting:
    """A parser for upper case: reasoning; for digits: a call."""

    def feed(self, text: str) -> list[Piece]:
        if text.isdigit():
            return [ToolCallDelta(0, "id", "count", text)]
        return [Reasoning(text) if text.isupper() else Content(text)]

    def finish(self) -> list[Piece]:
        return [Content(".")]


def test_a_parser_sorts_the_text() -> None:
    out = output(parser=Shouting())
    out.feed(1, b"HM")
    out.feed(2, b"yes")
    out.feed(3, b"12")
    out.end()
    delta = out.delta(flush=True)
    assert delta is not None
    assert delta.text == "yes."
    assert delta.extra is not None
    assert delta.extra.reasoning == "HM"
    assert [call.arguments for call in delta.extra.tool_calls] == ["12"]
    assert out.called_tools


def test_what_was_sent_before_is_forgotten_but_what_was_held_is_not() -> None:
    out = output("END")
    out.feed(1, b"sent E")
    out.forget()
    assert out.delta(flush=True) is None
    out.feed(2, b"!")
    delta = out.delta(flush=True)
    assert delta is not None
    assert delta.text == "E!"


def test_the_prompt_is_echoed_first() -> None:
    out = output(echo="The prompt: ")
    out.feed(1, b"answer")
    delta = out.delta(flush=False)
    assert delta is not None
    assert (delta.text, delta.n_tokens) == ("The prompt: answer", 1)


def test_progress_is_a_delta_of_its_own() -> None:
    delta = output().delta(flush=False, progress=PromptProgress(10, 0, 5, 1.0))
    assert delta is not None
    assert delta.n_tokens == 0
    assert delta.extra is not None
    assert delta.extra.progress is not None


def test_a_line_that_is_indented_less_ends_the_text() -> None:
    out = output(least_indent=4)
    for token, piece in enumerate((b"first\n", b"    two\n\n", b"      three\n", b"  four")):
        out.feed(token, piece)
    out.end()
    assert out.outdented
    delta = out.delta(flush=True)
    assert delta is not None
    assert delta.text == "first\n    two\n\n      three"


def test_indentation_is_judged_across_pieces() -> None:
    guard = IndentGuard(2)
    assert guard.feed("a\n ") == ("a", False)
    assert guard.feed(" b") == ("\n  b", False)
    assert guard.feed("\n") == ("", False)
    assert guard.finish() == "\n"
    assert IndentGuard(0).feed("a\nb") == ("a\nb", False)


def test_the_token_that_ends_generation_is_listed_without_text() -> None:
    out = output(with_tokens=True)
    out.feed(1, b"so")
    assert out.delta(flush=False) is not None
    out.note_end(2, TokenLogprob(2, -0.3, b""))
    out.end()
    delta = out.delta(flush=True)
    assert delta is not None
    assert delta.extra is not None
    assert (delta.text, delta.n_tokens, delta.extra.tokens) == ("", 0, (2,))
    assert [logprob.token for logprob in delta.extra.logprobs] == [2]
