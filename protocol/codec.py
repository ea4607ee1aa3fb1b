"""MessagePack bytes for messages: one tagged union and one cached decoder per direction."""

from __future__ import annotations

import msgspec

from protocol import control, download, embed, generate, handshake, load, slots, status, text
from protocol.errors import ProtocolViolation

Work = (
    generate.Generate
    | text.Tokenize
    | text.Detokenize
    | text.ApplyTemplate
    | text.CountTokens
    | embed.Embed
    | embed.Rerank
    | slots.SlotAction
    | slots.ListAdapters
    | slots.SetAdapters
)
"""Requests that wait in a worker's work lane. Each has a `request` and is answered exactly once by an `Answer`."""

Control = (
    handshake.Welcome
    | handshake.Refused
    | load.Load
    | control.Forecast
    | control.QueryStatus
    | control.Cancel
    | control.Park
    | control.EndReasoning
    | control.Sleep
    | control.Wakeup
    | control.SetThreads
    | control.Shutdown
)

Answer = (
    generate.Completed
    | generate.Failed
    | generate.Parked
    | text.Tokenized
    | text.Detokenized
    | text.TemplateApplied
    | text.TokensCounted
    | embed.Embedded
    | embed.Reranked
    | slots.SlotActionDone
    | slots.Adapters
)
"""Every message that ends a request."""

Report = handshake.Hello | load.Loaded | load.Dying | status.UpdateStatus | generate.StepOutput

ToChild = Work | Control | download.ToDownloader
FromChild = Answer | Report | download.FromDownloader

_encoder = msgspec.msgpack.Encoder()
_to_child: msgspec.msgpack.Decoder[ToChild] = msgspec.msgpack.Decoder(ToChild)
_from_child: msgspec.msgpack.Decoder[FromChild] = msgspec.msgpack.Decoder(FromChild)


def encode(message: ToChild | FromChild) -> bytes:
    return _encoder.encode(message)


def decode_to_child(frame: bytes) -> ToChild:
    """Decode what the router sent. Raises `ProtocolViolation("router", …)`."""
    try:
        return _to_child.decode(frame)
    except msgspec.MsgspecError as error:
        raise ProtocolViolation("router", str(error)) from error


def decode_from_child(frame: bytes, child: str) -> FromChild:
    """Decode what `child` sent. Raises `ProtocolViolation(child, …)`."""
    try:
        return _from_child.decode(frame)
    except msgspec.MsgspecError as error:
        raise ProtocolViolation(child, str(error)) from error
