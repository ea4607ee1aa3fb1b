"""What both servers are asked: tiny models, command lines, and requests by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gguf import PoolingType

from tests import factory
from tests.factory.vocabulary import CONTROL_TOKENS, sentence_piece_vocabulary
from tests.peer import media
from tests.peer.servers import Server

Body = dict[str, Any]
Options = dict[str, str]
Made = tuple[Path, Options]
Ask = Callable[[Server], Any]


@dataclass(frozen=True)
class Suite:
    """Requests to one model. `make` writes its file (and what it needs) into a folder, and gives the file and the
    options to load it with; `asks` give what is compared."""

    make: Callable[[Path], Made]
    asks: Mapping[str, Ask] = field(default_factory=dict)


def vector(value: Any) -> Any:
    return {"vector": value}


def scores(answer: Any) -> Any:
    """Relevance by document, in the order of the answer."""
    return {"scores": [[entry["index"], entry["relevance_score"]] for entry in answer["results"]]}


def tokens(answer: Any) -> Any:
    """What was generated, and how it ended."""
    return {"tokens": answer["tokens"], "content": answer["content"], "stop_type": answer["stop_type"]}


def logprobs(answer: Any) -> Any:
    """The chosen tokens with the log-probabilities of the most likely ones."""
    steps = answer["completion_probabilities"]
    return {
        "tokens": [step["id"] for step in steps],
        "logprobs": [{str(top["id"]): top["logprob"] for top in step["top_logprobs"]} for step in steps],
    }


def probabilities(answer: Any) -> Any:
    """As `logprobs`, for probabilities after sampling."""
    steps = answer["completion_probabilities"]
    return {
        "tokens": [step["id"] for step in steps],
        "probs": [{str(top["id"]): top["prob"] for top in step["top_probs"]} for step in steps],
    }


PROMPTS = (
    "The capital of France is",
    "It was a long day and the people of the town",
    "Hello world",
    "what is the answer to the question",
    "one two three",
)
TEXTS = ("hello world", "the capital of france is paris", "it was a long day", "water")

LOADED: Options = {"ctx-size": "1024", "parallel": "2", "threads": "1", "flash-attn": "off"}
"""Flash attention rounds differently; llama-server decides by itself otherwise than llamaherd whether to use it."""
GREEDY: Body = {"temperature": 0.0, "cache_prompt": False, "return_tokens": True}


def _completion(prompt: str, shape: Callable[[Any], Any] = tokens, **fields: Any) -> Ask:
    body = {"prompt": prompt, "n_predict": 16, "cache_prompt": False, "return_tokens": True, **fields}
    return lambda server: shape(server.post("/completion", body))


def _language(folder: Path) -> Made:
    return factory.language_model(folder / "tiny.gguf", sharpness=1.0), LOADED


def _batched(folder: Path) -> Made:
    """Prompts are computed in small pieces, and several at once."""
    small = {"ctx-size": "4096", "parallel": "4", "batch-size": "16", "ubatch-size": "16"}
    return factory.language_model(folder / "batched.gguf", sharpness=1.0), {**LOADED, **small}


def _kind(make: Callable[..., Path]) -> Callable[[Path], Made]:
    return lambda folder: (make(folder / "kind.gguf", sharpness=1.0), {**LOADED, "ctx-size": "4096", "parallel": "4"})


def _ending(folder: Path) -> Made:
    return factory.language_model(folder / "ending.gguf", sharpness=1.0, end_bias=3.0), LOADED


def _adapted(folder: Path) -> Made:
    adapter = factory.lora_adapter(folder / "adapter.gguf")
    return factory.language_model(folder / "tiny.gguf", sharpness=1.0), {**LOADED, "lora": str(adapter)}


def _steered(more: Options, scale: str = "") -> Callable[[Path], Made]:
    option = "control-vector-scaled" if scale else "control-vector"

    def make(folder: Path) -> Made:
        vector = factory.control_vector(folder / "vector.gguf", n_layer=4)
        model = factory.language_model(folder / "tiny.gguf", sharpness=1.0, n_layer=4)
        return model, {**LOADED, option: f"{vector}{scale}", **more}

    return make


def _infilling(*more: str) -> Callable[[Path], Made]:
    """Beside chat's control tokens those that stand around a gap, and perhaps those between files."""
    control = (*CONTROL_TOKENS, "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", *more)

    def make(folder: Path) -> Made:
        vocabulary = sentence_piece_vocabulary(control_tokens=control)
        file = factory.language_model(folder / "infill.gguf", sharpness=1.0, vocabulary=vocabulary)
        return file, {**LOADED, "ctx-size": "4096", "parallel": "1", "batch-size": "64"}

    return make


def _embedder(pooling: PoolingType) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        return factory.embedding_model(folder / "embedder.gguf", pooling=pooling), {**LOADED, "embeddings": "true"}

    return make


def _reranker(folder: Path) -> Made:
    return factory.reranking_model(folder / "reranker.gguf"), {**LOADED, "reranking": "true"}


def _v1_embedding(text: str) -> Ask:
    return lambda server: vector(server.post("/v1/embeddings", {"input": text})["data"][0]["embedding"])


def _native_embedding(text: str, normalize: int) -> Ask:
    body = {"content": text, "embd_normalize": normalize}
    return lambda server: vector(server.post("/embedding", body)[0]["embedding"])


def _rerank(path: str, query: str) -> Ask:
    return lambda server: scores(server.post(path, {"query": query, "documents": list(TEXTS)}))


def _tei(query: str) -> Ask:
    def ask(server: Server) -> Any:
        answer = server.post("/rerank", {"query": query, "texts": list(TEXTS)})
        return {"scores": [[entry["index"], entry["score"]] for entry in answer]}

    return ask


def _infill(**fields: Any) -> Ask:
    return lambda server: tokens(server.post("/infill", {**GREEDY, "n_predict": 12, **fields}))


def _scaled(scale: float, prompt: str) -> Ask:
    return _completion(prompt, logprobs, temperature=0.0, n_probs=8, lora=[{"id": 0, "scale": scale}])


HOT: Body = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 7}
"""Nothing but the draw itself: each sampler's case adds what it is about."""

SAMPLING: dict[str, Body] = {
    "plain": HOT,
    "defaults": {"seed": 3},
    "temperature": {**HOT, "temperature": 0.3},
    "greedy": {"temperature": 0.0},
    "dynatemp": {**HOT, "dynatemp_range": 0.8, "dynatemp_exponent": 1.5},
    "top_k": {**HOT, "top_k": 3},
    "top_k_one": {**HOT, "top_k": 1},
    "top_p": {**HOT, "top_p": 0.3},
    "min_p": {**HOT, "min_p": 0.3},
    "min_keep": {**HOT, "top_p": 0.01, "min_keep": 5},
    "typical": {**HOT, "typical_p": 0.4},
    "top_n_sigma": {**HOT, "top_n_sigma": 0.2},
    "xtc": {**HOT, "xtc_probability": 0.9, "xtc_threshold": 0.02},
    "dry": {**HOT, "temperature": 0.2, "dry_multiplier": 2.0, "dry_base": 1.5, "dry_allowed_length": 1},
    "dry_breakers": {
        **HOT,
        "temperature": 0.2,
        "dry_multiplier": 2.0,
        "dry_allowed_length": 1,
        "dry_sequence_breakers": [" the"],
        "dry_penalty_last_n": 32,
    },
    "mirostat_1": {**HOT, "mirostat": 1, "mirostat_tau": 2.0, "mirostat_eta": 0.2},
    "mirostat_2": {**HOT, "mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.2},
    "adaptive_p": {
        **HOT,
        "samplers": ["top_k", "adaptive_p"],
        "top_k": 100,
        "adaptive_target": 0.2,
        "adaptive_decay": 0.8,
    },
    "repeat_penalty": {**HOT, "temperature": 0.2, "repeat_penalty": 1.8},
    "repeat_last_n": {**HOT, "temperature": 0.2, "repeat_penalty": 1.8, "repeat_last_n": 4},
    "presence_penalty": {**HOT, "temperature": 0.2, "presence_penalty": 1.5},
    "frequency_penalty": {**HOT, "temperature": 0.2, "frequency_penalty": 1.5},
    "greedy_penalty": {"temperature": 0.0, "repeat_penalty": 1.5},
    "bias_token": {**HOT, "logit_bias": [[300, 9.0]]},
    "bias_text": {**HOT, "logit_bias": [[" water", 9.0]]},
    "bias_false": {"temperature": 0.0, "logit_bias": [[13, False], [300, False], [400, False]]},
    "bias_object": {**HOT, "logit_bias": {"300": 9.0, "310": 8.0}},
    "samplers_order": {**HOT, "samplers": ["temperature", "top_p"], "temperature": 3.0, "top_p": 0.5},
    "samplers_order_2": {**HOT, "samplers": ["top_p", "temperature"], "temperature": 3.0, "top_p": 0.5},
    "samplers_letters": {**HOT, "samplers": "kt", "top_k": 4, "temperature": 2.0, "top_p": 0.1},
    "samplers_none": {**HOT, "temperature": 0.1, "samplers": [], "top_k": 1},
    "seed": {**HOT, "seed": 8},
    "everything": {
        "seed": 5,
        "temperature": 1.2,
        "dynatemp_range": 0.3,
        "top_k": 60,
        "top_p": 0.9,
        "min_p": 0.01,
        "typical_p": 0.95,
        "xtc_probability": 0.3,
        "xtc_threshold": 0.05,
        "repeat_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.1,
        "dry_multiplier": 0.8,
    },
}

PROBABILITIES: dict[str, Body] = {
    "defaults": {"seed": 3},
    "top_k": {**HOT, "top_k": 5},
    "min_p": {**HOT, "min_p": 0.2},
    "temperature": {**HOT, "temperature": 0.5, "top_k": 8},
    "greedy": {"temperature": 0.0},
    "mirostat_2": {**HOT, "mirostat": 2, "mirostat_tau": 2.0},
}


def _sampling() -> dict[str, Ask]:
    asks = {
        f"{name} {number}": _completion(prompt, **fields)
        for name, fields in SAMPLING.items()
        for number, prompt in enumerate(PROMPTS[:2])
    }
    for name, fields in PROBABILITIES.items():
        after = {**fields, "n_probs": 6, "post_sampling_probs": True}
        asks[f"probabilities after {name}"] = _completion(PROMPTS[0], probabilities, **after)
        asks[f"log-probabilities before {name}"] = _completion(PROMPTS[0], logprobs, **{**fields, "n_probs": 6})
    return asks


SYSTEM = "It was a long day and the people of the house were always looking for water. " * 6
LAST_WORDS = "the of and to in is that it was for on are as with his they at be this from".split()


def greedy(prompt: str, *, cache: bool) -> Ask:
    """The likeliest continuation with its log-probabilities."""
    return _completion(prompt, logprobs, temperature=0.0, n_probs=10, cache_prompt=cache)


KINDS: dict[str, Callable[..., Path]] = {
    "sliding window": factory.sliding_window_model,
    "recurrent": factory.recurrent_model,
    "hybrid": factory.hybrid_model,
}
"""Models whose cache is no plain one."""


def _reused(first: str, second: str, least: int) -> Ask:
    """The second of two prompts, with how many of its tokens were taken from the first."""

    def ask(server: Server) -> Any:
        common = {"temperature": 0.0, "n_predict": 8, "n_probs": 8, "cache_prompt": True, "id_slot": 0}
        server.post("/completion", {**common, "prompt": f"{len(first)} {first}", "n_predict": 1})
        answer = server.post("/completion", {**common, "prompt": f"{len(first)} {second}", "n_cache_reuse": least})
        return {**logprobs(answer), "content": f"{answer['timings']['cache_n']} tokens from the cache"}

    return ask


INFILL: dict[str, Ask] = {
    "a gap": _infill(input_prefix="def hello(name):\n", input_suffix="\n    return text"),
    "a prompt in the gap": _infill(input_prefix="It was", input_suffix="in the house", prompt="a long day"),
    "nothing behind": _infill(input_prefix="The capital of", input_suffix=""),
    "more than fits": _infill(input_prefix="word and line " * 40, input_suffix="hello world " * 40, prompt="one"),
    "other files": _infill(
        input_prefix="hello",
        input_suffix="world",
        input_extra=[{"filename": "a.py", "text": "one two"}, {"text": "three"}],
    ),
}


def _with_projector(kind: str) -> Callable[[Path], Made]:
    def make(folder: Path) -> Made:
        model, projector = media.written(kind, folder)
        return model, {**LOADED, "mmproj": str(projector)}

    return make


SUITES: dict[str, Suite] = {
    **{f"files, {kind}": Suite(_with_projector(kind), media.asks(kind)) for kind in media.KINDS},
    "sampling": Suite(_language, _sampling()),
    "ending": Suite(
        _ending,
        {
            "an end": _completion(PROMPTS[0], **GREEDY, n_predict=64),
            "an end that is drawn": _completion(PROMPTS[0], **HOT, n_predict=64),
            "log-probabilities of an end": _completion(PROMPTS[0], logprobs, **GREEDY, n_predict=64, n_probs=4),
            "ignore_eos": _completion(PROMPTS[0], **HOT, n_predict=64, ignore_eos=True),
            "ignore_eos, greedy": _completion(PROMPTS[0], temperature=0.0, n_predict=64, ignore_eos=True),
        },
    ),
    "log-probabilities": Suite(
        _language,
        {prompt: _completion(prompt, logprobs, temperature=0.0, n_probs=10) for prompt in PROMPTS},
    ),
    "reuse": Suite(
        lambda folder: (factory.language_model(folder / "tiny.gguf", sharpness=1.0), {**LOADED, "parallel": "1"}),
        {
            "a part is gone": _reused(
                SYSTEM + "one two " * 20 + "what is the answer? ", SYSTEM + "what is the answer? ", 4
            ),
            "the beginning is gone": _reused("was it? " * 8 + SYSTEM, SYSTEM + "end", 8),
            "two parts are gone": _reused(
                "the man asked. " * 4 + "boys! " * 9 + SYSTEM + "girls! " * 9 + "it was long. " * 4,
                "the man asked. " * 4 + SYSTEM + "it was long. " * 4 + "and",
                6,
            ),
            "too little is left": _reused(SYSTEM + "one two three four", SYSTEM + "two three four", 50),
        },
    ),
    "greedy": Suite(_batched, {SYSTEM + word: greedy(SYSTEM + word, cache=False) for word in LAST_WORDS}),
    **{
        name: Suite(_kind(make), {SYSTEM + word: greedy(SYSTEM + word, cache=False) for word in LAST_WORDS[:8]})
        for name, make in KINDS.items()
    },
    "adapter": Suite(
        _adapted,
        {f"{scale} {prompt}": _scaled(scale, prompt) for scale in (0.0, 0.5, 1.0) for prompt in PROMPTS[:3]}
        | {"as loaded": _completion(PROMPTS[0], logprobs, temperature=0.0, n_probs=8)},
    ),
    "control vector": Suite(_steered({}), {prompt: greedy(prompt, cache=False) for prompt in PROMPTS}),
    "control vector of one layer": Suite(
        _steered({"control-vector-layer-range": "1 2"}), {prompt: greedy(prompt, cache=False) for prompt in PROMPTS[:2]}
    ),
    "control vector, scaled": Suite(
        _steered({}, ":0.4"), {prompt: greedy(prompt, cache=False) for prompt in PROMPTS[:2]}
    ),
    **{
        f"embeddings, {pooling.name.lower()}": Suite(
            _embedder(pooling),
            {text: _v1_embedding(text) for text in TEXTS}
            | {f"normalized by {norm}": _native_embedding(TEXTS[1], norm) for norm in (-1, 0, 1, 2)},
        )
        for pooling in (PoolingType.MEAN, PoolingType.CLS, PoolingType.LAST)
    },
    "embeddings, none": Suite(_embedder(PoolingType.NONE), {text: _native_embedding(text, -1) for text in TEXTS}),
    "infill": Suite(_infilling(), INFILL),
    "infill, files": Suite(_infilling("<|repo_name|>", "<|file_sep|>"), INFILL),
    "rerank": Suite(
        _reranker,
        {f"{path} {text}": _rerank(path, text) for path in ("/v1/rerank", "/reranking") for text in TEXTS[:2]}
        | {f"TEI {text}": _tei(text) for text in TEXTS},
    ),
}
