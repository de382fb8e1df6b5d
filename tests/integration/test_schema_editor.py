"""The editor of a schema on a real server: a checked draft becomes a version that clients read."""

from __future__ import annotations

import json
import uuid

import httpx2
import pytest

from hub.config import Settings
from hub.schema_registry.client.registry_client import RegistryClient

PAGE = {"accept": "text/html", "sec-fetch-site": "same-origin"}


def schema(*more: dict[str, object]) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}, *more]})


@pytest.mark.parametrize("suffix", ["value", "with/slash-value"])
def test_a_draft_is_checked_and_registered_on_a_real_server(
    settings: Settings, hub_server: str, suffix: str
) -> None:
    subject = f"edit.{uuid.uuid4().hex[:8]}-{suffix}"
    registry = RegistryClient(hub_server)
    registry.register(subject, schema())
    url = f"/schema-editor/{subject.replace('/', '%2F')}"
    wrong, right = (
        schema({"name": "n", "type": "int"}),
        schema({"name": "n", "type": "int", "default": 0}),
    )
    with httpx2.Client(base_url=hub_server, timeout=60) as http:
        assert "version 1" in http.get(url, headers=PAGE).text
        refused = http.post(url, data={"schema": wrong, "type": "AVRO", "do": "check"}, headers=PAGE).text
        assert "It would be refused" in refused and "can NOT read" in refused
        forced = http.post(f"/api{url}", json={"schema": wrong})
        assert forced.status_code == 409, forced.text
        check = http.post(f"/api{url}", json={"schema": right, "dry_run": True}).json()["check"]
        assert check["refusals"] == [] and check["comparison"]["changes"]
        form = {"schema": right, "type": "AVRO", "do": "register", "plan": check["digest"]}
        done = http.post(url, data=form, headers=PAGE)
        assert done.status_code == 200 and "version 2" in done.text
        twice = http.post(url, data=form, headers=PAGE)  # the newest version is another one now
        assert twice.status_code == 409 and "HUB-1941" in twice.text
    assert registry.latest(subject).version == 2
    assert json.loads(registry.latest(subject).schema)["fields"][1]["default"] == 0
