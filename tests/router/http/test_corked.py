"""What a connection writes in one turn of the loop leaves at once."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

from router.http.corked import CorkedTransport


def corked() -> tuple[CorkedTransport, Mock]:
    transport = Mock(asyncio.Transport)
    return CorkedTransport(transport, asyncio.get_running_loop()), transport


async def test_head_and_body_are_one_write() -> None:
    cork, transport = corked()
    cork.write(b"head")
    cork.write(b"body")
    transport.writelines.assert_not_called()
    await asyncio.sleep(0)  # noqa: TID251  one turn of the loop
    transport.writelines.assert_called_once_with([b"head", b"body"])


async def test_each_turn_has_its_own() -> None:
    cork, transport = corked()
    for data in (b"a", b"b"):
        cork.write(data)
        await asyncio.sleep(0)  # noqa: TID251  one turn of the loop
    assert [call.args for call in transport.writelines.call_args_list] == [([b"a"],), ([b"b"],)]


async def test_what_was_written_leaves_before_the_end() -> None:
    cork, transport = corked()
    cork.write(b"last words")
    cork.close()
    assert [name for name, *_ in transport.method_calls] == ["writelines", "close"]
    await asyncio.sleep(0)  # noqa: TID251  one turn of the loop
    transport.writelines.assert_called_once_with([b"last words"])


async def test_the_rest_is_the_transports_own() -> None:
    cork, transport = corked()
    transport.get_extra_info.return_value = ("127.0.0.1", 1)
    assert cork.get_extra_info("peername") == ("127.0.0.1", 1)
    transport.is_closing.return_value = True
    assert cork.is_closing()
