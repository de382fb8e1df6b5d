"""``hub schema rebuild`` on a real Kafka: the tables equal what the server answers,
then and after what came later."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from hub.cli.context import environment_of
from hub.cli.schema.rebuild import rebuild
from hub.cli.terminal.output import Output
from hub.config import Settings
from hub.schema_registry.client.registry_client import RegistryClient


@pytest.fixture
def registry(hub_server: str) -> Iterator[RegistryClient]:
    client = RegistryClient(hub_server)
    yield client
    client.close()


def text(*names: str) -> str:
    fields = [{"name": each, "type": "long", "default": 0, "doc": f"the {each}"} for each in names]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


def test_the_tables_say_what_the_server_says(
    registry: RegistryClient,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment_of(settings.model_copy(update={"home": tmp_path / "home"})).items():
        monkeypatch.setenv(name, value)
    subject, other = (f"{each}-{uuid.uuid4().hex[:8]}" for each in ("orders", ":.eu:orders"))

    def built() -> dict[str, Any]:
        rebuild(None, Output.json)
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert versions(tmp_path / "home" / "registry.db") == served(registry.url)
        return found

    registry.register(subject, text("a"), metadata={"properties": {"owner": "shop"}})
    registry.register(other, text("a", "b"))
    registry.set_compatibility(subject, "FULL")
    first = built()
    assert built() == first
    file = tmp_path / "home" / "registry.db"
    assert ask(file, "SELECT path, doc FROM registry_fields WHERE subject = ? ORDER BY place", other) == [
        ("a", "the a"),
        ("b", "the b"),
    ]
    assert ask(file, "SELECT name, value FROM registry_settings WHERE place = ?", subject) == [
        ("compatibilityLevel", "FULL")
    ]
    assert ask(file, "SELECT owner, deleted FROM registry_versions WHERE subject = ?", subject) == [
        ("shop", 0)
    ]

    registry.register(subject, text("a", "c"))
    registry.delete(subject)
    registry.delete(other)
    registry.delete(other, permanent=True)
    later = built()
    assert later["position"] > first["position"]
    assert ask(file, "SELECT deleted FROM registry_versions WHERE subject = ?", subject) == [(1,), (1,)]
    assert not ask(file, "SELECT 1 FROM registry_fields WHERE subject = ?", other)


def ask(file: Path, sql: str, *values: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return list(connection.execute(sql, values))


def versions(file: Path) -> list[tuple[Any, ...]]:
    """With the schemas that they are, by a join as another tool would make it."""
    return sorted(
        ask(
            file,
            "SELECT subject, version, id, guid, type, text FROM registry_versions JOIN registry_schemas "
            "USING (context, id)",
        )
    )


def served(url: str) -> list[tuple[Any, ...]]:
    every = httpx2.get(
        f"{url}/schemas", params={"subjectPrefix": ":*:", "deleted": "true"}, timeout=60.0
    ).json()
    return sorted(
        (
            each["subject"],
            each["version"],
            each["id"],
            each["guid"],
            each.get("schemaType", "AVRO"),
            each["schema"],
        )
        for each in every
    )
