from __future__ import annotations

import pytest

from router.cli.chat import obey, statistics
from router.cli.client import Client, ClientError
from router.cli.conversation import Conversation
from tests.router.cli.stub import Asked, StubGateway, chunk, stream


class Heard:
    """A listener that remembers, and may interrupt at a word."""

    def __init__(self, interrupt_at: str = "") -> None:
        self.parts: list[tuple[str, str]] = []
        self._interrupt_at = interrupt_at

    def comment(self, text: str) -> None:
        self.parts.append(("comment", text))

    def thought(self, text: str) -> None:
        self.parts.append(("thought", text))

    def content(self, text: str) -> None:
        self.parts.append(("content", text))
        if text == self._interrupt_at:
            raise KeyboardInterrupt

    def end(self) -> None:
        self.parts.append(("end", ""))


@pytest.fixture
def conversation(gateway: StubGateway) -> Conversation:
    return Conversation(Client(gateway.url), "m")


def echo(asked: Asked) -> object:
    return stream(chunk(asked.body["messages"][-1]["content"].upper()))


def test_messages_add_up_and_are_cleared(conversation: Conversation, gateway: StubGateway) -> None:
    gateway.on("POST", "/v1/chat/completions", echo)
    conversation.ask("one", Heard())
    conversation.ask("two", Heard())
    assert [message["content"] for message in conversation.messages] == ["one", "ONE", "two", "TWO"]
    obey(conversation, "/system Be brief.")
    assert conversation.messages == [{"role": "system", "content": "Be brief."}]


def test_everything_is_heard_in_order(conversation: Conversation, gateway: StubGateway) -> None:
    usage = {"choices": [], "usage": {"completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 7}}}
    answer = stream(chunk(None, reasoning_content="hm"), chunk("yes"), usage, comments=("queued 2",))
    gateway.on("POST", "/v1/chat/completions", answer)
    heard = Heard()
    reply = conversation.ask("?", heard)
    assert heard.parts == [("comment", "queued 2"), ("thought", "hm"), ("content", "yes"), ("end", "")]
    assert (reply.content, reply.reasoning, reply.cached_tokens) == ("yes", "hm", 7)
    assert reply.first_after is not None
    assert "7 cached" in statistics(reply)


def test_an_interrupt_keeps_what_was_said(conversation: Conversation, gateway: StubGateway) -> None:
    gateway.on("POST", "/v1/chat/completions", stream(chunk("a"), chunk("b"), chunk("c")))
    reply = conversation.ask("?", Heard(interrupt_at="b"))
    assert (reply.content, reply.interrupted) == ("ab", True)
    assert conversation.messages[-1]["content"] == "ab"


def test_a_question_that_failed_is_forgotten(conversation: Conversation, gateway: StubGateway) -> None:
    gateway.on("POST", "/v1/chat/completions", stream({"error": {"message": "no"}}))
    heard = Heard()
    with pytest.raises(ClientError, match="no"):
        conversation.ask("?", heard)
    assert conversation.messages == []
    assert heard.parts == [("end", "")]


def test_fields_are_set_and_unset(conversation: Conversation) -> None:
    for field, value in (("temperature", "0.5"), ("stop", '["x"]'), ("reasoning_effort", "low")):
        conversation.set(field, value)
    assert conversation.fields == {"temperature": 0.5, "stop": ["x"], "reasoning_effort": "low"}
    conversation.set("stop", "")
    assert "stop" not in conversation.fields
    for field in ("messages", "not a field"):
        with pytest.raises(ValueError, match="cannot be set"):
            conversation.set(field, "1")


def test_commands_of_the_chat(conversation: Conversation, capsys: pytest.CaptureFixture[str]) -> None:
    assert obey(conversation, "/model other")
    assert conversation.model == "other"
    assert obey(conversation, "/set temperature 0")
    assert obey(conversation, "/set messages 0")
    assert obey(conversation, "/stats")
    assert obey(conversation, "/what")
    assert "/clear" in capsys.readouterr().out
    assert not obey(conversation, "/exit")
