"""From the tokens of one choice to the text, reasoning and tool calls that are sent."""

from __future__ import annotations

import codecs

from protocol.generate import Delta, DeltaExtra, PromptProgress, Timings, TokenLogprob, ToolCallDelta
from worker.chat.pieces import Content, Parser, Piece, Reasoning
from worker.indentation import IndentGuard
from worker.stop_strings import StopAutomaton, StopMatcher

UNSTREAMED_CHARACTERS = 4096
"""Text of a request that is not streamed is sent in deltas of about this size."""


class TextOutput:
    """Gathers what one choice says until it can be sent.

    `echo` comes first, as if it had been generated. `least_indent` ends the text at a line that is indented less.

    Bytes become text once they are whole characters, text is held while it may begin a stop string, and the parser, if
    there is one, takes apart what is left. Log-probabilities and tokens wait for the text they stand behind.
    """

    def __init__(
        self,
        request: int,
        index: int,
        stops: StopAutomaton,
        parser: Parser | None = None,
        *,
        streamed: bool = True,
        with_tokens: bool = False,
        least_indent: int = 0,
        echo: str = "",
    ) -> None:
        self._request = request
        self._index = index
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._matcher = StopMatcher(stops)
        self._indent = IndentGuard(least_indent)
        self._parser = parser
        self._streamed = streamed
        self._with_tokens = with_tokens
        self._text: list[str] = [echo] if echo else []
        self._reasoning: list[str] = []
        self._calls: list[ToolCallDelta] = []
        self._logprobs: list[TokenLogprob] = []
        self._tokens: list[int] = []
        self._n_tokens = 0
        self._size = len(echo)
        self.word = ""
        """The stop string that was met."""
        self.outdented = False
        """Whether a line has ended the text by its indentation."""
        self.called_tools = False
        self.has_line_break = False

    def feed(self, token: int, piece: bytes, logprob: TokenLogprob | None = None) -> None:
        """One more token. Once `word` is set nothing more may follow."""
        self._n_tokens += 1
        if self._with_tokens:
            self._tokens.append(token)
        if logprob is not None:
            self._logprobs.append(logprob)
        text = self._decoder.decode(piece)
        if text:
            self.has_line_break = self.has_line_break or "\n" in text
            text, self.word = self._matcher.feed(text)
            text, self.outdented = self._indent.feed(text)
            if text:
                self._take(text)

    def note_end(self, token: int, logprob: TokenLogprob | None) -> None:
        """The token that ends generation: it is listed where tokens are, and has no text."""
        if self._with_tokens:
            self._tokens.append(token)
        if logprob is not None:
            self._logprobs.append(logprob)

    def end(self) -> None:
        """The choice has ended: nothing is held back any longer."""
        if not self.word and not self.outdented:
            # Bytes of a character that was not finished are dropped: there is no text for them.
            text, self.outdented = self._indent.feed(self._matcher.finish())
            self._take(text if self.outdented else text + self._indent.finish())
        if self._parser is not None:
            self._sort(self._parser.finish())

    def forget(self) -> None:
        """Drop what is gathered: it was sent before, by the process that the request was parked in."""
        self._gather()

    def delta(
        self, flush: bool, progress: PromptProgress | None = None, timings: Timings | None = None
    ) -> Delta | None:
        """What can be sent now, or None. `flush` sends everything, however little."""
        if progress is None and not (self._n_tokens or self._size or self._tokens or self._logprobs):
            return None
        if not flush and progress is None:
            if not self._size and not self._calls:
                return None
            if not self._streamed and self._size < UNSTREAMED_CHARACTERS:
                return None
        return self._gather(progress, timings)

    def _gather(self, progress: PromptProgress | None = None, timings: Timings | None = None) -> Delta:
        text, n_tokens = "".join(self._text), self._n_tokens
        extra = None
        if self._reasoning or self._calls or self._logprobs or self._tokens or progress or timings:
            extra = DeltaExtra(
                reasoning="".join(self._reasoning),
                tool_calls=tuple(self._calls),
                logprobs=tuple(self._logprobs),
                tokens=tuple(self._tokens),
                progress=progress,
                timings=timings,
            )
            self._reasoning.clear()
            self._calls.clear()
            self._logprobs.clear()
            self._tokens.clear()
        self._text.clear()
        self._n_tokens = self._size = 0
        return Delta(self._request, text, n_tokens, self._index, extra)

    def _take(self, text: str) -> None:
        if self._parser is None:
            if text:
                self._text.append(text)
                self._size += len(text)
        else:
            self._sort(self._parser.feed(text))

    def _sort(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, Content):
                self._text.append(piece.text)
                self._size += len(piece.text)
            elif isinstance(piece, Reasoning):
                self._reasoning.append(piece.text)
                self._size += len(piece.text)
            else:
                self._calls.append(piece)
                self._size += len(piece.arguments)
                self.called_tools = True
