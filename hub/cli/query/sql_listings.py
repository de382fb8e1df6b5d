"""[edge] Rows of the shell's listings: views, topics, saved queries, columns of one of them."""

from __future__ import annotations

from typing import Any

from hub.cli.query.sql_session import SqlSession
from hub.errors import CallerError, did_you_mean

# Names of the columns, and the rows.
Listing = tuple[tuple[str, ...], list[dict[str, Any]]]


def view_rows(session: SqlSession) -> Listing:
    rows = [
        {"view": each["view"], "columns": len(each["columns"]), "indexes": ", ".join(each["indexes"])}
        for each in session.tables()["views"]
    ]
    return ("view", "columns", "indexes"), rows


def topic_rows(session: SqlSession) -> Listing:
    rows = [
        {"topic": each["topic"], "partitions": each["partitions"], "records": each["end_offsets"]}
        for each in session.topics()
    ]
    return ("topic", "partitions", "records"), rows


def saved_query_rows(session: SqlSession) -> Listing:
    rows = [
        {"query": each["query"], "parameters": ", ".join(each["parameters"]), "doc": each["doc"]}
        for each in session.saved()
    ]
    return ("query", "parameters", "doc"), rows


def relation_rows(session: SqlSession, name: str) -> Listing:
    """Return the columns of a view or a topic. Raises CallerError with a similar name."""
    views = {each["view"]: each for each in session.tables()["views"]}
    if name in views:
        found = views[name]
    else:
        known = [each["topic"] for each in session.topics()]
        if name not in known:
            raise CallerError(
                f'no view and no topic "{name}"',
                hint=did_you_mean(name, [*views, *known], r"\d and \dt list them"),
            )
        found = session.topic(name)
    notes = dict.fromkeys((each["name"] for each in found["hidden"]), "not in *")
    if name in views:
        notes |= dict.fromkeys(found["indexes"], "index") | {"key": "key"}
    rows = [
        {"column": each["name"], "type": each["type"], "": notes.get(each["name"], "")}
        for each in (*found["columns"], *found["hidden"])
    ]
    return ("column", "type", ""), rows
