"""[shell] Encrypt the erasable fields of values before they are written.

Every writer of the hub passes its encoded values through ``SEALER``. Topics that declare no ``erasable_by``
are not affected. The keys are those of ``RUNNER``. A value that cannot be encrypted is refused, never written
in clear text.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from hub.errors import HubError, NotFound
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.codecs.avro_validator import BrokenValue
from hub.schema_registry.codecs.misfit import Unfit
from hub.schema_registry.contracts.runner import RUNNER, contract_key
from hub.schema_registry.dek_registry.data_keys import KeyQuestion, KeySource
from hub.schema_registry.dek_registry.records import DEFAULT_ALGORITHM
from hub.schema_registry.encryption.erasable import (
    ErasableFields,
    NotErasable,
    SealedText,
    fingerprint,
    parse_sealed,
    person_hash,
)
from hub.schema_registry.encryption.kms import encrypt
from hub.schema_registry.model.subject_names import person_subject

if TYPE_CHECKING:
    from hub.schema_registry.contracts.executors import Contract

DEFAULT_KEK = "erasable"
_FRAME = 5  # bytes of the wire format before the body
_MOST_SCHEMAS = 1_000


class FieldSealer:
    """Encrypts erasable fields. Thread safe. ``fields_of`` returns the declaration of a topic; it raises
    HubError while that cannot be known. ``kek``: the KEK that wraps new keys.
    """

    def __init__(self) -> None:
        self.fields_of: Callable[[str], ErasableFields | None] = lambda _topic: None
        self.kek = DEFAULT_KEK
        self._lock = Lock()
        self._contracts: OrderedDict[bytes, Contract] = OrderedDict()

    def sealed(self, topic: str, value: bytes | None, registry: SchemaRegistry) -> bytes | None:
        """Return a record's value as it may be written. Raises NotErasable; HubError of the keys."""
        fields = None if value is None else self.fields_of(topic)
        if fields is None or value is None:
            return value
        contract = self._contract(topic, value, registry)
        try:
            native = contract.form.decoded(value[_FRAME:], 0)
        except BrokenValue:
            raise _refused(topic, "the value does not fit its schema", "write it with the schema") from None
        person = person_hash(topic, _person(topic, fields, native))
        if RUNNER.keys is None:
            raise _refused(
                topic,
                "this hub has no access to a key management service",
                "name one under `kms` in hub.yaml: docs/how-to/encrypt-fields.md",
            )
        change = _Change(topic, person, self.kek, fields, RUNNER.keys)
        made = contract.walked(native, change)
        if change.failed is not None:
            raise change.failed
        if not change.count:
            return value
        try:
            return value[:_FRAME] + contract.form.body(made, "value")
        except Unfit as error:
            raise _refused(
                topic,
                f"the schema does not accept the ciphertext: {error.message}",
                "an encrypted field is a text without pattern, format or largest length",
            ) from None

    def clear_fields(self, topic: str, value: bytes, registry: SchemaRegistry) -> list[str]:
        """Return the names of erasable fields that a stored value has in clear text, sorted. Raises HubError
        when they cannot be known.
        """
        fields = self.fields_of(topic)
        if fields is None:
            return []
        found = set[str]()

        def look(name: str, tags: frozenset[str], each: Any) -> Any:
            if each not in (None, "", b"") and fields.covers(name, tags) and parse_sealed(each) is None:
                found.add(name)
            return each

        contract = self._contract(topic, value, registry)
        contract.walked(contract.form.decoded(value[_FRAME:], 0), look)
        return sorted(found)

    def _contract(self, topic: str, value: bytes, registry: SchemaRegistry) -> Contract:
        """Return the prepared schema of a value. Raises NotErasable."""
        from hub.schema_registry.contracts.executors import Contract

        if len(value) < _FRAME or value[0] != 0:
            raise _refused(topic, "the value has no schema", f'register one for the subject "{topic}-value"')
        try:
            source = registry.source(int.from_bytes(value[1:_FRAME], "big"))
        except NotFound as error:
            raise _refused(topic, error.message, "write it with a registered schema") from None
        key = contract_key(source)
        with self._lock:
            contract = self._contracts.get(key)
        if contract is None:
            contract = Contract(source)
            with self._lock:
                self._contracts[key] = contract
                if len(self._contracts) > _MOST_SCHEMAS:
                    self._contracts.popitem(last=False)
        if contract.encrypts:
            raise _refused(
                topic,
                "its schema has a rule that encrypts, too",
                "take the ENCRYPT rule out of the schema, or erasable_by out of topics.yaml",
            )
        return contract


class _Change:
    """Encrypts the fields of one value. ``failed``: why one of them could not be encrypted."""

    def __init__(self, topic: str, person: str, kek: str, fields: ErasableFields, keys: KeySource) -> None:
        self._topic, self._person, self._kek = topic, person, kek
        self._fields, self._keys = fields, keys
        self._subject = person_subject(topic, person)
        self._key: bytes | None = None
        self.count = 0
        self.failed: HubError | None = None

    def __call__(self, name: str, tags: frozenset[str], value: Any) -> Any:
        # Empty values of Protobuf are absent ones.
        if self.failed is not None or value in (None, "", b"") or not self._fields.covers(name, tags):
            return value
        if name == self._fields.by:
            self.failed = _refused(
                self._topic,
                f'"{name}" names the person, so it cannot be encrypted',
                "take its tag PII away, or name the encrypted fields with erasable_fields",
            )
        elif not isinstance(value, str | bytes):
            self.failed = _refused(
                self._topic, f'field "{name}" is neither text nor bytes', "make it a text in the schema"
            )
        else:
            sealed_text = parse_sealed(value)
            if sealed_text is not None and sealed_text.person == self._person:
                return value  # a repaired or copied event
            return self._encrypted(value)
        return value

    def _encrypted(self, value: str | bytes) -> str | bytes:
        try:
            if self._key is None:
                question = KeyQuestion(self._kek, self._subject, DEFAULT_ALGORITHM)
                self._key = self._keys.key(question).key
            plain = value.encode() if isinstance(value, str) else value
            ciphertext = encrypt(self._key, plain, self._subject.encode())
        except HubError as error:
            self.failed = error
            return value
        self.count += 1
        text = SealedText(self._kek, self._person, fingerprint(self._key), ciphertext).text()
        return text if isinstance(value, str) else text.encode()


def _person(topic: str, fields: ErasableFields, native: Any) -> str:
    """Return the id of the person that an event is about. Raises NotErasable."""
    found = native
    for step in fields.by.split("."):
        if isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping):
            found = found[1].get(step)  # a branch of a union with its name
        else:
            found = getattr(found, step, None)
    if isinstance(found, bool) or not isinstance(found, str | int) or found == "":
        raise _refused(
            topic,
            f'its events are erasable by "{fields.by}", and this one has no such text or number',
            f'send "{fields.by}" with each event',
        )
    return str(found)


def _refused(topic: str, why: str, way: str) -> NotErasable:
    return NotErasable(f'topic "{topic}": its personal fields cannot be encrypted: {why}', hint=way)


SEALER = FieldSealer()
"""The process's own."""
