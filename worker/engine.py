"""One loaded model and everything that is made from it: from `Load` to `Loaded`, and to sleep and back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from protocol import codec
from protocol.errors import ExitCode
from protocol.load import Load, LoadParameters, ModelInfo, WorkerSettings
from protocol.status import DeviceMemory
from worker.kept_files import KeptFiles
from worker.kv_cache import KvCache
from worker.llama_adapter import Adapters
from worker.llama_backend import CACHE_TYPES, build, devices, has_gpu
from worker.llama_context import Context, ContextSizes, Outcome
from worker.llama_control_vector import apply_control_vectors
from worker.llama_draft import DraftModel
from worker.llama_log import EngineLog
from worker.llama_model import Contents, LoadAborted, LoadError, Model
from worker.llama_parameters import POOLING_NAMES, UnusableParameter
from worker.llama_projector import Projector
from worker.llama_vocabulary import Vocabulary
from worker.media_cache import MediaCache
from worker.media_rules import MediaRules
from worker.media_stage import MediaStage
from worker.model_texts import ModelTexts
from worker.placement import (
    CPU_CONTEXT,
    EMBEDDING_CONTEXT,
    GPU_CONTEXT,
    IDLE_CELLS,
    available_memory,
    batch_sizes,
    default_context,
    default_threads,
    sequence_count,
    shelf_bytes,
)
from worker.prepared import PreparedGeneration
from worker.prompt.errors import PromptError
from worker.prompt.limits import RenderLimits
from worker.prompt.template import ChatTemplate
from worker.shelf import Shelf
from worker.slot_files import SlotFiles
from worker.speculation import Drafter, PromptLookup
from worker.vocabularies import ComingVocabulary

logger = logging.getLogger(__name__)

KEEP_SECONDS = 5.0
"""What keeping state may cost a worker that sleeps or ends."""

Progress = Callable[[str, float], bool]
"""Told the stage of a load and how far it is; False ends the load."""

_TYPE_BYTES = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32, "q4_1": 20 / 32}
_TYPE_BYTES |= {"q5_0": 22 / 32, "q5_1": 24 / 32, "iq4_nl": 18 / 32}
assert _TYPE_BYTES.keys() == CACHE_TYPES.keys()


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads for single tokens and for prompts."""

    single: int
    batch: int


class Engine:
    """The weights, the context and the cache of one `Load`; `close` frees them all.

    The vocabulary may still be loading, and outlives it. Raises `LoadError`, `LoadAborted` or `UnusableParameter`;
    nothing is left behind then.
    """

    def __init__(
        self, load: Load, threads: Threads, log: EngineLog, progress: Progress, vocabulary: ComingVocabulary
    ) -> None:
        self._parameters = parameters = load.parameters
        self._draft_model: DraftModel | None = None
        self.projector: Projector | None = None
        self.media: MediaStage | None = None
        self._threads = threads
        self._encoding = False
        progress("weights", 0.0)
        self.model = Model(
            parameters, log, lambda fraction: progress("weights", fraction), _contents(load), load.vocabulary
        )
        try:
            _check_usable(self.model, parameters)
            self.adapters = Adapters(self.model, parameters.adapters, log)
            if not progress("context", 0.0):
                raise LoadAborted(parameters.model_path)
            self.context = self._make_context(parameters, threads, log)
            if parameters.control_vectors:
                apply_control_vectors(self.context.handle, self.model, parameters)
        except BaseException:
            self.model.close()
            raise
        try:
            self.n_slots = parameters.slots
            self.has_states = self.model.is_recurrent or (self.model.n_swa > 0 and not parameters.swa_full)
            self.cache = KvCache(
                self.context,
                self.context.n_seq_max,
                self.context.n_ctx,
                divisible=not self.has_states,
                shelf=Shelf(shelf_bytes(available_memory(), load.settings.shelf_bytes), not self.has_states),
                idle_cells=None if has_gpu() else IDLE_CELLS,
                movable=self.context.can_shift,
            )
            self.fingerprint = f"{load.settings.load_key}, {self.context.n_ctx} cells, {build()}"
            self.kept = self._open_kept(load)
            self.sampling_threads = threads.single
            self.vocabulary = vocabulary.wait(lambda: progress("vocabulary", 0.0))
            self.drafter = self._make_drafter(parameters, threads, log)
            self.slot_files = SlotFiles(load.settings.slot_save_path, self.fingerprint, self.cache, self.kept)
            self.template = _template(self.model, self.vocabulary, load.settings)
            self.projector = self._open_projector(parameters, threads, log, progress)
            if not progress("warm-up", 0.0):
                raise LoadAborted(parameters.model_path)
            self._warm_up()
        except BaseException:
            self.close()
            raise
        self._log = log

    def _open_kept(self, load: Load) -> KeptFiles | None:
        """The kept state of this load key, its entries on the shelf; None if none is to be kept."""
        settings = load.settings
        if not settings.kv_keep_dir or not settings.kv_keep_bytes or load.parameters.embeddings:
            return None
        kept = KeptFiles(Path(settings.kv_keep_dir), settings.kv_keep_bytes, self.fingerprint)
        try:
            kept.load(self.cache.shelf)
        except OSError as error:
            logger.warning("no state is kept: %s", error)
            return None
        return kept

    def keep_state(self) -> None:
        """Write what is in the cache and on the shelf to disk, if that is wanted."""
        if self.kept is not None:
            self.cache.shelve_idle()
            self.kept.save(self.cache.shelf, KEEP_SECONDS)

    def _make_context(self, parameters: LoadParameters, threads: Threads, log: EngineLog) -> Context:
        model = self.model
        most = EMBEDDING_CONTEXT if parameters.embeddings else GPU_CONTEXT if has_gpu() else CPU_CONTEXT
        n_ctx = parameters.ctx_size or default_context(
            model.n_ctx_train, _bytes_per_token(model, parameters), available_memory(), most
        )
        n_batch, n_ubatch = batch_sizes(parameters, n_ctx)
        has_states = model.is_recurrent or model.n_swa > 0
        n_sequences = sequence_count(parameters.slots, has_states)
        n_outputs = 0 if parameters.embeddings else max(n_sequences, parameters.slots * (1 + parameters.draft.n_max))
        sizes = ContextSizes(n_ctx, n_batch, n_ubatch, n_sequences, n_outputs, threads.single, threads.batch)
        return Context(model, parameters, sizes, log, parameters.embeddings)

    def _make_drafter(self, parameters: LoadParameters, threads: Threads, log: EngineLog) -> Drafter | None:
        """What guesses at tokens; None where nothing does, or where wrong guesses cannot be taken back."""
        draft = parameters.draft
        if draft.kind == "off" or not self.cache.divisible or draft.n_max < 1:
            return None
        if draft.kind == "lookup":
            return Drafter(PromptLookup(), draft.n_max, draft.n_min)
        if draft.kind != "model":
            raise UnusableParameter(f"draft: there is no kind {draft.kind!r} of speculative decoding")
        n_batch = min(parameters.batch_size, self.context.n_ctx)
        sizes = ContextSizes(
            self.context.n_ctx,
            n_batch,
            n_batch,
            self.context.n_seq_max,
            self.context.n_seq_max,
            threads.single,
            threads.batch,
        )
        self._draft_model = DraftModel(draft, self.vocabulary, sizes, parameters.flash_attn, log)
        return Drafter(self._draft_model, draft.n_max, draft.n_min)

    def _open_projector(
        self, parameters: LoadParameters, threads: Threads, log: EngineLog, progress: Progress
    ) -> Projector | None:
        if not parameters.mmproj_path or parameters.embeddings:
            return None
        if not progress("projector", 0.0):
            raise LoadAborted(parameters.model_path)
        use_gpu = has_gpu() and parameters.n_gpu_layers != 0
        return Projector(self.model, parameters.mmproj_path, threads.batch, use_gpu, log)

    def open_media(
        self,
        settings: WorkerSettings,
        deliver: Callable[[PreparedGeneration], None],
        answer: Callable[[codec.Answer], None],
    ) -> None:
        """Start the media thread, if there is a projector."""
        if self.projector is not None:
            cache = MediaCache(settings.media_cache_bytes)
            context = self.context
            self.media = MediaStage(self.projector, cache, context.n_ctx, context.n_ubatch, deliver, answer)

    def set_threads(self, threads: Threads) -> None:
        """From the next step on."""
        self._threads = threads
        self._apply_threads()

    def share_cores(self) -> None:
        """Leave half of the cores to the media thread while it encodes: it has all of them while nothing decodes."""
        encoding = self.media is not None and self.media.busy
        if encoding != self._encoding:
            self._encoding = encoding
            self._apply_threads()

    def _apply_threads(self) -> None:
        divisor = 2 if self._encoding else 1
        single, batch = (max(1, count // divisor) for count in (self._threads.single, self._threads.batch))
        self.context.set_threads(single, batch)
        if self._draft_model is not None:
            self._draft_model.set_threads(single, batch)

    def close(self) -> None:
        if self.media is not None:
            if not self.media.close():
                logger.warning("a file is still being encoded: its memory is freed with the process")
                return
        elif self.projector is not None:
            self.projector.close()
        if self._draft_model is not None:
            self._draft_model.close()
        self.context.close()
        self.adapters.close()
        self.model.close()

    @property
    def modalities(self) -> tuple[str, ...]:
        """What the model reads besides text."""
        return self.projector.modalities if self.projector is not None else ()

    def texts(self, load: Load) -> ModelTexts:
        return ModelTexts(
            self.vocabulary,
            self.template,
            self.input_limit,
            self.model.chat_template("rerank"),
            self._parameters.batch_size,
            MediaRules(load.name, self.modalities, load.settings.media_limit_bytes),
        )

    @property
    def input_limit(self) -> int:
        """Most tokens of one request."""
        n_ctx = self.context.n_ctx
        if not self._parameters.embeddings:
            return n_ctx
        asked = self._parameters.ctx_size or n_ctx
        # Encoders know no position beyond those they were trained for.
        return min(asked, n_ctx, self.model.n_ctx_train or n_ctx)

    @property
    def pools(self) -> bool:
        """Whether an input has one vector rather than one per token."""
        return POOLING_NAMES.get(self.context.pooling) != "none"

    @property
    def embedding_width(self) -> int:
        """Values of a pooled result: of a vector, or the scores of a reranker's classes."""
        ranks = POOLING_NAMES.get(self.context.pooling) == "rank"
        return max(1, self.model.n_classes) if ranks else self.model.n_embd_out

    def memory(self) -> tuple[DeviceMemory, ...]:
        return self._log.buffers()

    def info(self, load: Load) -> ModelInfo:
        model, vocabulary = self.model, self.vocabulary
        return ModelInfo(
            architecture=model.metadata("general.architecture"),
            description=model.description,
            ftype=model.ftype,
            vocab_type=vocabulary.type,
            n_vocab=vocabulary.n_tokens,
            n_ctx=self.context.n_ctx,
            n_ctx_slot=self.input_limit,
            n_ctx_train=model.n_ctx_train,
            n_embd=model.n_embd,
            n_params=model.n_params,
            size=model.size,
            slots=load.parameters.slots,
            chat_template=self.template.source,
            chat_template_tool_use=model.chat_template("tool_use"),
            bos_token=vocabulary.text(vocabulary.bos),
            eos_token=vocabulary.text(vocabulary.eos),
            input_modalities=("text", *self.modalities),
            pooling=POOLING_NAMES.get(self.context.pooling, "") if load.parameters.embeddings else "",
            has_encoder=model.has_encoder,
            has_fim=vocabulary.fill.prefix >= 0 and vocabulary.fill.suffix >= 0 and vocabulary.fill.middle >= 0,
            devices=devices(),
            engine=build(),
            recommended_sampling_json=_recommended_sampling(model),
        )

    def _warm_up(self) -> None:
        """One real forward pass: what cannot compute fails here and not in the first request."""
        vocabulary = self.vocabulary
        token = vocabulary.bos if vocabulary.bos >= 0 else max(vocabulary.eos, 0)
        self.context.batch.clear()
        self.context.batch.add(token, 0, 0)
        outcome = self.context.decode()
        if outcome is Outcome.ABORTED:
            raise LoadAborted(self.model.path)
        if outcome is Outcome.FULL:
            raise LoadError(f"{self.model.path}: the context has no room for one token")
        self.context.synchronize()
        self.context.clear()


def _contents(load: Load) -> Contents:
    """The vocabulary is loaded apart, unless its size is not known. A projector looks its marks up in the model."""
    apart = load.vocabulary.n_tokens > 0 and not load.parameters.mmproj_path
    return Contents.WEIGHTS if apart else Contents.ALL


def choose_threads(load: Load) -> Threads:
    single = load.settings.threads or default_threads()
    return Threads(single, load.settings.threads_batch or single)


def _check_usable(model: Model, parameters: LoadParameters) -> None:
    if model.has_encoder and model.has_decoder:
        raise LoadError(f"{model.path}: encoder-decoder models are not supported")
    if parameters.mmproj_path and parameters.embeddings:
        logger.warning("%s is not used: a model that is loaded for embeddings reads text alone", parameters.mmproj_path)
    if parameters.slots < 1:
        raise LoadError("parallel: there must be at least one slot", ExitCode.USAGE)
    if not model.has_decoder and not parameters.embeddings:
        raise LoadError(f"{model.path}: this model only encodes: it needs the option embeddings", ExitCode.USAGE)


def _bytes_per_token(model: Model, parameters: LoadParameters) -> int:
    """Bytes of one cell of the KV cache, from the file's metadata; an upper bound where heads differ by layer."""
    layers = model.metadata_number("block_count")
    heads = model.metadata_number("attention.head_count")
    kv_heads = model.metadata_number("attention.head_count_kv") or heads
    width = model.n_embd // max(1, heads)
    key = model.metadata_number("attention.key_length") or width
    value = model.metadata_number("attention.value_length") or width
    per_head = key * _TYPE_BYTES[parameters.cache_type_k] + value * _TYPE_BYTES[parameters.cache_type_v]
    return int(layers * kv_heads * per_head)


def _template(model: Model, vocabulary: Vocabulary, settings: WorkerSettings) -> ChatTemplate:
    override = settings.chat_template
    try:
        return ChatTemplate(
            override or model.chat_template(),
            vocabulary.text(vocabulary.bos),
            vocabulary.text(vocabulary.eos),
            "" if override else model.chat_template("tool_use"),
            add_bos=vocabulary.adds_bos,
            add_eos=vocabulary.adds_eos,
            limits=RenderLimits(seconds=settings.prepare_deadline_s),
        )
    except PromptError as error:
        if override:
            raise LoadError(f"chat-template: {error}", ExitCode.USAGE) from error
        # A file with a template that cannot be compiled still serves plain prompts.
        return ChatTemplate("chatml", vocabulary.text(vocabulary.bos), vocabulary.text(vocabulary.eos))


def _recommended_sampling(model: Model) -> bytes:
    """Sampling values that the file recommends, as JSON."""
    found = {}
    for name in ("temp", "top_k", "top_p", "min_p", "penalty_repeat"):
        text = model.metadata(f"general.sampling.{name}")
        if text:
            found[name] = float(text)
    return msgspec.json.encode(found)
