"""An ASGI app on a real port, in a thread of the test."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn
from patience import patient, wait_until

from hub.api.http import BoundedHttp

PATIENCE_S = patient(15.0)


@contextlib.contextmanager
def served(app: Any, http: type[BoundedHttp] = BoundedHttp, most: int | None = None) -> Iterator[int]:
    """Run a server of its own for the app. Yields the port."""
    config = uvicorn.Config(
        app, "127.0.0.1", 0, http=http, limit_concurrency=most, log_level="critical", lifespan="off",
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, PATIENCE_S)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(PATIENCE_S)
