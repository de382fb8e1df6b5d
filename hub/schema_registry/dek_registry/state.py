"""[core] The DEK registry as a state machine: decisions return facts, ``apply`` alone changes the state.

Status and error codes are Confluent's, because clients depend on them: a missing key is 404, which a client
answers by creating it; a key that exists is 409, which a client answers by reading it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hub.record import Record
from hub.schema_registry.dek_registry.records import Dek, DekId, Kek, KekId, KeyFact, KeyRemoved, fact_of
from hub.schema_registry.registry.errors import RequestRefused

LATEST = -1


def key_not_found(name: str) -> RequestRefused:
    return RequestRefused(404, 40470, f"Key '{name}' not found")


def key_exists(name: str) -> RequestRefused:
    return RequestRefused(409, 40971, f"Key '{name}' already exists; use a different value")


def invalid_key(name: str) -> RequestRefused:
    """Return the refusal of a missing or invalid field, as Confluent words it: the field's name."""
    return RequestRefused(422, 42271, name)


@dataclass
class DekRegistryState:
    """All keys, deleted ones too, by id. ``unreadable_count``: records that are not understood."""

    keks: dict[str, Kek] = field(default_factory=dict)
    deks: dict[DekId, Dek] = field(default_factory=dict)
    unreadable_count: int = 0

    def apply(self, record: Record) -> None:
        """Apply a record of the log; the same live and on replay."""
        match fact_of(record):
            case None:
                self.unreadable_count += 1
            case Kek() as kek:
                self.keks[kek.id.name] = kek
            case Dek() as dek:
                self.deks[dek.id] = dek
            case KeyRemoved(KekId(name)):
                self.keks.pop(name, None)
            case KeyRemoved(DekId() as dek_id):
                self.deks.pop(dek_id, None)

    # ---- queries

    def kek(self, name: str, *, deleted: bool = False) -> Kek:
        """Return a KEK. Raises RequestRefused 40470."""
        found = self.keks.get(name)
        if found is None or (found.deleted and not deleted):
            raise key_not_found(name)
        return found

    def kek_names(self, prefixes: Sequence[str] = (), *, deleted: bool = False) -> list[str]:
        """Return the names of KEKs, sorted; with prefixes of subjects those that have a DEK of one."""
        if not prefixes:
            return sorted(name for name, kek in self.keks.items() if deleted or not kek.deleted)
        return sorted(
            {
                each.id.kek
                for each in self.deks.values()
                if (deleted or not each.deleted) and each.id.subject.startswith(tuple(prefixes))
            }
        )

    def deks_of(
        self, kek: str, subject: str | None = None, algorithm: str | None = None, *, deleted: bool = False
    ) -> list[Dek]:
        """Return the DEKs of a KEK, sorted by subject, algorithm and version."""
        deks = [
            each
            for each in self.deks.values()
            if each.id.kek == kek
            and subject in (None, each.id.subject)
            and algorithm in (None, each.id.algorithm)
            and (deleted or not each.deleted)
        ]
        return sorted(deks, key=lambda dek: (dek.id.subject, dek.id.algorithm, dek.id.version))

    def dek(self, wanted: DekId, *, deleted: bool = False) -> Dek:
        """Return a DEK; version ``LATEST`` is the highest. Raises RequestRefused 40470."""
        if wanted.version == LATEST:
            deks = self.deks_of(wanted.kek, wanted.subject, wanted.algorithm, deleted=deleted)
            if not deks:
                raise key_not_found(wanted.subject)
            return deks[-1]
        dek = self.deks.get(wanted)
        if dek is None or (dek.deleted and not deleted):
            raise key_not_found(wanted.subject)
        return dek


# ---- decisions


def create_kek(state: DekRegistryState, new: Kek) -> Sequence[KeyFact]:
    """Create a KEK, or restore a deleted one that is the same. Raises RequestRefused 40971."""
    old = state.keks.get(new.id.name)
    if old is not None and (old.deleted == new.deleted or replace(old, deleted=new.deleted) != new):
        raise key_exists(new.id.name)
    return (new,)


def update_kek(state: DekRegistryState, name: str, changes: Mapping[str, object]) -> Sequence[KeyFact]:
    """Change a KEK's ``kms_props``, ``doc`` or ``shared``. Raises RequestRefused 40470."""
    old = state.kek(name)
    new = replace(old, **changes)  # type: ignore[arg-type]
    return () if new == old else (new,)


def create_dek(state: DekRegistryState, new: Dek, *, rewrap: bool = False) -> Sequence[KeyFact]:
    """Create a DEK, restore a deleted one that is the same, or (``rewrap``) wrap it with another key.

    Raises RequestRefused 40470 for an unknown KEK, 40971 when it exists.
    """
    state.kek(new.id.kek, deleted=new.deleted)
    old = state.deks.get(new.id)
    same = old is not None and replace(old, deleted=new.deleted) == new
    if old is not None and not rewrap and (old.deleted == new.deleted or not same):
        raise key_exists(new.id.subject)
    return (new,)


def delete_kek(state: DekRegistryState, name: str, *, permanent: bool) -> Sequence[KeyFact]:
    """Delete a KEK that has no DEK. Raises RequestRefused 40470, 40471, 42272."""
    old = state.kek(name, deleted=True)
    if state.deks_of(name, deleted=permanent):
        raise RequestRefused(422, 42272, f"One or more references exist to the key {name}")
    return _deleted([old], name, permanent=permanent)


def delete_deks(deks: Iterable[Dek], subject: str, *, permanent: bool) -> Sequence[KeyFact]:
    """Delete DEKs of a subject. Raises RequestRefused 40470, 40471."""
    every = list(deks)
    if not every:
        raise key_not_found(subject)
    return _deleted(every, subject, permanent=permanent)


def _deleted(keys: Sequence[Kek | Dek], name: str, *, permanent: bool) -> Sequence[KeyFact]:
    if not permanent:
        return tuple(replace(each, deleted=True) for each in keys if not each.deleted)
    if not all(each.deleted for each in keys):
        raise RequestRefused(
            404, 40471, f"Key '{name}' was not deleted first before being permanently deleted"
        )
    return tuple(KeyRemoved(each.id) for each in keys)


def undelete_kek(state: DekRegistryState, name: str) -> Sequence[KeyFact]:
    """Restore a deleted KEK. Raises RequestRefused 40470."""
    return _restored([state.kek(name, deleted=True)])


def undelete_deks(state: DekRegistryState, kek: str, deks: Iterable[Dek], subject: str) -> Sequence[KeyFact]:
    """Restore deleted DEKs. Raises RequestRefused 40470, and 40472 while the KEK is deleted."""
    every = list(deks)
    if not every:
        raise key_not_found(subject)
    if state.kek(kek, deleted=True).deleted:
        raise RequestRefused(404, 40472, f"Key '{kek}' must be undeleted first")
    return _restored(every)


def _restored(keys: Iterable[Kek | Dek]) -> Sequence[KeyFact]:
    return tuple(replace(each, deleted=False) for each in keys if each.deleted)
