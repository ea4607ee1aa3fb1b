"""What a model makes of texts: templates and tokens. Usable while the weights sleep."""

from __future__ import annotations

import threading
from collections.abc import Callable

from protocol.chat import ChatPrompt, InfillPrompt, MixedPrompt, Prompt, TextPrompt
from protocol.errors import ErrorKind, WireError
from protocol.generate import Generate
from protocol.sampling import JsonSchema
from worker.constraint import ConstraintCompiler, Matcher, ReasoningGate, TokenTable
from worker.llama_vocabulary import NO_TOKEN, Vocabulary
from worker.prepared import OutputMask, PreparedPrompt
from worker.prompt.errors import PromptError
from worker.prompt.template import ChatTemplate, Rendered
from worker.schema_rules import ConstraintError


class ModelTexts:
    """A vocabulary and a template. `lock` is held while the vocabulary is used, and while it is replaced."""

    def __init__(self, vocabulary: Vocabulary, template: ChatTemplate, n_ctx: int, rerank_template: str = "") -> None:
        self.rerank_template = rerank_template
        self.vocabulary = vocabulary
        self.template = template
        self.n_ctx = n_ctx
        self.lock = threading.Lock()
        self._end_tokens: tuple[int, ...] = ()
        self._compiler: ConstraintCompiler | None = None

    def prepare(self, prompt: Prompt) -> PreparedPrompt:
        """Tokens of a prompt and how to read its answer. Raises `PromptError`."""
        if isinstance(prompt, ChatPrompt):
            return self._chat(prompt)
        if isinstance(prompt, TextPrompt):
            if prompt.media:
                raise PromptError("this model takes no images or sounds", "prompt", ErrorKind.NOT_SUPPORTED)
            tokens = self.tokenize(prompt.text, prompt.add_special, prompt.parse_special)
            return PreparedPrompt(self._not_empty(tokens), prompt.text)
        if isinstance(prompt, MixedPrompt):
            return PreparedPrompt(self._not_empty(self._mixed(prompt)))
        return PreparedPrompt(self._infill(prompt))

    def end_tokens(self) -> tuple[int, ...]:
        """Every token that ends a generation."""
        if not self._end_tokens:
            self._end_tokens = tuple(self.vocabulary.end_tokens())
        return self._end_tokens

    def mask(self, message: Generate, prompt: PreparedPrompt) -> Callable[[], OutputMask] | None:
        """What makes the masks of a constrained request, one per choice. Raises `PromptError`."""
        constraint = message.sampling.constraint
        if not isinstance(constraint, JsonSchema):
            return None
        compiler = self._constraints()
        pieces = compiler.pieces
        try:
            first = compiler.json_schema(constraint.schema_json)
        except ConstraintError as error:
            raise PromptError(str(error), "response_format") from error
        ready: list[Matcher] = [first]

        def make() -> OutputMask:
            matcher = ready.pop() if ready else compiler.json_schema(constraint.schema_json)
            if not prompt.reasoning_ends:
                return matcher
            return ReasoningGate(
                matcher, pieces, prompt.reasoning_ends, prompt.reasoning_open, prompt.reasoning_start_token
            )

        return make

    def _constraints(self) -> ConstraintCompiler:
        if self._compiler is None:
            vocabulary = self.vocabulary
            tokens = range(vocabulary.n_tokens)
            self._compiler = ConstraintCompiler(
                TokenTable(
                    pieces=[vocabulary.piece(token) for token in tokens],
                    control=[token for token in tokens if vocabulary.is_control(token)],
                    end_tokens=self.end_tokens(),
                    tokenize=lambda text: self.vocabulary.tokenize(text, False, True),
                )
            )
        return self._compiler

    def render(self, chat: ChatPrompt) -> Rendered:
        return self.template.render(chat)

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        """Raises `PromptError` for what must be longer than the context, without counting it."""
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > 64 * self.n_ctx:
            least = size // self.vocabulary.longest_piece()
            if least > self.n_ctx:
                raise context_exceeded(least, self.n_ctx)
        return self.vocabulary.tokenize(text, add_special, parse_special)

    def pair(self, query: str, document: str) -> list[int]:
        """A query and a document as a reranker reads them."""
        if self.rerank_template:
            text = self.rerank_template.replace("{query}", query).replace("{document}", document)
            return self.tokenize(text, False, True)
        vocabulary = self.vocabulary
        end = vocabulary.eos if vocabulary.eos != NO_TOKEN else vocabulary.sep
        ends = [end] if vocabulary.adds_eos else []
        tokens = [vocabulary.bos] if vocabulary.adds_bos else []
        tokens += [*self.tokenize(query, False, False), *ends]
        tokens += [vocabulary.sep] if vocabulary.adds_sep else []
        return [*tokens, *self.tokenize(document, False, False), *ends]

    def _chat(self, prompt: ChatPrompt) -> PreparedPrompt:
        rendered = self.render(prompt)
        if rendered.media:
            raise PromptError("this model takes no images or sounds", "messages", ErrorKind.NOT_SUPPORTED)
        syntax = rendered.syntax
        preserved = frozenset(
            tokens[0]
            for text in rendered.preserved_tokens
            if len(tokens := self.vocabulary.tokenize(text, False, True)) == 1
        )
        prepared = PreparedPrompt(
            tokens=self._not_empty(self.tokenize(rendered.text, True, True)),
            text=rendered.text,
            stops=rendered.stops,
            preserved=preserved,
            reasoning_open=syntax.reasoning_open,
        )
        if syntax.reasoning is not None:
            start = self.vocabulary.tokenize(syntax.reasoning.start, False, True)
            prepared.reasoning_ends = tuple(end.encode() for end in syntax.reasoning.ends)
            prepared.reasoning_start_token = start[0] if len(start) == 1 else NO_TOKEN
            prepared.reasoning_end = tuple(self.vocabulary.tokenize(syntax.reasoning.end, False, True))
        return prepared

    def _mixed(self, prompt: MixedPrompt) -> list[int]:
        tokens: list[int] = []
        for number, part in enumerate(prompt.parts):
            if isinstance(part, str):
                tokens += self.tokenize(part, number == 0, True)
            else:
                tokens += part
        for token in tokens:
            if not 0 <= token < self.vocabulary.n_tokens:
                raise PromptError(f"token {token} is not in the vocabulary of {self.vocabulary.n_tokens}", "prompt")
        return tokens

    def _infill(self, prompt: InfillPrompt) -> list[int]:
        fill = self.vocabulary.fill
        if NO_TOKEN in (fill.prefix, fill.suffix, fill.middle):
            raise PromptError("this model cannot fill in: it has no such tokens", "prompt", ErrorKind.NOT_SUPPORTED)
        tokens = [self.vocabulary.bos] if self.vocabulary.adds_bos else []
        for name, text in prompt.extra:
            if fill.separator != NO_TOKEN:
                tokens += [fill.separator, *self.tokenize(f"{name}\n", False, False)]
            tokens += self.tokenize(text, False, False)
        tokens += [fill.prefix, *self.tokenize(prompt.prefix + prompt.prompt, False, False)]
        tokens += [fill.suffix, *self.tokenize(prompt.suffix, False, False), fill.middle]
        return tokens

    def _not_empty(self, tokens: list[int]) -> list[int]:
        if tokens:
            return tokens
        if self.vocabulary.bos == NO_TOKEN:
            raise PromptError("the prompt is empty", "prompt")
        return [self.vocabulary.bos]


def context_exceeded(n_prompt: int, n_ctx: int) -> PromptError:
    """The refusal of a prompt that cannot fit, with both numbers."""
    message = f"the request exceeds the available context size: {n_prompt} tokens of prompt, {n_ctx} of context"
    error = PromptError(message, "prompt", ErrorKind.CONTEXT_EXCEEDED)
    error.error = WireError(ErrorKind.CONTEXT_EXCEEDED, message, "prompt", n_prompt, n_ctx)
    return error
