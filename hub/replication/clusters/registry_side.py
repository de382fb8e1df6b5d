"""[edge] One registry as the planner needs it, cached while it cannot have changed; and the plan's steps for
it.

All versions take two requests. Settings and modes are requested per subject, so a reader that reads
repeatedly caches them until ``forget`` is called, and settings for ``keep_s``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import orjson

from hub.errors import HubError, NotFound, PeerError
from hub.replication.planning.schema_plan import (
    DeleteSchema,
    ImportSchema,
    RegistrySide,
    SchemaVersion,
    SetSubject,
    SubjectSettings,
)
from hub.schema_registry.client.remote import RemoteRegistry
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.registry.snapshot import SubjectVersion

_KEEP_S = 30.0
_LEVELS = ("compatibility", "compatibilityLevel")


class RegistryReader:
    """Cached reader of one registry. Use from one thread; close it. ``keep_s``: how long settings are cached,
    and versions at the longest; 0: never. ``every_context`` False: only the default context is read.
    """

    def __init__(self, url: str, keep_s: float = 0.0, *, every_context: bool = False) -> None:
        self._remote = RemoteRegistry(url)
        self._keep_s, self._every_context = keep_s, every_context
        self._versions: tuple[float, tuple[SchemaVersion, ...], str] | None = None
        self._settings: dict[str, tuple[float, SubjectSettings]] = {}

    def versions(self) -> tuple[SchemaVersion, ...]:
        """Return every version. Raises PeerError, CallerError."""
        return self._read()[1]

    def read(self, subjects: Iterable[str]) -> RegistrySide:
        """Return every version, and the settings of ``subjects``. Raises PeerError, CallerError."""
        _, versions, level = self._read()
        settings = {subject: self._of(subject) for subject in dict.fromkeys(subjects)}
        none = SubjectSettings()
        return RegistrySide(versions, {name: each for name, each in settings.items() if each != none}, level)

    def forget(self) -> None:
        """Drop the cache; the next call requests everything."""
        self._versions = None
        self._settings.clear()

    def forget_versions(self) -> None:
        """Drop the cached versions."""
        self._versions = None

    def forget_settings(self, subject: str) -> None:
        """Drop the cached settings of one subject."""
        self._settings.pop(subject, None)

    def _read(self) -> tuple[float, tuple[SchemaVersion, ...], str]:
        now_s = time.monotonic()
        if self._versions is None or now_s - self._versions[0] >= self._keep_s:
            schema_versions = tuple(
                _version(subject, each)
                for subject, each in self._remote.every()
                if self._every_context or names.context_of(subject) == names.DEFAULT_CONTEXT
            )
            self._versions = now_s, schema_versions, self._remote.default_level()
        return self._versions

    def _of(self, subject: str) -> SubjectSettings:
        now_s, known = time.monotonic(), self._settings.get(subject)
        if known is None or now_s - known[0] >= self._keep_s:
            own = self._remote.own_settings(subject), self._remote.own_mode(subject)
            known = self._settings[subject] = now_s, SubjectSettings.of(*own)
        return known[1]

    def close(self) -> None:
        self._remote.close()


def reader_of(url: str | None, *, keep: bool = False) -> RegistryReader | None:
    """Return a reader of a registry; None where there is none. ``keep``: cache, for callers that read every
    few seconds.
    """
    return None if url is None else RegistryReader(url, _KEEP_S if keep else 0.0)


def carry_out(step: ImportSchema | DeleteSchema | SetSubject, url: str) -> None:
    """Do one step at the target's registry. Idempotent. Raises PeerError (HUB-3611)."""
    remote = RemoteRegistry(url)
    try:
        match step:
            case ImportSchema(schema=schema):
                with _importing(remote, schema.subject):
                    remote.import_version(schema.subject, _stored(schema))
            case DeleteSchema(subject=subject, version=version):
                with suppress(NotFound):  # deleted meanwhile
                    remote.delete_version(subject, version)
            case SetSubject(synced=synced):
                _set(remote, synced.subject, synced.settings, step.before)
    except HubError as error:
        raise PeerError(
            f'schema registry at "{remote.url}": {step}: {error.message}',
            hint="is it running, and may its modes be changed? Look at its schemas of this id",
            code="HUB-3611",
        ) from None
    finally:
        remote.close()


@contextmanager
def _importing(remote: RemoteRegistry, subject: str) -> Iterator[None]:
    """Set IMPORT mode for one subject, and restore its former mode afterwards."""
    before = remote.own_mode(subject)
    remote.set_mode(subject, "IMPORT")
    try:
        yield
    finally:
        # An IMPORT mode left behind by a killed run is not restored.
        remote.set_mode(subject, None if before == "IMPORT" else before)


def _set(remote: RemoteRegistry, subject: str, wanted: SubjectSettings, before: SubjectSettings) -> None:
    new, old = _body(wanted), _body(before)
    if old.keys() - new.keys():  # a single setting cannot be removed: unset all of them
        remote.unset_settings(subject)
    if new:
        remote.set_settings(subject, new)
    if wanted.mode != before.mode:
        remote.set_mode(subject, wanted.mode or None)


def _body(settings: SubjectSettings) -> dict[str, Any]:
    """Return settings as a request body: the compatibility level has another name in answers."""
    found: Mapping[str, Any] = orjson.loads(settings.settings) if settings.settings else {}
    level = next((found[name] for name in _LEVELS if found.get(name)), None)
    rest = {name: value for name, value in found.items() if name not in _LEVELS}
    return {**({"compatibility": level} if level is not None else {}), **rest}


def _version(subject: str, version: SubjectVersion) -> SchemaVersion:
    assert version.schema_id is not None
    return SchemaVersion(
        subject,
        version.version,
        version.schema_id,
        version.schema_type,
        version.text,
        version.references,
        version.deleted,
        _json(version.metadata),
        _json(version.rule_set),
    )


def _stored(schema: SchemaVersion) -> SubjectVersion:
    return SubjectVersion(
        schema.version,
        schema.text,
        schema.kind,
        schema.references,
        orjson.loads(schema.metadata) if schema.metadata else None,
        schema.id,
        schema.deleted,
        orjson.loads(schema.rule_set) if schema.rule_set else None,
    )


def _json(value: Mapping[str, Any] | None) -> str:
    return "" if value is None else orjson.dumps(dict(value), option=orjson.OPT_SORT_KEYS).decode()
