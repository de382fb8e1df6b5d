"""An ASGI app on a real port, in a thread of the test."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn
from patience import patient

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
    deadline = time.monotonic() + PATIENCE_S
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join(PATIENCE_S)
