"""[edge] The cluster, the place and the key of one call of ``hub backup`` and ``hub restore``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hub.config import Settings
from hub.errors import CallerError, ConfigError
from hub.security import is_reference, secret_value

if TYPE_CHECKING:
    from hub.backup.storage.object_store import ObjectStore
    from hub.replication.clusters.clusters import ClusterHandle


PatternsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[PATTERN]...", help="Only these topics, such as 'shop.**'")
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        help="Key of an encrypted backup: ${NAME} of the environment, or a file. Default: "
        "backup_key of hub.yaml"
    ),
]
RunOption = Annotated[
    int | None, typer.Option("--run", min=1, help="Number of the run, see hub backup ls. Default: the newest")
]

ClusterOption = Annotated[str | None, typer.Option(help="A cluster of mirrors.yaml. Default: the hub's own")]
BootstrapOption = Annotated[str | None, typer.Option(help="A cluster by its address, HOST:PORT")]
RegistryOption = Annotated[str | None, typer.Option(help="Address of the cluster's schema registry")]


def open_place(settings: Settings, place: str | None, option: str) -> ObjectStore:
    """Return the store of ``place``, else of ``backup_to``. Raises ConfigError (HUB-1801)."""
    from hub.backup.storage.object_store import open_store

    named = place or settings.backup_to
    if named is None:
        raise ConfigError(
            "no place of a backup is named",
            hint=f"give one with {option}, a folder or s3://BUCKET/PATH, or set backup_to in hub.yaml",
            code="HUB-1801",
        )
    return open_store(named if "://" in named else str(settings.project / Path(named).expanduser()))


def read_key(settings: Settings, key: str | None) -> bytes | None:
    """Return the key of the backup; None: it is not encrypted. Raises ConfigError (HUB-1802)."""
    from hub.backup.storage.sealing import WRONG_KEY, key_of
    from hub.files import read_text

    named = key or settings.backup_key
    if named is None:
        return None
    if is_reference(named):
        return key_of(secret_value(named, os.environ, "the key of the backup", code=WRONG_KEY))
    path = settings.project / Path(named).expanduser()
    try:
        return key_of(read_text(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f'the key of the backup cannot be read from "{path}": {error}',
            hint="name a file with 32 bytes in base64 or hex: openssl rand -base64 32 > FILE",
            code=WRONG_KEY,
        ) from None


def open_cluster(
    settings: Settings, cluster: str | None, bootstrap: str | None, registry: str | None
) -> ClusterHandle:
    """Return the cluster that a call is about: one of mirrors.yaml, one by its address, or the hub's own.
    ``registry``: address of its schema registry, instead of the configured one.
    """
    from hub.kafka import bounds_of, own_cluster, own_connection
    from hub.replication.clusters.clusters import ClusterHandle, access_of, own_environ, reach
    from hub.replication.config.load_mirrors import load

    if cluster is not None and bootstrap is not None:
        raise CallerError("a cluster is named or has an address: give one of the two options")
    if cluster is not None:
        path = settings.project / "mirrors.yaml"
        file = load(path)
        if cluster not in file.clusters:
            raise CallerError(
                f'there is no cluster "{cluster}" in {path}', hint=f"known: {', '.join(file.clusters)}"
            )
        made = reach(file, cluster, own_environ(settings), path.parent, settings.kafka_timeout_s)
        return ClusterHandle(made.name, made.kafka, made.access, registry or made.registry)
    bounds = bounds_of(settings)
    if bootstrap is not None:
        open_cluster = settings.model_copy(update={"bootstrap": bootstrap, "tls": None, "sasl": None})
        access = access_of(own_connection(open_cluster), "hub-backup", bounds)
        return ClusterHandle(bootstrap, own_cluster(open_cluster), access, registry)
    access = access_of(own_connection(settings), "hub-backup", bounds)
    return ClusterHandle("hub", own_cluster(settings), access, registry or settings.registry)
