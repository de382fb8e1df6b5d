"""[core] Keys that a subscriber with filters may have, within a bound."""

from __future__ import annotations

from hub.errors import PeerError

_MOST_KEYS = 10_000  # keys per subscriber with filters: about 1 MB


class HeldKeys:
    """Keys that a subscriber with filters may have; it gets a ``delete`` only for these.

    Stored as exceptions from an assumption, to bound memory: with too many exceptions the assumption becomes
    "it may have any key". That costs deletes of rows that the subscriber does not have and is never wrong.
    """

    def __init__(self, assumed: bool, most: int = _MOST_KEYS, *, certain: bool = False) -> None:
        """``certain``: never assume; PeerError instead, because a ``delete`` would name a key that is not
        seen."""
        self.assumed, self._certain = assumed, certain
        self._most = most
        self._except: set[str] = set()

    def put(self, key: str) -> None:
        self._note(key, held=True)

    def drop(self, key: str) -> bool:
        """Return whether the subscriber may have the key and needs a ``delete``."""
        held = self.assumed != (key in self._except)
        self._note(key, held=False)
        return held

    def _note(self, key: str, *, held: bool) -> None:
        if held == self.assumed:
            self._except.discard(key)
            return
        self._except.add(key)
        if len(self._except) > self._most and self._certain:
            raise PeerError(
                f"more than {self._most} rows are seen: too many to follow with a filter of rows",
                hint="follow a part of them: ?key=… or a declared index",
                code="HUB-3069",
            )
        if len(self._except) > self._most:
            self._except.clear()
            self.assumed = True
