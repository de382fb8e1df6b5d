"""Requirements of a Postgres for change data capture, with the SQL for each; and the files that declare
it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hub.connectors.connectors_file import load_connectors
from hub.connectors.kinds import slot_of
from hub.connectors.postgres.checks import chosen, findings
from hub.connectors.postgres.facts import PostgresFacts, PostgresTable, read_facts
from hub.connectors.postgres.new_files import connector_entry, extended, topics_entry
from hub.errors import ConfigError, NotFound
from hub.topics.tree.tree import load

CUSTOMERS = PostgresTable("public", "customers", True, "d", True, True, 10)
LOG = PostgresTable("public", "Odd log", False, "d", False, False)
GOOD = PostgresFacts("db", 5432, "crm", "hub", 17, "logical", True, False, True, 9, 9, [CUSTOMERS], {}, {})


def wrong(facts: PostgresFacts) -> dict[str, str]:
    return {each.check: each.fix for each in findings(facts, facts.tables, "hub_crm") if not each.ok}


def test_a_database_that_is_ready_needs_nothing() -> None:
    assert wrong(GOOD) == {}


def test_each_lack_has_the_sql_that_resolves_it() -> None:
    bad = replace(
        GOOD,
        wal_level="replica",
        may_replicate=False,
        free_slots=0,
        free_senders=0,
        tables=[CUSTOMERS, LOG],
        publications={"hub_crm": frozenset({"public.customers"})},
    )
    assert wrong(bad) == {
        "wal_level": "ALTER SYSTEM SET wal_level = 'logical';  -- then restart Postgres",
        "role": 'ALTER ROLE "hub" WITH REPLICATION;',
        "slot": "ALTER SYSTEM SET max_replication_slots = 20;  -- then restart Postgres",
        "wal_senders": "ALTER SYSTEM SET max_wal_senders = 20;  -- then restart Postgres",
        "read": 'GRANT USAGE ON SCHEMA "public" TO "hub"; GRANT SELECT ON "public"."Odd log" TO "hub";',
        "publication": 'ALTER PUBLICATION "hub_crm" ADD TABLE "public"."Odd log";',
        "replica identity": 'ALTER TABLE "public"."Odd log" REPLICA IDENTITY FULL;  -- or '
        "give it a primary key",
    }


def test_a_publication_is_made_by_the_connector_where_it_may() -> None:
    other = replace(GOOD, tables=[replace(CUSTOMERS, owned=False)])
    assert wrong(other) == {"publication": 'CREATE PUBLICATION "hub_crm" FOR TABLE "public"."customers";'}
    assert wrong(replace(other, publications={"hub_crm": None})) == {}


def test_a_slot_in_use_is_named() -> None:
    assert "choose another --name" in wrong(replace(GOOD, slots={"hub_crm": True}))["slot"]
    assert wrong(replace(GOOD, slots={"hub_crm": False})) == {}


def test_tables_are_chosen_by_pattern() -> None:
    facts = replace(GOOD, tables=[CUSTOMERS, LOG])
    assert chosen(facts, ["public.c*"]) == [CUSTOMERS]
    assert chosen(facts, []) == [CUSTOMERS, LOG]
    with pytest.raises(NotFound, match=r"no table is called shop\.x"):
        chosen(facts, ["shop.x"])


def test_the_files_load_and_keep_what_stands_there(tmp_path: Path) -> None:
    tree, connectors = tmp_path / "topics.yaml", tmp_path / "connectors.yaml"
    tree.write_text("# of the team\ntopics:\n  shop: {}\n")
    tables = [CUSTOMERS, LOG]
    tree.write_text(extended(tree.read_text(), "topics", "crm", topics_entry(tables, "crm", "crm-team")))
    found = {each.name: each for each in load(tree).topics}
    assert set(found) == {"shop", "crm.public.customers", "crm.public.Odd_log"}
    assert found["crm.public.customers"].owner == "crm-team" and "# of the team" in tree.read_text()
    connectors.write_text(
        extended("connectors: {}\n", "connectors", "crm", connector_entry(GOOD, tables, "crm", "o"))
    )
    crm = load_connectors(tmp_path).by_name["crm"]
    assert crm.config["database.password"] == "${CRM_PASSWORD}"
    assert crm.config["table.include.list"] == r"public\.customers,public\.Odd\ log"
    assert slot_of("crm") == "hub_crm"


def test_an_address_that_is_none_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigError) as refused:
        read_facts("mysql://a:s3cret@db/x")
    assert "s3cret" not in str(refused.value)
