"""Text generation: the request, the batched output of a decode step, and the end of a request."""

from __future__ import annotations

from msgspec import Struct

from protocol.chat import Prompt
from protocol.errors import WireError
from protocol.sampling import SamplingParameters


class LoraScale(Struct, frozen=True, array_like=True):
    id: int
    scale: float


class ResumePoint(Struct, frozen=True, omit_defaults=True):
    """Tokens that a parked request had generated, one tuple per choice; they join the prompt as prefix.

    Their text has been sent already and is not sent again. `elapsed_ms` is decode time already spent.
    """

    generated: tuple[tuple[int, ...], ...]
    elapsed_ms: float = 0.0


class Generate(Struct, frozen=True, tag="generate", omit_defaults=True):
    """Generate `n` continuations of a prompt. Answered by `StepOutput` deltas, then `Completed`, `Failed` or `Parked`.

    `max_tokens` counts generated tokens, -1 for no limit but the context, 0 to evaluate the prompt only.
    `time_limit_ms` bounds the decode time once a line break has been generated (llama-server's `t_max_predict_ms`),
    0 for none.
    `stream` False lets the worker send the text in few large deltas.
    """

    request: int
    prompt: Prompt
    sampling: SamplingParameters = SamplingParameters()
    max_tokens: int = -1
    stop: tuple[str, ...] = ()
    n: int = 1
    stream: bool = True
    echo: bool = False
    cache_prompt: bool = True
    cache_reuse: int = 0
    slot: int = -1
    n_keep: int = 0
    n_discard: int = 0
    n_indent: int = 0
    time_limit_ms: int = 0
    return_tokens: bool = False
    return_progress: bool = False
    return_prompt: bool = False
    timings_per_token: bool = False
    adapters: tuple[LoraScale, ...] | None = None
    reasoning_control: bool = False
    resume: ResumePoint | None = None
    suffix: str = ""


class TokenLogprob(Struct, frozen=True, array_like=True):
    """`logprob` is natural log; `piece` the token's bytes. `top` holds alternatives, most likely first."""

    token: int
    logprob: float
    piece: bytes
    top: tuple[TokenLogprob, ...] = ()


class ToolCallDelta(Struct, frozen=True, array_like=True):
    """`id` and `name` come once, in the first fragment of call `index`; `arguments` is a fragment of JSON text."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class PromptProgress(Struct, frozen=True, array_like=True):
    """Tokens of the prompt in all, from the cache, and done (cached ones included); time so far in milliseconds."""

    total: int
    cache: int
    processed: int
    time_ms: float


class Timings(Struct, frozen=True, omit_defaults=True):
    """Token counts and milliseconds; `cache_n` prompt tokens came from the cache, `prompt_n` were computed."""

    cache_n: int = 0
    prompt_n: int = 0
    prompt_ms: float = 0.0
    predicted_n: int = 0
    predicted_ms: float = 0.0
    draft_n: int = 0
    draft_n_accepted: int = 0


class DeltaExtra(Struct, frozen=True, omit_defaults=True):
    """The parts of a delta that most tokens do not have."""

    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    tokens: tuple[int, ...] = ()
    progress: PromptProgress | None = None
    timings: Timings | None = None


class Delta(Struct, frozen=True, array_like=True, gc=False):
    """What one decode step added to choice `index` of a request. `n_tokens` tokens stand behind it."""

    request: int
    text: str
    n_tokens: int = 1
    index: int = 0
    extra: DeltaExtra | None = None


class StepOutput(Struct, frozen=True, tag="step_output", omit_defaults=True):
    """The deltas of every sequence of one decode step: one frame per step, not one per token."""

    step: int
    deltas: tuple[Delta, ...]


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens; `prompt_tokens` includes `cached_tokens`, `completion_tokens` includes `reasoning_tokens`."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0


class ChoiceEnd(Struct, frozen=True, omit_defaults=True):
    """How one choice ended. `stop` is `eos`, `word`, `limit` or `tool_calls`; `word` the stop string that was met."""

    index: int
    stop: str
    word: str = ""
    n_tokens: int = 0


class Completed(Struct, frozen=True, tag="completed", omit_defaults=True):
    """A generation has ended well; all of its text has been sent in deltas before."""

    request: int
    choices: tuple[ChoiceEnd, ...]
    usage: Usage
    timings: Timings = Timings()
    slot: int = -1
    truncated: bool = False
    prompt: str = ""
    seed: int = 0


class Failed(Struct, frozen=True, tag="failed", omit_defaults=True):
    """Any request has ended badly; the worker goes on."""

    request: int
    error: WireError


class Parked(Struct, frozen=True, tag="parked", omit_defaults=True):
    """A generation has stopped where it was; `resume` makes the next `Generate` go on from there."""

    request: int
    resume: ResumePoint
