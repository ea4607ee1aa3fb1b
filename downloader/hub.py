"""The only module that talks to a hub, through the hub's own library. Lives in job processes: importing it costs 0.3 s.

The bytes of a file are read from the library's own HTTP session rather than by its `http_get`, which buffers 10 MiB
before it writes, hides the ETag that a later `If-Range` needs, and refuses files above 50 GB: one answer of the hub's
CDN cannot be longer. Ours are asked for in windows, so no answer is ever that long and Xet is not needed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from huggingface_hub import (
    HfApi,
    constants,
    get_hf_file_metadata,
    get_session,
    hf_hub_url,
    hf_raise_for_status,
    scan_cache_dir,
)
from huggingface_hub.errors import (
    DisabledRepoError,
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # exported lazily
from msgspec import Struct

from downloader.faults import DownloadFault, invalid, transient
from downloader.removal import doomed_paths
from downloader.resolver import Entry, Listing
from protocol.errors import ErrorKind

CONNECT_TIMEOUT = 10.0
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_PATIENCE = frozenset({408, 425, 429, 500, 502, 503, 504})


class Remote(Struct, frozen=True):
    """Where a file's bytes are now. `etag` is the hub's name of the content, as a blob's name in the cache."""

    url: str
    etag: str
    size: int
    headers: dict[str, str]


class Body(Struct, frozen=True):
    """An answer being read: bytes from offset `start` on. `etag` is the sender's own, "" unless it is a strong one."""

    start: int
    etag: str
    chunks: Iterator[bytes]


class Hub:
    """One hub (`HF_ENDPOINT` or huggingface.co), with an access token or without.

    Every method raises `DownloadFault`. Without a token the one that `hf auth login` stored is used, if there is one.
    """

    def __init__(self, token: str = "") -> None:
        self._token = token or None
        self._api = HfApi(token=self._token)

    def listing(self, repo: str, revision: str) -> Listing:
        """The files of a repository at a revision, under the repository's own spelling of its name."""
        with _faults(repo, revision):
            info = self._api.model_info(repo, revision=revision, files_metadata=True, timeout=CONNECT_TIMEOUT)
        if info.sha is None:
            raise transient(f"the hub does not say what '{revision}' of {repo} means")
        entries = []
        for sibling in info.siblings or []:
            blob = sibling.lfs.sha256 if sibling.lfs is not None else sibling.blob_id
            if sibling.size is not None and blob:
                entries.append(Entry(sibling.rfilename, sibling.size, blob))
        return Listing(info.id, info.sha, tuple(entries))

    def locate(self, repo: str, commit: str, path: str) -> Remote:
        """Ask where a file is and what it is now."""
        url = hf_hub_url(repo, path, revision=commit)
        with _faults(repo, commit, path):
            found = get_hf_file_metadata(url, token=self._token, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        if found.etag is None or found.size is None:
            raise transient(f"the hub does not say what '{path}' of {repo} is")
        headers = build_hf_headers(token=self._token)
        headers["Accept-Encoding"] = "identity"
        if urlsplit(found.location).netloc != urlsplit(url).netloc:
            headers.pop("authorization", None)  # a signed address at another host: the token is not for it
        return Remote(found.location, found.etag, found.size, headers)

    @contextlib.contextmanager
    def read(self, remote: Remote, start: int, end: int, if_range: str) -> Iterator[Body]:
        """Read bytes `start`..`end` (exclusive) of a file; they may begin at 0 instead when the content has changed.

        `if_range` is the ETag under which earlier bytes were sent, "" for none.
        """
        headers = dict(remote.headers)
        if start > 0 or end < remote.size:
            headers["Range"] = f"bytes={start}-{end - 1}"
            if if_range and start > 0:
                headers["If-Range"] = if_range
        timeout = (CONNECT_TIMEOUT, None, CONNECT_TIMEOUT, CONNECT_TIMEOUT)  # silence is the watchdog's matter
        with _faults(remote.url), get_session().stream("GET", remote.url, headers=headers, timeout=timeout) as response:
            if response.status_code >= 400:
                response.read()
            hf_raise_for_status(response)
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise transient("the hub sent the file compressed although it was told not to")
            yield Body(_first_byte(response, start, remote.size), _strong(response), response.iter_raw())

    @staticmethod
    def remove(cache: Path, repo: str, paths: tuple[str, ...], superseded: bool) -> int:
        """Delete files from every revision of a cached repository, and revisions without a ref where asked.

        A blob goes with the last file that refers to it, in any repository that shares it. Returns the bytes freed.
        """
        found = scan_cache_dir(cache)
        cached = next((each for each in found.repos if each.repo_type == "model" and each.repo_id == repo), None)
        if cached is None:
            damage = next((str(each) for each in found.warnings if repo.replace("/", "--") in str(each)), "")
            raise DownloadFault(ErrorKind.NOT_FOUND, damage or f"{repo} is not in the cache")
        existing = {
            file.file_path.relative_to(revision.snapshot_path).as_posix()
            for revision in cached.revisions
            for file in revision.files
        }
        doomed = doomed_paths(existing, paths)
        files = [
            file
            for revision in cached.revisions
            for file in revision.files
            if file.file_path.relative_to(revision.snapshot_path).as_posix() in doomed
            or (superseded and not revision.refs)
        ]
        plan = found.delete_files(*files)
        plan.execute()
        left = [path for path in plan.files if os.path.lexists(path)]
        if left:
            raise DownloadFault(ErrorKind.INTERNAL, f"{left[0]} could not be deleted")
        return plan.expected_freed_size


def _first_byte(response: httpx2.Response, start: int, size: int) -> int:
    if response.status_code != 206:
        return 0
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if match is None or int(match[1]) != start or int(match[3]) != size:
        raise transient(f"the hub answered with another range than asked: {response.headers.get('Content-Range')}")
    return start


def _strong(response: httpx2.Response) -> str:
    etag: str = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else ""


@contextlib.contextmanager
def _faults(repo: str, revision: str = "", path: str = "") -> Iterator[None]:
    """Translate what the library raises. Order matters: a gated repository is also one that is not found."""
    what = f"'{path}' in {repo}" if path else repo
    try:
        yield
    except GatedRepoError as error:
        raise DownloadFault(
            ErrorKind.FORBIDDEN,
            f"{repo} is gated: accept its terms on the hub, and set HF_TOKEN to a token of that user",
        ) from error
    except DisabledRepoError as error:
        raise DownloadFault(ErrorKind.FORBIDDEN, f"access to {repo} is disabled by the hub") from error
    except RepositoryNotFoundError as error:
        raise _unknown(repo) from error
    except RevisionNotFoundError as error:
        raise DownloadFault(ErrorKind.NOT_FOUND, f"{repo} has no revision '{revision}'") from error
    except RemoteEntryNotFoundError as error:
        raise DownloadFault(ErrorKind.NOT_FOUND, f"there is no {what}", changed=True) from error
    except HFValidationError as error:
        raise invalid(str(error)) from error
    except HfHubHTTPError as error:
        raise _http_fault(error, repo, what) from error
    except (httpx2.TransportError, OfflineModeIsEnabled) as error:
        raise transient(f"the hub cannot be reached for {what}: {error}") from error
    except FileMetadataError as error:
        raise transient(str(error)) from error


def _unknown(repo: str) -> DownloadFault:
    return DownloadFault(
        ErrorKind.NOT_FOUND, f"there is no repository {repo}, or it is private and HF_TOKEN does not open it"
    )


def _http_fault(error: HfHubHTTPError, repo: str, what: str) -> DownloadFault:
    response = error.response
    status = response.status_code if response is not None else 0
    if status == 401 and "Invalid credentials" not in str(error.server_message):
        return _unknown(repo)  # how the hub answers for what may not be seen and for what does not exist
    if status in (401, 403):
        return DownloadFault(ErrorKind.FORBIDDEN, f"the hub refuses access to {what} ({status}): check HF_TOKEN")
    if status in _PATIENCE:
        asked = response.headers.get("Retry-After", "") if response is not None else ""
        return transient(f"the hub answered {status} for {what}", float(asked) if asked.isdigit() else 0.0)
    if status == 416:
        return DownloadFault(ErrorKind.UNAVAILABLE, f"the hub has less than expected of {what}", changed=True)
    return DownloadFault(ErrorKind.UNAVAILABLE, f"the hub answered {status} for {what}", retryable=True)
