from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest

from router.cli.client import Client, ClientError
from router.cli.exits import Exit
from tests.router.cli.stub import Answer, StubGateway, serving


def test_a_unix_socket(tmp_path: Path) -> None:
    with serving(StubGateway(), str(tmp_path / "gateway.sock")) as gateway:
        assert Client(gateway.url).get("/health") == {"status": "ok"}


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:port", "http://[::1"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ClientError) as raised:
        Client(url).get("/health")
    assert raised.value.exit is Exit.USAGE


def test_a_bare_host_and_a_prefix(gateway: StubGateway) -> None:
    gateway.on("GET", "/llm/health", {"status": "ok"})
    bare = gateway.url.removeprefix("http://")
    assert Client(f"{bare}/llm/").get("/health") == {"status": "ok"}


def test_names_are_quoted_and_empty_parameters_left_out(gateway: StubGateway) -> None:
    gateway.answer = lambda asked: Answer(value=[asked.path, asked.query])  # type: ignore[method-assign]
    client = Client(gateway.url)
    assert client.get("/v1/models/a b/c:Q4_0", force=True, other=None) == ["/v1/models/a%20b/c:Q4_0", {"force": "1"}]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Answer(500, {"error": "ollama's shape"}), "ollama's shape"),
        (Answer(500, {"error": {"message": "openai's shape"}}), "openai's shape"),
        (Answer(502, text="<html>a proxy's page</html>"), "a proxy's page"),
        (Answer(500, text=""), "Internal Server Error"),
        (Answer(500, [1, 2]), "[1, 2]"),
    ],
)
def test_errors_of_every_shape(answer: Answer, text: str, gateway: StubGateway) -> None:
    gateway.on("GET", "/x", answer)
    with pytest.raises(ClientError) as raised:
        Client(gateway.url).get("/x")
    assert text in str(raised.value)


def test_an_answer_that_is_cut_off(gateway: StubGateway) -> None:
    gateway.on("GET", "/x", Answer(value={"a": 1}, cut=True))
    with pytest.raises(ClientError, match="broke off"):
        Client(gateway.url).get("/x")


def test_a_gateway_that_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1)
        with pytest.raises(ClientError, match="does not answer") as raised:
            client.get("/health")
    assert raised.value.exit is Exit.UNREACHABLE


def test_plain_http_where_tls_was_wanted(gateway: StubGateway) -> None:
    with pytest.raises(ClientError, match="no secure connection") as raised:
        Client(gateway.url.replace("http://", "https://")).get("/health")
    assert raised.value.exit is Exit.UNREACHABLE
    assert isinstance(raised.value.__cause__, ssl.SSLError)


def test_a_peer_that_hangs_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(ClientError, match="no gateway at"):
            Client(f"http://127.0.0.1:{server.getsockname()[1]}").get("/health")
        thread.join()
