"""[edge] Opens stores by URL."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from sqlalchemy.engine import make_url

from hub.formats.stamps import STORE_KEY, Stamp, own_stamp, stamp_of
from hub.formats.table import STORE
from hub.formats.verdicts import require_readable
from hub.materializers.stores.duckdb_store import DuckStore
from hub.materializers.stores.parquet_store import ParquetStore
from hub.materializers.stores.sql_store import Store, noted_in_database
from hub.materializers.stores.store import ViewStore


def kind_of(url: str) -> str:
    """Return the kind of a URL: ``sqlite``, ``postgresql``, ``duckdb`` or ``parquet``."""
    return url.partition(":")[0].partition("+")[0]


def open_store(url: str, *, read_only: bool = False) -> ViewStore:
    """Open the store of a URL. ``read_only``: create nothing and take no writer's lock. Raises PeerError;
    ConfigError (HUB-1150) for a store that a newer release wrote.
    """
    kind, path = kind_of(url), _path_of(url)
    if kind not in ("duckdb", "parquet"):
        return Store(url)
    store: ViewStore = (
        DuckStore(path, read_only=read_only) if kind == "duckdb" else ParquetStore(path, read_only=read_only)
    )
    try:
        require_readable(STORE, stamp_of(store.progress().get(STORE_KEY), place := f'store "{url}"'), place)
    except BaseException:
        store.close()
        raise
    return store


def noted_version(url: str) -> Stamp | None:
    """Return the version of a store's format; None without a store. Changes nothing. Raises PeerError,
    ConfigError (HUB-1151).
    """
    kind, path = kind_of(url), _path_of(url)
    if kind in ("duckdb", "parquet", "sqlite") and not path.exists():
        return None
    if kind not in ("duckdb", "parquet"):
        return noted_in_database(url)
    with closing(
        DuckStore(path, read_only=True) if kind == "duckdb" else ParquetStore(path, read_only=True)
    ) as store:
        return stamp_of(store.progress().get(STORE_KEY), f'store "{url}"')


def note_version(store: ViewStore) -> None:
    """Note the version that this release writes, unless it is noted. Call before anything else is written.
    Raises PeerError.
    """
    found = store.progress().get(STORE_KEY)
    if found is None or found["version"] < STORE.version:
        store.apply([], {STORE_KEY: own_stamp(STORE.version).as_json()})


def _path_of(url: str) -> Path:
    return Path(url.partition("///")[2])


def shown(url: str) -> str:
    """Return the URL without its password."""
    return make_url(url).render_as_string(hide_password=True)
