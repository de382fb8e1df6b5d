"""[edge] Opens stores by URL."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from sqlalchemy.engine import make_url

from hub.config import Settings
from hub.errors import ConfigError
from hub.formats.stamps import STORE_KEY, Stamp, own_stamp, stamp_of
from hub.formats.table import STORE
from hub.formats.verdicts import require_readable
from hub.materializers.stores.duckdb_store import DuckStore
from hub.materializers.stores.sql_store import Store, noted_in_database
from hub.materializers.stores.store import ViewStore


def kind_of(url: str) -> str:
    """Return the kind of a URL: ``sqlite``, ``postgresql``, ``duckdb`` or ``iceberg``."""
    return url.partition(":")[0].partition("+")[0]


def open_store(url: str, settings: Settings | None = None, *, read_only: bool = False) -> ViewStore:
    """Open the store of a URL. ``settings``: of the catalog, for Iceberg. ``read_only``: create nothing and
    take no writer's lock. Raises PeerError; ConfigError (HUB-1150) for a store that a newer release wrote.
    """
    if kind_of(url) not in ("duckdb", "iceberg"):
        return Store(url)
    store = _opened(url, settings, read_only)
    try:
        require_readable(STORE, stamp_of(store.progress().get(STORE_KEY), place := f'store "{url}"'), place)
    except BaseException:
        store.close()
        raise
    return store


def _opened(url: str, settings: Settings | None, read_only: bool) -> ViewStore:
    path = url.partition("///")[2]
    if kind_of(url) == "duckdb":
        return DuckStore(Path(path), read_only=read_only)
    # pyiceberg is imported where a store needs it.
    from hub.materializers.stores.iceberg_store import IcebergStore

    if settings is None:
        raise ConfigError(f'store "{url}": its catalog is not known here', code="HUB-1810")
    return IcebergStore(settings, path, read_only=read_only)


def noted_version(url: str, settings: Settings | None = None) -> Stamp | None:
    """Return the version of a store's format; None without a store. Changes nothing. Raises PeerError,
    ConfigError (HUB-1151).
    """
    kind = kind_of(url)
    if kind in ("duckdb", "sqlite") and not Path(url.partition("///")[2]).exists():
        return None
    if kind not in ("duckdb", "iceberg"):
        return noted_in_database(url)
    if kind == "iceberg":
        from hub.iceberg.catalog import catalog_exists

        if settings is None or not catalog_exists(settings):
            return None
    with closing(_opened(url, settings, read_only=True)) as store:
        noted = store.progress().get(STORE_KEY)
        if kind == "iceberg" and noted is None and not store.views():
            return None
        return stamp_of(noted, f'store "{url}"')


def note_version(store: ViewStore) -> None:
    """Note the version that this release writes, unless it is noted. Call before anything else is written.
    Raises PeerError.
    """
    found = store.progress().get(STORE_KEY)
    if found is None or found["version"] < STORE.version:
        store.apply([], {STORE_KEY: own_stamp(STORE.version).as_json()})


def shown(url: str) -> str:
    """Return the URL without its password."""
    return make_url(url).render_as_string(hide_password=True)
