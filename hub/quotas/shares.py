"""[core] Limit on the number of things that one caller may hold at once.

A caller is a signed-in user, or an address (for IPv6 a /64) if nobody is signed in. The guard of the server
determines it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from hub.caller import TooMany

# "user ana", "address 10.0.0.7"; "" is the hub itself, which has no limit.
ASKER: ContextVar[str] = ContextVar("asker", default="")

AGAIN_S = 5


@dataclass
class Shares:
    """``most`` at once of each caller. ``what``: in the plural; ``setting``: its name in hub.yaml.
    For one event loop."""

    most: int
    what: str
    setting: str
    _held: Counter[str] = field(default_factory=Counter)

    def require(self) -> None:
        """Raise TooMany when the caller has used its whole share."""
        asker = ASKER.get()
        if asker and self._held[asker] >= self.most:
            raise self._refusal(asker)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold one more while the block runs. Check with ``require`` first."""
        asker = ASKER.get()
        if not asker:
            yield
            return
        self._held[asker] += 1
        try:
            yield
        finally:
            self._held[asker] -= 1
            if not self._held[asker]:
                del self._held[asker]

    def _refusal(self, asker: str) -> TooMany:
        """Return the error for a caller whose share is used up."""
        error = TooMany(
            f"{asker}: {self.most} {self.what} at once are the most of one caller",
            hint=f"end one of them, or raise {self.setting} in hub.yaml",
            code="HUB-1705",
        )
        error.details = {"retry_after": str(AGAIN_S)}
        return error
