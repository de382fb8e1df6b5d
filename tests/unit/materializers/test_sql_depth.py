"""SQL that nests too deep is an error of its author's for every reader of SQL, however it nests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from hub.errors import ConfigError
from hub.materializers.definition.compiling.compiler import shape
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import load_view
from hub.materializers.definition.schema_impact import columns_read
from hub.materializers.definition.sql_checks import checked
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.parser import parse as parse_statement
from hub.materializers.queries.saved_queries import load_query
from hub.materializers.sql_rules.nesting import MOST_BRACKETS, MOST_LEVELS

# A text that nests so deep, and how deep. Each is within the limits of characters that files have.
DEEP: dict[str, tuple[Callable[[int], str], int]] = {
    "brackets": (lambda times: "(" * times + "n" + ")" * times, 900),
    "functions": (lambda times: "abs(" * times + "n" + ")" * times, 390),
    "cases": (lambda times: "CASE WHEN true THEN " * times + "n" + " END" * times, 80),
    "nots": (lambda times: "NOT " * times + "true", 480),
    "signs": (lambda times: "- " * times + "n", 900),
    "sums": (lambda times: "n" + " + n" * times, 480),
    "ors": (lambda times: "n=1" + " OR n=1" * times, 270),
    "parts": (lambda times: "n" + "[0]" * times, 300),
    "casts": (lambda times: "CAST(" * times + "n" + " AS INT)" * times, 140),
    "open": (lambda times: "(" * times, 1_900),
}
_SOURCES = "sources: {s: {topic: t, format: json, schema: {id: bigint, n: bigint}"
SCHEMA = {
    "s": {
        "type": "record",
        "name": "s",
        "fields": [{"name": "id", "type": ["null", "long"]}, {"name": "n", "type": ["null", "long"]}],
    }
}


@pytest.mark.parametrize("kind", DEEP)
def test_every_reader_of_sql_says_that_it_is_too_deep(kind: str, tmp_path: Path) -> None:
    make, times = DEEP[kind]
    for text in (make(times), make(8 * times)):
        for body in (
            f"view: v\n{_SOURCES}}}}}\nsql: SELECT s.id, {text} AS n FROM s\nkey: id\n",
            (
                f"view: v\n{_SOURCES}, table: {{key: id, delete_when: '{text}'}}}}}}\nsql: SELECT s.id, "
                "s.n FROM s\nkey: id\n"
            ),
            f"view: v\n{_SOURCES}, key: id}}}}\nfields: {{n: '{text.replace('n', 's.n')}'}}\n",
            f"view: v\n{_SOURCES}, key: id, where: '{text}'}}}}\nfields: {{n: s.n}}\n",
        ):
            refused(tmp_path / "v.yaml", body)
        with pytest.raises(SqlError) as error:
            parse_statement(f"SELECT {text} FROM v")
        assert len(str(error.value)) < 1_000
        query = tmp_path / "queries" / "q.sql"
        query.parent.mkdir(exist_ok=True)
        query.write_text(f"SELECT {text} AS n FROM v")
        with suppress(ConfigError):
            load_query(query)


def refused(file: Path, body: str) -> None:
    """A view's file is refused for its depth, or for its length, with a message that can be read."""
    file.write_text(body)
    with pytest.raises(
        ConfigError, match=r"nested deeper than|nested too deep|at most \d+ characters|no SQL"
    ) as error:
        compiled(file)
    assert len(str(error.value)) < 1_000


def compiled(file: Path) -> None:
    view = load_view(file)
    if isinstance(view, View):
        columns_read(view)
        shape(view, SCHEMA)
    else:
        checked(view, SCHEMA)


def test_what_people_write_is_not_too_deep(tmp_path: Path) -> None:
    file = tmp_path / "v.yaml"
    chain = "s.n" + " + s.n" * (MOST_LEVELS - 20)
    nested = "(" * MOST_BRACKETS + "s.n" + ")" * MOST_BRACKETS
    file.write_text(
        f"view: v\n{_SOURCES}}}}}\nsql: SELECT s.id, {chain} AS n, {nested} AS m FROM s\nkey: id\n"
    )
    view = load_view(file)
    assert isinstance(view, SqlView)
    checked(view, SCHEMA)
    file.write_text(f"view: v\n{_SOURCES}, key: id}}}}\nfields: {{n: '{chain}', m: '{nested}'}}\n")
    view = load_view(file)
    assert isinstance(view, View)
    shape(view, SCHEMA)
