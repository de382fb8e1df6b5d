"""The API page shows the content of the OpenAPI document, and loads nothing from other hosts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi import APIRouter
from fastapi.testclient import TestClient

from hub.api.api_docs import grouped
from hub.api.app import create_app
from hub.config import Settings


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    """A client without lifespan: nothing is opened, and the registry is documented all the same."""
    app = create_app(Settings(home=tmp_path, project=tmp_path, allowed_hosts=["testserver"]))
    router = APIRouter(tags=["test"])

    @router.get("/things/{thing}")
    def thing(thing: str, limit: int | None = None) -> dict[str, str]:
        """A <thing>.

        All of it."""
        return {thing: str(limit)}

    app.include_router(router)
    return TestClient(app)


def test_every_operation_is_on_the_page(client: TestClient) -> None:
    document, page = client.get("/openapi.json").json(), client.get("/docs").text
    groups = grouped(document)
    assert {"schema registry", "test", "server"} <= groups.keys()
    for operations in groups.values():
        for each in operations:
            assert f">{each.method}</code> <code>{each.path}</code>" in page, each.path
    (thing,) = groups["test"]
    assert (thing.path, thing.summary, thing.description) == ("/things/{thing}", "A <thing>.", "All of it.")
    assert [parameter[:4] for parameter in thing.parameters] == [
        ("thing", "path", "string", True),
        ("limit", "query", "integer", False),
    ]
    assert "A &lt;thing&gt;" in page
    register = next(
        each
        for each in groups["schema registry"]
        if (each.method, each.path) == ("POST", "/subjects/{subject}/versions")
    )
    assert '"schema"' in register.example and "409" in dict(register.answers)


def test_nothing_is_loaded_from_elsewhere(client: TestClient) -> None:
    page = client.get("/docs").text
    assert not re.findall(r'(?:src|href)="(?!/|#)[^"]*"', page)
