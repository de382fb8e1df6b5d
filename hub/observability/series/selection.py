"""[core] Choose the objects that are kept finely when an estate has more series than the limit.

Totals, mirrors, processes and views come first; then topics and their readers, those declared in topics.yaml
before others, the busiest first. The rest is kept by the hour only, up to ``COARSE_TIMES`` times the limit;
what is beyond that is left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hub.observability.series.catalog import SeriesKind, SeriesObject

# An object that is kept finely stays so unless another one is this much busier.
STAYS = 2.0
COARSE_TIMES = 5
_LAST = (SeriesKind.topic, SeriesKind.reader)


@dataclass(frozen=True, slots=True)
class SeriesSelection:
    """Objects kept finely, objects kept by the hour, and the number of objects that are not kept."""

    fine: frozenset[SeriesObject] = frozenset()
    coarse: frozenset[SeriesObject] = frozenset()
    left_out: int = 0


def select(
    sizes: Mapping[SeriesObject, int],
    rates: Mapping[str, float],
    is_declared: Callable[[str], bool],
    before: frozenset[SeriesObject],
    most: int,
) -> SeriesSelection:
    """Return the selection. ``sizes``: most series of each object. ``rates``: records per second by topic.
    ``before``: objects kept finely until now. ``most``: limit of fine series; 0: nothing is kept."""
    if most > 0 and sum(sizes.values()) <= most:
        return SeriesSelection(frozenset(sizes))

    def rank(series_object: SeriesObject) -> tuple[bool, bool, float, SeriesObject]:
        if series_object.kind not in _LAST:
            return False, False, 0.0, series_object
        topic = series_object.reader[2] if series_object.kind == SeriesKind.reader else series_object.name
        rate = rates.get(topic, 0.0) * (STAYS if series_object in before else 1.0)
        return True, not is_declared(topic), -rate, series_object

    fine, coarse, left_out, used = set(), set(), 0, 0
    for found in sorted(sizes, key=rank):
        used += sizes[found]
        if used <= most:
            fine.add(found)
        elif used <= most * COARSE_TIMES:
            coarse.add(found)
        else:
            left_out += 1
    return SeriesSelection(frozenset(fine), frozenset(coarse), left_out)
