"""[edge] uvicorn: a second listener of the server, with TLS.
The first one stays for the hub's own processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import uvicorn

from hub.access.server_tls import FollowedContext
from hub.security import ServerTls

log = logging.getLogger(__name__)

LOOK_S = 2.0
_HSTS = (b"strict-transport-security", b"max-age=31536000")


class HttpsListener(uvicorn.Server):
    """A listener that shares app and lifespan with another server, which handles the signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def context_of(tls: ServerTls, project: Path) -> FollowedContext:
    """Return the context of the settings; paths are taken from the project folder.
    Raises ConfigError (HUB-1721)."""
    client_ca = None if tls.client_ca is None else project / tls.client_ca
    return FollowedContext.of(project / tls.certificate, project / tls.key, client_ca)


def run(plain: uvicorn.Server, tls: ServerTls, context: FollowedContext) -> None:
    """Run the server with its second listener until a stop signal comes."""
    asyncio.run(_both(plain, listener_of(plain.config, tls, context), context))


def listener_of(plain: uvicorn.Config, tls: ServerTls, context: FollowedContext) -> HttpsListener:
    """Return the listener with TLS, with the limits of the plain one."""
    config = uvicorn.Config(
        with_hsts(plain.app),
        host=tls.host,
        port=tls.port,
        http=plain.http,
        limit_concurrency=plain.limit_concurrency,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=plain.timeout_graceful_shutdown,
        ws_max_size=plain.ws_max_size,
        proxy_headers=False,
        lifespan="off",
        ssl_context_factory=lambda _config, _default: context,
    )
    return HttpsListener(config)


async def _both(plain: uvicorn.Server, secured: HttpsListener, context: FollowedContext) -> None:
    """Start the listener once the app is up, and stop it first."""
    serving = asyncio.create_task(plain.serve())
    while not plain.started and not serving.done():
        await asyncio.sleep(0.05)
    listening = asyncio.create_task(secured.serve())
    looking = asyncio.create_task(_follow(context))
    try:
        await asyncio.wait({serving, listening}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        looking.cancel()
        plain.should_exit = secured.should_exit = True
        await asyncio.gather(serving, listening, return_exceptions=False)


async def _follow(context: FollowedContext) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            await asyncio.to_thread(context.refresh)
        except Exception:
            log.exception("the certificate could not be looked at")


def with_hsts(app: Any) -> Any:
    """Add the header that keeps browsers on https (RFC 6797) to each answer of an ASGI app."""

    async def secured(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), _HSTS]}
            await send(message)

        await app(scope, receive, sent)

    return secured
