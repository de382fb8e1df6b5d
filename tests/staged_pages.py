"""A client of the pages over a staged estate, without Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from browser.staged_estate import StagedEstate
from fastapi import FastAPI
from fastapi.testclient import TestClient

from hub.api.app import on_hub_error
from hub.errors import HubError
from hub.observability.web.routes.all_pages import create_router


@contextmanager
def pages_client(hub: StagedEstate) -> Iterator[TestClient]:
    """Yield a client that follows no redirects."""
    app = FastAPI()
    app.add_exception_handler(HubError, on_hub_error)
    app.include_router(create_router(hub.estate()))
    assert hub.collector is not None
    hub.collector.ask_kafka()
    with TestClient(app, follow_redirects=False) as made:
        yield made
