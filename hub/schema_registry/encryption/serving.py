"""[shell] Give a process the keys of field encryption: from the server's own DEK registry, or over HTTP.

The keys are those of ``RUNNER``, which executes rules of schemas. A process whose settings name no KMS has
none, and refuses to write what a rule would encrypt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fastapi import APIRouter

from hub.config.kms import KmsKey
from hub.log import Log
from hub.schema_registry.contracts.runner import RUNNER
from hub.schema_registry.dek_registry import routes
from hub.schema_registry.dek_registry.node import DekNode
from hub.schema_registry.encryption.key_ring import KeyRing, NodeDeks
from hub.schema_registry.encryption.kms import KmsClient
from hub.schema_registry.encryption.remote_deks import RemoteDeks
from hub.schema_registry.encryption.shared_keys import SharedKeys


def serve_keys(
    cluster: Log,
    allowed: Sequence[KmsKey],
    project: Path,
    replication_factor: int,
    writable: Callable[[str | None], None],
) -> APIRouter:
    """Return the routes of a server's DEK registry; its writers encrypt. ``writable``: see DekHandlers."""
    node = DekNode(cluster, replication_factor=replication_factor)
    kms = KmsClient(allowed, project)
    RUNNER.keys = KeyRing(NodeDeks(node, writable), kms) if allowed else None
    return routes.create_router(node, SharedKeys(kms), writable)


def use_remote_keys(registry_url: str, timeout_s: float, allowed: Sequence[KmsKey], project: Path) -> None:
    """Let the writers of a process that is not the server encrypt."""
    if allowed:
        RUNNER.keys = KeyRing(RemoteDeks(registry_url, timeout_s), KmsClient(allowed, project))
