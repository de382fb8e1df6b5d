"""[shell] Handlers of ``/dek-registry/v1``, one function per route."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from hub.caller import Action, Forbidden, Kind, Resource, may, require, sees_subject, shows_records
from hub.schema_registry.dek_registry.bodies import (
    checked_algorithm,
    checked_name,
    checked_subject,
    dek_id_of,
    dek_json,
    in_context,
    kek_changes,
    kek_json,
    kek_of,
    wrapped_of,
)
from hub.schema_registry.dek_registry.node import DekNode
from hub.schema_registry.dek_registry.records import Dek, DekId, Kek, KeyFact
from hub.schema_registry.dek_registry.state import (
    DekRegistryState,
    create_dek,
    create_kek,
    delete_deks,
    delete_kek,
    invalid_key,
    undelete_deks,
    undelete_kek,
    update_kek,
)
from hub.schema_registry.http.asgi import HttpAnswer, HttpCall
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.registry.errors import version_number

Decide = Callable[[DekRegistryState], Sequence[KeyFact]]


class KeyService(Protocol):
    """Access to key management services, for shared KEKs. Keys are base64. Methods raise CallerError or
    PeerError without any part of a key.
    """

    def new_wrapped(self, kek: Kek, algorithm: str) -> str:
        """Make a key for an algorithm and return it wrapped."""

    def unwrap(self, kek: Kek, wrapped: str) -> str:
        """Return the key itself."""

    def rewrap(self, kek: Kek, wrapped: str) -> str:
        """Return the same key, wrapped with the current key of the KMS."""


class DekHandlers:
    """Handlers over one node. ``writable`` raises RequestRefused when the mode of a subject, or (None) of the
    registry, permits no write.
    """

    def __init__(self, node: DekNode, keys: KeyService, writable: Callable[[str | None], None]) -> None:
        self._node, self._keys, self._writable = node, keys, writable

    # ---- KEKs

    def kek_names(self, call: HttpCall) -> HttpAnswer:
        prefixes, deleted = call.query.get("subjectPrefix", []), call.flag("deleted")
        every = self._node.read(lambda state: state.kek_names(prefixes, deleted=deleted))
        context = _context(call)
        in_context = [names.split(each)[1] for each in every if names.context_of(each) == context]
        return HttpAnswer.of(call.page(in_context))

    def kek(self, call: HttpCall) -> HttpAnswer:
        name, deleted = _kek_name(call), call.flag("deleted")
        return HttpAnswer.of(kek_json(self._node.read(lambda state: state.kek(name, deleted=deleted))))

    def create_kek(self, call: HttpCall) -> HttpAnswer:
        new = kek_of(call.json(), _context(call))
        return self._written_kek(new.id.name, lambda state: create_kek(state, new))

    def update_kek(self, call: HttpCall) -> HttpAnswer:
        name, changes = _kek_name(call), kek_changes(call.json())
        return self._written_kek(name, lambda state: update_kek(state, name, changes))

    def delete_kek(self, call: HttpCall) -> HttpAnswer:
        name, permanent = _kek_name(call), call.flag("permanent")
        return self._done(None, lambda state: delete_kek(state, name, permanent=permanent))

    def undelete_kek(self, call: HttpCall) -> HttpAnswer:
        name = _kek_name(call)
        return self._done(None, lambda state: undelete_kek(state, name))

    # ---- DEKs

    def dek_subjects(self, call: HttpCall) -> HttpAnswer:
        name, deleted = _kek_name(call), call.flag("deleted")

        def read_subjects(state: DekRegistryState) -> list[str]:
            state.kek(name, deleted=deleted)
            return sorted({each.id.subject for each in state.deks_of(name, deleted=deleted)})

        return HttpAnswer.of(
            call.page([each for each in self._node.read(read_subjects) if sees_subject(each)])
        )

    def dek_versions(self, call: HttpCall) -> HttpAnswer:
        kek, subject = _place(call)
        algorithm, deleted = call.optional("algorithm"), call.flag("deleted")
        _ = checked_algorithm(algorithm)

        def read_versions(state: DekRegistryState) -> list[int]:
            state.kek(kek, deleted=deleted)
            return [each.id.version for each in state.deks_of(kek, subject, algorithm, deleted=deleted)]

        return HttpAnswer.of(call.page(self._node.read(read_versions)))

    def dek(self, call: HttpCall) -> HttpAnswer:
        wanted, deleted = _dek_id(call), call.flag("deleted")
        _may_use(wanted.subject)

        def read_keys(state: DekRegistryState) -> tuple[Kek, Dek]:
            return state.kek(wanted.kek, deleted=deleted), state.dek(wanted, deleted=deleted)

        kek, dek = self._node.read(read_keys)
        return HttpAnswer.of(dek_json(dek, self._raw(kek, dek)))

    def create_dek(self, call: HttpCall) -> HttpAnswer:
        body = call.json()
        requested = call.params[1] if len(call.params) > 1 else body.get("subject")
        subject = checked_subject(requested)
        require(Action.write, Resource(Kind.subject, subject))
        self._writable(subject)
        new_id = dek_id_of(_kek_name(call, subject), subject, body)
        wrapped, rewrap = wrapped_of(body), call.flag("rewrap")
        deleted = body.get("deleted") is True

        def read_keys(state: DekRegistryState) -> tuple[Kek, Dek | None]:
            return state.kek(new_id.kek, deleted=deleted), state.deks.get(new_id)

        kek, old = self._node.read(read_keys)
        if wrapped is None:
            wrapped = self._wrapped(kek, new_id, old, rewrap=rewrap)
        new = Dek(new_id, wrapped, deleted)
        position = self._node.submit(lambda state: create_dek(state, new, rewrap=rewrap))
        stored = self._node.read(lambda state: state.dek(new_id, deleted=True))
        return HttpAnswer.of(dek_json(stored, self._raw(kek, stored)), position=position)

    def delete_deks(self, call: HttpCall) -> HttpAnswer:
        (kek, subject), permanent = _place(call), call.flag("permanent")
        found = _found(call, kek, subject)

        def decide(state: DekRegistryState) -> Sequence[KeyFact]:
            state.kek(kek, deleted=True)
            return delete_deks(found(state), subject, permanent=permanent)

        return self._done(subject, decide)

    def undelete_deks(self, call: HttpCall) -> HttpAnswer:
        kek, subject = _place(call)
        found = _found(call, kek, subject)

        def decide(state: DekRegistryState) -> Sequence[KeyFact]:
            state.kek(kek, deleted=True)
            return undelete_deks(state, kek, found(state), subject)

        return self._done(subject, decide)

    # ---- shared

    def _wrapped(self, kek: Kek, new: DekId, old: Dek | None, *, rewrap: bool) -> str:
        """Return the wrapped key that a request leaves to the hub. Raises RequestRefused 42271 if the KEK is
        not shared.
        """
        if not kek.shared:
            raise invalid_key("encryptedKeyMaterial")
        if old is not None:
            return self._keys.rewrap(kek, old.wrapped) if rewrap else old.wrapped
        return self._keys.new_wrapped(kek, new.algorithm)

    def _raw(self, kek: Kek, dek: Dek) -> str | None:
        """Return the key itself, of a shared KEK. Raises Forbidden if masks hide some of the topic from the
        caller: the key would show it.
        """
        if not kek.shared:
            return None
        topic = names.topic_of(dek.id.subject)
        if not shows_records(topic):
            raise Forbidden(
                f'masks hide some of topic "{topic}" from you, and its key would show it',
                hint="write through the gateway, which encrypts; read views",
            )
        return self._keys.unwrap(kek, dek.wrapped)

    def _written_kek(self, name: str, decide: Decide) -> HttpAnswer:
        self._writable(None)
        position = self._node.submit(decide)
        stored = self._node.read(lambda state: state.kek(name, deleted=True))
        return HttpAnswer.of(kek_json(stored), position=position)

    def _done(self, subject: str | None, decide: Decide) -> HttpAnswer:
        self._writable(subject)
        return HttpAnswer(b"", 204, (), self._node.submit(decide))


def _context(call: HttpCall) -> str:
    """Return the context that a request about KEKs names; the default one without."""
    context = call.text("context")
    return names.context_named(context) if context else names.DEFAULT_CONTEXT


def _kek_name(call: HttpCall, subject: str | None = None) -> str:
    """Return the stored name of a path's KEK: in the context of the subject, or the one that is named."""
    context = _context(call) if subject is None else names.context_of(subject)
    return in_context(checked_name(call.params[0]), context)


def _place(call: HttpCall) -> tuple[str, str]:
    """Return the stored name of the KEK, and the subject of a path."""
    subject = checked_subject(call.params[1])
    return _kek_name(call, subject), subject


def _dek_id(call: HttpCall) -> DekId:
    """Return the DEK of a path; without a version the first one. Raises RequestRefused 42202, 42271."""
    kek, subject = _place(call)
    version = version_number(call.params[2]) if len(call.params) > 2 else 1
    return DekId(kek, subject, checked_algorithm(call.optional("algorithm")), version)


def _found(call: HttpCall, kek: str, subject: str) -> Callable[[DekRegistryState], list[Dek]]:
    """Return a query for the DEKs of a path: one version, or all of a subject, deleted ones too."""
    if len(call.params) > 2:
        wanted = _dek_id(call)
        return lambda state: [state.dek(wanted, deleted=True)]
    algorithm = call.optional("algorithm")
    _ = checked_algorithm(algorithm)
    return lambda state: state.deks_of(kek, subject, algorithm, deleted=True)


def _may_use(subject: str) -> None:
    """Raise Forbidden for callers who may neither read nor write the subject's records."""
    if not may(Action.write, Resource(Kind.subject, subject)):
        require(Action.read, Resource(Kind.subject, subject))
