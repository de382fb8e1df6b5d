"""POST /api/audit/receipts: counts of producers are stored, or refused with a reason, for any numbers."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.testclient import TestClient

from hub.api.app import on_hub_error, on_invalid_request
from hub.completeness.balances import audit_of
from hub.completeness.counts import CountEntry
from hub.completeness.counts_follower import row_of
from hub.completeness.routes import HasCounts, create_router
from hub.errors import HubError

HUGE = 1 << 70


def said(**changes: Any) -> dict[str, Any]:
    """Build a valid body; ``changes`` apply to its minute, its receipt or the whole."""
    minute = {"bucket_ms": 60_000, "count": 1, "sum": f"{7:016x}", "bytes": 1}
    receipt = {"topic": "t", "partition": 0, "runs": [[0, 1]], "minutes": [minute], "dropped": 0}
    body = {"instance": "outbox-1", "at_ms": 1, "receipts": [receipt]}
    for name, value in changes.items():
        next(each for each in (minute, receipt, body) if name in each)[name] = value
    return body


@pytest.fixture
def kept() -> list[CountEntry]:
    return []


@pytest.fixture
def client(kept: list[CountEntry]) -> TestClient:
    app = FastAPI()
    app.add_exception_handler(HubError, on_hub_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)

    def keep(entries: list[CountEntry]) -> None:
        assert all(each.record().value for each in entries)
        kept.extend(entries)

    app.include_router(create_router(cast(HasCounts, None), keep))
    return TestClient(app)


def test_receipts_are_kept(client: TestClient, kept: list[CountEntry]) -> None:
    assert client.post("/api/audit/receipts", json=said()).status_code == 204
    assert [(each.instance, each.first, each.end) for each in kept] == [("outbox-1", 0, 1)]


@pytest.mark.parametrize(
    "changes",
    [
        {"at_ms": HUGE},
        {"partition": HUGE},
        {"dropped": HUGE},
        {"bucket_ms": HUGE // 60_000 * 60_000},
        {"bytes": HUGE},
        {"runs": [[0, HUGE]], "count": HUGE},
        {"runs": [[HUGE, 1]]},
        {"count": HUGE},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_number_that_no_log_has_is_refused_and_named(client: TestClient, changes: dict[str, Any]) -> None:
    refused = client.post("/api/audit/receipts", json=said(**changes))
    assert refused.status_code == 400
    assert next(iter(changes)) in refused.json()["message"] and "less than" in refused.json()["message"]


def test_what_the_largest_receipts_add_up_to_can_be_told(client: TestClient, kept: list[CountEntry]) -> None:
    most = 1 << 44
    for partition in range(20):
        body = said(partition=partition, count=most, bytes=most, dropped=most, runs=[[(1 << 63) - 1, most]])
        assert client.post("/api/audit/receipts", json=body).status_code == 204
    assert orjson.dumps(row_of(audit_of("t", kept), buckets=True))
