"""[core] Schema ids that no registry knew when a view asked for them: refused from then on, until one appears.

An event with a schema id that the plan does not know ends the query, since the id may be a second old and right (spark/dataframes.py). Once
the registry has said that it does not know the id, further events with it are dead-letter records at once; the registry is asked
again every few seconds. Of a producer that writes ever new ids, the third within a minute has all ids far above the registry's
highest refused too. Bounded: the ids that were refused last are remembered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

ASK_AGAIN_S = 5.0
MOST_IDS = 1_000
_BURST, _WITHIN_S = 3, 60.0
_NEAR = 1_000  # so far above the highest id one may still be registered in the moment in which it is met


@dataclass
class UnknownIds:
    """Of one view. ``above``: every higher id is refused; None: none is."""

    above: int | None = None
    _ids: dict[int, None] = field(default_factory=dict)
    _refused_at_s: deque[float] = field(default_factory=lambda: deque(maxlen=_BURST))

    @property
    def ids(self) -> frozenset[int]:
        """Those that are refused one by one."""
        return frozenset(self._ids)

    def __bool__(self) -> bool:
        return bool(self._ids) or self.above is not None

    def refuse(self, schema_id: int, known: Collection[int], now_s: float) -> None:
        """The registry was asked for the id and does not have it; ``known`` are the ids that it has."""
        self._ids.pop(schema_id, None)
        self._ids[schema_id] = None
        while len(self._ids) > MOST_IDS:
            del self._ids[next(iter(self._ids))]
        self._refused_at_s.append(now_s)
        if len(self._refused_at_s) == _BURST and now_s - self._refused_at_s[0] <= _WITHIN_S:
            self.above = max(known, default=0) + _NEAR

    def appeared(self, known: Collection[int]) -> frozenset[int]:
        """The refused ids that the registry has by now; they are refused no more."""
        found = frozenset(
            each for each in known if each in self._ids or (self.above is not None and each > self.above)
        )
        for each in found:
            self._ids.pop(each, None)
        if found and self.above is not None and max(found) > self.above:
            self.above = None
        return found
