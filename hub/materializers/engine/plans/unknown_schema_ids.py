"""[core] Schema ids that no registry knew when a view asked for them: refused until one appears.

An event with a schema id that the plan does not know ends the query, since the id may be a second old and
valid (spark/dataframes.py). Once the registry has answered that it does not know the id, further events with
it become dead-letter records at once. The registry is asked again every few seconds. When a producer writes
ever new ids, the third one within a minute has all ids far above the registry's highest refused too. The
number of remembered ids is bounded: the oldest are dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

ASK_AGAIN_S = 5.0
MOST_IDS = 1_000
_BURST, _WITHIN_S = 3, 60.0
_NEAR = 1_000  # within this distance of the highest id, an id may have been registered a moment ago


@dataclass
class UnknownIds:
    """Refused schema ids of one view. ``above``: every higher id is refused too; None: no such limit."""

    above: int | None = None
    _ids: dict[int, None] = field(default_factory=dict)
    _refused_at_s: deque[float] = field(default_factory=lambda: deque(maxlen=_BURST))

    @property
    def ids(self) -> frozenset[int]:
        """The ids that are refused individually."""
        return frozenset(self._ids)

    def __bool__(self) -> bool:
        return bool(self._ids) or self.above is not None

    def refuse(self, schema_id: int, known: Collection[int], now_s: float) -> None:
        """Refuse an id that the registry does not have. ``known``: the ids that the registry has."""
        self._ids.pop(schema_id, None)
        self._ids[schema_id] = None
        while len(self._ids) > MOST_IDS:
            del self._ids[next(iter(self._ids))]
        self._refused_at_s.append(now_s)
        if len(self._refused_at_s) == _BURST and now_s - self._refused_at_s[0] <= _WITHIN_S:
            self.above = max(known, default=0) + _NEAR

    def appeared(self, known: Collection[int]) -> frozenset[int]:
        """Return the refused ids that the registry now has, and stop refusing them."""
        found = frozenset(
            each for each in known if each in self._ids or (self.above is not None and each > self.above)
        )
        for each in found:
            self._ids.pop(each, None)
        if found and self.above is not None and max(found) > self.above:
            self.above = None
        return found
