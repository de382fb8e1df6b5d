"""[shell] Give a process the keys of field encryption: from the server's own DEK registry, or over HTTP.

The keys are those of ``RUNNER``, which executes rules of schemas. A process whose settings name no KMS has
none, and refuses to write what a rule would encrypt.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from fastapi import APIRouter

from hub.config import Settings
from hub.schema_registry.contracts.runner import RUNNER
from hub.schema_registry.dek_registry import routes
from hub.schema_registry.dek_registry.node import DekNode
from hub.schema_registry.dek_registry.records import Kek
from hub.schema_registry.encryption.key_ring import KeyRing, NodeDeks
from hub.schema_registry.encryption.kms import KeyRefused, KmsClient, KmsFailed, encoded, new_key
from hub.schema_registry.encryption.remote_deks import RemoteDeks
from hub.schema_registry.registry.errors import RequestRefused


def serve_keys(node: DekNode, settings: Settings, writable: Callable[[str | None], None]) -> APIRouter:
    """Return the routes of a server's DEK registry; its writers encrypt. ``writable``: see DekHandlers."""
    kms = KmsClient(settings.kms, settings.project)
    ring = KeyRing(NodeDeks(node, writable), kms, kept_s=settings.erase_key_cache_s)
    RUNNER.keys = ring if settings.kms else None
    return routes.create_router(node, SharedKeys(kms), writable)


def use_remote_keys(settings: Settings) -> None:
    """Let the writers of a process that is not the server encrypt."""
    if settings.kms:
        store = RemoteDeks(settings.registry, settings.kafka_timeout_s)
        kms = KmsClient(settings.kms, settings.project)
        RUNNER.keys = KeyRing(store, kms, kept_s=settings.erase_key_cache_s)


class SharedKeys:
    """See ``KeyService`` of the DEK registry. Methods raise RequestRefused 50070 when the KMS fails."""

    def __init__(self, kms: KmsClient) -> None:
        self._kms = kms

    def new_wrapped(self, kek: Kek, algorithm: str) -> str:
        try:
            wrapped = self._kms.wrap(kek.kms_type, kek.kms_key_id, new_key(algorithm))
        except (KmsFailed, KeyRefused) as error:
            raise _failed("encrypted", error) from None
        return encoded(wrapped)

    def unwrap(self, kek: Kek, wrapped: str) -> str:
        return encoded(self._raw(kek, wrapped))

    def rewrap(self, kek: Kek, wrapped: str) -> str:
        raw = self._raw(kek, wrapped)
        try:
            return encoded(self._kms.wrap(kek.kms_type, kek.kms_key_id, raw))
        except (KmsFailed, KeyRefused) as error:
            raise _failed("encrypted", error) from None

    def _raw(self, kek: Kek, wrapped: str) -> bytes:
        try:
            return self._kms.unwrap(kek.kms_type, kek.kms_key_id, base64.b64decode(wrapped))
        except (KmsFailed, KeyRefused) as error:
            raise _failed("raw", error) from None


def _failed(form: str, error: KmsFailed | KeyRefused) -> RequestRefused:
    hint = f": {error.hint}" if error.hint else ""
    return RequestRefused(500, 50070, f"Could not generate {form} dek: {error.message}{hint}")
