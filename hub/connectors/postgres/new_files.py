"""[core] Additions to connectors.yaml and topics.yaml for the tables of a Postgres database.

Files are extended as text, so that comments and order stay; who writes them checks that the result loads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hub.connectors.postgres.facts import PostgresFacts, PostgresTable
from hub.yaml import written


def topic_of(name: str, table: PostgresTable) -> str:
    """Return the topic of a table, as Debezium names it: characters that Kafka refuses become ``_``."""
    return ".".join((name, label(table.schema), label(table.name)))


def label(text: str) -> str:
    """Return a name as a label of a topic.

    >>> label("Order Lines"), label("a.b")
    ('Order_Lines', 'a_b')
    """
    return re.sub(r"[^a-zA-Z0-9_-]", "_", text)


def connector_entry(
    facts: PostgresFacts, tables: Sequence[PostgresTable], name: str, owner: str
) -> dict[str, object]:
    """Return the connector's entry. The password is a reference to ``variable_of(name)``."""
    return {
        "kind": "postgres-cdc",
        **({"owner": owner} if owner else {}),
        "topics": [f"{name}.**"],
        "config": {
            "database.hostname": facts.host,
            "database.port": facts.port,
            "database.dbname": facts.database,
            "database.user": facts.role,
            "database.password": f"${{{variable_of(name)}}}",
            # Debezium reads regular expressions.
            "table.include.list": ",".join(re.escape(each.full_name).replace("\\-", "-") for each in tables),
        },
    }


def variable_of(name: str) -> str:
    """Return the variable that has the password of a connector.

    >>> variable_of("crm-eu")
    'CRM_EU_PASSWORD'
    """
    return f"{re.sub(r'[^A-Z0-9]+', '_', name.upper())}_PASSWORD"


def topics_entry(tables: Sequence[PostgresTable], name: str, owner: str) -> dict[str, object]:
    """Return the node of topics.yaml with a topic for each table."""
    schemas: dict[str, dict[str, object]] = {}
    for each in tables:
        doc = f"Changes of the table {each.full_name}."
        schemas.setdefault(label(each.schema), {})[label(each.name)] = {"doc": doc}
    below = {schema: {"topics": topics} for schema, topics in schemas.items()}
    return {**({"owner": owner} if owner else {}), "retention": "forever", "topics": below}


def extended(text: str, section: str, name: str, entry: dict[str, object]) -> str:
    """Return a file's text with one more entry under a section; the section is the file's last, or is added.

    >>> print(extended("a: 1\\n", "topics", "x", {"doc": "d"}), end="")
    a: 1
    topics:
      x:
        doc: d
    """
    block = "".join(f"  {line}\n" for line in written({name: entry}).splitlines())
    kept = text.rstrip() + "\n" if text.strip() else ""
    if re.search(rf"^{section}:[ \t]*\{{[ \t]*\}}[ \t]*$", kept, re.MULTILINE):
        kept = re.sub(rf"^{section}:[ \t]*\{{[ \t]*\}}[ \t]*$", f"{section}:", kept, flags=re.MULTILINE)
    elif not re.search(rf"^{section}:[ \t]*(#.*)?$", kept, re.MULTILINE):
        kept += f"{section}:\n"
    return kept + block
