"""[shell] Data keys for the hub's own writers: found in the DEK registry or made, and unwrapped by the KMS.

Keys stay in memory for ``kept_s``, so a key that is deleted or whose KMS refuses it is used for that long.
"""

from __future__ import annotations

import base64
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

from hub.schema_registry.dek_registry.bodies import checked_algorithm, in_context
from hub.schema_registry.dek_registry.data_keys import DataKey, KeyQuestion
from hub.schema_registry.dek_registry.node import DekNode
from hub.schema_registry.dek_registry.records import Dek, DekId, Kek
from hub.schema_registry.dek_registry.state import LATEST, create_dek
from hub.schema_registry.encryption.kms import KeyMissing, KeyRefused, KmsClient, encoded, new_key
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.registry.errors import RequestRefused

T = TypeVar("T")

KEPT_S = 300.0
_MOST_KEPT = 10_000
_DAY_MS = 86_400_000


class DekStore(Protocol):
    """The DEK registry, as a key ring needs it. Methods raise CallerError, PeerError."""

    def kek(self, name: str) -> Kek | None:
        """Return a KEK; None if there is none, or it is deleted."""

    def dek(self, wanted: DekId, *, deleted: bool) -> Dek | None:
        """Return a DEK; None if there is none. ``deleted``: or if it is deleted."""

    def create(self, new: Dek) -> None:
        """Store a DEK, unless another writer was first."""


class NodeDeks:
    """The DEK registry of this process. ``writable``: see DekHandlers."""

    def __init__(self, node: DekNode, writable: Callable[[str | None], None]) -> None:
        self._node, self._writable = node, writable

    def kek(self, name: str) -> Kek | None:
        """See DekStore."""
        return _or_none(lambda: self._node.read(lambda state: state.kek(name)))

    def dek(self, wanted: DekId, *, deleted: bool) -> Dek | None:
        """See DekStore."""
        return _or_none(lambda: self._node.read(lambda state: state.dek(wanted, deleted=deleted)))

    def create(self, new: Dek) -> None:
        """See DekStore."""
        self._writable(new.id.subject)
        try:
            self._node.submit(lambda state: create_dek(state, new))
        except RequestRefused as refused:
            if refused.status != 409:
                raise


def _or_none(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except RequestRefused as refused:
        if refused.status != 404:
            raise
        return None


class KeyRing:
    """See ``KeySource``. Thread safe. ``now_ms``: the time that keys expire by, epoch ms;
    ``kept_s``: how long a key stays in memory.
    """

    def __init__(
        self,
        store: DekStore,
        kms: KmsClient,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1_000),
        kept_s: float = KEPT_S,
    ) -> None:
        self._store, self._kms, self._now_ms, self._kept_s = store, kms, now_ms, kept_s
        self._lock = threading.Lock()
        self._kept: OrderedDict[KeyQuestion, tuple[DataKey, float]] = OrderedDict()

    def key(self, question: KeyQuestion) -> DataKey:
        """See ``KeySource``. Raises KeyRefused, RequestRefused, PeerError."""
        with self._lock:
            found = self._kept.get(question)
        if found is not None and time.monotonic() < found[1]:
            return found[0]
        kek = self._kek(question)
        dek = self._dek(question, kek)
        raw = self._kms.unwrap(kek.kms_type, kek.kms_key_id, base64.b64decode(dek.wrapped))
        made = DataKey(dek.id.version, raw)
        with self._lock:
            self._kept[question] = made, time.monotonic() + self._kept_s
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return made

    def forget(self, question: KeyQuestion) -> None:
        """Ask the registry for this key the next time."""
        with self._lock:
            self._kept.pop(question, None)

    def _kek(self, question: KeyQuestion) -> Kek:
        name = in_context(question.kek, names.context_of(question.subject))
        kek = self._store.kek(name)
        if kek is None:
            raise KeyRefused(
                f'KEK "{question.kek}" does not exist',
                hint=f"create it: hub kek create {question.kek} --kms TYPE://KEY",
            )
        for wanted, has in ((question.kms_type, kek.kms_type), (question.kms_key_id, kek.kms_key_id)):
            if wanted and wanted != has:
                raise KeyRefused(
                    f'KEK "{question.kek}" has "{has}", and the rule "{wanted}"',
                    hint="make the rule's encrypt.kms parameters those of the KEK, or leave them out",
                )
        return kek

    def _dek(self, question: KeyQuestion, kek: Kek) -> Dek:
        """Return the DEK of a question; for a write it is made where there is none, or it has expired."""
        writes = question.version is None
        version = question.version or (LATEST if question.expiry_days else 1)
        algorithm = checked_algorithm(question.algorithm)
        wanted = DekId(kek.id.name, question.subject, algorithm, version)
        dek = self._store.dek(wanted, deleted=not writes)
        if dek is None and not writes:
            raise KeyMissing(
                f'KEK "{question.kek}" has no data key of subject "{question.subject}" with {algorithm} '
                f"and version {version}",
                hint="it was deleted permanently, or written with another registry",
            )
        if dek is not None and not (writes and self._is_over(dek, question.expiry_days)):
            return dek
        made = self._made(kek, wanted, 1 if dek is None else dek.id.version + 1)
        self._store.create(made)
        return self._store.dek(wanted, deleted=False) or made

    def _is_over(self, dek: Dek, expiry_days: int) -> bool:
        """Return whether a key is too old to write with, as Confluent's executor decides it."""
        return expiry_days > 0 and (self._now_ms() - dek.ts) / _DAY_MS > expiry_days

    def _made(self, kek: Kek, wanted: DekId, version: int) -> Dek:
        wrapped = self._kms.wrap(kek.kms_type, kek.kms_key_id, new_key(wanted.algorithm))
        return Dek(DekId(wanted.kek, wanted.subject, wanted.algorithm, version), encoded(wrapped))
