"""The hub cache on disk, in the standard layout that other tools share.

    models--user--repo/blobs/<hash>                          contents
    models--user--repo/blobs/<hash>.llamaherd.incomplete     begun by us; <hash>.llamaherd.json says what it is
    models--user--repo/snapshots/<commit>/<path>             links to blobs: what exists for the world
    models--user--repo/refs/<revision>                       the commit that a branch or tag means
    .locks/models--user--repo/<hash>.lock                    held (flock) by whoever writes a blob

Everything here is plain file work without the hub's library, so that the downloader itself stays small; a test lets
that library read the result.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from downloader.reference import check_path
from downloader.resolver import Entry, Listing
from protocol.download import Partial, Plan, PlanFile

PARTIAL_SUFFIX = ".llamaherd.incomplete"
_NOTE_SUFFIX = ".llamaherd.json"
_FOREIGN_SUFFIX = ".incomplete"
_PREFIX = "models--"


class Note(Struct, frozen=True, omit_defaults=True):
    """What a partial file is: kept beside it. `transport_etag` is the ETag under which its bytes were sent."""

    path: str
    total: int
    transport_etag: str = ""


_note_decoder = msgspec.json.Decoder(Note)


def default_cache_dir(environment: Mapping[str, str]) -> Path:
    """Where the hub's own library keeps its cache under this environment."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(name):
            return Path(os.path.expandvars(environment[name])).expanduser()
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    home = environment.get("HF_HOME") or os.path.join(base, "huggingface")
    return Path(os.path.expandvars(home)).expanduser() / "hub"


class Store:
    """One hub cache."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, repo: str) -> Path:
        return self.root / (_PREFIX + repo.replace("/", "--"))

    def blob(self, repo: str, blob: str) -> Path:
        return self.folder(repo) / "blobs" / blob

    def partial(self, repo: str, blob: str) -> Path:
        return self.folder(repo) / "blobs" / (blob + PARTIAL_SUFFIX)

    def lock(self, repo: str, blob: str) -> Path:
        return self.root / ".locks" / self.folder(repo).name / f"{blob}.lock"

    def pointer(self, repo: str, commit: str, path: str) -> Path:
        check_path(path)
        return self.folder(repo) / "snapshots" / commit / path

    def prepare(self, repo: str) -> None:
        """Make the folders of a repository. Other tools take one without `snapshots` for damaged."""
        for name in ("blobs", "snapshots", "refs"):
            (self.folder(repo) / name).mkdir(parents=True, exist_ok=True)

    # Bytes on disk

    def has_blob(self, repo: str, file: PlanFile) -> bool:
        """Whether the content is there, whole; follows a link into a store that repositories share."""
        try:
            return self.blob(repo, file.blob).stat().st_size == file.size
        except FileNotFoundError:
            return False

    def bytes_of(self, repo: str, file: PlanFile) -> int:
        """Bytes of a planned file that are on disk, finished or not."""
        if self.has_blob(repo, file):
            return file.size
        try:
            return min(self.partial(repo, file.blob).stat().st_size, file.size)
        except FileNotFoundError:
            return 0

    def missing(self, plan: Plan) -> int:
        """Bytes that a plan still has to fetch; content that two of its files share counts once."""
        distinct = {file.blob: file for file in plan.files}
        return sum(file.size - self.bytes_of(plan.repo, file) for file in distinct.values())

    def published(self, plan: Plan) -> bool:
        """Whether every file of the plan is listed under its commit."""
        return all(self.pointer(plan.repo, plan.commit, file.path).exists() for file in plan.files)

    # Partial files

    def write_note(self, repo: str, blob: str, note: Note) -> None:
        _replace(self.blob(repo, blob + _NOTE_SUFFIX), msgspec.json.encode(note))

    def read_note(self, repo: str, blob: str) -> Note | None:
        try:
            return _note_decoder.decode(self.blob(repo, blob + _NOTE_SUFFIX).read_bytes())
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError:
            return None  # cut off by a crash of the machine: the partial is then resumed without a precondition

    def drop_partial(self, repo: str, blob: str) -> int:
        """Delete what was begun of a blob, by us or by another tool; says how many bytes that were."""
        freed = 0
        folder = self.folder(repo) / "blobs"
        for path in [self.partial(repo, blob), *folder.glob(f"{blob}.*{_FOREIGN_SUFFIX}")]:
            with contextlib.suppress(FileNotFoundError):
                freed += path.stat().st_size
                path.unlink()
        self.blob(repo, blob + _NOTE_SUFFIX).unlink(missing_ok=True)
        return freed

    def drop_unpublished(self, repo: str, blob: str) -> int:
        """Delete what there is of a blob, whole or not, unless a snapshot refers to it; says how many bytes."""
        freed = self.drop_partial(repo, blob)
        path = self.blob(repo, blob)
        if blob not in self._referenced(repo) and path.is_file() and not path.is_symlink():
            freed += path.stat().st_size
            path.unlink()
        return freed

    def partials(self) -> list[Partial]:
        """Every unfinished file of every model repository, ours and other tools'.

        Whole contents that no snapshot refers to count too: the finished files of a plan that is not complete.
        """
        found = []
        for folder in self.root.glob(f"{_PREFIX}*/blobs"):
            repo = _repo_of(folder.parent)
            referenced = self._referenced(repo)
            for path in _children(folder):
                blob = path.name.split(".", 1)[0]
                unfinished = path.name.endswith(_FOREIGN_SUFFIX)
                if path.is_symlink() or not (unfinished or (path.name == blob and blob not in referenced)):
                    continue
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue  # finished or dropped meanwhile
                note = self.read_note(repo, blob) if path.name.endswith(PARTIAL_SUFFIX) else None
                path_in_repo, total = (note.path, note.total) if note else ("", 0 if unfinished else status.st_size)
                found.append(Partial(repo, blob, status.st_size, status.st_mtime, path_in_repo, total))
        return sorted(found, key=lambda partial: (partial.repo, partial.path, partial.blob))

    def _referenced(self, repo: str) -> set[str]:
        """The blobs that the snapshots of a repository link to."""
        snapshots = self.folder(repo) / "snapshots"
        return {os.path.basename(os.readlink(path)) for path in snapshots.rglob("*") if path.is_symlink()}

    # Publication

    def adopt(self, repo: str, blob: str) -> None:
        """Turn a verified partial into a blob. Nothing is listed by that yet."""
        partial = self.partial(repo, blob)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, self.blob(repo, blob))
        self.blob(repo, blob + _NOTE_SUFFIX).unlink(missing_ok=True)

    def publish(self, plan: Plan) -> Path:
        """Make a complete plan visible and return the path of its first file.

        The first model file is linked last, after every shard and companion, and the ref is moved after that: a
        reader sees either no new model or all of it.
        """
        for file in reversed(plan.files):
            self._link(plan, file)
        if plan.revision != plan.commit:
            ref = self.folder(plan.repo) / "refs" / plan.revision
            ref.parent.mkdir(parents=True, exist_ok=True)
            _replace(ref, plan.commit.encode())
        return self.pointer(plan.repo, plan.commit, plan.files[0].path)

    def _link(self, plan: Plan, file: PlanFile) -> None:
        pointer = self.pointer(plan.repo, plan.commit, file.path)
        if pointer.exists():
            return
        blob = self.blob(plan.repo, file.blob)
        pointer.parent.mkdir(parents=True, exist_ok=True)
        pointer.unlink(missing_ok=True)  # a link whose blob is gone
        try:
            pointer.symlink_to(os.path.relpath(blob, pointer.parent))
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP):
                raise
            aside = pointer.with_name(f".{pointer.name}.{secrets.token_hex(4)}.tmp")
            shutil.copyfile(blob, aside)  # a file system without links: as the hub's library does
            os.replace(aside, pointer)

    # What is cached

    def listing(self, repo: str, revision: str) -> Listing | None:
        """What the cache holds of a repository at a revision (branch, tag or commit); None when nothing."""
        folder = self.folder(repo)
        commit = self.commit_of(repo, revision)
        entries = tuple(self._snapshot(folder / "snapshots" / commit)) if commit else ()
        return Listing(repo, commit, entries) if entries else None

    def commit_of(self, repo: str, revision: str) -> str:
        """The commit that the cache knows for a revision, "" when it knows none."""
        folder = self.folder(repo)
        try:
            return (folder / "refs" / revision).read_text().strip()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return revision if (folder / "snapshots" / revision).is_dir() else ""

    def find_repo(self, repo: str) -> str:
        """The spelling of a repository in the cache; the given one where the cache has none."""
        if self.folder(repo).is_dir():
            return repo
        wanted = self.folder(repo).name.lower()
        for folder in self.root.glob(f"{_PREFIX}*"):
            if folder.name.lower() == wanted:
                return _repo_of(folder)
        return repo

    @staticmethod
    def _snapshot(folder: Path) -> Iterator[Entry]:
        for pointer in sorted(folder.rglob("*")):
            if pointer.is_file():
                path = pointer.relative_to(folder).as_posix()
                blob = os.path.basename(os.readlink(pointer)) if pointer.is_symlink() else ""
                yield Entry(path, pointer.stat().st_size, blob)

    # Tidying

    def prune(self, repo: str) -> None:
        """Drop what a deletion leaves empty: snapshot folders, refs to revisions that are gone, the repository."""
        folder = self.folder(repo)
        snapshots = folder / "snapshots"
        for snapshot in _children(snapshots):
            _remove_empty(snapshot)
        for ref in [path for path in (folder / "refs").rglob("*") if path.is_file()]:
            if not (snapshots / ref.read_text().strip()).is_dir():
                ref.unlink()
        for part in ("refs", "snapshots", "blobs", "trees", ".no_exist"):
            if part != "snapshots" and any(_children(snapshots)):
                continue
            if part in ("trees", ".no_exist"):
                shutil.rmtree(folder / part, ignore_errors=True)
            else:
                _remove_empty(folder / part)
        with contextlib.suppress(OSError):
            folder.rmdir()
        if not folder.exists():
            shutil.rmtree(self.root / ".locks" / folder.name, ignore_errors=True)


def _repo_of(folder: Path) -> str:
    return folder.name.removeprefix(_PREFIX).replace("--", "/")


def _children(folder: Path) -> Iterable[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _remove_empty(folder: Path) -> None:
    """Remove a folder and those in it, as far as they hold no file."""
    for path, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(path)


def _replace(path: Path, content: bytes) -> None:
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    aside.write_bytes(content)
    os.replace(aside, path)
