"""``GET /views/V?q=``: rows, pages, filters, and what a caller with masks can learn by searching."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from mask_facts import KnownFacts, caller_of, rules_of

from hub.access.masking.facts import ViewColumns
from hub.api.app import on_hub_error
from hub.caller import CALLER
from hub.errors import HubError
from hub.materializers.search.text_index import TextIndex
from hub.materializers.serving.routes import create_router
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import Positions

FIELDS = ("title", "body", "city", "q")
FACTS = KnownFacts(views={"v": ViewColumns(dict.fromkeys(FIELDS, ()), (), ())})
SECRET = {"fields": ["body"], "views": ["v"]}
OSLO = {"rows": "city = user.city", "views": ["v"]}
ROWS = {
    "a": ("Red shoes", "for <b>running</b> in Oslo", "Oslo"),
    "b": ("Blue shoes", "secret order of Ada", "Oslo"),
    "c": ("Green hat", "red shoes, red shoes", "Bergen"),
    "d": ("Shoes", None, "Bergen"),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(f"sqlite:///{tmp_path / 'store.db'}")
    declare(made, TextIndex(("title", "body"), "english"))
    write(made, ROWS)
    yield made
    made.close()


def declare(store: Store, index: TextIndex | None, *fields: str) -> None:
    columns = [{"name": name, "type": ["null", "string"], "default": None} for name in FIELDS]
    noted = [] if index is None else [index.spec]
    store.ensure_view("v", {"type": "record", "name": "v", "fields": columns}, ["city", *fields, *noted], "t")


def write(store: Store, rows: dict[str, tuple[str, str | None, str]], version: int = 1) -> None:
    changes = [
        RowVersion(key, version, 0, 0, {"title": title, "body": body, "city": city, "q": "x"})
        for key, (title, body, city) in rows.items()
    ]
    at = Positions.of([("shop.items", 0, 10 * version)])
    store.apply([ViewBatch("v", changes, Positions.of([("views.v", 0, version)]), at)])


def get(store: Store, path: str) -> tuple[int, Any]:
    app = FastAPI()
    app.add_exception_handler(HubError, on_hub_error)
    app.include_router(create_router(store, Watcher(store), 200))
    answer = TestClient(app).get(path)
    return answer.status_code, answer.json()


def keys(store: Store, query: str) -> list[str]:
    status, body = get(store, f"/views/v?q={query}")
    assert status == 200, body
    return [row["key"] for row in body["rows"]]


@pytest.fixture
def as_ana() -> Iterator[Any]:
    tokens = []

    def become(*masks: dict[str, Any]) -> None:
        tokens.append(
            CALLER.set(caller_of(rules_of(FACTS, list(masks), ana={"claims": {"city": "Oslo"}}), "ana"))
        )

    yield become
    for token in reversed(tokens):
        CALLER.reset(token)


@pytest.mark.parametrize("more", ["order=city", "as_of=2026-01-01T00:00:00Z"])
def test_a_search_refuses_what_it_would_ignore(store: Store, more: str) -> None:
    status, body = get(store, f"/views/v?q=red&{more}")
    assert status == 400 and f"leave out {more.partition('=')[0]}" in body["hint"]


def test_rows_are_ranked_and_highlighted(store: Store) -> None:
    status, body = get(store, "/views/v?q=red shoe")
    assert status == 200 and body["next"] is None
    first, second = body["rows"]
    assert [first["key"], second["key"]] == ["a", "c"] or [first["key"], second["key"]] == ["c", "a"]
    (row,) = [each for each in body["rows"] if each["key"] == "a"]
    assert row["_score"] > 0 and row["title"] == "Red shoes"
    assert row["_highlights"] == {
        "title": [
            {"text": "Red", "match": True},
            {"text": " ", "match": False},
            {"text": "shoes", "match": True},
        ]
    }
    (running,) = get(store, "/views/v?q=run")[1]["rows"]
    assert running["_highlights"]["body"][0] == {"text": "for <b>", "match": False}
    assert keys(store, "shoes -red") in (["b", "d"], ["d", "b"])
    assert keys(store, '"red shoes"&city=Bergen&fields=title') == ["c"]


def test_pages_have_every_row_once(store: Store) -> None:
    write(store, {f"k{n:03}": (f"shoes {'red ' * (n % 4)}", None, "Oslo") for n in range(60)}, 2)
    found, cursor = list[str](), ""
    for _ in itertools.count():
        _, body = get(store, f"/views/v?q=shoe&limit=7{cursor}")
        found += [row["key"] for row in body["rows"]]
        if body["next"] is None:
            break
        cursor = f"&after={body['next']}"
    assert len(found) == len(set(found)) == 64
    scores = [row["_score"] for row in get(store, "/views/v?q=shoe&limit=100")[1]["rows"]]
    assert scores == sorted(scores, reverse=True)


def test_a_search_waits_for_a_write_like_any_list(store: Store) -> None:
    assert get(store, "/views/v?q=shoe&after=shop.items:0:9")[0] == 200
    status, body = get(store, "/views/v?q=shoe&after=shop.items:0:99&timeout_ms=1")
    assert (status, body["error_code"]) == (503, "HUB-3050")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("?q=", "HUB-1481"),
        ("?q=-red", "HUB-1481"),
        ("?q=red&order=city", "HUB-1481"),
        ("?q=red&after=abc", "HUB-1426"),
        ("?q=red&body=x", "HUB-1421"),
        ("?q=red&limit=0", "HUB-1424"),
    ],
)
def test_wrong_searches_name_the_way_out(store: Store, path: str, code: str) -> None:
    status, body = get(store, f"/views/v{path}")
    assert (status, body["error_code"]) == (400, code)


def test_a_cursor_of_a_list_is_none_of_a_search(store: Store) -> None:
    cursor = get(store, "/views/v?order=city&limit=1")[1]["next"]
    assert get(store, f"/views/v?q=red&after={cursor}")[1]["error_code"] == "HUB-1426"


def test_without_a_text_index_q_is_an_error_or_a_field(store: Store) -> None:
    declare(store, None)
    status, body = get(store, "/views/v?q=red")
    assert (status, body["error_code"]) == (400, "HUB-1484") and "indexes" in body["hint"]
    declare(store, None, "q")
    assert len(get(store, "/views/v?q=x")[1]["rows"]) == 4
    declare(store, TextIndex(("title",)), "q")
    assert keys(store, "red") == ["a"]  # the index has rows that were there before
    assert len(get(store, "/views/v?q.eq=x")[1]["rows"]) == 4


# ---- masks


@pytest.mark.parametrize("form", ["nulled", "hashed", "partial(2)", "refused"])
def test_a_masked_field_can_neither_be_guessed_nor_seen(store: Store, as_ana: Any, form: str) -> None:
    guesses = ["secret", "Ada", '"secret order"', "sec*", "red -secret", "shoes -secret", "secret OR shoes"]
    plain = {guess: get(store, f"/views/v?q={guess}&fields=title")[1] for guess in guesses}
    assert plain["secret"]["rows"]
    as_ana({**SECRET, "as": form})
    before = {guess: get(store, f"/views/v?q={guess}&fields=title") for guess in guesses}
    assert all(status == 200 for status, _ in before.values())
    for guess in ("secret", "Ada", '"secret order"', "sec*"):
        assert before[guess][1]["rows"] == []
    # Every other text in the masked field gives the very same answers, scores included.
    CALLER.set(None)
    write(store, {key: (title, "nothing of it " * 9, city) for key, (title, _, city) in ROWS.items()}, 2)
    as_ana({**SECRET, "as": form})
    for guess in guesses:
        assert get(store, f"/views/v?q={guess}&fields=title") == before[guess], guess
    assert all(set(row["_highlights"]) <= {"title"} for _, body in before.values() for row in body["rows"])


def test_a_search_with_every_text_field_masked_is_refused(store: Store, as_ana: Any) -> None:
    as_ana({"fields": ["body", "title"], "views": ["v"], "as": "hashed"})
    status, body = get(store, "/views/v?q=red")
    assert (status, body["error_code"]) == (403, "HUB-1722") and "title, body" in body["message"]


def test_hidden_rows_neither_match_nor_change_a_score(store: Store, as_ana: Any) -> None:
    as_ana(OSLO)
    before = get(store, "/views/v?q=red OR shoes")
    assert sorted(row["key"] for row in before[1]["rows"]) == ["a", "b"]
    CALLER.set(None)
    write(store, {f"h{n}": ("red red red", "shoes", "Bergen") for n in range(50)}, 2)
    as_ana(OSLO)
    assert get(store, "/views/v?q=red OR shoes") == before


def test_searches_are_counted(store: Store) -> None:
    keys(store, "red")
    get(store, "/views/v?q=-red")
    samples = {
        (each.name, *each.labels.values()): each.value
        for family in store.text.times.families()
        for each in family.samples
    }
    assert samples["hub_view_searches_total", "v", "answered"] == 1
    assert samples["hub_view_search_seconds_count", "v"] == 1
