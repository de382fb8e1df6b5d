"""[shell] Decrypt stored values, for a reader that its owner gave access to the KMS.

No rule but those that decrypt is executed, so no expression of a schema's author runs here.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from hub.errors import CallerError, HubError, NotFound
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.codecs.avro_validator import BrokenValue
from hub.schema_registry.codecs.misfit import Unfit
from hub.schema_registry.contracts.executors import Contract
from hub.schema_registry.contracts.rule_calls import RuleCall
from hub.schema_registry.contracts.rules import RuleAborted
from hub.schema_registry.dek_registry.data_keys import DataKey, KeyQuestion, KeySource
from hub.schema_registry.encryption.erasable import ERASED, PREFIX, SealedText, fingerprint, parse_sealed
from hub.schema_registry.encryption.kms import KeyMissing, decrypt

_FRAME = 5  # bytes of the wire format before the body
_MOST_SCHEMAS = 1_000
_MOST_GONE = 100_000


class Opener:
    """Decrypts values of any topic. Not thread safe."""

    def __init__(self, registry: SchemaRegistry, keys: KeySource) -> None:
        self._registry, self._keys = registry, keys
        self._contracts: dict[int, Contract] = {}
        self._failed: HubError | None = None
        self._gone = OrderedDict[tuple[KeyQuestion, str], None]()

    def opened(self, topic: str, value: bytes) -> bytes:
        """Return a value of a topic in clear; the same bytes if it has no encrypted fields. Erasable fields
        whose key was destroyed are null, or ``ERASED`` if the schema does not accept null.

        Raises CallerError when it cannot be decrypted, PeerError when its key cannot be had now. No message
        has a part of the value.
        """
        if len(value) < _FRAME or value[0] != 0:
            return value
        contract = self._contract(int.from_bytes(value[1:_FRAME], "big"))
        if contract is None:
            return value
        if PREFIX.encode() in value:
            value = self._unsealed(topic, value, contract)
        if not contract.encrypts:
            return value
        self._failed = None
        try:
            body = contract.opened(value[_FRAME:], RuleCall(subject=f"{topic}-value", ask=self._key))
        except CallerError as error:
            raise self._failed or error from None
        except BrokenValue:
            raise CallerError("its bytes do not fit its schema") from None
        return value[:_FRAME] + body

    def _unsealed(self, topic: str, value: bytes, contract: Contract) -> bytes:
        """Return a value with its erasable fields in clear, or erased."""
        sealed_texts = dict[str, SealedText]()

        def look(_name: str, _tags: frozenset[str], each: Any) -> Any:
            sealed = parse_sealed(each)
            if sealed is not None:
                sealed_texts[_text(each)] = sealed
            return each

        contract.walked(_decoded(contract, value), look)
        clear = {text: self._clear(topic, sealed) for text, sealed in sealed_texts.items()}
        # Null where every erased field of the value may be null; else the marker; else it stays unreadable.
        for erased in (None, ERASED):
            with contextlib.suppress(Unfit, TypeError, ValueError, AttributeError):
                made = contract.walked(_decoded(contract, value), _Replace(clear, erased))
                return value[:_FRAME] + contract.form.body(made, "value")
        return value

    def _clear(self, topic: str, sealed: SealedText) -> bytes | None:
        """Return the clear value of a field; None if its key was destroyed."""
        question = sealed.question(topic)
        if (question, sealed.key) in self._gone:
            return None
        for _ in range(2):
            try:
                key = self._keys.key(question).key
            except KeyMissing:
                break
            if fingerprint(key) == sealed.key:
                return decrypt(key, sealed.ciphertext, question.subject.encode())
            self._keys.forget(question)  # the person may have a newer key
        self._gone[question, sealed.key] = None
        if len(self._gone) > _MOST_GONE:
            self._gone.popitem(last=False)
        return None

    def _contract(self, schema_id: int) -> Contract | None:
        """Return the prepared schema; None if there is no such schema."""
        if schema_id not in self._contracts:
            try:
                contract = Contract(self._registry.source(schema_id))
            except NotFound:
                return None
            if len(self._contracts) >= _MOST_SCHEMAS:
                self._contracts.clear()
            self._contracts[schema_id] = contract
        return self._contracts[schema_id]

    def _key(self, question: KeyQuestion) -> DataKey:
        """Return a key; keeps the error of a question, which rules would turn into text."""
        try:
            return self._keys.key(question)
        except HubError as error:
            self._failed = error
            raise RuleAborted(error.message) from None


class _Replace:
    """Puts clear values in place of sealed ones. ``erased``: what stands for those without a key."""

    def __init__(self, clear: Mapping[str, bytes | None], erased: str | None) -> None:
        self._clear, self._erased = clear, erased

    def __call__(self, _name: str, _tags: frozenset[str], value: Any) -> Any:
        if not isinstance(value, str | bytes) or _text(value) not in self._clear:
            return value
        found = self._clear[_text(value)]
        if found is None:
            return self._erased.encode() if self._erased and isinstance(value, bytes) else self._erased
        return found if isinstance(value, bytes) else found.decode()


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("ascii", "replace")


def _decoded(contract: Contract, value: bytes) -> Any:
    try:
        return contract.form.decoded(value[_FRAME:], 0)
    except BrokenValue:
        raise CallerError("its bytes do not fit its schema") from None
