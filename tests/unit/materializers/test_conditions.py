"""Conditions and pages over truths, decimals and bytes:
a pull query and a subscription take the same and mean the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sql_cases import DECIMAL, schema

from hub.api.app import on_hub_error
from hub.errors import HubError
from hub.materializers.serving.routes import create_router
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import Positions

TINY = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}
COLUMNS = {"big": "boolean", "price": DECIMAL, "tiny": TINY, "whole": {**TINY, "scale": 0}, "raw": "bytes"}
PRICES = ("10.50", "9.00", "0.00", "-2.50", None)


def row(number: int) -> dict[str, Any]:
    """Decimals as Avro's readers give them: with all digits of their scale."""
    price = PRICES[number]
    return {
        "big": (True, False, None)[number % 3],
        "price": None if price is None else Decimal(price),
        "tiny": Decimal(number).scaleb(-9),
        "whole": Decimal(10**37 + number),
        "raw": bytes([number]),
    }


@pytest.fixture
def http(tmp_path: Path) -> Iterator[TestClient]:
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    store.ensure_view("w", schema(**COLUMNS), list(COLUMNS), "t1")
    rows = [RowVersion(f"k{n}", n + 1, 0, n, row(n)) for n in range(5)]
    store.apply([ViewBatch("w", rows, Positions.of([("views.w", 0, 5)]))])
    watcher = Watcher(store)
    app = FastAPI()
    app.add_exception_handler(HubError, on_hub_error)
    app.include_router(create_router(store, watcher, 50))
    with TestClient(app) as client:
        yield client
    store.close()


def pulled(http: TestClient, query: str) -> list[str]:
    answer = http.get(f"/views/w?{query}")
    assert answer.status_code == 200, answer.text
    return [each["key"] for each in answer.json()["rows"]]


def pushed(http: TestClient, query: str) -> list[str]:
    """The keys of the snapshot that a subscription begins with."""
    found: list[str] = []
    with http.websocket_connect(f"/views/w/changes?{query}") as socket:
        while (told := json.loads(socket.receive_text()))["event"] == "snapshot":
            found.append(told["data"]["key"])
    assert told["event"] == "synced"
    return found


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("big=true", ["k0", "k3"]),
        ("big.gte=true", ["k0", "k3"]),
        ("big.gt=false", ["k0", "k3"]),
        ("big.lt=true", ["k1", "k4"]),
        ("big.lte=true", ["k0", "k1", "k3", "k4"]),
        ("price=10.5", ["k0"]),
        ("price=10.50", ["k0"]),
        ("price=1.05e1", ["k0"]),
        ("price=9", ["k1"]),
        ("price=-0", ["k2"]),
        ("price=-2.500", ["k3"]),
        ("price=10.505", []),
        ("price=1e999999999", []),
        ("price=nan", []),
        ("tiny=0", ["k0"]),
        ("tiny=0.000000003", ["k3"]),
        ("tiny=3e-9", ["k3"]),
        ("whole=10000000000000000000000000000000000002", ["k2"]),
    ],
)
def test_truths_and_decimals_are_compared_by_value(http: TestClient, query: str, keys: list[str]) -> None:
    assert pulled(http, query) == keys
    assert pushed(http, query) == keys


@pytest.mark.parametrize("operator", ["gt", "gte", "lt", "lte"])
@pytest.mark.parametrize("column", ["price", "raw"])
def test_what_is_kept_in_another_order_is_not_compared_by_it(
    http: TestClient, column: str, operator: str
) -> None:
    for path in ("/views/w", "/views/w/changes"):
        answer = http.get(f"{path}?{column}.{operator}=10")
        assert answer.status_code == 400
        assert "has no order here" in answer.json()["message"]
        assert "POST /query" in answer.json()["hint"]


def test_a_text_is_no_decimal(http: TestClient) -> None:
    answer = http.get("/views/w?price=dear")
    assert (answer.status_code, answer.json()["error_code"]) == (400, "HUB-1423")


@pytest.mark.parametrize(
    ("order", "keys"),
    [("big", ["k1", "k4", "k0", "k3", "k2"]), ("-big", ["k2", "k3", "k0", "k4", "k1"])],
)
def test_pages_in_the_order_of_a_truth_are_the_whole_once(
    http: TestClient, order: str, keys: list[str]
) -> None:
    found: list[str] = []
    page = {"order": order, "limit": "1"}
    for _ in keys:
        answer = http.get("/views/w", params=page)
        assert answer.status_code == 200, answer.text
        found += [each["key"] for each in answer.json()["rows"]]
        page["after"] = answer.json()["next"]
    assert found == keys and page["after"] is None


def test_a_filter_that_outlives_its_columns_type_harms_nothing(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    store.ensure_view("w", schema(price="string"), ["price"], "t1")
    store.apply([ViewBatch("w", [RowVersion("a", 1, 0, 0, {"price": "10.50"})], Positions())])
    assert store.select("w", [("price", "eq", Decimal("10.5"))], 9, None) == []
    store.close()
