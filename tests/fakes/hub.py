"""A hub on loopback that speaks enough for the real `huggingface_hub`, and misbehaves by name.

Large files answer like the real one: `resolve` redirects to another host, the "CDN", with the content's SHA-256 in
`X-Linked-Etag`; the CDN knows ranges, `If-Range`, and an ETag of its own.
"""

from __future__ import annotations

import asyncio
import enum
import functools
import hashlib
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import TracebackType

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.eventually import eventually

CHUNK = 64 * 1024
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class Fault(enum.StrEnum):
    """What can go wrong. `value` is bytes for cut and stall, a status for status, seconds for retry-after."""

    SLOW = "slow"
    """The body comes at `value` bytes per second."""
    STALL = "stall"
    """After `value` bytes of an answer nothing comes any more."""
    CUT = "cut"
    """After `value` bytes of an answer the connection is closed."""
    STATUS = "status"
    """The CDN answers with status `value`."""
    API_STATUS = "api_status"
    """The API answers with status `value`."""
    RATE_LIMIT = "rate_limit"
    """429 with `Retry-After: value`."""
    WRONG_BYTES = "wrong_bytes"
    """One byte in the middle is another."""
    CHANGED_ETAG = "changed_etag"
    """`resolve` names another content than the listing did."""
    CDN_ETAG = "cdn_etag"
    """The CDN's own ETag is another on each answer."""
    NO_RANGES = "no_ranges"
    """The CDN sends the whole file whatever is asked."""
    GATED = "gated"
    MISSING = "missing"
    """`resolve` knows no such file."""


@dataclass(frozen=True)
class FakeFile:
    """A file and its place: in large-file storage, or in git itself."""

    content: bytes
    large: bool = True

    @functools.cached_property
    def blob(self) -> str:
        if self.large:
            return hashlib.sha256(self.content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()


@dataclass
class FakeRepo:
    """`commits` are in order, the last is `main`. `token` is needed where it is set."""

    commits: dict[str, dict[str, FakeFile]] = field(default_factory=dict)
    token: str = ""

    def commit_of(self, revision: str) -> str:
        if revision == "main":
            return list(self.commits)[-1]
        return revision if revision in self.commits else ""


@dataclass
class _Armed:
    name: Fault
    value: float
    times: int


@dataclass
class Seen:
    """A request as the hub saw it."""

    method: str
    path: str
    authorization: str
    range: str
    if_range: str


class Cut(Exception):
    """Ends a connection in the middle of an answer."""


class FakeHub:
    """A hub in a thread of its own. Everything public may be used from any thread."""

    def __init__(self) -> None:
        self.repos: dict[str, FakeRepo] = {}
        self.seen: list[Seen] = []
        self.served: Counter[str] = Counter()
        """Body bytes sent by the CDN, per content."""
        self.open_answers = 0
        self.rate = 0.0
        """Bytes per second of all answers together; 0 = as fast as it goes."""
        self.cdn = ""
        """Where another server has the contents, "" for this one."""
        self._armed: list[_Armed] = []
        self._lock = threading.Lock()
        self._due = 0.0
        self._etags = 0
        self._stalled = asyncio.Event()
        routes = [
            Route("/api/models/{user}/{repo}", self._info),
            Route("/api/models/{user}/{repo}/revision/{revision:path}", self._info),
            Route("/{user}/{repo}/resolve/{revision}/{path:path}", self._resolve, methods=["GET", "HEAD"]),
            Route("/cdn/{blob}", self._cdn),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes), port=0, log_level="critical", lifespan="off", loop="asyncio", ws="none"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="fake-hub", daemon=True)

    def __enter__(self) -> FakeHub:
        self._thread.start()
        eventually(lambda: self._server.started, 5, "the fake hub listens")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join()

    @property
    def port(self) -> int:
        port: int = self._server.servers[0].sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # Content

    def add(self, repo: str, files: dict[str, bytes | FakeFile], commit: str = "", token: str = "") -> str:
        """Add a commit, which becomes `main`. Returns its hash. `token` opens a private repository."""
        fake = self.repos.setdefault(repo, FakeRepo())
        fake.token = token or fake.token
        commit = commit or hashlib.sha1(f"{repo}{len(fake.commits)}".encode()).hexdigest()
        fake.commits[commit] = {
            path: content if isinstance(content, FakeFile) else FakeFile(content) for path, content in files.items()
        }
        return commit

    def arm(self, name: Fault, value: float = 0, times: int = 1) -> None:
        """Let the next `times` answers that it concerns go wrong; -1 = all."""
        with self._lock:
            self._armed.append(_Armed(name, value, times))

    def disarm(self) -> None:
        with self._lock:
            self._armed.clear()

    def gets(self, prefix: str = "/cdn/") -> list[Seen]:
        """The requests for content, in order."""
        return [each for each in self.seen if each.method == "GET" and each.path.startswith(prefix)]

    def _take(self, *names: Fault) -> _Armed | None:
        with self._lock:
            for armed in self._armed:
                if armed.name in names and armed.times != 0:
                    armed.times -= 1
                    return armed
        return None

    # Answers

    def _note(self, request: Request) -> None:
        headers = request.headers
        self.seen.append(
            Seen(
                request.method,
                request.url.path,
                headers.get("authorization", ""),
                headers.get("range", ""),
                headers.get("if-range", ""),
            )
        )

    def _find(self, request: Request) -> tuple[str, FakeRepo] | Response:
        wanted = f"{request.path_params['user']}/{request.path_params['repo']}"
        for name, repo in self.repos.items():
            if name.lower() == wanted.lower():
                if repo.token and request.headers.get("authorization") != f"Bearer {repo.token}":
                    return _error(401, "", "Invalid username or password.")
                if self._take(Fault.GATED):
                    return _error(403, "GatedRepo", "Access to this model is restricted.")
                return name, repo
        return _error(404, "RepoNotFound", "Repository not found")

    async def _info(self, request: Request) -> Response:
        self._note(request)
        if armed := self._take(Fault.API_STATUS):
            return _error(int(armed.value), "", "")
        found = self._find(request)
        if isinstance(found, Response):
            return found
        name, repo = found
        commit = repo.commit_of(request.path_params.get("revision", "main"))
        if not commit:
            return _error(404, "RevisionNotFound", "Invalid rev id")
        siblings = [_sibling(path, file) for path, file in repo.commits[commit].items()]
        return JSONResponse({"id": name, "modelId": name, "sha": commit, "private": False, "siblings": siblings})

    async def _resolve(self, request: Request) -> Response:
        self._note(request)
        found = self._find(request)
        if isinstance(found, Response):
            return found
        _, repo = found
        commit = repo.commit_of(request.path_params["revision"])
        if not commit:
            return _error(404, "RevisionNotFound", "Invalid rev id")
        file = repo.commits[commit].get(request.path_params["path"])
        if file is None or self._take(Fault.MISSING):
            return _error(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
        blob = "0" * 64 if self._take(Fault.CHANGED_ETAG) else file.blob
        headers = {"X-Repo-Commit": commit}
        if not file.large:
            return Response(file.content, headers=headers | {"ETag": f'"{blob}"'})
        headers |= {
            "X-Linked-Etag": f'"{blob}"',
            "X-Linked-Size": str(len(file.content)),
            # Another host name, so that a client must not send its token there.
            "Location": f"{self.cdn or f'http://localhost:{self.port}/cdn'}/{file.blob}",
        }
        return Response(status_code=302, headers=headers)

    async def _cdn(self, request: Request) -> Response:
        self._note(request)
        if armed := self._take(Fault.STATUS):
            return _error(int(armed.value), "", "")
        if armed := self._take(Fault.RATE_LIMIT):
            return _error(429, "", "", {"Retry-After": str(int(armed.value))})
        file = next((each for each in self._contents() if each.blob == request.path_params["blob"]), None)
        if file is None:
            return _error(404, "", "")
        content = file.content
        if self._take(Fault.WRONG_BYTES):
            middle = len(content) // 2
            content = content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
        etag = f'"cdn-{file.blob[:16]}"'
        if self._take(Fault.CDN_ETAG):
            self._etags += 1
            etag = f'"cdn-{self._etags}"'
        start, end, partial = 0, len(content), False
        match = _RANGE.fullmatch(request.headers.get("range", ""))
        if match and request.headers.get("if-range", etag) == etag and not self._take(Fault.NO_RANGES):
            start, partial = int(match[1]), True
            end = min(int(match[2]) + 1, end) if match[2] else end
            if start >= len(content):
                return _error(416, "", "", {"Content-Range": f"bytes */{len(content)}"})
        headers = {"ETag": etag, "Content-Length": str(end - start), "Accept-Ranges": "bytes"}
        if partial:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        body = self._body(file.blob, content[start:end], self._take(Fault.CUT, Fault.STALL, Fault.SLOW))
        return StreamingResponse(body, 206 if partial else 200, headers, "application/octet-stream")

    def _contents(self) -> list[FakeFile]:
        return [file for repo in self.repos.values() for files in repo.commits.values() for file in files.values()]

    async def _body(self, blob: str, content: bytes, armed: _Armed | None) -> AsyncIterator[bytes]:
        limit = int(armed.value) if armed and armed.name in (Fault.CUT, Fault.STALL) else len(content)
        rate = armed.value if armed and armed.name is Fault.SLOW else 0.0
        self.open_answers += 1
        try:
            for at in range(0, min(limit, len(content)), CHUNK):
                piece = content[at : min(at + CHUNK, limit)]
                await self._pace(len(piece), rate)
                yield piece
                self.served[blob] += len(piece)
            if armed and armed.name is Fault.CUT:
                raise Cut
            if armed and armed.name is Fault.STALL:
                await self._stalled.wait()
        finally:
            self.open_answers -= 1

    async def _pace(self, size: int, rate: float) -> None:
        now = asyncio.get_running_loop().time()
        if rate:
            await asyncio.sleep(size / rate)  # noqa: TID251  the fault itself
        elif self.rate:
            self._due = max(self._due, now) + size / self.rate
            await asyncio.sleep(self._due - now)  # noqa: TID251


def _sibling(path: str, file: FakeFile) -> dict[str, object]:
    sibling: dict[str, object] = {"rfilename": path, "size": len(file.content), "blobId": "a" * 40}
    if file.large:
        sibling["lfs"] = {"sha256": file.blob, "size": len(file.content), "pointerSize": 135}
    else:
        sibling["blobId"] = file.blob
    return sibling


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    extra = {"X-Error-Code": code, "X-Error-Message": message} if code or message else {}
    return JSONResponse({"error": message}, status, headers=extra | (headers or {}))
