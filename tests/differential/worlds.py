"""Stores of the hub and a database of Postgres for random statements, on one Postgres server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from postgres import Postgres

from hub.materializers.stores.sql_store import Store

# As the hub promises, in every store: all of Unicode's letters, and texts in the order of their code points.
_LETTERS = """CREATE FUNCTION public.{name}(text) RETURNS text IMMUTABLE LANGUAGE sql
AS $$ SELECT pg_catalog.{name}($1 COLLATE "und-x-icu") COLLATE "C" $$"""


@contextmanager
def random_world(
    server: Postgres, folder: Path, name: str
) -> Iterator[tuple[dict[str, Store], psycopg.Connection[Any]]]:
    """Two empty stores by the name of their database, and a connection to the Postgres that judges them."""
    where = f"host=127.0.0.1 port={server.port} user=hub"
    judge = f"{name}_judge"
    with psycopg.connect(f"{where} dbname=postgres", autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE \"{judge}\" TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'"  # type: ignore[arg-type]
        )
    stores = {
        "sqlite": Store(f"sqlite:///{folder / f'{name}.db'}"),
        "postgres": Store(server.database(f"{name}_store")),
    }
    try:
        with psycopg.connect(f"{where} dbname={judge}", autocommit=True) as connection:
            for function in ("upper", "lower"):
                connection.execute(_LETTERS.format(name=function))  # type: ignore[arg-type]
            connection.execute("SET search_path = public, pg_catalog")
            connection.execute("SET timezone = 'UTC'")
            yield stores, connection
    finally:
        for store in stores.values():
            store.close()
