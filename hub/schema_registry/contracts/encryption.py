"""[edge] confluent-kafka, tink: encrypt fields (ENCRYPT) and whole values (ENCRYPT_PAYLOAD) in the child
process, with Confluent's own executors.

The child has neither access to a key management service nor to the DEK registry: it asks its parent for each
data key. A rule that fails to encrypt refuses the value whatever its ``onFailure`` is.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka.schema_registry.rules.encryption.dek_registry.dek_registry_client import Dek
from confluent_kafka.schema_registry.rules.encryption.encrypt_executor import (
    EncryptionExecutor,
    EncryptionExecutorTransform,
    FieldEncryptionExecutor,
)
from confluent_kafka.schema_registry.schema_registry_client import RuleMode
from confluent_kafka.schema_registry.serde import RuleContext

from hub.schema_registry.contracts.rule_calls import AskKey
from hub.schema_registry.dek_registry.data_keys import KeyQuestion


class _Transform(EncryptionExecutorTransform):  # type: ignore[misc]
    """Confluent's transformation, with keys of the parent process."""

    ask: AskKey

    def _get_or_create_dek(self, ctx: RuleContext, version: int | None) -> Dek:
        reads = ctx.rule_mode == RuleMode.READ
        algorithm = self._cryptor.dek_format
        data_key = self.ask(
            KeyQuestion(
                self._kek_name,
                str(ctx.subject),
                algorithm.value,
                (version or 1) if reads else None,
                self._dek_expiry_days,
                ctx.get_parameter("encrypt.kms.type") or "",
                ctx.get_parameter("encrypt.kms.key.id") or "",
            )
        )
        dek = Dek(self._kek_name, str(ctx.subject), data_key.version, algorithm, None)
        dek.set_key_material(data_key.key)
        return dek


class _Payload(EncryptionExecutor):  # type: ignore[misc]
    def __init__(self, ask: AskKey) -> None:
        super().__init__()
        self._ask = ask

    def new_transform(self, ctx: RuleContext) -> _Transform:
        made = _Transform(
            self, self._get_cryptor(ctx), self._get_kek_name(ctx), self._get_dek_expiry_days(ctx)
        )
        made.ask = self._ask
        return made


def encryption_executors(ask: AskKey) -> dict[str, Any]:
    """Return the executors by type of rule. ``ask`` raises RuleAborted if the parent has no key."""
    field = FieldEncryptionExecutor()
    field.executor = _Payload(ask)
    return {"ENCRYPT": field, "ENCRYPT_PAYLOAD": field.executor}
