"""[edge] Opens stores by URL."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import make_url

from hub.materializers.stores.duckdb_store import DuckStore
from hub.materializers.stores.parquet_store import ParquetStore
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import ViewStore


def kind_of(url: str) -> str:
    """Return the kind of a URL: ``sqlite``, ``postgresql``, ``duckdb`` or ``parquet``."""
    return url.partition(":")[0].partition("+")[0]


def open_store(url: str, *, read_only: bool = False) -> ViewStore:
    """Open the store of a URL. ``read_only``: create nothing and take no writer's lock. Raises PeerError."""
    kind, path = kind_of(url), Path(url.partition("///")[2])
    if kind == "duckdb":
        return DuckStore(path, read_only=read_only)
    if kind == "parquet":
        return ParquetStore(path, read_only=read_only)
    return Store(url)


def shown(url: str) -> str:
    """Return the URL without its password."""
    return make_url(url).render_as_string(hide_password=True)
