"""The streams of all requests that have not ended for the router, by number."""

from __future__ import annotations

from collections.abc import Iterator

from router.transport.stream import RequestStream


class StreamTable:
    """Where the output of a request is written to. A request that is not listed has nobody to answer."""

    def __init__(self) -> None:
        self._streams: dict[int, RequestStream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[RequestStream]:
        return iter(list(self._streams.values()))

    def add(self, stream: RequestStream) -> None:
        if stream.request in self._streams:
            raise ValueError(f"request {stream.request} has a stream already")
        self._streams[stream.request] = stream

    def get(self, request: int) -> RequestStream | None:
        return self._streams.get(request)

    def remove(self, request: int) -> None:
        """Forget a stream; readers that hold it go on reading. Harmless for one that is not listed."""
        self._streams.pop(request, None)
