"""[shell] Give a process the keys of field encryption: from the server's own DEK registry, or over HTTP.

The keys are those of ``RUNNER``, which executes rules of schemas. A process whose settings name no KMS has
none, and refuses to write what a rule would encrypt.
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter

from hub.config import Settings
from hub.schema_registry.contracts.runner import RUNNER
from hub.schema_registry.dek_registry import routes
from hub.schema_registry.dek_registry.node import DekNode
from hub.schema_registry.encryption.key_ring import KeyRing, NodeDeks
from hub.schema_registry.encryption.kms import KmsClient
from hub.schema_registry.encryption.remote_deks import RemoteDeks
from hub.schema_registry.encryption.shared_keys import SharedKeys


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
