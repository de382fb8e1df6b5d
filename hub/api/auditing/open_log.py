"""[edge] Open the access log of a server."""

from __future__ import annotations

from contextlib import AsyncExitStack

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from hub.access_log.chain import LogSigner
from hub.access_log.writer import AccessLog
from hub.api.auditing import log_routes
from hub.api.auditing.export.exporter import exporting, families
from hub.api.auditing.request_log import RequestLog
from hub.config import Settings
from hub.home_key import make_key
from hub.kafka import own_cluster


def open_request_log(app: FastAPI, settings: Settings, opened: AsyncExitStack) -> RequestLog | None:
    """Add the routes that search the log, and start the log of the server's requests; None if the settings
    turn it off. Raises ConfigError."""
    cluster = own_cluster(settings)
    app.include_router(log_routes.create_router(cluster))
    if settings.access_log is False:
        return None
    log = AccessLog(
        cluster,
        LogSigner(make_key(settings.home)),
        "server",
        settings.replication_factor,
        settings.access_log_days,
        settings.kafka_timeout_s,
    )
    log.start()
    app.state.access_log = log
    exporters = opened.enter_context(exporting(settings.audit_export, cluster, settings.home))
    app.state.access_log_families = lambda: (*log.families(), *families(exporters))
    opened.push_async_callback(run_in_threadpool, log.stop)
    return RequestLog(log, always=bool(settings.access_log))
