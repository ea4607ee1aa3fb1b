"""The gateway as a process: its parts put together, its sockets, its signals, and its end."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
from collections.abc import Awaitable
from pathlib import Path

import uvloop

from protocol.garbage import quiet_collection
from router.config.catalogue import Difference
from router.config.configuration import Configuration
from router.config.settings import Settings, runtime_folder, state_folder
from router.downloads.service import Downloads
from router.downloads.setup import build_downloads
from router.http.copies import Copies
from router.http.doorkeeper import Doorkeeper
from router.http.errors import ApiError
from router.http.gateway import Gateway
from router.http.listeners import CannotListen, Listeners
from router.http.routes import routes
from router.http.server import Server
from router.http.services import Services
from router.inference import Inference
from router.logs.redaction import Redactor
from router.logs.setup import LogFormat, configure_logging
from router.metrics.exposition import Metrics
from router.metrics.observations import Observations
from router.metrics.observer import SchedulerObserver
from router.metrics.snapshot import DownloadSample
from router.metrics.source import TableSource
from router.notify import Notifier, listen_sockets, watchdog_interval
from router.scheduling.scheduler import Scheduler
from router.security.access import AccessPolicy
from router.security.keyfile import generated_key, keys_from_options
from router.security.keys import InvalidKey, KeyRing, KeySpec
from router.security.origins import LOCALHOST
from router.service_manager import ServiceManager
from router.signals import Signals
from router.supervision.nursery import Nursery
from router.supervision.owner import Owner
from router.supervision.runtime import RuntimeFolder, RuntimeFolderError, sweep_siblings
from router.supervision.state import StateFolder

log = logging.getLogger("llamaherd")

FAILED = 1

LOG_FORMATS: dict[str, LogFormat] = {"console": "console", "json": "json"}


def run(configuration: Configuration) -> int:
    """Serve until a signal ends it. Returns the exit status: 0 after a clean end."""
    settings = configuration.settings
    secrets = (*settings.api_keys, settings.hf_token)
    redactor = configure_logging(settings.log_level, LOG_FORMATS.get(settings.log_format, "auto"), secrets)
    for warning in configuration.warnings:
        log.warning("%s", warning)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(serve(configuration, redactor))
    except (CannotListen, InvalidKey, RuntimeFolderError) as error:
        log.error("%s", error)
        return FAILED


async def serve(configuration: Configuration, redactor: Redactor) -> int:
    """Build the parts, serve, and take them down in the opposite order. Raises what keeps the gateway from starting."""
    settings = configuration.settings
    notifier = Notifier.from_environment(os.environ)
    watchdog = watchdog_interval(os.environ)
    with Signals() as signals:
        listeners = listen(settings)
        public = not listeners.local
        try:

            def read_keys() -> KeyRing:
                keys = key_specs(settings, public=public)
                ring = KeyRing(keys)
                redactor.set_secrets((*(key.secret for key in keys), settings.hf_token))
                return ring

            ring = read_keys()
            folder = runtime_folder(settings)
            sweep_siblings(folder)
            runtime = RuntimeFolder(folder)
            try:
                observations = Observations()
                observer = SchedulerObserver(observations)
                nursery = Nursery(runtime)
                state = StateFolder(state_folder(settings))
                owner = Owner(
                    Scheduler(configuration.policy(), random.Random()),
                    nursery,
                    state,
                    heartbeat=settings.sse_ping_interval,
                    observe=observer,
                )
                await owner.open()
                try:
                    owner.configure(configuration.catalogue, configuration.policy())
                    policy = AccessPolicy(ring, public_metrics=settings.public_metrics)
                    inference = Inference(owner, settings.stream_ring, observations, settings.log_prompts)
                    downloads = build_downloads(
                        settings,
                        os.environ,
                        nursery,
                        lambda model, event, data: owner.news.publish(model, event, data=data),
                        lambda job: observations.download_ended(job.state),
                    )
                    source = TableSource(
                        owner, observer, streams=inference.__len__, downloads=lambda: download_samples(downloads)
                    )
                    metrics = Metrics(observations, source.take)
                    services = Services(
                        configuration,
                        owner,
                        inference,
                        policy,
                        downloads,
                        metrics,
                        Copies(state.copies(), state.save_copies),
                        read_keys,
                        source.speed,
                    )
                    downloads.changed = lambda: _apply(services.read_models())
                    downloads.open()
                    manager = ServiceManager(notifier, watchdog, source.summary, lambda: owner.alive)
                    try:
                        app = build_app(services, public=public)
                        await _serve(services, app, listeners, signals, manager)
                    finally:
                        await manager.close()
                        await downloads.close()
                finally:
                    await owner.close(0.0)
            finally:
                runtime.close()
        finally:
            listeners.close()
    return 0


def download_samples(downloads: Downloads) -> list[DownloadSample]:
    """The running downloads for a scrape."""
    return [
        DownloadSample(
            job.choice.reference, sum(file.done for file in job.files), sum(file.total for file in job.files)
        )
        for job in downloads.active()
    ]


def build_app(services: Services, *, public: bool) -> Gateway:
    """The ASGI application over running parts; `public` where other machines reach it."""
    settings = services.settings
    doorkeeper = Doorkeeper(
        services.policy,
        cors_origins=settings.cors_origins or (LOCALHOST,),
        check_hosts=not public,
    )
    return Gateway(routes(services), doorkeeper, prefix=settings.api_prefix, body_limit=settings.body_limit)


async def _serve(
    services: Services, app: Gateway, listeners: Listeners, signals: Signals, manager: ServiceManager
) -> None:
    settings = services.settings
    server = Server.of(
        app,
        ssl_key_file=settings.ssl_key_file,
        ssl_cert_file=settings.ssl_cert_file,
        connection_limit=settings.connection_limit,
    )
    serving = server.run_in_background(listeners.sockets)
    for address in listeners.addresses:
        log.info("listening on %s", address)
    quiet_collection()
    manager.ready()
    try:
        async with asyncio.TaskGroup() as background:
            if services.configuration.unread:
                background.create_task(_apply(services.read_models()), name="read cached models")
            await _until_signal(services, signals, serving, manager)
        manager.stopping("waiting for running requests")
        await _drain(services, signals)
    finally:
        server.close()
        await serving


async def _until_signal(
    services: Services, signals: Signals, serving: asyncio.Task[None], manager: ServiceManager
) -> None:
    """Reload as often as asked to, return when the end is. Raises what ended the server by itself."""
    while True:
        wish = asyncio.ensure_future(signals.next())
        await asyncio.wait({wish, serving}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            wish.cancel()
            serving.result()
            return
        if wish.result() is Signals.END:
            return
        manager.reloading()
        await _apply(services.reload())
        manager.reloaded()


async def _apply(reading: Awaitable[Difference]) -> None:
    try:
        difference = await reading
    except ApiError as error:
        log.error("%s", error.message)
    else:
        log.info("configuration read again: %s", "nothing changed" if difference.empty else difference)


async def _drain(services: Services, signals: Signals) -> None:
    """Let what runs come to its end, up to the limit; a further signal ends it at once."""
    settings = services.settings
    services.draining = True
    log.info("stopping: waiting for %d requests, at most %g s", len(services.inference), settings.drain_timeout)
    hurry = asyncio.ensure_future(signals.end())
    try:
        if settings.shutdown_delay:
            await asyncio.wait({hurry}, timeout=settings.shutdown_delay)
        services.close_streams()
        closing = asyncio.ensure_future(services.owner.close(0.0 if hurry.done() else settings.drain_timeout))
        await asyncio.wait({closing, hurry}, return_when=asyncio.FIRST_COMPLETED)
        if not closing.done():
            log.warning("stopping at once")
            await services.owner.close(0.0)
        await closing
    finally:
        hurry.cancel()


def listen(settings: Settings) -> Listeners:
    """The sockets that systemd has passed; without any, those that the settings name. Raises `CannotListen`."""
    try:
        passed = listen_sockets(os.environ)
    except OSError as error:
        raise CannotListen(str(error)) from error
    tls = bool(settings.ssl_cert_file)
    if passed:
        return Listeners.adopt(passed, tls)
    return Listeners.bind(settings.host, settings.port, settings.also_listen, tls)


def key_specs(settings: Settings, *, public: bool) -> list[KeySpec]:
    """The configured keys; one made by the gateway where it can be reached from outside and has none."""
    specs = keys_from_options(settings.api_keys, [Path(file) for file in settings.api_key_files])
    if not specs and public and not settings.insecure:
        specs = [_made_key(settings)]
    return specs


def _made_key(settings: Settings) -> KeySpec:
    made = generated_key(state_folder(settings))
    log.warning("this address is public, so that a key is needed; it is in %s", made.path)
    if made.created:
        # Not into the log, which is kept, sent elsewhere, and redacted for that reason.
        sys.stderr.write(f"API key, shown this once: {made.spec.secret}\n")
        sys.stderr.flush()
    return made.spec
