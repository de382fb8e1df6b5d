"""The read side of a hub over a changelog in memory, on a real port:
what tests of readers, watchers and clients share."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
from changelog import Bench
from fastapi import FastAPI
from patience import patient, wait_until
from ports import free_ports

from hub.api.app import on_hub_error
from hub.api.http import BoundedHttp
from hub.errors import HubError
from hub.materializers.serving.routes import create_router
from hub.materializers.serving.watcher import Watcher

PATIENCE_S = patient(60.0)


class Server:
    """The read side of a hub over a changelog in memory; may be stopped and started on its port."""

    def __init__(self, folder: Path) -> None:
        self.bench = Bench(folder)
        self.port = free_ports(1)[0]
        self.told = {"HUB_HTTP_PORT": str(self.port), "HUB_HOME": str(folder)}
        self.start()

    def start(self) -> None:
        watcher = self.watcher = Watcher(self.bench.store)

        @contextlib.asynccontextmanager
        async def watching(_: FastAPI) -> AsyncIterator[None]:
            task = asyncio.create_task(watcher.run())
            yield
            task.cancel()

        app = FastAPI(lifespan=watching)
        app.add_exception_handler(HubError, on_hub_error)
        app.include_router(create_router(self.bench.store, watcher, 200))
        config = uvicorn.Config(
            app, "127.0.0.1", self.port, http=BoundedHttp, log_level="error", timeout_graceful_shutdown=1
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        wait_until(lambda: self.server.started, PATIENCE_S)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()

    def fill(self) -> None:
        """Five rows of two cities, up to offset 7 of their source."""
        for number in range(1, 6):
            self.write(f"k{number}", number, {"city": "Oslo" if number % 2 else "Bergen", "points": number})
        self.bench.tell(7)
        self.bench.drain()

    def close(self) -> None:
        self.stop()
        self.bench.store.close()

    def write(self, key: str, version: int, row: dict[str, object] | None) -> None:
        self.bench.write(key, version, row)
        self.bench.drain()
