"""What a model makes of texts: templates and tokens. Usable while the weights sleep."""

from __future__ import annotations

from collections.abc import Callable

from protocol.chat import MEDIA_MARKER, ChatPrompt, MixedPrompt, Prompt, TextPrompt, files_of
from protocol.errors import ErrorKind, WireError
from protocol.generate import Generate
from worker.chat.syntax import OutputSyntax
from worker.constraint import ConstraintCompiler, TokenTable
from worker.llama_vocabulary import NO_TOKEN, Vocabulary
from worker.media_prompt import MediaPrompt
from worker.media_rules import MediaRules, media_inputs
from worker.output_constraint import output_constraint
from worker.prepared import OutputMask, PreparedPrompt
from worker.prompt.errors import PromptError
from worker.prompt.infill import infill_tokens
from worker.prompt.template import ChatTemplate, Rendered
from worker.reasoning_budget import ReasoningBudget

MAX_COMPILERS = 4
"""Plain texts and the model's own template need two; requests may bring templates of other formats."""


class ModelTexts:
    """A vocabulary and a template; `media_rules` say which files requests may bring."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        template: ChatTemplate,
        n_ctx: int,
        rerank_template: str,
        n_batch: int,
        media_rules: MediaRules,
    ) -> None:
        self.media_rules = media_rules
        self.rerank_template = rerank_template
        self.vocabulary = vocabulary
        self.template = template
        self.n_ctx = n_ctx
        self._n_batch = n_batch
        self._compilers: dict[frozenset[int], ConstraintCompiler] = {}

    def prepare(self, prompt: Prompt) -> PreparedPrompt:
        """Tokens of a prompt and how to read its answer. Raises `PromptError`."""
        if isinstance(prompt, ChatPrompt):
            return self._chat(prompt)
        if isinstance(prompt, TextPrompt):
            if prompt.media:
                return self._with_media(prompt)
            tokens = self.tokenize(prompt.text, prompt.add_special, prompt.parse_special)
            return PreparedPrompt(self._not_empty(tokens), prompt.text)
        if isinstance(prompt, MixedPrompt):
            tokens = self._not_empty(self._mixed(prompt))
            return PreparedPrompt(tokens, self.vocabulary.detokenize(tokens).decode("utf-8", "replace"))
        return PreparedPrompt(infill_tokens(prompt, self.vocabulary, self.tokenize, (self._n_batch, self.n_ctx)))

    def mask(self, message: Generate, prompt: PreparedPrompt) -> Callable[[], OutputMask] | None:
        """What makes the masks of a constrained request, one per choice. Raises `PromptError`."""
        tool_choice = message.prompt.tool_choice if isinstance(message.prompt, ChatPrompt) else "auto"
        constraint = message.sampling.constraint
        has_tools = prompt.syntax is not None and bool(prompt.syntax.tools)
        if constraint is None and (tool_choice == "none" or (tool_choice == "auto" and not has_tools)):
            return None
        return output_constraint(self._compiler(prompt.preserved), constraint, prompt.syntax, tool_choice)

    def _compiler(self, preserved: frozenset[int]) -> ConstraintCompiler:
        """What makes masks in which these control tokens are text; few sets of them are ever in use."""
        compiler = self._compilers.pop(preserved, None) or ConstraintCompiler(self.token_table(preserved))
        self._compilers[preserved] = compiler
        if len(self._compilers) > MAX_COMPILERS:
            del self._compilers[next(iter(self._compilers))]
        return compiler

    def token_table(self, preserved: frozenset[int]) -> TokenTable:
        vocabulary = self.vocabulary
        tokens = range(vocabulary.n_tokens)
        return TokenTable(
            pieces=[vocabulary.piece(token) for token in tokens],
            control=[token for token in tokens if vocabulary.is_control(token)],
            end_tokens=sorted(self.vocabulary.end_tokens),
            tokenize=lambda text: self.vocabulary.tokenize(text, False, True),
            markers=frozenset(vocabulary.piece(token) for token in preserved),
        )

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
        media = None
        if rendered.media:
            given = media_inputs(rendered.media, self.media_rules)
            media = MediaPrompt(self._pieces(rendered.text, len(given), True, True), given)
        syntax = rendered.syntax
        preserved = frozenset(
            tokens[0]
            for text in rendered.preserved_tokens
            if len(tokens := self.vocabulary.tokenize(text, False, True)) == 1
        )
        return PreparedPrompt(
            tokens=media.text_tokens if media else self._not_empty(self.tokenize(rendered.text, True, True)),
            text=rendered.text,
            syntax=syntax,
            stops=rendered.stops,
            preserved=preserved,
            budget=self._budget(syntax, prompt.reasoning_budget),
            media=media,
        )

    def _with_media(self, prompt: TextPrompt) -> PreparedPrompt:
        given = media_inputs(files_of(prompt), self.media_rules)
        media = MediaPrompt(self._pieces(prompt.text, len(given), prompt.add_special, prompt.parse_special), given)
        return PreparedPrompt(media.text_tokens, prompt.text, media=media)

    def _pieces(self, text: str, n_files: int, add_special: bool, parse_special: bool) -> list[list[int]]:
        """Tokens of the texts before, between and behind the files."""
        parts = text.split(MEDIA_MARKER)
        if len(parts) != n_files + 1:
            raise PromptError(f"the prompt has {len(parts) - 1} places ({MEDIA_MARKER}) for {n_files} files", "prompt")
        pieces = [self.tokenize(part, False, parse_special) for part in parts]
        if add_special and self.vocabulary.adds_bos:
            pieces[0].insert(0, self.vocabulary.bos)
        if add_special and self.vocabulary.adds_eos:
            pieces[-1].append(self.vocabulary.eos)
        return pieces

    def _budget(self, syntax: OutputSyntax, limit: int) -> Callable[[], ReasoningBudget] | None:
        """What makes the counters of a reasoning model's tokens, one per choice."""
        tags = syntax.reasoning
        if tags is None:
            return None
        forced = tuple(self.vocabulary.tokenize(tags.end, False, True))
        ends = [end.encode() for end in tags.ends]
        return lambda: ReasoningBudget([tags.start.encode()], ends, forced, limit, syntax.reasoning_open)

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
