"""The signals of the gateway, as things that can be awaited."""

from __future__ import annotations

import asyncio
import enum
import signal
from types import TracebackType
from typing import ClassVar


class Wish(enum.Enum):
    END = "end"
    RELOAD = "reload"


WISHES = {signal.SIGTERM: Wish.END, signal.SIGINT: Wish.END, signal.SIGHUP: Wish.RELOAD}


class Signals:
    """While it is entered, signals do nothing but queue a wish."""

    END: ClassVar = Wish.END
    RELOAD: ClassVar = Wish.RELOAD

    def __init__(self) -> None:
        self._wishes: asyncio.Queue[Wish] = asyncio.Queue()

    def __enter__(self) -> Signals:
        loop = asyncio.get_running_loop()
        for number, wish in WISHES.items():
            loop.add_signal_handler(number, self._wishes.put_nowait, wish)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in WISHES:
            loop.remove_signal_handler(number)

    async def next(self) -> Wish:
        return await self._wishes.get()

    async def end(self) -> None:
        """Return at the next signal that ends the gateway; others are dropped."""
        while await self.next() is not Wish.END:
            pass
