"""[core] Least-recently-used cache with a limit on total weight. Thread safe."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Cache of at most ``limit`` weight, in the unit that callers of ``put`` use: characters, bytes, entries.

    The newest entry is kept even if it exceeds the limit.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.weight = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, weight: int = 1) -> None:
        with self._lock:
            before = self._entries.pop(key, None)
            self.weight += weight - (before[1] if before is not None else 0)
            self._entries[key] = (value, weight)
            while self.weight > self.limit and len(self._entries) > 1:
                self.weight -= self._entries.popitem(last=False)[1][1]

    def __len__(self) -> int:
        return len(self._entries)
