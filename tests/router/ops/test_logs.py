from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest

from protocol.chat import TextPrompt
from protocol.generate import Generate
from protocol.text import Tokenize
from router.logs.formats import FIELDS
from router.logs.redaction import MASK, Redactor
from router.logs.requests import LONGEST_PROMPT, RequestRecord, log_request, log_work
from router.logs.setup import UnknownLevel, configure_logging, current_level, set_level


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    for name in ("asyncio", "uvicorn.access", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.NOTSET)


RECORD = RequestRecord(
    id="req-1",
    end="eos",
    total_ms=812.3456,
    key="ci",
    model="qwen",
    queue_ms=0.0,
    ttft_ms=104.06,
    prompt_tokens=12,
    completion_tokens=0,
)


def test_json_is_chosen_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    log_request(RECORD)
    (line,) = stream.getvalue().splitlines()
    parsed = json.loads(line)
    assert parsed.pop("time").endswith("+00:00")
    assert parsed == {
        "level": "info",
        "logger": "llamaherd.request",
        "message": "request",
        "id": "req-1",
        "end": "eos",
        "total_ms": 812.3,
        "key": "ci",
        "model": "qwen",
        "queue_ms": 0.0,
        "ttft_ms": 104.1,
        "prompt_tokens": 12,
        "completion_tokens": 0,
    }


def test_a_message_of_several_lines_stays_one_json_line() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    try:
        raise RuntimeError("two\nlines")
    except RuntimeError:
        logging.getLogger("x").exception("broken\nhere")
    (line,) = stream.getvalue().splitlines()
    assert "RuntimeError: two\nlines" in json.loads(line)["exception"]


def test_fields_cannot_forge_the_level() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    logging.getLogger("x").info("m", extra={FIELDS: {"level": "error", "path": object}})
    assert json.loads(stream.getvalue())["level"] == "info"


def test_console_lines_are_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    configure_logging(log_format="console", stream=stream)
    log_request(RECORD)
    logging.getLogger("x").warning("careful", extra={FIELDS: {"why": 'it "may" fail', "empty": ""}})
    first, second = stream.getvalue().splitlines()
    assert first.split(" ", 1)[1].startswith("I request id=req-1 model=qwen end=eos total_ms=812.3")
    assert second.split(" ", 1)[1] == r'W careful why="it \"may\" fail" empty=""'
    assert "\x1b" not in first


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_may_refuse_colour(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    coloured = Terminal()
    configure_logging(stream=coloured)
    logging.getLogger("x").error("boom")
    assert "\x1b[31m" in coloured.getvalue()
    monkeypatch.setenv(variable, value)
    plain = Terminal()
    configure_logging(stream=plain)
    logging.getLogger("x").error("boom")
    assert "\x1b" not in plain.getvalue()


@pytest.mark.parametrize(("end", "level"), [("eos", "info"), ("invalid_request", "info"), ("worker_died", "warning")])
def test_faults_are_warnings_and_mistakes_of_clients_are_not(end: str, level: str) -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    log_request(RequestRecord("r", "m", end, 1.0))
    assert json.loads(stream.getvalue())["level"] == level


def test_the_level_changes_at_run_time() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    set_level("warning")
    log_request(RECORD)
    assert stream.getvalue() == ""
    set_level("DEBUG")
    assert current_level() == "debug"
    log_request(RECORD)
    assert "req-1" in stream.getvalue()
    with pytest.raises(UnknownLevel, match="debug, info, warning, error"):
        set_level("loud")


def test_setting_up_twice_does_not_write_twice() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logging(stream=first)
    configure_logging(stream=second)
    logging.getLogger("x").info("once")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1


def test_warnings_of_libraries_become_log_lines() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert "old" in json.loads(stream.getvalue())["message"]


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer {}",
        "headers={{'authorization': 'Bearer {}'}}",
        '{{"x-api-key": "{}"}}',
        "GET /x?api_key={}&y=1",
        "token={}",
        "X-API-KEY={}",
    ],
)
def test_whatever_looks_like_a_secret_is_masked(text: str) -> None:
    secret = "Zx9-unknown_value.77"
    masked = Redactor().redact(text.format(secret))
    assert secret not in masked
    assert MASK in masked


@pytest.mark.parametrize("secret", ["hf_abcdefghijklmnopqrstuvwx", "sk-proj-abcdefghijklmnop1234", "lh-" + "a" * 43])
def test_bare_tokens_of_known_shapes_are_masked(secret: str) -> None:
    assert Redactor().redact(f"failed with {secret} at") == f"failed with {MASK} at"


def test_configured_secrets_are_masked_in_messages_arguments_and_tracebacks() -> None:
    stream = io.StringIO()
    redactor = configure_logging(stream=stream, secrets=["hunter22", "hunter22-longer", "abc"])
    try:
        raise ValueError("bad hunter22-longer")
    except ValueError:
        logging.getLogger("x").exception("saw %s in abc", "hunter22")
    assert "hunter" not in stream.getvalue()
    assert "longer" not in stream.getvalue()
    assert "in abc" in stream.getvalue()
    redactor.set_secrets(["swordfish"])
    logging.getLogger("x").info("swordfish")
    assert "swordfish" not in stream.getvalue()


def test_ordinary_words_stay() -> None:
    text = "loaded model qwen in 3.2 s: 12 tokens, 4 slots; token count 7; tokens=12"
    assert Redactor().redact(text) == text


def test_prompts_are_logged_whole_but_not_without_end() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    log_work("r1", "qwen", Generate(1, TextPrompt("why?\nbecause")))
    log_work("r2", "qwen", Generate(2, TextPrompt("x" * 100_000)))
    log_work("r3", "qwen", Tokenize(3, "words"))
    first, second, third = map(json.loads, stream.getvalue().splitlines())
    assert (first["id"], first["model"]) == ("r1", "qwen")
    assert json.loads(first["prompt"])["text"] == "why?\nbecause"
    assert len(second["prompt"]) < LONGEST_PROMPT + 100
    assert "words" in third["prompt"]
