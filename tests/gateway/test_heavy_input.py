"""Requests that are too much, while another client's stream runs: refused or served in turn, and the stream goes on."""

from __future__ import annotations

import concurrent.futures
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.eventually import eventually
from tests.gateway.process import Gateway

pytestmark = pytest.mark.model

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello"}]
STALL = 5.0
"""Seconds without a token that a running stream may never see, on however slow a machine."""
WORDS = "llama herd mountain river stone bread market morning cloud bridge".split()

DEEP: dict[str, Any] = {"type": "string"}
for _ in range(200):
    DEEP = {"type": "object", "properties": {"a": DEEP}}
WIDE = {"type": "object", "properties": {f"p{i}": {"enum": [f"v{j}" for j in range(100)]} for i in range(300)}}
PRODUCT: dict[str, Any] = {"$defs": {"n0": {"type": "string"}}, "$ref": "#/$defs/n24"}
for i in range(1, 25):
    both = [{"$ref": f"#/$defs/n{i - 1}"}, {"type": "array", "items": {"$ref": f"#/$defs/n{i - 1}"}}]
    PRODUCT["$defs"][f"n{i}"] = {"anyOf": both}


class Running(threading.Thread):
    """A stream that another client reads, with the longest time between two of its tokens."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.longest = 0.0
        self.tokens = 0
        self.done = threading.Event()

    def run(self) -> None:
        with httpx.Client(timeout=60) as http:
            while not self.done.is_set():
                self._read(http)

    def _read(self, http: httpx.Client) -> None:
        body = {"model": "smol", "messages": HELLO, "stream": True, "max_tokens": 2000, "ignore_eos": True}
        last = 0.0
        with http.stream("POST", f"{self.url}{CHAT}", json=body) as response:
            for line in response.iter_lines():
                if '"content":"' in line:
                    now = time.monotonic()
                    if last:
                        self.longest = max(self.longest, now - last)
                    last, self.tokens = now, self.tokens + 1
                if self.done.is_set():
                    return


@pytest.fixture(scope="module")
def other_client(gateway: Gateway) -> Iterator[Running]:
    stream = Running(gateway.url)
    stream.start()
    eventually(lambda: stream.tokens > 2, 60, "the stream begins")
    yield stream
    stream.done.set()
    stream.join(60)


@pytest.fixture
def running_stream(other_client: Running) -> Iterator[None]:
    """Runs beside the test, and must have gone on the whole time."""
    other_client.longest = 0.0
    yield
    before = other_client.tokens
    eventually(lambda: other_client.tokens > before + 2, STALL, "the stream still runs")
    assert other_client.longest < STALL


def post(http: httpx.Client, path: str = CHAT, **fields: Any) -> httpx.Response:
    body = {"model": "smol", "max_tokens": 4, **fields}
    if path == CHAT:
        body.setdefault("messages", HELLO)
    return http.post(path, json=body)


@pytest.mark.usefixtures("running_stream")
def test_too_much_of_everything_is_refused_or_served(http: httpx.Client) -> None:
    huge = "llama herd mountain " * 500_000
    answers = {
        "a prompt of 10 MB": post(http, messages=[{"role": "user", "content": huge}]),
        "a prompt of 10 MB without a space": post(http, "/completion", prompt="x" * 10_000_000, n_predict=1),
        "ten thousand stop strings": post(http, stop=[f"stop {i}" for i in range(10_000)]),
        "a stop string of 1 MB": post(http, stop=["x" * 1_000_000]),
        "tokens without end": post(http, max_tokens=2**31),
        "tokens below zero": post(http, max_tokens=-(2**40)),
        "a hundred thousand messages": post(http, messages=HELLO * 100_000),
        "a million tokens": post(http, "/completion", prompt=[1] * 1_000_000),
    }
    found = {name: answer.status_code for name, answer in answers.items()}
    assert all(status in (200, 400, 413, 429) for status in found.values()), found
    assert found["a prompt of 10 MB"] in (400, 413)
    assert all(answer.json()["error"]["message"] for answer in answers.values() if answer.status_code != 200)


@pytest.mark.usefixtures("running_stream")
@pytest.mark.parametrize(
    ("fields", "status"),
    [
        pytest.param({"logit_bias": {str(i): -1.0 for i in range(49_152)}}, (400,), id="a bias on every token"),
        pytest.param({"json_schema": DEEP}, (400,), id="a deep schema"),
        pytest.param({"json_schema": WIDE}, (200, 400), id="a wide schema"),
        pytest.param({"json_schema": PRODUCT}, (200, 400), id="a schema that explodes"),
        pytest.param(
            {"json_schema": {"type": "string", "pattern": "^(a+)+(b|a)*(a*)*$"}},
            (200, 400),
            id="a backtracking pattern",
        ),
        pytest.param(
            {"json_schema": {"type": "string", "pattern": "^((a{1,99}){1,99}){1,99}$"}}, (200, 400), id="a huge pattern"
        ),
        pytest.param({"json_schema": {"type": "nothing"}}, (400,), id="no schema"),
        pytest.param({"json_schema": {"$ref": "#/$defs/none"}}, (400,), id="a reference to nothing"),
        pytest.param({"grammar": "root ::= ("}, (400,), id="no grammar"),
        pytest.param({"grammar": "root ::= root"}, (400,), id="a grammar that calls itself"),
        pytest.param({"grammar": 'root ::= ("a"{1,5000}){1,5000}'}, (200, 400), id="a grammar that explodes"),
        pytest.param({"grammar": "root ::= " + "(" * 5000 + '"a"' + ")" * 5000}, (400,), id="a deep grammar"),
    ],
)
def test_what_cannot_be_sampled_is_refused(http: httpx.Client, fields: dict[str, Any], status: tuple[int, ...]) -> None:
    answer = post(http, "/completion", prompt="Hello", n_predict=4, **fields)
    assert answer.status_code in status, answer.text
    if answer.status_code == 400:
        assert answer.json()["error"]["message"]


@pytest.mark.usefixtures("running_stream")
@pytest.mark.parametrize(
    "template",
    [
        pytest.param("{% for i in range(10**9) %}{{ i }}{% endfor %}", id="endless"),
        pytest.param("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", id="a long loop"),
        pytest.param("{{ 'x' * 10**9 }}", id="much text"),
        pytest.param("{{ 9**9**9 }}", id="a large number"),
        pytest.param("{{ ''.__class__.__mro__ }}", id="internals"),
        pytest.param("{{ cycler.__init__.__globals__.os.popen('id').read() }}", id="a shell"),
        pytest.param("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", id="recursion"),
        pytest.param("{% if %}", id="a mistake"),
    ],
)
def test_a_template_that_does_not_end_or_reaches_out_is_refused(http: httpx.Client, template: str) -> None:
    answer = post(http, chat_template=template)
    assert answer.status_code == 400, answer.text
    assert "template" in answer.json()["error"]["message"]


@pytest.mark.usefixtures("running_stream")
def test_five_hundred_requests_at_once_are_served_or_refused(gateway: Gateway) -> None:
    limits = httpx.Limits(max_connections=None)
    with (
        httpx.Client(base_url=gateway.url, timeout=110, limits=limits) as http,
        concurrent.futures.ThreadPoolExecutor(500) as pool,
    ):
        prompts = [f"{number} the house" for number in range(500)]
        answers = pool.map(lambda prompt: post(http, "/completion", model="tiny", prompt=prompt, n_predict=4), prompts)
        statuses = [answer.status_code for answer in answers]
    assert set(statuses) <= {200, 429, 503}
    assert statuses.count(200) > 4


def test_a_client_that_hardly_reads_holds_nobody_up(gateway: Gateway, http: httpx.Client) -> None:
    """One byte at a time, of a stream that others do not wait for and the worker does not keep."""
    address = urlsplit(gateway.url)
    assert address.hostname is not None
    assert address.port is not None
    body = json.dumps({"model": "tiny", "prompt": "the", "n_predict": 3000, "ignore_eos": True, "stream": True})
    head = (
        f"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        slow.connect((address.hostname, address.port))
        slow.sendall((head + body).encode())
        assert slow.recv(1) == b"H"

        def is_idle() -> bool:
            slots = http.get("/slots", params={"model": "tiny"}).json()
            return not any(slot["is_processing"] for slot in slots)

        for _ in range(20):
            assert len(slow.recv(1)) == 1
            assert post(http, "/completion", model="tiny", prompt="the house", n_predict=4).status_code == 200
        eventually(is_idle, 60, "the worker is done although nobody has read")
    router = psutil.Process(gateway.process.pid).memory_info().rss
    assert router < 150 << 20
