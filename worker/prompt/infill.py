"""Prompts for models that fill a gap: other files, the text before and behind the gap, and how much of each fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from protocol.chat import InfillPrompt
from protocol.errors import ErrorKind
from worker.llama_vocabulary import NO_TOKEN, Vocabulary
from worker.prompt.errors import PromptError

Tokenize = Callable[[str], list[int]]

PROJECT = "myproject\n"
FILE = "filename\n"
UNNAMED = "tmp"
"""What llama-server calls the project, the file with the gap, and other files without a name."""
SNIPPET = "\n\n--- snippet ---\n\n"
"""Stands between files where the model has no token for that."""


def infill_tokens(
    prompt: InfillPrompt,
    vocabulary: Vocabulary,
    tokenize: Callable[[str, bool, bool], list[int]],
    sizes: tuple[int, int],
) -> list[int]:
    """The prompt as llama-server lays it out. `sizes` are those of a batch and of the context.

    The text around the gap gets a batch, or half the context if that is less: three quarters of it before the gap and
    one behind. Other files get what is left but for a quarter as much, for the answer. The nearest text is kept.
    Raises `PromptError` for a model that cannot fill in.
    """
    fill = vocabulary.fill
    if NO_TOKEN in (fill.prefix, fill.suffix, fill.middle):
        raise PromptError("this model cannot fill in: it has no such tokens", "prompt", ErrorKind.NOT_SUPPORTED)

    def plain(text: str) -> list[int]:
        return tokenize(text, False, False)

    n_batch, n_ctx = sizes
    near = min(n_batch, n_ctx // 2)
    words = tokenize(prompt.prompt, False, True)
    before = _last(plain(prompt.prefix), 3 * (near // 4))
    behind = plain(prompt.suffix)[: max(0, near // 4 - 2 - len(words))]
    start = [vocabulary.bos] if vocabulary.adds_bos else []
    others = _last(_others(prompt, vocabulary, plain), n_ctx - near - near // 4)
    return [*others, *start, fill.prefix, *before, *words, fill.suffix, *behind, fill.middle]


def _others(prompt: InfillPrompt, vocabulary: Vocabulary, plain: Tokenize) -> list[int]:
    fill = vocabulary.fill
    tokens = [] if fill.repository == NO_TOKEN else [fill.repository, *plain(PROJECT)]
    for name, text in prompt.extra:
        if fill.separator == NO_TOKEN:
            tokens += plain(SNIPPET)
        else:
            tokens += [fill.separator, *plain(f"{name or UNNAMED}\n")]
        tokens += plain(text)
    if fill.separator != NO_TOKEN:
        tokens += [fill.separator, *plain(FILE)]
    return tokens


def _last(tokens: Sequence[int], count: int) -> list[int]:
    return list(tokens[len(tokens) - count :]) if count < len(tokens) else list(tokens)
