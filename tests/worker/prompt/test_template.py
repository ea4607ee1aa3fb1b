"""From conversations to prompts."""

from __future__ import annotations

import threading

import msgspec
import pytest

from protocol.chat import AudioPart, ChatMessage, ChatPrompt, ImagePart, TextPart, Tool, ToolCall
from worker.prompt.errors import PromptError
from worker.prompt.template import ChatTemplate

USER = ChatMessage("user", "Hi")
TOOL = Tool("get_time", "The time", b'{"type": "object", "properties": {"city": {"type": "string"}}}')
CALL = ChatMessage("assistant", None, tool_calls=(ToolCall("get_time", '{"city": "Rome"}', "c1"),))

PLAIN = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
TYPED = "{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}"
EITHER = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %}{% endfor %}"
)
NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}"
)
OBJECT_ARGUMENTS = (
    "{% for t in tools %}{{ t.function.name }}{% endfor %}"
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}"
    "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}{% endfor %}{% endfor %}"
)
STRING_ARGUMENTS = (
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ '!' + c.function.arguments }}{% endfor %}"
    "{% endfor %}"
)
THINKING = (
    "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n"
    "{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"
    "{% endif %}"
)


def _text(source: str, *messages: ChatMessage, **fields: object) -> str:
    prompt = msgspec.structs.replace(ChatPrompt(messages or (USER,)), **fields)
    return ChatTemplate(source, "<s>", "</s>").render(prompt).text


def test_a_file_without_a_template_gets_chatml() -> None:
    expected = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert _text("") == expected
    assert _text("chatml") == expected


def test_the_generation_prompt_can_be_left_out() -> None:
    assert _text(PLAIN) == "<s>[user]Hi[assistant]"
    assert _text(PLAIN, add_generation_prompt=False) == "<s>[user]Hi"


def test_a_bos_token_that_the_tokenizer_adds_is_not_doubled() -> None:
    template = ChatTemplate(PLAIN + "{{ eos_token }}", "<s>", "</s>", add_bos=True, add_eos=True)
    assert template.render(ChatPrompt((USER,))).text == "[user]Hi[assistant]"


def test_content_has_the_shape_that_the_template_reads() -> None:
    parts = ChatMessage("user", (TextPart("One"), TextPart("Two")))
    assert _text(PLAIN, parts, add_generation_prompt=False) == "<s>[user]One\nTwo"
    assert _text(TYPED, parts) == "<One><Two>"
    assert _text(TYPED, USER) == "<Hi>"
    assert _text(EITHER, parts) == "<One><Two>"
    assert _text(EITHER, USER) == "Hi"


def test_a_system_message_joins_the_next_where_the_template_has_no_place_for_it() -> None:
    system = ChatMessage("system", "Be brief.")
    assert _text(NO_SYSTEM, system, USER) == "[user]Be brief.\nHi"
    assert _text(NO_SYSTEM, system) == ""
    assert _text(PLAIN, system, USER) == "<s>[system]Be brief.[user]Hi[assistant]"


def test_developers_are_system_messages_but_for_harmony() -> None:
    developer = ChatMessage("developer", "x")
    assert _text(PLAIN, developer, USER).startswith("<s>[system]x")
    assert _text(PLAIN + "{# <|channel|> #}", developer, USER).startswith("<s>[developer]x")


def test_arguments_are_objects_or_strings_as_the_template_expects() -> None:
    assert _text(OBJECT_ARGUMENTS, USER, CALL, tools=(TOOL,)) == "get_timeHicity=Rome"
    assert _text(STRING_ARGUMENTS, USER, CALL) == 'Hi!{"city": "Rome"}'


def test_arguments_in_the_history_that_are_no_json_are_refused() -> None:
    call = ChatMessage("assistant", None, tool_calls=(ToolCall("f", "{broken"),))
    for source in (OBJECT_ARGUMENTS, STRING_ARGUMENTS, PLAIN):
        with pytest.raises(PromptError) as refused:
            _text(source, USER, call, tools=(TOOL,))
        assert refused.value.error.param == "messages[1].tool_calls[0].function.arguments"


def test_the_template_for_tools_is_used_with_tools() -> None:
    template = ChatTemplate("plain", "", "", "{{ tools[0].function.name }}")
    assert template.render(ChatPrompt((USER,))).text == "plain"
    assert template.render(ChatPrompt((USER,), tools=(TOOL,))).text == "get_time"


def test_a_request_may_bring_its_own_template() -> None:
    assert _text(PLAIN, chat_template="{{ messages[0].content }}!") == "Hi!"
    with pytest.raises(PromptError):
        _text(PLAIN, chat_template="{% if")
    template = ChatTemplate(PLAIN, "", "")
    texts = [template.render(ChatPrompt((USER,), chat_template=f"number {i % 7}")).text for i in range(30)]
    assert texts == [f"number {i % 7}" for i in range(30)]


def test_variables_come_from_the_request() -> None:
    assert _text(
        "{{ mood }}{{ reasoning_strength }}", template_kwargs_json=b'{"mood": "x", "reasoning_effort": "low"}'
    ) == ("xlow")
    with pytest.raises(PromptError):
        _text(PLAIN, template_kwargs_json=b"[1]")
    with pytest.raises(PromptError):
        _text(PLAIN, template_kwargs_json=b'{"enable_thinking": "yes"}')


def test_further_fields_of_messages_reach_the_template() -> None:
    message = ChatMessage("user", "Hi", name="Ann", extra_json=b'{"mood": "glad", "role": "other"}')
    assert _text("{{ messages[0].mood }}{{ messages[0].role }}{{ messages[0].name }}", message) == "gladuserAnn"


def test_media_become_markers_in_order() -> None:
    image, sound = ImagePart(b"1"), AudioPart(b"2")
    message = ChatMessage("user", (TextPart("a"), image, TextPart("b"), TextPart("c"), sound))
    rendered = ChatTemplate(TYPED, "", "", media_marker="<M>").render(ChatPrompt((message,)))
    assert rendered.text == "<a<M>b\nc<M>>"
    assert rendered.media == (image, sound)


def test_a_text_cannot_pretend_to_be_a_medium() -> None:
    with pytest.raises(PromptError, match="reserved"):
        _text(PLAIN, ChatMessage("user", "look: <__media__>"))


def test_thinking_is_on_until_it_is_switched_off() -> None:
    template = ChatTemplate(THINKING, "", "")
    on = template.render(ChatPrompt((USER,)))
    assert on.text == "<user>Hi<assistant><think>\n"
    assert on.syntax.reasoning_open
    for prompt in (
        ChatPrompt((USER,), enable_thinking=False),
        ChatPrompt((USER,), template_kwargs_json=b'{"enable_thinking": false}'),
    ):
        off = template.render(prompt)
        assert off.text == "<user>Hi<assistant><think>\n\n</think>\n\n"
        assert not off.syntax.reasoning_open
    assert set(on.preserved_tokens) >= {"<think>", "</think>"}


def test_an_answer_goes_on_where_it_stopped() -> None:
    def rendered(**fields: str) -> tuple[str, bool]:
        begun = ChatMessage("assistant", fields.get("content", ""), reasoning_content=fields.get("reasoning", ""))
        prompt = ChatPrompt((USER, begun), continue_final_message=True, add_generation_prompt=False)
        found = ChatTemplate(THINKING, "", "").render(prompt)
        assert found.syntax.continues
        return found.text, found.syntax.reasoning_open

    assert rendered(content="Hello, ") == ("<user>Hi<assistant><think>\n\n</think>\n\nHello, ", False)
    assert rendered(reasoning="Well") == ("<user>Hi<assistant><think>\nWell", True)
    assert rendered(content="A", reasoning="W") == ("<user>Hi<assistant><think>\nW\n</think>\n\nA", False)


@pytest.mark.parametrize("last", [USER, CALL])
def test_only_an_answer_without_calls_can_go_on(last: ChatMessage) -> None:
    with pytest.raises(PromptError):
        _text(PLAIN, USER, last, continue_final_message=True)


def test_an_empty_conversation_is_refused() -> None:
    with pytest.raises(PromptError, match="empty"):
        ChatTemplate(PLAIN, "", "").render(ChatPrompt(()))


def test_an_unknown_reasoning_format_is_refused() -> None:
    with pytest.raises(PromptError):
        _text(PLAIN, reasoning_format="backwards")


def test_tools_are_looked_for_unless_forbidden() -> None:
    template = ChatTemplate(OBJECT_ARGUMENTS, "", "")
    assert template.render(ChatPrompt((USER,), tools=(TOOL,))).syntax.tools == (TOOL,)
    assert template.render(ChatPrompt((USER,), tools=(TOOL,), tool_choice="none")).syntax.tools == ()


def test_schemas_of_tools_must_be_objects() -> None:
    with pytest.raises(PromptError) as refused:
        _text(OBJECT_ARGUMENTS, tools=(Tool("f", "", b"[1]"),))
    assert refused.value.error.param == "tools[0].function.parameters"


def test_one_template_serves_many_threads() -> None:
    template = ChatTemplate(PLAIN, "<s>", "</s>")
    texts: list[str] = []

    def render(word: str) -> None:
        for _ in range(20):
            texts.append(template.render(ChatPrompt((ChatMessage("user", word),))).text)

    threads = [threading.Thread(target=render, args=(word,)) for word in ("one", "two", "three")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {text: texts.count(text) for text in texts} == {
        f"<s>[user]{word}[assistant]": 20 for word in ("one", "two", "three")
    }


def test_tools_are_described_in_words_where_the_template_knows_none() -> None:
    result = ChatMessage("tool", "12:00", tool_call_id="c1")
    template = ChatTemplate(PLAIN, "", "")
    rendered = template.render(ChatPrompt((ChatMessage("system", "Be brief."), USER, CALL, result), tools=(TOOL,)))
    assert rendered.syntax.format == "generic"
    assert rendered.text.startswith("[system]Be brief.\n\nYou can call")
    assert '{"name": "get_time", "description": "The time", "parameters": {"type": "object"' in rendered.text
    call = '{"name": "get_time", "arguments": {"city": "Rome"}}'
    assert rendered.text.endswith(f"[user]Hi[assistant]{call}[user]Result of get_time:\n12:00[assistant]")
    second = ChatMessage("tool", (TextPart("13:00"),), name="other")
    merged = template.render(ChatPrompt((USER, CALL, result, second, USER), tools=(TOOL,))).text
    assert merged.endswith("[user]Result of get_time:\n12:00\nResult of other:\n\n13:00\nHi[assistant]")
    without = template.render(ChatPrompt((USER,), tools=(TOOL,), tool_choice="none"))
    assert without.text == "[user]Hi[assistant]"


def test_a_template_that_changes_its_messages_changes_nothing_else() -> None:
    source = "{% set _ = messages.append({'content': 'more'}) %}{% for m in messages %}{{ m.content }},{% endfor %}"
    template = ChatTemplate(source, "", "")
    prompt = ChatPrompt((USER,))
    assert template.render(prompt).text == "Hi,more,"
    assert template.render(prompt).text == "Hi,more,"


def test_the_opening_is_what_the_generation_prompt_adds() -> None:
    source = "{{ messages[0].content }}{% if add_generation_prompt %}<|answer|>{% else %}<|end|>{% endif %}"
    assert ChatTemplate(source, "", "").render(ChatPrompt((USER,))).syntax.prefix == "answer|>"
    assert ChatTemplate(PLAIN, "", "").render(ChatPrompt((USER,))).syntax.prefix == "[assistant]"


def test_results_join_their_calls_where_the_template_wants_them_there() -> None:
    source = (
        "{# '<|tool_call>call:' #}{% for m in messages %}<{{ m.role }}>{% for c in m.tool_calls %}{{ c.function.name }}"
        "{% endfor %}{% for r in m.tool_responses %}={{ r.name }}:{{ r.response | tojson }}{% endfor %}{{ m.content }}"
        "{% endfor %}"
    )
    results = ChatMessage("tool", '{"time": 12}', tool_call_id="c1"), ChatMessage("tool", "late", tool_call_id="c2")
    answer = ChatMessage("assistant", "Noon.")
    text = _text(source, USER, CALL, *results, answer, USER)
    assert text == '<user>Hi<assistant>get_time=get_time:{"time": 12}=c2:"late"Noon.<user>Hi'
