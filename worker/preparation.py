"""The preparation thread: renders, tokenizes, compiles constraints, and answers what needs no decoding."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import assert_never

from protocol import codec
from protocol.chat import InfillPrompt, Prompt, TextPrompt
from protocol.embed import Embed, Rerank
from protocol.errors import ErrorKind, WireError
from protocol.generate import Failed, Generate
from protocol.lanes import WorkLane
from protocol.sampling import Grammar, SamplingParameters
from protocol.slots import ListAdapters, SetAdapters, SlotAction
from protocol.text import (
    ApplyTemplate,
    CountTokens,
    Detokenize,
    Detokenized,
    TemplateApplied,
    Tokenize,
    Tokenized,
    TokensCounted,
)
from worker.model_texts import ModelTexts, context_exceeded
from worker.prepared import PreparedCount, PreparedGeneration, PreparedInputs
from worker.prompt.errors import PromptError
from worker.sampling_rules import check_sampling, token_biases
from worker.stop_strings import StopAutomaton

logger = logging.getLogger(__name__)

Ready = PreparedGeneration | PreparedInputs | PreparedCount | SlotAction | ListAdapters | SetAdapters
"""What the decode thread takes over."""


class Preparation:
    """Takes requests off the work lane, one after the other.

    `answer(message)` sends an answer and ends a request; `deliver(ready)` hands one to the decode thread. Requests wait
    in the lane until `texts` is set.
    """

    def __init__(
        self,
        lane: WorkLane[codec.Work],
        began: Callable[[int], None],
        answer: Callable[[codec.Answer], None],
        deliver: Callable[[Ready], None],
        stepped: Callable[[], None],
        new_seed: Callable[[], int],
    ) -> None:
        self._lane = lane
        self._began = began
        self._answer = answer
        self._deliver = deliver
        self._stepped = stepped
        self._new_seed = new_seed
        self._texts: ModelTexts | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="preparation", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread once it is done with what it does."""
        self._stopping = True
        with self._lane.activity:
            self._lane.activity.notify()
        self._thread.join()

    def use(self, texts: ModelTexts) -> None:
        """The texts of the model that has been loaded."""
        self._texts = texts
        with self._lane.activity:
            self._lane.activity.notify()

    def _run(self) -> None:
        while not self._stopping:
            work = self._lane.pop() if self._texts is not None else None
            if work is None:
                with self._lane.activity:
                    self._lane.activity.wait_for(self._is_wanted)
                continue
            self._began(work.request)
            self._handle(work)
            self._stepped()

    def _is_wanted(self) -> bool:
        return self._stopping or (self._texts is not None and bool(self._lane))

    def _handle(self, work: codec.Work) -> None:
        assert self._texts is not None
        try:
            result = self._prepare(work, self._texts)
        except PromptError as error:
            self._answer(Failed(work.request, error.error))
            return
        except ValueError as error:
            self._answer(Failed(work.request, WireError(ErrorKind.INVALID_REQUEST, str(error))))
            return
        except Exception as error:
            # A fault of ours must cost this request alone: without this thread the worker would serve nobody.
            logger.exception("preparation of request %d failed", work.request)
            self._answer(Failed(work.request, WireError(ErrorKind.INTERNAL, f"preparation failed: {error}")))
            return
        if isinstance(result, Ready):
            self._deliver(result)
        else:
            self._answer(result)

    def _prepare(self, work: codec.Work, texts: ModelTexts) -> codec.Answer | Ready:
        match work:
            case Generate():
                return self._generation(work, texts)
            case Tokenize():
                tokens = texts.tokenize(work.text, work.add_special, work.parse_special)
                pieces = tuple(texts.vocabulary.piece(token) for token in tokens) if work.with_pieces else ()
                return Tokenized(work.request, tuple(tokens), pieces)
            case Detokenize():
                text = texts.vocabulary.detokenize(work.tokens).decode("utf-8", "replace")
                return Detokenized(work.request, text)
            case ApplyTemplate():
                return TemplateApplied(work.request, texts.render(work.chat).text)
            case CountTokens():
                prompt = texts.prepare(work.prompt)
                if prompt.waits_for_media:
                    return PreparedCount(work, prompt)
                return TokensCounted(work.request, len(prompt.tokens))
            case Embed():
                return PreparedInputs(work, [_whole(_text_tokens(p, texts), texts) for p in work.inputs])
            case Rerank():
                pairs = [texts.pair(work.query, document) for document in work.documents]
                return PreparedInputs(work, [_whole(tokens, texts) for tokens in pairs])
            case SlotAction() | ListAdapters() | SetAdapters():
                return work
            case _:
                assert_never(work)

    def _generation(self, message: Generate, texts: ModelTexts) -> PreparedGeneration:
        if message.n < 1:
            raise PromptError("n must be at least 1", "n")
        prompt = texts.prepare(_with_suffix(message))
        n_tokens = len(prompt.tokens)
        if n_tokens >= texts.n_ctx:
            raise context_exceeded(n_tokens, texts.n_ctx)
        sampling = message.sampling
        check_sampling(sampling)
        grammar = sampling.constraint.gbnf if isinstance(sampling.constraint, Grammar) else ""
        return PreparedGeneration(
            message=message,
            prompt=prompt,
            seed=self._new_seed() if sampling.seed is None else sampling.seed & 0xFFFFFFFF,
            stops=StopAutomaton((*message.stop, *prompt.stops)),
            biases=_biases(sampling, texts),
            grammar=grammar,
            mask=texts.mask(message, prompt),
            resumed=message.resume.generated if message.resume else (),
        )


def _with_suffix(message: Generate) -> Prompt:
    """The prompt, as one to fill in where the text behind the gap is known."""
    if not message.suffix:
        return message.prompt
    if not isinstance(message.prompt, TextPrompt):
        raise PromptError("a suffix needs a prompt that is text", "suffix")
    return InfillPrompt(prefix=message.prompt.text, suffix=message.suffix)


def _text_tokens(prompt: Prompt, texts: ModelTexts) -> list[int]:
    """The tokens of an input that is text. Raises `PromptError` for one with images or sounds."""
    prepared = texts.prepare(prompt)
    if prepared.media is not None:
        raise PromptError("images and sounds have no embeddings of their own here", "input")
    return prepared.tokens


def _whole(tokens: list[int], texts: ModelTexts) -> list[int]:
    """Tokens that must be computed at once. Raises `PromptError` if they are too many."""
    if len(tokens) > texts.n_ctx:
        raise context_exceeded(len(tokens), texts.n_ctx)
    return tokens


def _biases(sampling: SamplingParameters, texts: ModelTexts) -> list[tuple[int, float]]:
    vocabulary = texts.vocabulary
    biases = token_biases(
        sampling.logit_bias, vocabulary.n_tokens, lambda text: vocabulary.tokenize(text, False, False)
    )
    if sampling.ignore_eos:
        biases |= dict.fromkeys(vocabulary.end_tokens, -math.inf)
    return list(biases.items())
