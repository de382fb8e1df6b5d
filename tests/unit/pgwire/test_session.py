"""The state machine of a session: scripts, prepared statements, portals, transactions, errors."""

from __future__ import annotations

import pytest

from hub.pgwire.actions import (
    DescribePortal,
    DropPortals,
    EndSession,
    FlushNow,
    OpenPortal,
    RunScript,
    Send,
    SendRows,
)
from hub.pgwire.protocol import backend, frontend
from hub.pgwire.session import Session, described, failed, on_message, on_statement
from hub.pgwire.session_settings import body_of, startup_settings, timeout_ms, value_of
from hub.pgwire.sqlstates import PgError
from hub.pgwire.statements import RefusedStatement, SelectStatement, statements_of


def after(session: Session, *messages: frontend.Message) -> Session:
    for message in messages:
        session, _ = on_message(session, message)
    return session


def run(session: Session, sql: str) -> Session:
    for statement in statements_of(sql):
        session, _ = on_statement(session, statement)
    return session


def bind(portal: str = "", statement: str = "") -> frontend.Bind:
    return frontend.Bind(portal, statement, (), (), ())


def state_of(sql: str, session: Session | None = None) -> str:
    with pytest.raises(PgError) as caught:
        run(session or Session(), sql)
    return caught.value.state


def test_a_simple_query_is_a_script() -> None:
    _, actions = on_message(Session(), frontend.SimpleQuery("BEGIN; SELECT 1; /* ; */"))
    assert isinstance(actions[-1], RunScript) and len(actions[-1].statements) == 2
    _session, actions = on_statement(Session(), SelectStatement("SELECT 1"))
    assert actions == [OpenPortal("", SelectStatement("SELECT 1")), DescribePortal(""), SendRows("", 0)]


def test_prepared_statements_and_portals() -> None:
    session = after(Session(), frontend.Parse("s", "SELECT $1", (23,)))
    session, actions = on_message(session, frontend.Bind("p", "s", (), (b"1",), (1,)))
    opened = OpenPortal("p", SelectStatement("SELECT $1"), (23,), (), (b"1",), (1,))
    assert actions == [opened, Send(backend.BOUND)]
    session, actions = on_message(session, frontend.Execute("p", 5))
    assert actions == [SendRows("p", 5, suspends=True)]
    session, actions = on_message(session, frontend.Sync())
    assert actions == [DropPortals(("p",)), Send(backend.ready("I")), FlushNow()]
    assert on_message(session, frontend.Terminate())[1] == [EndSession()]


def test_portals_live_as_long_as_their_transaction() -> None:
    session = after(run(Session(), "BEGIN"), frontend.Parse("", "SELECT 1"), bind("p"), frontend.Sync())
    assert set(session.portals) == {"p"} and session.status == "T"
    assert set(run(session, "COMMIT").portals) == set()
    held = run(
        run(Session(), "BEGIN"),
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1; DECLARE d CURSOR FOR SELECT 2; COMMIT",
    )
    assert set(held.portals) == {"c"}
    assert set(after(held, frontend.Sync()).portals) == {"c"}


def test_after_an_error_everything_up_to_sync_is_skipped() -> None:
    session, actions = failed(Session(), PgError("42601", "no", "yes", position=3), extended=True)
    assert session.skipping and b"C42601" in actions[0].data and b"P3\0" in actions[0].data  # type: ignore[union-attr]
    session, actions = on_message(session, frontend.Parse("s", "SELECT 1"))
    assert actions == [] and not session.prepared
    session, actions = on_message(session, frontend.Sync())
    assert not session.skipping and actions[0] == Send(backend.ready("I"))


def test_a_failed_transaction_ends_with_rollback() -> None:
    session, _ = failed(run(Session(), "BEGIN"), PgError("42601", "no"), extended=False)
    assert session.status == "E" and state_of("SELECT 1", session) == "25P02"
    assert run(session, "ROLLBACK TO a").status == "T"
    session, actions = on_statement(session, statements_of("COMMIT")[0])
    assert session.status == "I" and actions[-1] == Send(backend.complete("ROLLBACK"))


def test_what_is_refused_has_a_state() -> None:
    for sql, state in {
        "DECLARE c CURSOR FOR SELECT 1": "25P01",
        "SAVEPOINT a": "25P01",
        "FETCH 1 FROM c": "34000",
        "CLOSE c": "34000",
        "BEGIN READ WRITE": "25006",
        "delete from plant": "25006",
        "WRONG": "42601",
        "LISTEN x": "0A000",
        "SET server_version = '9'": "55P02",
        "SET statement_timeout = 'soon'": "22023",
        "SET topic_events = 0": "22023",
        "SET client_encoding = 'LATIN1'": "0A000",
        "COPY plant TO '/tmp/x'": "42501",
        "COPY plant TO STDOUT (FORMAT binary)": "0A000",
        "FETCH BACKWARD 1 FROM c": "55000",
    }.items():
        assert state_of(sql) == state, sql
    with pytest.raises(PgError, match="already exists"):
        after(Session(), frontend.Parse("s", "SELECT 1"), frontend.Parse("s", "SELECT 2"))
    for message, state in (
        (bind("p", "nothing"), "26000"),
        (frontend.Execute("nothing"), "34000"),
        (frontend.Describe("P", "nothing"), "34000"),
        (frontend.Parse("", "SELECT 1; SELECT 2"), "42601"),
        (frontend.Password("x"), "08P01"),
        (frontend.Unsupported("x"), "0A000"),
    ):
        with pytest.raises(PgError) as caught:
            on_message(Session(), message)
        assert caught.value.state == state


def test_there_is_an_end_to_what_a_session_holds() -> None:
    session = run(Session(), "BEGIN")
    session = after(session, frontend.Parse("", "SELECT 1"), *(bind(f"p{n}") for n in range(20)))
    with pytest.raises(PgError, match="20 open cursors"):
        on_message(session, bind("one too many"))
    with pytest.raises(PgError, match="100 are allowed"):
        statements_of("SELECT 1;" * 101)


def test_settings_become_the_options_of_a_query() -> None:
    session = run(
        Session(), "SET consistency_token = 'in:0:7'; SET statement_timeout = '2s'; SET topic_events TO 5"
    )
    session = run(
        session,
        "SET consistent_with = 'required'; SET TIME ZONE 'Europe/Oslo'; SET search_path TO public, topics",
    )
    body = body_of(session.settings, "SELECT 1", {}, 10)
    assert (body.after, body.timeout_ms, body.events, body.cut) == ("in:0:7", 2_000, 5, "required")
    assert body_of(run(session, "SET topic_events = 'all'").settings, "SELECT 1", {}, 10).events == "all"
    assert value_of(session.settings, "TimeZone") == "UTC"
    assert timeout_ms(run(session, "SET statement_timeout = 0").settings) == 60_000
    assert timeout_ms(run(session, "RESET ALL").settings) is None
    told = startup_settings(
        {"user": "a", "options": "-c statement_timeout=5 -csearch_path=a", "application_name": "x"}
    )
    assert told == {"statement_timeout": "5", "search_path": "a", "application_name": "x"}


def test_a_described_statement_keeps_its_types() -> None:
    session = after(Session(), frontend.Parse("s", "SELECT $1"))
    assert described(session, "s", [20]).prepared["s"].types == (20,)


def test_statements_keep_their_place_in_the_text() -> None:
    one, two = statements_of("  SELECT 1; COPY (SELECT 2) TO STDOUT")
    assert isinstance(one, SelectStatement) and one.offset == 0
    assert not isinstance(two, RefusedStatement) and two.query.offset == 18  # type: ignore[union-attr]
