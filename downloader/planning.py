"""Finds out what a reference means: asks the hub through a job process, or the cache where the hub is out of reach."""

from __future__ import annotations

import asyncio

from downloader.faults import DownloadFault
from downloader.jobwire import JobSpec, PlanMade
from downloader.reference import Reference, parse_reference
from downloader.resolver import resolve
from downloader.runner import job_process
from downloader.store import Store
from protocol.download import DownloadChoice, Plan
from protocol.errors import ErrorKind

PLAN_TIMEOUT = 60.0
"""Seconds for a hub's answer about one repository, everything included."""


async def make_plan(choice: DownloadChoice, store: Store, spec: JobSpec, offline: bool) -> Plan:
    """Plan a download. `spec` is the job that asks the hub. Raises `DownloadFault`, at once for a bad reference."""
    reference = parse_reference(choice.reference)
    if offline:
        return await asyncio.to_thread(plan_from_cache, reference, choice, store, "the gateway is offline")
    try:
        return await _ask_hub(spec)
    except DownloadFault as fault:
        if fault.kind is not ErrorKind.UNAVAILABLE:
            raise
        return await asyncio.to_thread(plan_from_cache, reference, choice, store, fault.message)


def plan_from_cache(reference: Reference, choice: DownloadChoice, store: Store, why: str) -> Plan:
    """The plan that the cache alone allows; every file of it is there. Raises `DownloadFault` that says `why` too."""
    repo = store.find_repo(reference.repo)
    listing = store.listing(repo, reference.revision)
    if listing is None:
        raise DownloadFault(ErrorKind.UNAVAILABLE, f"{why}, and the cache holds nothing of {reference}", retryable=True)
    try:
        return resolve(reference, choice, listing, cached=True)
    except DownloadFault as fault:
        raise DownloadFault(
            ErrorKind.UNAVAILABLE, f"{why}, and the cache does not help: {fault.message}", retryable=True
        ) from fault


async def _ask_hub(spec: JobSpec) -> Plan:
    try:
        async with asyncio.timeout(PLAN_TIMEOUT), job_process(spec) as process:
            async for line in process.lines():
                if isinstance(line, PlanMade):
                    return line.plan
    except TimeoutError as error:
        raise DownloadFault(
            ErrorKind.UNAVAILABLE, f"the hub did not answer within {PLAN_TIMEOUT:g} s", retryable=True
        ) from error
    raise DownloadFault(ErrorKind.INTERNAL, "a planning job ended without a plan")
