"""Talks to a gateway over HTTP with nothing but the standard library, so that every command starts at once.

Every failure is a `ClientError` whose text says what to do and whose `exit` is the command's exit code.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from router.cli.exits import Exit

TIMEOUT = 30.0
MAX_ERROR_TEXT = 2_000


class ClientError(Exception):
    """A command cannot do what was asked of it."""

    def __init__(self, message: str, exit: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.exit = exit


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Client:
    """One gateway at a URL (`http://…`, `https://…` or `unix:/path/to.sock`). Each call uses its own connection."""

    def __init__(self, url: str, api_key: str = "", timeout: float = TIMEOUT) -> None:
        if "://" not in url and not url.startswith("unix:"):
            url = "http://" + url
        try:
            parts = urlsplit(url)
            good = parts.scheme == "unix" or (parts.scheme in ("http", "https") and bool(parts.hostname))
        except ValueError:
            good = False
        if not good:
            raise ClientError(
                f"'{url}' is no address of a gateway; write http://host:port or unix:/path.sock", Exit.USAGE
            )
        self.url = url.rstrip("/")
        self.timeout = timeout
        self._parts = parts
        self._prefix = "" if parts.scheme == "unix" else parts.path.rstrip("/")
        self._api_key = api_key

    def get(self, path: str, **query: object) -> Any:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: object = None, **query: object) -> Any:
        return self.call("POST", path, body, query)

    def delete(self, path: str, **query: object) -> Any:
        return self.call("DELETE", path, query=query)

    def call(self, method: str, path: str, body: object = None, query: dict[str, object] | None = None) -> Any:
        """One request; the JSON of its answer, None for an empty one. Raises `ClientError`."""
        with self.open(method, path, body, query or {}) as response:
            try:
                data = response.read()
            except (OSError, http.client.HTTPException) as error:
                raise ClientError(f"the answer of {self.url} broke off: {error}") from error
        try:
            return json.loads(data) if data else None
        except ValueError:
            raise ClientError(f"{self.url} does not answer like a gateway: {data[:80]!r}") from None

    @contextlib.contextmanager
    def open(
        self,
        method: str,
        path: str,
        body: object = None,
        query: dict[str, object] | None = None,
        headers: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """One request whose answer is read by the caller, as it comes. Raises `ClientError` for an error status."""
        connection = self._connection(self.timeout if timeout is None else timeout)
        try:
            try:
                connection.request(
                    method, self._target(path, query or {}), _encoded(body), self._headers(body, headers)
                )
                response = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                raise self._unreachable(error) from error
            if response.status >= 400:
                raise _refusal(response)
            yield response
        finally:
            connection.close()

    def lines(self, method: str, path: str, body: object = None, **query: object) -> Iterator[str]:
        """The lines of a streamed answer, as they come. Raises `ClientError` if it breaks off."""
        with self.open(method, path, body, query, {"Accept": "text/event-stream"}, timeout=0) as response:
            yield from self.lines_of(response)

    def lines_of(self, response: http.client.HTTPResponse) -> Iterator[str]:
        try:
            for raw in response:
                yield raw.decode("utf-8", "replace").rstrip("\r\n")
        except (OSError, http.client.HTTPException) as error:
            raise ClientError(f"the stream from {self.url} broke off: {error}", Exit.UNREACHABLE) from error

    def _target(self, path: str, query: dict[str, object]) -> str:
        given = {name: _query_value(value) for name, value in query.items() if value is not None}
        return self._prefix + quote(path, safe="/:") + ("?" + urlencode(given) if given else "")

    def _headers(self, body: object, more: dict[str, str] | None) -> dict[str, str]:
        headers = {"Accept": "application/json", **(more or {})}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        return headers

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        limit = timeout or None
        parts = self._parts
        if parts.scheme == "unix":
            return _UnixConnection(self.url.removeprefix("unix:").removeprefix("//"), limit)
        assert parts.hostname is not None
        try:
            if parts.scheme == "https":
                context = ssl.create_default_context()
                return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=limit, context=context)
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=limit)
        except ValueError as error:
            raise ClientError(f"'{self.url}': {error}", Exit.USAGE) from None

    def _unreachable(self, error: Exception) -> ClientError:
        if isinstance(error, TimeoutError):
            return ClientError(
                f"the gateway at {self.url} does not answer (no reply for {self.timeout:g} s)", Exit.UNREACHABLE
            )
        if isinstance(error, ssl.SSLError):
            return ClientError(
                f"no secure connection to {self.url}: {error.reason or error}\n"
                "A certificate of your own is trusted when SSL_CERT_FILE names it.",
                Exit.UNREACHABLE,
            )
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        return ClientError(
            f"no gateway at {self.url}: {reason}\n"
            "Start one with `llamaherd serve`, or name another with --url (or LLAMAHERD_URL).",
            Exit.UNREACHABLE,
        )


def _encoded(body: object) -> bytes | None:
    return None if body is None else json.dumps(body).encode()


def _query_value(value: object) -> object:
    return int(value) if isinstance(value, bool) else value


def _refusal(response: http.client.HTTPResponse) -> ClientError:
    """The error of an answer, in any dialect's shape."""
    text = response.read(MAX_ERROR_TEXT).decode("utf-8", "replace")
    message = text.strip() or response.reason
    try:
        error = json.loads(text).get("error", {})
        message = error if isinstance(error, str) else error.get("message", message)
    except (ValueError, AttributeError):
        pass  # Not ours, e.g. a proxy's page: its text is the message.
    if response.status in (401, 403):
        hint = (
            "Name a key with --api-key or LLAMAHERD_API_KEY." if response.status == 401 else "The key may not do this."
        )
        return ClientError(f"{message}\n{hint}", Exit.DENIED)
    if response.status == 404:
        return ClientError(message, Exit.NOT_FOUND)
    retry = response.headers.get("Retry-After")
    return ClientError(f"{message} (try again in {retry} s)" if retry else message)
