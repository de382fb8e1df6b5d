"""[shell] One backup: its head, its manifests, its segments. Every object but the head is sealed."""

from __future__ import annotations

import base64
import os
import secrets
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from hub.backup.storage.manifest import Manifest, SavedSegment, UnreadableBackup, manifest_of
from hub.backup.storage.object_store import ObjectStore
from hub.backup.storage.sealing import CIPHER, WRONG_KEY, ObjectSealer, digest_of
from hub.errors import ConfigError, Conflict, HubError, NotFound
from hub.formats.fields import fields_of
from hub.formats.table import BACKUP

HEAD, PROGRESS = "hub-backup.json", "progress"
FORMAT = BACKUP.version
_CHECK = "check"
_MAKE_OR_GIVE = "give it with --key ${NAME} or --key FILE"


@dataclass(frozen=True, slots=True)
class BackupHead:
    """Identity of a backup. ``check``: a sealed text that shows whether a key is the right one; "" without
    encryption.
    """

    id: str
    cluster: str
    created_at_ms: int
    check: str = ""
    format: int = FORMAT


class Vault:
    """A backup that exists. Thread safe. Open it with ``open_vault`` or ``open_or_make``."""

    def __init__(self, store: ObjectStore, head: BackupHead, sealer: ObjectSealer) -> None:
        self.store, self.head, self._sealer = store, head, sealer

    def put(self, name: str, content: bytes | bytearray) -> tuple[int, str]:
        """Seal and store an object; return its size and digest."""
        sealed = self._sealer.seal(name, content, os.urandom(12))
        self.store.put(name, sealed)
        return len(sealed), digest_of(sealed)

    def get(self, name: str) -> bytearray:
        """Return an object's content. Raises NotFound, UnreadableBackup."""
        return self._sealer.open(name, self.store.get(name))

    def segment(self, segment: SavedSegment) -> bytearray:
        """Return the batches of a segment after its digest was checked. Raises UnreadableBackup."""
        try:
            sealed = self.store.get(segment.name)
        except NotFound:
            raise UnreadableBackup(
                f'backup object "{segment.name}" is missing (offsets {segment.first} to {segment.next - 1})',
                hint="somebody deleted it: restore it from a copy of the backup",
            ) from None
        if digest_of(sealed) != segment.digest:
            raise UnreadableBackup(
                f'backup object "{segment.name}" was changed: its SHA-256 is not that of the manifest'
                f" (offsets {segment.first} to {segment.next - 1})",
                hint="the storage corrupted it: restore it from a copy of the backup",
            )
        return self._sealer.open(segment.name, sealed)

    def numbers(self) -> list[int]:
        """Return the numbers of the complete runs, ascending."""
        found = (name.rpartition("/")[2] for name in self.store.names("manifests"))
        return sorted(int(each) for each in found if each.isdigit())

    def run(self, number: int) -> Manifest:
        """Return one complete run. Raises NotFound (HUB-1805), UnreadableBackup."""
        name = f"manifests/{number:06d}"
        return manifest_of(bytes(self.get(name)), name)

    def newest(self, count: int) -> list[Manifest]:
        """Return the newest complete runs, ascending."""
        return [self.run(number) for number in self.numbers()[-count:]]

    def around(self, at_ms: int) -> list[Manifest]:
        """Return the last run before a time and the first one at or after it, as far as there are. Reads a
        few manifests of many.
        """
        numbers = self.numbers()
        after = bisect_left(numbers, at_ms, key=lambda number: self.run(number).taken_at_ms)
        return [self.run(number) for number in numbers[max(0, after - 1) : after + 1]]

    def unfinished(self) -> Manifest | None:
        """Return the state of a run that was killed; None when the last run ended."""
        try:
            manifest = manifest_of(bytes(self.get(PROGRESS)), PROGRESS)
        except NotFound:
            return None
        return manifest if manifest.number > max(self.numbers(), default=0) else None

    def keep(self, manifest: Manifest) -> None:
        """Store the state of a run; a complete one makes the run visible."""
        name = f"manifests/{manifest.number:06d}" if manifest.complete else PROGRESS
        self.put(name, manifest.to_json())
        if manifest.complete:
            self.store.delete(PROGRESS)


def open_vault(store: ObjectStore, key: bytes | None) -> Vault:
    """Open an existing backup. Raises NotFound (HUB-1805), ConfigError (HUB-1802), UnreadableBackup."""
    try:
        head = _head_of(store.get(HEAD))
    except NotFound:
        raise NotFound(
            f'there is no backup in "{store.place}"',
            hint="make one: hub backup run --to PLACE",
            code="HUB-1805",
        ) from None
    if head.check and key is None:
        raise ConfigError(f'backup "{store.place}" is encrypted', hint=_MAKE_OR_GIVE, code=WRONG_KEY)
    if not head.check and key is not None:
        raise ConfigError(f'backup "{store.place}" is not encrypted', hint="leave out --key", code=WRONG_KEY)
    sealer = ObjectSealer(key)
    if head.check:
        try:
            sealer.open(_CHECK, base64.b64decode(head.check))
        except HubError:
            raise ConfigError(
                f'the key is not that of backup "{store.place}"', hint=_MAKE_OR_GIVE, code=WRONG_KEY
            ) from None
    return Vault(store, head, sealer)


def open_or_make(store: ObjectStore, key: bytes | None, cluster: str, now_ms: int) -> Vault:
    """Open the backup of a cluster, or begin one. Raises Conflict (HUB-1803) when it is another cluster's."""
    try:
        vault = open_vault(store, key)
    except NotFound:
        sealer = ObjectSealer(key)
        check = sealer.seal(_CHECK, b"hub backup", os.urandom(12)) if key is not None else b""
        head = BackupHead(secrets.token_hex(6), cluster, now_ms, base64.b64encode(check).decode())
        store.put(HEAD, orjson.dumps(_shown(head), option=orjson.OPT_INDENT_2))
        return Vault(store, head, sealer)
    if vault.head.cluster != cluster:
        raise Conflict(
            f'"{store.place}" is a backup of cluster {vault.head.cluster}, and this is cluster {cluster}',
            hint="name another place with --to: each cluster has its own backup",
            code="HUB-1803",
        )
    return vault


def remove_orphans(vault: Vault, unfinished: Manifest, gone: Callable[[int], None]) -> None:
    """Delete the segments of a killed run that its last progress does not have."""
    known = {segment.name for _, segment in unfinished.segments()}
    orphans: Sequence[str] = [
        name for name in vault.store.names(f"segments/{unfinished.number:06d}") if name not in known
    ]
    for name in orphans:
        vault.store.delete(name)
    gone(len(orphans))


def _shown(head: BackupHead) -> dict[str, Any]:
    encryption = {"cipher": CIPHER, "check": head.check} if head.check else None
    return {**fields_of(head, but=("check",)), "encryption": encryption}


def _head_of(text: bytes) -> BackupHead:
    try:
        body: dict[str, Any] = orjson.loads(text)
        number, encryption = int(body["format"]), body["encryption"]
        head = BackupHead(
            str(body["id"]),
            str(body["cluster"]),
            int(body["created_at_ms"]),
            "" if encryption is None else str(encryption["check"]),
            number,
        )
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableBackup(
            f'"{HEAD}" of the backup cannot be read ({error!r})', hint="restore this file from a copy"
        ) from None
    if number != FORMAT:
        raise UnreadableBackup(
            f"the backup has format {number}, and this hub reads {FORMAT}", hint="use a newer hub"
        )
    return head
