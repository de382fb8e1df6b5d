"""[edge] The catalog of the settings, and errors of Iceberg as the hub's.

``lake_catalog: sql`` keeps the tables' places in SQLite or Postgres, ``rest`` in a server with Iceberg's
REST API. S3 is reached with the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and
AWS_ENDPOINT_URL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, UnauthorizedError, ValidationError

from hub.config import Settings
from hub.errors import ConfigError, Conflict, HubError, NotFound, PeerError
from hub.security import VARIABLE

_S3 = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.region": "AWS_REGION",
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
}
_SQLITE = "sqlite:///"
Identifier = tuple[str, ...]


def identifier_of(settings: Settings, topic: str) -> Identifier:
    """Return a topic's table: the namespace of the settings, then the topic's labels."""
    return (*settings.lake_namespace.split("."), *topic.split("."))


def properties_of(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the catalog's properties. Raises ConfigError (HUB-1810) for a variable that is not set."""
    folder = settings.home.absolute() / "lake"
    uri = settings.lake_uri
    if uri is None and settings.lake_catalog == "rest":
        raise ConfigError(
            "lake_catalog is rest, and lake_uri does not name the server",
            hint="set lake_uri in hub.yaml, such as http://catalog:8181",
            code="HUB-1810",
        )
    warehouse = settings.lake_warehouse
    if warehouse is not None and "://" not in warehouse and settings.lake_catalog == "sql":
        warehouse = (settings.project.absolute() / Path(warehouse).expanduser()).as_uri()
    if warehouse is None and settings.lake_catalog == "sql":
        warehouse = (folder / "warehouse").as_uri()
    found = {
        "type": settings.lake_catalog,
        "uri": uri or f"sqlite:///{folder / 'catalog.db'}",
        **({} if warehouse is None else {"warehouse": warehouse}),
        **{key: environ[name] for key, name in _S3.items() if environ.get(name)},
    }
    return found | {key: _filled(key, value, environ) for key, value in settings.lake_properties.items()}


def _filled(key: str, value: str, environ: Mapping[str, str]) -> str:
    def of(found: re.Match[str]) -> str:
        if not environ.get(found[1]):
            raise ConfigError(
                f"lake_properties.{key}: the variable {found[1]} is not set",
                hint=f"set {found[1]}=… in the environment",
                code="HUB-1810",
            )
        return environ[found[1]]

    return VARIABLE.sub(of, value)


def open_catalog(settings: Settings) -> Catalog:
    """Return the catalog. Raises ConfigError (HUB-1810), PeerError (HUB-3810)."""
    found = properties_of(settings, os.environ)
    if found["uri"].startswith(_SQLITE):
        Path(found["uri"].removeprefix(_SQLITE)).parent.mkdir(parents=True, exist_ok=True)
    with catalog_errors("the catalog"):
        return load_catalog("hub", **found)


def catalog_exists(settings: Settings) -> bool:
    """Return False if the catalog is a SQLite file that is not there yet. Creates nothing. Raises ConfigError
    (HUB-1810).
    """
    uri = properties_of(settings, os.environ)["uri"]
    return not uri.startswith(_SQLITE) or Path(uri.removeprefix(_SQLITE)).exists()


@contextmanager
def catalog_errors(what: str) -> Iterator[None]:
    """Translate errors of the catalog and of the storage while the block runs. ``what``: for the message."""
    try:
        yield
    except HubError:
        raise
    except NoSuchTableError as error:
        raise NotFound(f"{what} does not exist", hint="list tables: hub lake ls", code="HUB-1812") from error
    except CommitFailedException as error:
        raise Conflict(
            f"{what}: another writer has committed meanwhile",
            hint="run one `hub lake run` for a catalog; repeat the command",
            code="HUB-1813",
        ) from error
    except (UnauthorizedError, ValidationError, ModuleNotFoundError) as error:
        raise ConfigError(
            f"{what}: {_text(error)}", hint="check the settings lake_… in hub.yaml", code="HUB-1810"
        ) from error
    except Exception as error:  # of SQLAlchemy, requests, pyarrow and pyiceberg
        raise PeerError(
            f"{what}: {_text(error)}",
            hint="check the catalog (lake_uri), the storage (lake_warehouse) and its free space",
            code="HUB-3810",
        ) from error


def _text(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
