"""References to models on a hub: parsed and checked before anything is asked of the network or the disk."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from downloader.faults import DownloadFault, invalid

DEFAULT_REVISION = "main"

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,199}")
_QUANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LONGEST = 1024
_WEB_VERBS = frozenset({"resolve", "blob", "raw", "tree"})
_FORMS = "user/repo, user/repo:QUANT, user/repo@revision or user/repo/file.gguf"


class Reference(Struct, frozen=True):
    """What a client asked for. At most one of `quant` and `path` is set; `revision` is a branch, tag or commit."""

    repo: str
    revision: str = DEFAULT_REVISION
    quant: str = ""
    path: str = ""

    def __str__(self) -> str:
        revision = "" if self.revision == DEFAULT_REVISION else f"@{self.revision}"
        quant = f":{self.quant}" if self.quant else ""
        path = f"/{self.path}" if self.path else ""
        return f"{self.repo}{revision}{quant}{path}"


def parse_reference(text: str) -> Reference:
    """Parse `user/repo[@revision][:QUANT]`, `user/repo[@revision]/path/file.gguf`, or a hub's web address of either.

    Raises `DownloadFault(invalid_request)` for everything else: empty parts, `..`, absolute paths, control characters.
    """
    text = text.strip()
    if not text:
        raise invalid(f"no model named; use {_FORMS}")
    if len(text) > _LONGEST or not text.isprintable():
        raise invalid("the model name is too long or holds control characters")
    if text.startswith(("http://", "https://")):
        return _from_address(text)
    for host in ("hf.co/", "huggingface.co/"):
        text = text.removeprefix(host)
    if text.startswith(("/", ".", "~")) or "\\" in text:
        raise invalid(f"'{text}' is a path, not a model on a hub; use {_FORMS}")
    user, slash, rest = text.partition("/")
    if not slash:
        raise invalid(f"'{text}' names no repository; use {_FORMS}")
    repo, rest = _split_name(rest)
    revision = ""
    quant = ""
    if rest.startswith("@"):
        revision, rest = _split_revision(rest[1:], text)
    if rest.startswith(":"):
        quant, rest = _split_quant(rest[1:], text)
        if rest.startswith("@") and not revision:
            revision, rest = rest[1:], ""
    path = rest.removeprefix("/")
    if rest.startswith("/") and not path:
        raise invalid(f"'{text}' ends with a slash; use {_FORMS}")
    return _checked(f"{user}/{repo}", revision or DEFAULT_REVISION, quant, path)


def _split_name(text: str) -> tuple[str, str]:
    end = min((at for mark in "@:/" if (at := text.find(mark)) >= 0), default=len(text))
    return text[:end], text[end:]


def _split_revision(text: str, whole: str) -> tuple[str, str]:
    """A revision may hold slashes; a path behind it ends with .gguf and begins after the first slash."""
    if ":" in text:
        revision, _, rest = text.partition(":")
        rest = ":" + rest
    elif text.lower().endswith(".gguf") and "/" in text:
        revision, _, rest = text.partition("/")
        rest = "/" + rest
    else:
        revision, rest = text, ""
    if not revision:
        raise invalid(f"'{whole}' has an empty revision behind '@'")
    return revision, rest


def _split_quant(text: str, whole: str) -> tuple[str, str]:
    quant, at, revision = text.partition("@")
    if not quant:
        raise invalid(f"'{whole}' has nothing behind ':'; use {_FORMS}")
    return quant, at + revision


def _from_address(text: str) -> Reference:
    parts = [unquote(part) for part in urlsplit(text).path.split("/") if part]
    if len(parts) == 2:
        return _checked(f"{parts[0]}/{parts[1]}", DEFAULT_REVISION, "", "")
    if len(parts) >= 4 and parts[2] in _WEB_VERBS:
        return _checked(f"{parts[0]}/{parts[1]}", parts[3], "", "/".join(parts[4:]))
    raise invalid(f"'{text}' is not the address of a repository or of a file in one")


def _checked(repo: str, revision: str, quant: str, path: str) -> Reference:
    _check_repo(repo)
    if not _REVISION.fullmatch(revision) or _climbs(revision):
        raise invalid(f"'{revision}' is not a revision: a branch, a tag or a commit")
    if quant and not _QUANT.fullmatch(quant):
        raise invalid(f"'{quant}' is not a quantization such as Q4_K_M")
    if path:
        check_path(path)
        if not path.lower().endswith(".gguf"):
            raise invalid(f"'{path}' is not a GGUF file")
    return Reference(repo, revision, quant, path)


def _check_repo(repo: str) -> None:
    names = repo.split("/")
    fault = invalid(f"'{repo}' is not a repository: two names of letters, digits, '-', '_' and '.', joined by one '/'")
    if len(names) != 2:
        raise fault
    for name in names:
        # '--' separates user and repository in the names of cache folders.
        if not _NAME.fullmatch(name) or "--" in name or ".." in name or name.endswith(".git"):
            raise fault


def check_path(path: str) -> None:
    """Refuse a path inside a repository that could lead out of a snapshot folder.

    Also asked about every path that a hub lists, which is no more to be trusted than a client.
    """
    if not path or path.startswith("/") or "\\" in path or not path.isprintable() or _climbs(path):
        raise path_fault(path)


def path_fault(path: str) -> DownloadFault:
    return invalid(f"'{path}' is not a path inside a repository")


def _climbs(path: str) -> bool:
    return any(part in ("", ".", "..") for part in path.split("/"))
