"""[edge] ``hub schema backup`` and ``restore``: all of the registry as a file, and back into an empty one."""

from __future__ import annotations

import os
from pathlib import Path

from hub.cli.context import load_settings
from hub.cli.terminal.output import note
from hub.cli.terminal.progress import counted
from hub.errors import ConfigError


def backup(file: Path) -> None:
    """Write every record of the registry's log into FILE, with a checksum. The file appears when it is whole.

    Example: hub schema backup schemas-2026-11-21.jsonl
    """
    from hub.kafka import own_cluster
    from hub.schema_registry.client.backup import lines, read_all

    settings = load_settings()
    with counted("Reading the registry's log") as progress:
        backup_records = read_all(own_cluster(settings), progress)
    part = file.with_name(f".{file.name}.part")
    try:
        with part.open("wb") as opened:
            opened.writelines(lines(backup_records))
            opened.flush()
            os.fsync(opened.fileno())
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ConfigError(f"the backup cannot be written ({error.strerror})", where=str(file)) from None
    note(f"{len(backup_records)} records are in {file}. Back: hub schema restore {file}")


def restore(file: Path) -> None:
    """Write a backup into an EMPTY registry, all records or none, and read them back. Ids and versions stay.

    Example: hub schema restore schemas-2026-11-21.jsonl
    """
    from hub.kafka import own_cluster
    from hub.schema_registry.client.backup import records
    from hub.schema_registry.client.backup import restore as restored

    settings = load_settings()
    try:
        with file.open("rb") as opened:
            backup_records = records(opened, str(file))
    except OSError as error:
        raise ConfigError(f"the backup cannot be read ({error.strerror})", where=str(file)) from None
    cluster = own_cluster(settings)
    with counted("Reading back") as progress:
        restored(backup_records, cluster, replication_factor=settings.replication_factor, progress=progress)
    note(f"{len(backup_records)} records are restored and read back.")
