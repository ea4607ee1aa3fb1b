"""Downloads as JSON: in lists of downloads, in lists of models, and as the answer to who asked for one."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.download import Partial, Space
from router.downloads.job import Job


def job_entry(job: Job) -> dict[str, Any]:
    """One download as lists show it. Bytes, bytes per second, seconds, Unix seconds; `eta` -1 when unknown."""
    files = job.files
    progress = job.progress if job.live else None
    entry: dict[str, Any] = {
        "id": job.number,
        "model": job.model,
        "reference": job.choice.reference,
        "state": job.state,
        "done": sum(file.done for file in files),
        "total": sum(file.total for file in files),
        "rate": progress.rate if progress is not None else 0.0,
        "eta": progress.eta if progress is not None else -1.0,
        "attempt": progress.attempt if progress is not None else 1,
        "reason": progress.reason if progress is not None else "",
        "files": msgspec.to_builtins(files),
        "error": None,
        "created": job.created,
        "ended": job.ended or None,
    }
    if job.error is not None:
        entry["error"] = {"type": job.error.kind, "message": job.error.message, "retryable": job.retryable}
    return entry


def plan_entry(job: Job) -> dict[str, Any]:
    """What a download consists of, with the space that it needs."""
    if job.plan is None:
        return {}
    plan: dict[str, Any] = {
        "repo": job.plan.repo,
        "revision": job.plan.revision,
        "commit": job.plan.commit,
        "size": job.plan.size,
        "files": [{"path": file.path, "size": file.size, "role": file.role} for file in job.plan.files],
        "optional": [{"path": file.path, "size": file.size, "role": file.role} for file in job.plan.optional],
        "cached": job.plan.cached,
    }
    if job.space is not None:
        plan["space"] = space_entry(job.space)
    return {"plan": plan}


def space_entry(space: Space) -> dict[str, Any]:
    return {
        "missing": space.missing,
        "free": space.free,
        "reserved": space.reserved,
        "margin": space.margin,
        "fits": space.fits,
    }


def partial_entry(partial: Partial) -> dict[str, Any]:
    """A file that was begun and is not finished."""
    return {
        "repo": partial.repo,
        "path": partial.path,
        "blob": partial.blob,
        "size": partial.size,
        "total": partial.total or None,
        "modified": partial.modified,
    }


def model_entries(jobs: list[Job]) -> list[dict[str, Any]]:
    """The running downloads as entries of `GET /models`, for models that are not listed otherwise."""
    return [
        {
            "id": job.model,
            "aliases": [],
            "tags": [],
            "object": "model",
            "owned_by": "llamacpp",
            "created": int(job.created),
            "status": {
                "value": "downloading",
                "args": [],
                "state": job.state,
                "progress": {file.path: {"done": file.done, "total": file.total} for file in job.files},
                "rate": job.progress.rate if job.progress is not None else 0.0,
                "eta": job.progress.eta if job.progress is not None else -1.0,
            },
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "source": "cache",
            "can_remove": True,
        }
        for job in jobs
    ]
