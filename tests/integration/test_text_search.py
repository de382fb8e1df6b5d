"""Full-text search in a real Postgres: the contract of SQLite's, and a server that is killed."""

from __future__ import annotations

import random
import threading

import pytest
import text_contract
from postgres import Postgres
from samples import fast_or

from hub.errors import HubError
from hub.materializers.search.text_index import TextIndex
from hub.materializers.search.text_query import parse_query
from hub.materializers.stores.sql.text_search import SearchTooLong, TextSearchRequest
from hub.materializers.stores.sql_store import Store


@pytest.fixture
def url(postgres: Postgres, request: pytest.FixtureRequest) -> str:
    return postgres.database(f"{request.node.name[:40]}-{random.randrange(10**6)}")


@pytest.mark.parametrize("seed", range(fast_or(4, 12)))
def test_any_history_gives_what_a_plain_search_gives(url: str, seed: int) -> None:
    text_contract.any_history(lambda: Store(url), seed)


def test_rows_at_the_limits_of_an_index(url: str) -> None:
    text_contract.limits(lambda: Store(url))


def test_a_search_is_stopped_at_its_time_limit(url: str) -> None:
    model = text_contract.TextModel(lambda: Store(url), random.Random(1))
    model.declare(TextIndex(("title",)))
    for start in range(0, 60_000, 20_000):
        rows = [(f"k{n}", 1, {"title": f"word {n}", "city": "x"}) for n in range(start, start + 20_000)]
        model.apply(rows)
    wanted = TextSearchRequest(parse_query("word w*"), (0,), True)
    with pytest.raises(SearchTooLong):
        model.store.text.search("v", wanted, [], 10, None, 0.001)
    assert len(model.store.text.search("v", wanted, [], 10, None, 30.0)) == 10  # the connection is usable
    model.store.close()


def test_a_server_that_is_killed_while_rows_are_written_has_the_words_of_its_rows(
    postgres: Postgres, url: str
) -> None:
    model = text_contract.TextModel(lambda: Store(url), random.Random(2))
    model.declare(TextIndex(text_contract.FIELDS))
    version = 0

    def write() -> None:
        nonlocal version
        version += 1
        keys = model.chance.sample(range(900), 600)
        model.apply([(f"k{key}", version, text_contract.row(model.chance)) for key in keys])

    write()
    for pause_s in (0.1, 0.4, 0.9):
        killed = threading.Timer(pause_s, postgres.kill)
        killed.start()
        try:
            while True:
                write()
        except HubError:
            killed.join()
        postgres.start()
        # The last batch may be there or not: the rows themselves say which.
        with model.store.cut("v") as cut:
            model.rows = {
                key: (at, dict(zip(cut.types, values, strict=False))) for key, at, values in cut.rows()
            }
        assert len(model.rows) >= 600
        assert model.check(30) > 0
    model.store.close()
