"""[edge] Plugins of the embedded worker: folders of verified jars, from the hub's lock and the project's own.

``<project>/connect-plugins/<artifact>.toml`` locks an added plugin with its dependencies and checksums, in
the format of ``locks/jars.toml``; it belongs into git. Each plugin has a folder of links into the cache of
jars, because Connect loads every folder of ``plugin.path`` in a class loader of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from hub.config import Settings
from hub.embedded import ensure_jars, find_java
from hub.embedded.jars import Progress, lock_path, resolve_set
from hub.embedded.lock import Jar, of_sets, parse_lock, render_lock
from hub.errors import ConfigError, HubError

WORKER_SETS = ("kafka", "connect")
OWN_PLUGINS = ("connect-file", "connect-postgres")
FOLDER = "connect-plugins"
_COORDINATE = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+", re.ASCII)
# Connect gives these to every plugin, whatever a plugin brings.
_OF_CONNECT = ("org.apache.kafka", "org.slf4j", "org.apache.logging.log4j")


def added_plugins(project: Path) -> list[Path]:
    """Return the lock files of the plugins that the project added."""
    return sorted((project / FOLDER).glob("*.toml"))


def fetch_plugins(
    settings: Settings, progress: Progress | None = None
) -> tuple[list[Path], dict[str, list[Path]]]:
    """Return the worker's class path, and the verified jars of each plugin; fetch what is missing.

    Raises ConfigError (HUB-1111), PeerError (HUB-3018), HubFault (HUB-5010).
    """
    jars = ensure_jars(settings, (*WORKER_SETS, *OWN_PLUGINS), progress)
    plugins = {name: jars[name] for name in OWN_PLUGINS}
    for lock in added_plugins(settings.project.expanduser()):
        sets = sorted({jar.set for jar in parse_lock(lock.read_text(), str(lock))})
        plugins |= ensure_jars(settings, sets, progress, lock)
    return [file for name in WORKER_SETS for file in jars[name]], plugins


def install_plugins(settings: Settings, progress: Progress | None = None) -> tuple[list[Path], Path]:
    """Return the worker's class path and its ``plugin.path``, with a folder of links for each plugin. No
    worker of this home may run. Raises as ``fetch_plugins`` does."""
    classpath, plugins = fetch_plugins(settings, progress)
    path = settings.home.absolute() / "connect" / "plugins"
    shutil.rmtree(path, ignore_errors=True)
    for name, files in plugins.items():
        folder = path / name
        folder.mkdir(parents=True)
        for each in files:
            (folder / each.name).symlink_to(each)
    return classpath, path


def add_plugin(settings: Settings, coordinate: str) -> tuple[Path, Sequence[Jar]]:
    """Resolve a plugin with its dependencies, and write its lock file; return file and jars.

    Raises ConfigError (HUB-1459) for a coordinate that is none or that the repository does not have.
    """
    if not _COORDINATE.fullmatch(coordinate):
        raise ConfigError(
            f'"{coordinate[:100]}" is not a coordinate',
            hint="write GROUP:ARTIFACT:VERSION, such as io.debezium:debezium-connector-mysql:3.6.1.Final",
            code="HUB-1459",
        )
    group, artifact, version = coordinate.split(":")
    try:
        found = resolve_set(find_java(settings), artifact, [(group, artifact, version, True)])
    except HubError as error:
        if error.code != "HUB-3018" or "not found" not in error.message:
            raise
        raise ConfigError(
            f"plugin {coordinate}: {error.message}",
            hint="is it on Maven Central, or in the repository that ~/.ivy2/ivysettings.xml names?",
            code="HUB-1459",
        ) from None
    jars = _without_worker_jars(found, parse_lock(lock_path().read_text(), str(lock_path())))
    file = settings.project.expanduser() / FOLDER / f"{artifact}.toml"
    _write(file, render_lock(jars, f"hub connector add-plugin {coordinate}"))
    return file, jars


def _without_worker_jars(jars: Iterable[Jar], locked: Sequence[Jar]) -> list[Jar]:
    """Return the jars of a plugin without those that the worker gives it."""
    in_worker = {
        (jar.group, jar.artifact) for jar in of_sets(locked, WORKER_SETS) if jar.group in _OF_CONNECT
    }
    return [jar for jar in jars if (jar.group, jar.artifact) not in in_worker]


def _write(file: Path, text: str) -> None:
    beside = file.with_name(f".{file.name}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, file)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise ConfigError(f'file "{file}" cannot be written: {error.strerror}', code="HUB-1459") from None
