"""What bad bodies are told."""

from __future__ import annotations

import msgspec
import pytest

from router.http.chat_request import ChatRequest
from router.http.decoding import decode
from router.http.errors import ApiError

DECODER = msgspec.json.Decoder(ChatRequest)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"messages":[{"role":"user","content":"a"},{"role":"user","content":5}]}', "messages[1].content"),
        (
            b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":5}]}]}',
            "messages[0].content[0].image_url",
        ),
        (b'{"messages":[{"role":"user","content":[{"type":"x"}]}]}', "messages[0].content[0].type"),
        (b'{"messages":[{"content":"a"}]}', "messages[0]"),
        (b'{"temperature":"hot"}', "temperature"),
        (b'{"max_tokens":-2}', "max_tokens"),
        (b'{"stream":"yes"}', "stream"),
        (b'{"n":0}', "n"),
    ],
)
def test_wrong_type_names_its_path(body: bytes, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode(DECODER, body)
    assert caught.value.status == 400
    assert caught.value.param == param
    assert caught.value.message.startswith(f"{param}: ")


@pytest.mark.parametrize("body", [b"", b"{", b"nope", b'{"a":\xff}', b"[1]", b'"text"', b'{"temperature":1e999}'])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        decode(DECODER, body)
    assert caught.value.status == 400


def test_deep_nesting_is_refused_and_not_a_fault() -> None:
    with pytest.raises(ApiError) as caught:
        decode(DECODER, b'{"messages":' + b"[" * 100_000)
    assert caught.value.status == 400


def test_null_is_absent_and_unknown_fields_are_ignored() -> None:
    request = decode(DECODER, b'{"temperature":null,"messages":null,"stop":null,"json_schema":null,"colour":{"a":1}}')
    assert request.temperature is None
    assert request.messages is None
