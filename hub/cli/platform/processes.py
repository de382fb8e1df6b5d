"""[edge] The hub's own processes, started by the supervisor of ``hub up``:
server, auditor, applier, materializer."""

from __future__ import annotations

import logging
import os
import threading
from typing import Annotated

import typer

from hub.access.access_yaml import ACCESS_FILE
from hub.cli.context import load_settings, open_home
from hub.cli.platform.access import check_closed, open_to_others
from hub.config import Settings
from hub.formats.admission import admit
from hub.home_key import make_key
from hub.kafka.contact.notes import note_for_ever
from hub.runtime import collect_rarely, install_stop_signals, log_to_stderr
from hub.tracing import begin

log = logging.getLogger(__name__)

# An isolated view takes the processor time that the others leave.
_NICE = 10
ISOLATED = "isolated-"


def serve() -> None:
    """Serve registry, topics, views and dashboard on one port until a stop signal comes.

    Example: hub serve
    """
    import uvicorn

    from hub.api import create_app
    from hub.api.http import BoundedHttp, room_for
    from hub.cli.platform import https

    settings = _begin("hub-server", "server")
    check_closed(settings)
    if open_to_others(settings):
        log.warning(
            "everybody who reaches %s:%d may do everything: %s is missing (docs/how-to/control-access.md)",
            *(settings.http_host, settings.http_port, settings.project / ACCESS_FILE),
        )
    context = None if settings.https is None else https.context_of(settings.https, settings.project)
    app = create_app(settings)
    collect_rarely()
    config = uvicorn.Config(
        app,
        host=settings.http_host,
        port=settings.http_port,
        http=BoundedHttp,
        limit_concurrency=room_for(settings.http_connections),
        log_level="warning",
        access_log=False,
        # Subscribers hold their connections open forever: a stop does not wait for them.
        timeout_graceful_shutdown=2,
        # They say nothing but "ping".
        ws_max_size=1 << 12,
        # The guard alone reads what proxies say, and only those that `proxy_addresses` names: uvicorn
        # believes everybody on this machine, so whoever writes another X-Forwarded-For each time could try as
        # many passwords as they like.
        proxy_headers=False,
    )
    server = uvicorn.Server(config)
    if settings.https is None or context is None:
        server.run()
    else:
        https.run(server, settings.https, context)


def check_conformance() -> None:
    """Check the records of topics against their schemas until a stop signal comes.

    Example: hub check-conformance
    """
    from hub.topics.conformance.auditor import run

    begun = _begin_loop(None, "auditor")
    collect_rarely()
    run(*begun)  # it passes no event on, so it has no spans


def apply_changelogs() -> None:
    """Write changelog topics into the stores until a stop signal comes.

    Example: hub apply-changelogs
    """
    from hub.materializers.applying.applier_process import run

    begun = _begin_loop("hub-applier", "applier")
    collect_rarely()
    run(*begun)


def materialize(
    only: Annotated[
        str | None, typer.Option(hidden=True, help="A version of a view, which is isolated")
    ] = None,
    decides: Annotated[
        bool, typer.Option("--decides", hidden=True, help="It opens its view's versions")
    ] = False,
    name: Annotated[str | None, typer.Option(hidden=True, help="Its name among the processes here")] = None,
) -> None:
    """Compute every view of the project by Spark until a stop signal comes.

    One process computes. Others with the same home stand by with a Spark of their own, and take over within
    seconds.

    Example: hub materialize
    """
    from hub.materializers.engine.process import run

    if only is not None:
        os.nice(_NICE)
    run(
        *_begin_loop("hub-materializer", "materializer" if only is None else f"{ISOLATED}{only}", name),
        only,
        decides=decides,
    )


def _begin_loop(
    service: str | None, process: str, name: str | None = None
) -> tuple[Settings, threading.Event]:
    return _begin(service, process, name), install_stop_signals()


def _begin(service: str | None, process: str, name: str | None = None) -> Settings:
    """``service``: what its traces call it, where they are sent anywhere;
    ``process``: its name among the hub's; ``name``: that of one of several of its kind."""
    log_to_stderr()
    settings = load_settings()
    open_home(settings)
    # Each process reads it once: whoever starts first makes it, so that access can be controlled later.
    make_key(settings.home)
    note_for_ever(settings.home, name or process)
    if not process.startswith(ISOLATED):  # the shared process is admitted for it
        admit(settings, process)
    if service is not None:
        begin(service, settings.otlp_endpoint)
    return settings
