"""[shell] Open the masks of a server: the facts behind them, and the key of their hashes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hub.access.live_config import LiveAccess
from hub.api.masking.facts import LiveMaskFacts
from hub.config import Settings
from hub.home_key import make_key, mask_key
from hub.materializers.stores.sql_store import Store
from hub.schema_registry.server.node import RegistryNode
from hub.topics.tree.tree import LiveTree


def open_masks(
    settings: Settings,
    access: LiveAccess,
    node: RegistryNode,
    store: Store,
    newest: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> None:
    """Let the access rules decide about masks from now on. Blocks."""
    sources = access.mask_sources
    sources.secret = mask_key(make_key(settings.home))
    sources.facts = LiveMaskFacts(node, LiveTree(settings.project / "topics.yaml"), store, newest)
