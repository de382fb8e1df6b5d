"""A server over a store in this process: limits of results, slow readers, revoked users."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cheap_scrypt import cheap_scrypt
from patience import patient
from pg_server import PgHub, served_pg

from hub.access.personal_tokens import PersonalToken
from hub.access.secrets import TOKEN_PREFIX, hash_of_password, hash_of_token
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.pgwire.results import ResultLimits
from hub.record import Positions


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[PgHub]:
    with served_pg(tmp_path, limits=ResultLimits(20_000, 8 << 20)) as served:
        yield served


def connected(hub: PgHub, **more: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host="127.0.0.1", port=hub.port, dbname="hub", **{"user": "ada", "autocommit": True, **more}
    )


def test_a_result_beyond_a_limit_is_an_error_and_not_cut_off(hub: PgHub) -> None:
    with connected(hub) as connection:
        ten_thousand = "SELECT a.n FROM plant a, plant b, plant c, plant d"
        assert len(connection.execute(ten_thousand).fetchall()) == 10_000
        with pytest.raises(psycopg.Error, match="more than 20000 rows") as caught:
            connection.execute(f"{ten_thousand}, plant e")
        assert caught.value.sqlstate == "54000" and "pgwire_rows" in str(caught.value.diag.message_hint)
        wide = " || ".join(["replace('xxxxxxxxxx', 'x', '0123456789')"] * 20)
        with pytest.raises(psycopg.Error, match="more than 8 MB"):
            connection.execute(f"SELECT {wide} AS t FROM plant a, plant b, plant c, plant d")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_view_that_still_reads_its_backlog_is_named_in_a_warning(hub: PgHub) -> None:
    with connected(hub) as connection:
        warnings: list[str] = []
        connection.add_notice_handler(lambda told: warnings.append(f"{told.sqlstate} {told.message_primary}"))
        connection.execute("SELECT count(*) FROM plant")
        assert warnings == []
        hub.catching_up.add("plant")
        assert connection.execute("SELECT count(*) FROM plant").fetchone() == (10,)
        connection.execute("SELECT count(*) FROM customer")
        (warning,) = warnings
        assert warning.startswith("01000 plant: a backlog of its topics is still read")


def test_a_reader_who_waits_keeps_nobody_from_asking(hub: PgHub) -> None:
    """More cursors with rows left than queries may run at once."""
    waiting = [connected(hub, autocommit=False) for _ in range(10)]
    cursors = [each.cursor("slow") for each in waiting]
    try:
        for cursor in cursors:
            cursor.execute("SELECT a.n FROM plant a, plant b, plant c, plant d")
            assert len(cursor.fetchmany(3)) == 3
        with connected(hub) as other:
            assert other.execute("SELECT count(*) FROM plant").fetchone() == (10,)
    finally:
        for cursor, connection in zip(cursors, waiting, strict=True):
            cursor.close()
            connection.close()


def test_a_user_whose_password_changes_is_signed_out(hub: PgHub) -> None:
    def written(password: str) -> None:
        user = {
            "password": hash_of_password(password, b"s" * 16),
            "grants": [{"role": "read", "views": ["plant"]}],
        }
        (hub.folder / "access.yaml").write_text(json.dumps({"users": {"ada": user}}))
        hub.access.refresh()

    with cheap_scrypt():
        written("one")
        with connected(hub, password="one") as connection:
            assert connection.execute("SELECT count(*) FROM plant").fetchone() == (10,)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT count(*) FROM customer")
            written("another")
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")


def test_a_token_that_ends_ends_its_connections(hub: PgHub) -> None:
    user = {"grants": [{"role": "read", "views": ["plant"]}]}
    (hub.folder / "access.yaml").write_text(json.dumps({"users": {"ada": user}}))
    hub.access.refresh()
    for number, ended in enumerate(("revoked", "expired")):
        secret = f"{TOKEN_PREFIX}{number}"
        ends_at_s = int(hub.now_s) + 60
        hub.tokens.add(PersonalToken(ended, "bi", "ada", hash_of_token(secret), (), 1, ends_at_s))
        with connected(hub, password=secret) as connection:
            assert connection.execute("SELECT count(*) FROM plant").fetchone() == (10,)
            if ended == "revoked":
                hub.tokens.revoke(ended)
            else:
                hub.now_s = ends_at_s
            with pytest.raises(psycopg.OperationalError, match="revoked or has expired"):
                connection.execute("SELECT count(*) FROM plant")
        with pytest.raises(psycopg.OperationalError):
            connected(hub, password=secret)


def test_a_new_view_is_in_the_catalog_at_once(hub: PgHub) -> None:
    with connected(hub) as connection:
        listed = "SELECT table_name FROM information_schema.views WHERE table_schema = 'public' ORDER BY 1"
        assert [row[0] for row in connection.execute(listed)] == ["customer", "plant"]
        schema = {"type": "record", "name": "v", "fields": [{"name": "a", "type": "string"}]}
        hub.store.ensure_view("added", schema, [], "t9")
        hub.store.apply([ViewBatch("added", [RowVersion("k", 1, 0, 0, {"a": "x"})], Positions())])
        assert [row[0] for row in connection.execute(listed)] == ["added", "customer", "plant"]


def test_messages_in_a_wrong_order_are_errors_of_their_session(hub: PgHub) -> None:
    parameters = struct.pack("!i", 3 << 16) + b"user\0ada\0\0"
    execute = b"E" + struct.pack("!i", 9) + b"\0" + struct.pack("!i", 0)
    sync, query = b"S\0\0\0\x04", b"Q\0\0\0\x0dSELECT 1\0"
    with socket.create_connection(("127.0.0.1", hub.port), timeout=patient(20.0)) as raw:
        raw.sendall(
            struct.pack("!i", len(parameters) + 4)
            + parameters
            + execute
            + execute
            + sync
            + query
            + b"X\0\0\0\x04"
        )
        found = b""
        while data := raw.recv(65_536):
            found += data
    assert found.count(b"C34000") == 1 and b"SELECT 1\0" in found
