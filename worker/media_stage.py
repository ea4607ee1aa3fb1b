"""The media thread: encodes the files of requests, so that neither running streams nor preparation wait for it."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from protocol import codec
from protocol.errors import ErrorKind, WireError
from protocol.generate import Failed
from protocol.text import TokensCounted
from worker.llama_projector import Encoding, Projector
from worker.media_cache import MediaCache
from worker.media_error import MediaError
from worker.media_file import MediaFile, file_digest
from worker.media_prompt import MediaInput, MediaPrompt
from worker.model_texts import context_exceeded
from worker.prepared import PreparedCount, PreparedGeneration
from worker.prompt.errors import PromptError

logger = logging.getLogger(__name__)

Waiting = PreparedGeneration | PreparedCount

CLOSE_SECONDS = 5.0
"""What the end of a worker waits for a file that is being encoded."""


class MediaStage:
    """Takes requests over on the decode thread and delivers them again with their files encoded, in order.

    `n_ctx` bounds the tokens of a prompt, `n_whole` those of a chunk that must be computed at once. Bad files are
    answered by `answer`.
    """

    def __init__(
        self,
        projector: Projector,
        cache: MediaCache,
        n_ctx: int,
        n_whole: int,
        deliver: Callable[[PreparedGeneration], None],
        answer: Callable[[codec.Answer], None],
    ) -> None:
        self._projector = projector
        self.cache = cache
        self._n_ctx = n_ctx
        self._n_whole = n_whole
        self._deliver = deliver
        self._answer = answer
        self._changed = threading.Condition()
        self._requests: OrderedDict[int, Waiting] = OrderedDict()
        """The first one is being encoded."""
        self._stopping = False
        self._n_files = 0
        self._seconds = 0
        self._thread = threading.Thread(target=self._run, name="media", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        return bool(self._requests)

    def pulse(self) -> int:
        """Grows while a file is encoded: an encoder computes for minutes on a slow machine and says nothing.

        It counts files, and seconds of the thread's own computing.
        """
        if self.busy and self._thread.is_alive():
            clock = time.pthread_getcpuclockid(self._thread.ident or 0)
            self._seconds = int(time.clock_gettime(clock))
        return self._n_files + self._seconds

    def submit(self, ready: Waiting) -> None:
        with self._changed:
            self._requests[ready.request] = ready
            self._changed.notify_all()

    def withdraw(self, request: int) -> bool:
        """Forget a request; False if it is not here."""
        with self._changed:
            return self._requests.pop(request, None) is not None

    def close(self) -> bool:
        """End the thread and free the projector; False if a file is still being encoded and it cannot be freed."""
        with self._changed:
            self._stopping = True
            self._requests.clear()
            self._changed.notify_all()
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            return False
        self._projector.close()
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or bool(self._requests))
                if self._stopping:
                    return
                ready = next(iter(self._requests.values()))
            try:
                result = self._handle(ready)
            except PromptError as error:
                result = Failed(ready.request, error.error)
            except Exception as error:
                # A fault must cost this request alone: without this thread the worker would read no files any longer.
                logger.exception("the files of request %d could not be encoded", ready.request)
                result = Failed(ready.request, WireError(ErrorKind.INTERNAL, f"the files failed: {error}"))
            if self.withdraw(ready.request) and result is not None:
                self._hand_over(result)

    def _hand_over(self, result: PreparedGeneration | codec.Answer) -> None:
        if isinstance(result, PreparedGeneration):
            self._deliver(result)
        else:
            self._answer(result)

    def _handle(self, ready: Waiting) -> PreparedGeneration | codec.Answer | None:
        """Encode the files of one request; None if it was withdrawn meanwhile."""
        media = ready.prompt.media
        assert media is not None
        files = self._files(media, ready.request)
        if files is None:
            return None
        for file, given in zip(files, media.files, strict=True):
            self._check_whole(file, given)
        tokens = media.fill(files)
        if len(tokens) >= self._n_ctx:
            raise context_exceeded(len(tokens), self._n_ctx)
        if isinstance(ready, PreparedCount):
            return TokensCounted(ready.request, len(tokens))
        ready.prompt.tokens = tokens
        return ready

    def _files(self, media: MediaPrompt, request: int) -> list[MediaFile] | None:
        files: list[MediaFile] = []
        for given in media.files:
            file = self._file(given, request)
            if file is None:
                return None
            files.append(file)
        return files

    def _file(self, given: MediaInput, request: int) -> MediaFile | None:
        digest = file_digest(given.data)
        known = self.cache.get(digest)
        if known is not None:
            return known
        try:
            file = self._projector.encode(given.data, lambda: request not in self._requests)
        except MediaError as error:
            raise PromptError(f"{given.param}: {error}", given.param) from error
        except Encoding as error:
            raise PromptError(f"{given.param}: {error}", given.param, ErrorKind.INTERNAL) from error
        self._n_files += 1
        if file is not None:
            self.cache.put(digest, file)
        return file

    def _check_whole(self, file: MediaFile, given: MediaInput) -> None:
        largest = max((len(chunk.tokens) for chunk in file.chunks if chunk.whole), default=0)
        if largest > self._n_whole:
            message = (
                f"{given.param}: it becomes {largest} embeddings that must be computed at once, "
                f"and a physical batch has {self._n_whole} (ubatch-size)"
            )
            raise PromptError(message, given.param)
