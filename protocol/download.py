"""Downloads: settings, plan, start, cancel, progress as a level, and the four ways in which a job ends.

A job is a number that the router chooses; it is unique in the life of the router's state folder. Sizes are bytes.
"""

from __future__ import annotations

import enum

from msgspec import Struct

from protocol.errors import WireError


class FileRole(enum.StrEnum):
    """What a file is for. Every shard of a split model is a `model` file; the first shard comes first."""

    MODEL = "model"
    PROJECTOR = "projector"
    DRAFT = "draft"


class JobState(enum.StrEnum):
    """The life of a job. The last three are terminal; `paused` belongs to the router alone."""

    PLANNING = "planning"
    QUEUED = "queued"
    DOWNLOADING = "downloading"
    VERIFYING = "verifying"
    WAITING = "waiting"
    """Between two attempts."""
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


TERMINAL = frozenset({JobState.DONE, JobState.CANCELLED, JobState.FAILED})


class DownloadChoice(Struct, frozen=True, omit_defaults=True):
    """What to fetch. `reference` is `user/repo[@revision][:QUANT]` or `user/repo[@revision]/path/file.gguf`.

    `projector` and `draft` are `auto` (the best match, if there is one), `none`, or the name of a file.
    """

    reference: str
    projector: str = "auto"
    draft: str = "none"


class PlanFile(Struct, frozen=True, omit_defaults=True):
    """One file of a plan.

    `path` is relative to the repository. `blob` is the hub's name of the content: its SHA-256 for a file in large-file
    storage, else its git object id (40 digits).
    """

    path: str
    size: int
    blob: str
    role: FileRole = FileRole.MODEL


class Plan(Struct, frozen=True, omit_defaults=True):
    """What a reference means now. `files` are to be fetched; `optional` exist beside them and were not chosen.

    `model` is the id under which the result is listed. `revision` is what was asked for, `commit` (40 digits) what it
    means. `cached` says that the hub was not asked: everything is in the cache already.
    """

    model: str
    repo: str
    revision: str
    commit: str
    files: tuple[PlanFile, ...]
    optional: tuple[PlanFile, ...] = ()
    cached: bool = False

    @property
    def size(self) -> int:
        """Bytes of all files to be fetched."""
        return sum(file.size for file in self.files)


class Space(Struct, frozen=True, omit_defaults=True):
    """Disk space in bytes. A plan fits when `missing` + `reserved` + `margin` <= `free`.

    `missing` is what the plan lacks on disk, `reserved` what the jobs before it will still write.
    """

    missing: int
    free: int
    reserved: int = 0
    margin: int = 0

    @property
    def fits(self) -> bool:
        return self.missing == 0 or self.missing + self.reserved + self.margin <= self.free


class FileProgress(Struct, frozen=True, omit_defaults=True):
    """One file of a running job: bytes on disk (`done` never falls within a job) of `total`."""

    path: str
    done: int
    total: int
    verified: bool = False


class JobProgress(Struct, frozen=True, omit_defaults=True):
    """One job as it is now.

    `rate` is bytes per second over the last seconds, `eta` seconds, -1 when unknown. `attempt` counts from 1.
    `reason` says why the job waits.
    """

    job: int
    state: JobState
    files: tuple[FileProgress, ...] = ()
    rate: float = 0.0
    eta: float = -1.0
    attempt: int = 1
    reason: str = ""

    @property
    def done(self) -> int:
        return sum(file.done for file in self.files)

    @property
    def total(self) -> int:
        return sum(file.total for file in self.files)


class Partial(Struct, frozen=True, omit_defaults=True):
    """A file that was begun and is not finished. `blob` names the content, `size` is bytes on disk.

    `modified` is Unix seconds. `path` and `total` are known for our own partials only.
    """

    repo: str
    blob: str
    size: int
    modified: float = 0.0
    path: str = ""
    total: int = 0


class ConfigureDownloads(Struct, frozen=True, tag="configure_downloads", omit_defaults=True):
    """Settings, sent first after `Welcome` and again whenever they change.

    `cache_dir` is the hub cache (empty = as the environment says), `rate_limit` bytes per second for all jobs
    together (0 = none), `stall_timeout` seconds without a byte until a transfer is killed, `attempts` how often in
    a row a job may fail without having gained a byte, `space_margin` bytes of the disk that stay free.
    """

    cache_dir: str = ""
    parallel: int = 2
    rate_limit: int = 0
    stall_timeout: float = 60.0
    attempts: int = 6
    space_margin: int = 256 << 20
    offline: bool = False
    backoff_first: float = 1.0
    backoff_max: float = 30.0


class PlanDownload(Struct, frozen=True, tag="plan_download", omit_defaults=True):
    """Find out what a reference means. Answered by `Planned` or `DownloadFailed`."""

    job: int
    choice: DownloadChoice


class StartDownload(Struct, frozen=True, tag="start_download", omit_defaults=True):
    """Queue a plan. Ends with `DownloadDone`, `DownloadCancelled` or `DownloadFailed`.

    Refused at once with `DownloadFailed(no_space)` when it does not fit.
    """

    job: int
    choice: DownloadChoice
    plan: Plan


class CancelDownload(Struct, frozen=True, tag="cancel_download", omit_defaults=True):
    """End a job in whatever state it is; answered by `DownloadCancelled`, also for a job that is not known.

    The partial files stay unless `purge`.
    """

    job: int
    purge: bool = False


class RemoveModel(Struct, frozen=True, tag="remove_model", omit_defaults=True):
    """Delete from the cache. Answered by `ModelRemoved` or `DownloadFailed`.

    `paths` are files of the repository, dropped from every revision; a projector or draft beside them goes with the
    last model file. `superseded` drops the revisions that no ref points at. `partials` drops unfinished files of the
    blobs named (all of the repository for `*`).
    """

    job: int
    repo: str
    paths: tuple[str, ...] = ()
    superseded: bool = False
    partials: tuple[str, ...] = ()


class Planned(Struct, frozen=True, tag="planned", omit_defaults=True):
    job: int
    plan: Plan
    space: Space


class DownloadProgress(Struct, frozen=True, tag="download_progress", omit_defaults=True):
    """A level: every job that has not ended, and every partial file in the cache.

    Sent at once when the state of a job changes and at most every 100 ms for the numbers. The receiver keeps the
    highest `revision`.
    """

    revision: int
    jobs: tuple[JobProgress, ...] = ()
    partials: tuple[Partial, ...] = ()


class DownloadDone(Struct, frozen=True, tag="download_done", omit_defaults=True):
    """All files are verified and in the cache. `path` is the first model file, `size` the bytes of all files."""

    job: int
    path: str
    size: int = 0


class DownloadCancelled(Struct, frozen=True, tag="download_cancelled", omit_defaults=True):
    """`kept` bytes stay on disk in partial files; `freed` bytes were purged."""

    job: int
    kept: int = 0
    freed: int = 0


class DownloadFailed(Struct, frozen=True, tag="download_failed", omit_defaults=True):
    """The job is over. `retryable`: the same request may succeed later, and goes on where this one ended."""

    job: int
    error: WireError
    retryable: bool = False


class ModelRemoved(Struct, frozen=True, tag="model_removed", omit_defaults=True):
    """`freed` bytes of the disk were given back."""

    job: int
    freed: int


ToDownloader = ConfigureDownloads | PlanDownload | StartDownload | CancelDownload | RemoveModel
FromDownloader = Planned | DownloadProgress | DownloadDone | DownloadCancelled | DownloadFailed | ModelRemoved
