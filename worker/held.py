"""The requests that a worker knows, from the moment they leave the work lane until their answer is sent."""

from __future__ import annotations


class HeldRequests:
    """Used by all threads: each method is one step under the interpreter's lock."""

    def __init__(self) -> None:
        self._requests: dict[int, None] = {}
        self._cancelled: set[int] = set()
        self._parked: set[int] = set()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: int) -> None:
        self._requests[request] = None

    def remove(self, request: int) -> None:
        self._requests.pop(request, None)
        self._cancelled.discard(request)
        self._parked.discard(request)

    def cancel(self, request: int) -> None:
        """Mark a request that is being prepared; ended ones are ignored."""
        if request in self._requests:
            self._cancelled.add(request)

    def is_cancelled(self, request: int) -> bool:
        return request in self._cancelled

    def park(self, request: int) -> None:
        """Mark a request that is being prepared to be handed back instead of being begun."""
        if request in self._requests:
            self._parked.add(request)

    def is_parked(self, request: int) -> bool:
        return request in self._parked

    def all(self) -> tuple[int, ...]:
        return tuple(self._requests)
