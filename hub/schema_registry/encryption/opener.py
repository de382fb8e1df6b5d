"""[shell] Decrypt stored values, for a reader that its owner gave access to the KMS.

No rule but those that decrypt is executed, so no expression of a schema's author runs here.
"""

from __future__ import annotations

from hub.errors import CallerError, HubError, NotFound
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.codecs.avro_validator import BrokenValue
from hub.schema_registry.contracts.executors import Contract
from hub.schema_registry.contracts.rule_calls import RuleCall
from hub.schema_registry.contracts.rules import RuleAborted
from hub.schema_registry.dek_registry.data_keys import DataKey, KeyQuestion, KeySource

_FRAME = 5  # bytes of the wire format before the body
_MOST_SCHEMAS = 1_000


class Opener:
    """Decrypts values of any topic. Not thread safe."""

    def __init__(self, registry: SchemaRegistry, keys: KeySource) -> None:
        self._registry, self._keys = registry, keys
        self._contracts: dict[int, Contract | None] = {}
        self._failed: HubError | None = None

    def opened(self, topic: str, value: bytes) -> bytes:
        """Return a value of a topic in clear; the same bytes if no rule of its schema decrypts.

        Raises CallerError when it cannot be decrypted, PeerError when its key cannot be had now. No message
        has a part of the value.
        """
        if len(value) < _FRAME or value[0] != 0:
            return value
        contract = self._contract(int.from_bytes(value[1:_FRAME], "big"))
        if contract is None:
            return value
        self._failed = None
        try:
            body = contract.opened(value[_FRAME:], RuleCall(subject=f"{topic}-value", ask=self._key))
        except CallerError as error:
            raise self._failed or error from None
        except BrokenValue:
            raise CallerError("its bytes do not fit its schema") from None
        return value[:_FRAME] + body

    def _contract(self, schema_id: int) -> Contract | None:
        """Return the rules of a schema; None if none of them decrypts, or there is no such schema."""
        if schema_id not in self._contracts:
            try:
                found = Contract(self._registry.source(schema_id))
            except NotFound:
                return None
            if len(self._contracts) >= _MOST_SCHEMAS:
                self._contracts.clear()
            self._contracts[schema_id] = found if found.encrypts else None
        return self._contracts[schema_id]

    def _key(self, question: KeyQuestion) -> DataKey:
        """Return a key; keeps the error of a question, which rules would turn into text."""
        try:
            return self._keys.key(question)
        except HubError as error:
            self._failed = error
            raise RuleAborted(error.message) from None
