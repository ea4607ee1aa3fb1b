"""The exact bytes of OpenAI chat answers."""

from __future__ import annotations

import json
from typing import Any

from protocol.errors import ErrorKind, WireError
from protocol.generate import (
    ChoiceEnd,
    Completed,
    Delta,
    DeltaExtra,
    PromptProgress,
    Timings,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from router.http.chat_encoder import ChatBody, ChatChunks
from router.http.version import FINGERPRINT

HEAD = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":5,"model":"m","system_fingerprint":"'
    + FINGERPRINT.encode()
    + b'",'
)
DONE = Completed(1, (ChoiceEnd(0, "eos"),), Usage(3, 2, 1), Timings(1, 2, 4.0, 2, 10.0))


def chunks(n: int = 1, include_usage: bool = False) -> ChatChunks:
    return ChatChunks("chatcmpl-1", "m", 5, n=n, include_usage=include_usage)


def events(data: bytes) -> list[dict[str, Any]]:
    assert data.endswith(b"\n\n")
    return [
        json.loads(event.removeprefix("data: ")) for event in data.decode().split("\n\n")[:-1] if "[DONE]" not in event
    ]


def test_stream_begins_with_the_role_of_each_choice() -> None:
    role = b'"choices":[{"index":%d,"delta":{"role":"assistant","content":null},"finish_reason":null}]}\n\n'
    assert chunks(2).begin() == HEAD + role % 0 + HEAD + role % 1


def test_text_goes_out_as_one_event() -> None:
    encoder = chunks()
    assert encoder.delta(Delta(1, 'a "b"\né')) == (
        HEAD + b'"choices":[{"index":0,"delta":{"content":"a \\"b\\"\\n\xc3\xa9"},"finish_reason":null}]}\n\n'
    )


def test_nothing_goes_out_for_a_token_without_text() -> None:
    assert chunks().delta(Delta(1, "")) == b""
    assert chunks().delta(Delta(1, "", 1, 0, DeltaExtra())) == b""


def test_end_has_finish_reason_timings_and_done() -> None:
    end = chunks().end(DONE)
    assert end.endswith(b"}\n\ndata: [DONE]\n\n")
    (last,) = events(end)
    assert last["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert last["timings"] == {
        "cache_n": 1,
        "prompt_n": 2,
        "prompt_ms": 4.0,
        "prompt_per_token_ms": 2.0,
        "prompt_per_second": 500.0,
        "predicted_n": 2,
        "predicted_ms": 10.0,
        "predicted_per_token_ms": 10.0,
        "predicted_per_second": 100.0,
    }
    assert "usage" not in last


def test_usage_comes_in_a_chunk_without_choices_where_asked_for() -> None:
    finish, last = events(chunks(include_usage=True).end(DONE))
    assert "timings" not in finish
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


def test_tool_call_names_itself_once() -> None:
    encoder = chunks()
    encoder.begin()
    first = DeltaExtra(tool_calls=(ToolCallDelta(0, "call_9", "now", ""),))
    rest = DeltaExtra(tool_calls=(ToolCallDelta(0, arguments="{}"),))
    (opened,) = events(encoder.delta(Delta(1, "", 1, 0, first)))
    (filled,) = events(encoder.delta(Delta(1, "", 1, 0, rest)))
    assert opened["choices"][0]["delta"] == {
        "tool_calls": [{"index": 0, "id": "call_9", "type": "function", "function": {"name": "now", "arguments": ""}}]
    }
    assert filled["choices"][0]["delta"] == {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}


def test_reasoning_logprobs_and_progress_ride_along() -> None:
    encoder = chunks()
    encoder.begin()
    extra = DeltaExtra(
        reasoning="hm",
        logprobs=(TokenLogprob(7, -0.5, b"\xc3\xa9", (TokenLogprob(8, float("-inf"), b"\xff"),)),),
        progress=PromptProgress(10, 2, 5, 1.5),
    )
    (chunk,) = events(encoder.delta(Delta(1, "é", 1, 0, extra)))
    (choice,) = chunk["choices"]
    assert choice["delta"] == {"reasoning_content": "hm", "content": "é"}
    assert choice["logprobs"] == {
        "content": [
            {
                "id": 7,
                "token": "é",
                "bytes": [195, 169],
                "logprob": -0.5,
                "top_logprobs": [{"id": 8, "token": "�", "bytes": [255], "logprob": -9999.0}],
            }
        ]
    }
    assert chunk["prompt_progress"] == {"total": 10, "cache": 2, "processed": 5, "time_ms": 1.5}


def test_error_in_a_stream_is_one_event_without_done() -> None:
    assert chunks().error(WireError(ErrorKind.WORKER_DIED, "gone")) == (
        b'data: {"error":{"code":503,"message":"gone","type":"worker_died_error"}}\n\n'
    )


def test_comment_is_a_line_that_clients_skip() -> None:
    assert chunks().comment("queued 2") == b": queued 2\n\n"


def test_body_gathers_text_reasoning_and_calls() -> None:
    encoder = ChatBody("chatcmpl-1", "m", 5, n=2)
    encoder.begin()
    assert encoder.delta(Delta(1, "a", 1, 0)) == b""
    encoder.delta(Delta(1, "b", 1, 0, DeltaExtra(reasoning="r")))
    encoder.delta(Delta(1, "", 1, 1, DeltaExtra(tool_calls=(ToolCallDelta(0, "call_1", "now", '{"a":'),))))
    encoder.delta(Delta(1, "", 1, 1, DeltaExtra(tool_calls=(ToolCallDelta(0, arguments="1}"),))))
    done = Completed(1, (ChoiceEnd(0, "limit"), ChoiceEnd(1, "tool_calls")), Usage(3, 4))
    body = json.loads(encoder.end(done))
    first, second = body["choices"]
    assert first["finish_reason"] == "length"
    assert first["message"] == {"role": "assistant", "content": "ab", "reasoning_content": "r"}
    assert second["finish_reason"] == "tool_calls"
    assert second["message"]["content"] is None
    assert second["message"]["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": '{"a":1}'}}
    ]


def test_body_that_begins_anew_forgets_what_it_gathered() -> None:
    encoder = ChatBody("chatcmpl-1", "m", 5, n=1)
    encoder.begin()
    encoder.delta(Delta(1, "lost"))
    encoder.begin()
    encoder.delta(Delta(1, "kept"))
    assert json.loads(encoder.end(DONE))["choices"][0]["message"]["content"] == "kept"
