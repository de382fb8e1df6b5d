"""SQL views that real-time mode supports, and the reasons and hints with which it refuses others."""

from __future__ import annotations

from typing import Any

import pytest

from hub.errors import ConfigError
from hub.materializers.definition.sql_checks import query_of
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.planning.classify import classify

WATCHED = {"event_time": "t", "watermark": "10 minutes"}
SOURCES: dict[str, dict[str, Any]] = {
    "e": {"topic": "shop.events"},
    "f": {"topic": "shop.more"},
    "timed": {"topic": "shop.timed", **WATCHED},
    "other": {"topic": "shop.other", **WATCHED},
    "names": {"topic": "ref.names", "as": "static"},
    "c360": {"view": "customer_360"},
    "changes": {"view": "customer_360", "as": "stream"},
}


def view(sql: str, *key: str, mode: str = "realtime") -> SqlView:
    words = set(sql.replace(",", " ").replace(")", " ").replace("(", " ").split())
    used = {name: source for name, source in SOURCES.items() if name in words}
    return SqlView.model_validate({"view": "v", "mode": mode, "sources": used, "sql": sql, "key": list(key)})


@pytest.mark.parametrize(
    ("sql", "key", "kind"),
    [
        ("SELECT id, upper(x) AS x FROM e WHERE y > 3", ("id",), "stateless"),
        ("SELECT id, i.sku AS sku FROM e LATERAL VIEW explode(items) l AS i", ("id", "sku"), "stateless"),
        ("SELECT id, x FROM e UNION ALL SELECT id, x FROM f", ("id",), "stateless"),
        ("SELECT id, name FROM changes", ("id",), "stateless"),
        ("SELECT id, x FROM timed", ("id",), "stateless"),
        ("WITH big AS (SELECT id FROM e WHERE x > 9) SELECT id FROM big", ("id",), "stateless"),
        ("SELECT id, count(*) AS n, max_by(x, t, 3) AS top FROM e GROUP BY id", (), "aggregate"),
        (
            "SELECT window(t, '1 hour').start AS h, count(*) AS n FROM e GROUP BY window(t, '1 hour')",
            (),
            "aggregate",
        ),
        (
            "SELECT window(t, '1 hour').start AS h, count(*) AS n FROM timed GROUP BY window(t, '1 hour')",
            (),
            "aggregate",
        ),
        ("SELECT DISTINCT id FROM e", (), "aggregate"),
        (
            "SELECT id, count(*) AS n FROM (SELECT id FROM e UNION ALL SELECT id FROM f) u GROUP BY id",
            (),
            "aggregate",
        ),
    ],
)
def test_it_takes_stateless_views_and_one_aggregation(sql: str, key: tuple[str, ...], kind: str) -> None:
    assert classify(query_of(view(sql, *key))).name == kind


@pytest.mark.parametrize(
    ("sql", "key", "why", "form"),
    [
        (
            "SELECT id, x FROM c360",
            ("id",),
            'incremental, reads the view "customer_360"',
            "with {as: stream} every change",
        ),
        (
            "SELECT id, count(*) AS n FROM e GROUP BY id HAVING count(*) > 3",
            (),
            "incremental, HAVING: a row leaves",
            "leave HAVING out",
        ),
        (
            "SELECT e.id, n.name FROM e LEFT JOIN names n ON n.id = e.id",
            ("id",),
            "join, each event is enriched by static tables",
            "an entity view",
        ),
        (
            (
                "SELECT a.id, b.x FROM timed a JOIN other b ON a.id = b.id AND b.t BETWEEN a.t AND "
                "a.t + INTERVAL 1 HOUR"
            ),
            ("id",),
            "join, inner join of two streams",
            "an entity view",
        ),
        (
            (
                "SELECT id, session_window(t, '9 minutes').start AS s FROM timed GROUP BY id, "
                "session_window(t, '9 minutes')"
            ),
            (),
            "session: a session is written when the watermark has closed it",
            "window(event_time, '10 minutes')",
        ),
        (
            "SELECT id, x FROM e WHERE x > 3 UNION ALL SELECT id, -x AS x FROM e WHERE x < 3",
            ("id",),
            'reads source "e" more than once',
            "e_again: {topic: shop.events}",
        ),
        (
            "WITH c AS (SELECT id, x FROM e) SELECT id, x FROM c UNION ALL SELECT id, -x AS x FROM c",
            ("id",),
            'reads source "e" more than once',
            "e_again: {topic: shop.events}",
        ),
    ],
)
def test_it_refuses_the_others_with_the_reason_and_the_nearest_form(
    sql: str, key: tuple[str, ...], why: str, form: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        classify(query_of(view(sql, *key)))
    assert refused.value.code == "HUB-2108"
    assert why in refused.value.message
    assert form in (refused.value.hint or "") and "write `mode: live`" in (refused.value.hint or "")
    classify(query_of(view(sql, *key, mode="live")))  # the form of the hint


def test_a_stateless_row_says_which_event_made_it() -> None:
    found = classify(
        query_of(view("SELECT id FROM (SELECT id, x FROM e) i WHERE x > 3 UNION ALL SELECT id FROM f", "id"))
    )
    origin = "named_struct('source', '{0}', 'topic', `{0}`._topic, 'partition', `{0}`._partition, "
    assert origin.format("e") in found.traced and origin.format("f") in found.traced
    assert "`i`._hub_from AS _hub_from" in found.traced
    assert found.sql == "\n".join(
        line.split(", named_struct")[0].split(", `i`._hub_from")[0] for line in found.traced.splitlines()
    )
    grouped = classify(query_of(view("SELECT id, count(*) AS n FROM e GROUP BY id")))
    assert grouped.traced == "" and grouped.sql
