"""Words of a sound file, with the OpenAI SDK and with broken forms."""

from __future__ import annotations

from typing import Any

import msgspec
import openai
import pytest

from protocol.chat import AudioPart, ChatPrompt, TextPart
from protocol.generate import Generate
from router.config.facts import ModelFacts
from router.config.settings import Settings
from tests.router.http.gateway import SMOL, gateway

HEARS = msgspec.structs.replace(SMOL, projector=ModelFacts(architecture="clip", kind="mmproj", hears=True))
SOUND = b"RIFF\x00\x00\x00\x00WAVEdata"


async def test_transcript_with_the_sdk() -> None:
    async with (
        gateway(models=[HEARS]) as running,
        openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="x", max_retries=0) as sdk,
    ):
        file = ("a.wav", SOUND)
        answer = await sdk.audio.transcriptions.create(model="smol", file=file, language="fr", temperature=0.2)
        plain: Any = await sdk.audio.transcriptions.create(model="smol", file=file, response_format="text")
        stream = await sdk.audio.transcriptions.create(model="smol", file=file, stream=True)
        events = [event async for event in stream]
        work = running.owner.works[0]
    assert answer.text == "Hello world"
    assert plain == "Hello world\n"
    assert [event.type for event in events] == [
        "transcript.text.delta",
        "transcript.text.delta",
        "transcript.text.done",
    ]
    assert isinstance(work, Generate)
    assert work.sampling.temperature == 0.2
    assert isinstance(work.prompt, ChatPrompt)
    assert work.prompt.messages[0].content == (
        TextPart("Transcribe audio to text (language: fr)"),
        AudioPart(SOUND, "wav", "file"),
    )


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"data": {"model": "smol"}, "files": {"other": SOUND}}, "No input file"),
        ({"data": {"model": "smol"}, "files": {"file": b""}}, "the file is empty"),
        ({"data": {"model": "smol", "temperature": "hot"}, "files": {"file": SOUND}}, "temperature"),
        ({"data": {"model": "smol", "response_format": "srt"}, "files": {"file": SOUND}}, "response_format"),
        ({"json": {"model": "smol"}}, "multipart/form-data"),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}, "broken"),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data; boundary=b"}}, ""),
    ],
)
async def test_bad_forms(form: dict[str, Any], words: str) -> None:
    async with gateway(models=[HEARS]) as running, running.client() as http:
        answer = await http.post("/v1/audio/transcriptions", **form)
        assert running.owner.works == []
    assert answer.status_code == 400, answer.text
    assert words in answer.json()["error"]["message"]


async def test_deaf_model_says_so_and_large_files_are_refused() -> None:
    async with (
        gateway(models=[SMOL], settings=Settings(body_limit=1000)) as running,
        running.client() as http,
    ):
        deaf = await http.post("/v1/audio/transcriptions", data={"model": "smol"}, files={"file": SOUND})
        large = await http.post("/v1/audio/transcriptions", data={"model": "smol"}, files={"file": SOUND * 100})
    assert deaf.status_code == 400
    assert "does not take audio" in deaf.json()["error"]["message"]
    assert large.status_code == 413
