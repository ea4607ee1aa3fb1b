"""Images and sounds through the whole gateway, in every dialect, to models that see or hear."""

from __future__ import annotations

import base64
import concurrent.futures
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from tests import factory
from tests.factory.media import png, png_of, wav
from tests.factory.projector import IMAGE_TOKENS, SOUND_TOKENS
from tests.gateway.process import Gateway, running

pytestmark = pytest.mark.model

ONE, OTHER = (base64.b64encode(png(color=color)).decode() for color in (10, 200))
HUGE = base64.b64encode(png_of(20_000, 20_000, b"")).decode()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """`seeing` and `hearing` have a projector in their folder, `blind` has none, `odd` has one of another size."""
    folder = tmp_path_factory.mktemp("models")
    factory.language_model(folder / "blind.gguf")
    for name, width in (("seeing", 64), ("odd", 96)):
        (folder / name).mkdir()
        factory.language_model(folder / name / "model.gguf")
        factory.projector(folder / name / "mmproj-model.gguf", n_embd_text=width)
    (folder / "hearing").mkdir()
    factory.language_model(folder / "hearing" / "model.gguf")
    factory.hearing_projector(folder / "hearing" / "mmproj-model.gguf")
    (folder / "embedding").mkdir()
    factory.embedding_model(folder / "embedding" / "model.gguf")
    factory.projector(folder / "embedding" / "mmproj-model.gguf")
    with running(tmp_path_factory.mktemp("home"), "--models-dir", str(folder), "--ctx-size", "2048") as started:
        yield started


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        yield client


@pytest.fixture
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", timeout=60, max_retries=0) as sdk:
        yield sdk


def image(data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def question(*parts: str | dict[str, Any]) -> list[Any]:
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return [{"role": "user", "content": content}]


def test_models_say_what_they_see_before_they_are_loaded(http: httpx.Client) -> None:
    entries = {entry["id"]: entry for entry in http.get("/models").json()["data"]}
    assert entries["seeing"]["status"]["value"] == "unloaded"
    assert entries["seeing"]["architecture"]["input_modalities"] == ["text", "image"]
    assert entries["blind"]["architecture"]["input_modalities"] == ["text"]


def test_a_chat_about_an_image_with_the_openai_sdk(client: openai.OpenAI, http: httpx.Client) -> None:
    messages = question("the dog", image(ONE), "the cat")
    options: dict[str, Any] = {"model": "seeing", "temperature": 0, "max_tokens": 8}
    first = client.chat.completions.create(messages=messages, **options)
    assert first.usage is not None
    assert first.usage.prompt_tokens > IMAGE_TOKENS
    chunks = list(client.chat.completions.create(messages=messages, stream=True, **options))
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == first.choices[0].message.content
    again = client.chat.completions.create(messages=messages, **options)
    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    assert again.usage.prompt_tokens_details.cached_tokens == again.usage.prompt_tokens - 1
    other = client.chat.completions.create(messages=question("the dog", image(OTHER), "the cat"), **options)
    assert other.usage is not None
    assert other.usage.prompt_tokens_details is not None
    assert other.usage.prompt_tokens_details.cached_tokens < other.usage.prompt_tokens - IMAGE_TOKENS
    assert http.get("/props?model=seeing").json()["modalities"]["vision"] is True


def test_different_images_give_different_probabilities(client: openai.OpenAI) -> None:
    def probabilities(data: str) -> dict[str, float]:
        answer = client.chat.completions.create(
            model="seeing",
            messages=question("the dog", image(data), "the cat"),
            max_tokens=1,
            temperature=0,
            logprobs=True,
            top_logprobs=5,
        )
        assert answer.choices[0].logprobs is not None
        assert answer.choices[0].logprobs.content is not None
        return {top.token: top.logprob for top in answer.choices[0].logprobs.content[0].top_logprobs}

    one, again, other = probabilities(ONE), probabilities(ONE), probabilities(OTHER)
    assert one == pytest.approx(again, abs=2e-3)
    assert one != pytest.approx(other, abs=2e-2)


def test_the_other_dialects_bring_images_too(http: httpx.Client, gateway: Gateway) -> None:
    with anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0) as claude:
        source: Any = {"type": "base64", "media_type": "image/png", "data": ONE}
        content: Any = [{"type": "text", "text": "the dog"}, {"type": "image", "source": source}]
        message = claude.messages.create(model="seeing", max_tokens=4, messages=[{"role": "user", "content": content}])
        counted = claude.messages.count_tokens(model="seeing", messages=[{"role": "user", "content": content}])
    assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) == counted.input_tokens
    ollama = http.post(
        "/api/chat",
        json={
            "model": "seeing",
            "stream": False,
            "options": {"num_predict": 4},
            "messages": [{"role": "user", "content": "the dog", "images": [ONE]}],
        },
    )
    assert ollama.json()["prompt_eval_count"] > IMAGE_TOKENS
    bad = {"model": "seeing", "messages": [{"role": "user", "content": "the dog", "images": [ONE, HUGE]}]}
    assert "messages[0].images[1]: an image of 20000" in http.post("/api/chat", json=bad).json()["error"]
    parts = [
        {"type": "input_text", "text": "the dog"},
        {"type": "input_image", "image_url": image(ONE)["image_url"]["url"]},
    ]
    responses = http.post(
        "/v1/responses",
        json={"model": "seeing", "max_output_tokens": 4, "input": [{"role": "user", "content": parts}]},
    )
    assert responses.json()["usage"]["input_tokens"] > IMAGE_TOKENS
    native = http.post(
        "/completion",
        json={
            "model": "seeing",
            "n_predict": 4,
            "prompt": {"prompt_string": "the dog <__media__>", "multimodal_data": [ONE]},
        },
    )
    assert native.json()["tokens_evaluated"] > IMAGE_TOKENS


def test_a_model_without_a_projector_is_named_before_it_is_loaded(client: openai.OpenAI, http: httpx.Client) -> None:
    with pytest.raises(openai.BadRequestError, match="'blind' takes no images") as caught:
        client.chat.completions.create(model="blind", messages=question("the dog", image(ONE)))
    assert caught.value.param == "messages[0].content[1].image_url"
    entries = {entry["id"]: entry for entry in http.get("/models").json()["data"]}
    assert entries["blind"]["status"]["value"] == "unloaded"


def test_a_projector_that_does_not_fit_is_told_with_both_numbers(http: httpx.Client) -> None:
    answer = http.post("/v1/chat/completions", json={"model": "odd", "messages": question("the dog")})
    assert answer.status_code == 503
    message = answer.json()["error"]["message"]
    assert "96" in message
    assert "64" in message
    assert "mmproj-model.gguf" in message


def test_a_model_for_embeddings_works_beside_a_projector(client: openai.OpenAI, http: httpx.Client) -> None:
    """What is found in its folder is not used, and images are refused."""
    answer = client.embeddings.create(model="embedding", input="the dog")
    assert len(answer.data[0].embedding) == 32
    entries = {entry["id"]: entry for entry in http.get("/models").json()["data"]}
    assert entries["embedding"]["architecture"]["input_modalities"] == ["text"]


def test_bad_images_are_refused_and_streams_go_on(client: openai.OpenAI) -> None:
    def stream() -> int:
        options: dict[str, Any] = {"model": "seeing", "max_tokens": 200, "temperature": 0}
        return len(list(client.chat.completions.create(messages=question("the dog"), stream=True, **options)))

    with concurrent.futures.ThreadPoolExecutor() as pool:
        streams = [pool.submit(stream) for _ in range(3)]
        for data, says in ((HUGE, "20000 x 20000"), (ONE[:80], "damaged"), ("AAAA", "no image")):
            with pytest.raises(openai.BadRequestError, match=says) as caught:
                client.chat.completions.create(model="seeing", messages=question("the dog", image(data)))
            assert caught.value.param == "messages[0].content[1].image_url"
        url = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}
        with pytest.raises(openai.BadRequestError, match="addresses are not fetched"):
            client.chat.completions.create(model="seeing", messages=question("the dog", url))
        assert all(future.result() >= 200 for future in streams)


def test_a_sound_is_transcribed_with_the_openai_sdk(client: openai.OpenAI, http: httpx.Client) -> None:
    """The tiny model babbles, but what it babbles is of the sound's length and comes in the right shape."""
    fields: dict[str, Any] = {"model": "hearing", "extra_body": {"max_tokens": 6}}
    answer = client.audio.transcriptions.create(file=("tone.wav", wav()), **fields)
    assert answer.text
    assert answer.usage is not None
    assert answer.usage.type == "tokens"
    assert answer.usage.input_tokens > SOUND_TOKENS
    text = client.audio.transcriptions.create(file=("tone.wav", wav()), response_format="text", **fields)
    assert text.strip() == answer.text
    events = list(client.audio.transcriptions.create(file=("tone.wav", wav()), stream=True, **fields))
    assert "".join(event.delta for event in events if event.type == "transcript.text.delta").strip() == answer.text
    assert events[-1].type == "transcript.text.done"
    with pytest.raises(openai.BadRequestError, match="file: a WAV file that claims 1073741824"):
        client.audio.transcriptions.create(file=("lie.wav", wav(claims=1 << 30)), **fields)
    with pytest.raises(openai.BadRequestError, match="'seeing'"):
        client.audio.transcriptions.create(file=("tone.wav", wav()), model="seeing")
    assert http.get("/props?model=hearing").json()["modalities"] == {"vision": False, "audio": True, "video": False}


def test_a_chat_about_a_sound(client: openai.OpenAI) -> None:
    sound = {"type": "input_audio", "input_audio": {"data": base64.b64encode(wav()).decode(), "format": "wav"}}
    answer = client.chat.completions.create(model="hearing", messages=question("the dog", sound), max_tokens=4)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > SOUND_TOKENS


def test_addresses_inside_the_network_are_never_fetched(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    (folder / "seeing").mkdir(parents=True)
    factory.language_model(folder / "seeing" / "model.gguf")
    factory.projector(folder / "seeing" / "mmproj-model.gguf")
    with running(tmp_path / "home", "--models-dir", str(folder), "--media-urls") as started:
        for host in (started.url, "http://localhost", "http://[::1]", "http://169.254.169.254"):
            url = {"type": "image_url", "image_url": {"url": f"{host}/x.png"}}
            body = {"model": "seeing", "messages": question("the dog", url)}
            answer = httpx.post(f"{started.url}/v1/chat/completions", json=body, timeout=60)
            assert answer.status_code == 400
            error = answer.json()["error"]
            assert error["param"] == "messages[0].content[1].image_url"
            assert "public internet" in error["message"] or "usual ports" in error["message"]
