"""[core] Local records of a copy: those that its mirror did not have to bring. All other unmapped records are
foreign.

The map of a link names every record that the link brought. Other records in the target's partition existed
before the link began, are part of a copy that an import took over, or were born there while the target had
the ownership of the topic's home. The way back carried those home, so its map names them. Any other record
was written by somebody who may not write there.
"""

from __future__ import annotations

from hub.replication.config.mirrors import MirrorsFile
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.maps.imported_copy import ImportedCopy
from hub.replication.maps.offset_map import OffsetMap
from hub.replication.ownership.failover import Control
from hub.replication.ownership.links import Link, home_of, masked

Ranges = tuple[tuple[int, int], ...]
EVER = 1 << 62
ALL: Ranges = ((0, EVER),)


def born_at_target(
    file: MirrorsFile,
    link: Link,
    control: Control,
    mark: Checkpoint,
    copied: ImportedCopy | None = None,
    back: OffsetMap | None = None,
) -> Ranges:
    """Return the ranges of target offsets that may hold records of others, ascending. ``back``: the map of
    the way back, where it is about the same two topics and can be read; without it, and where a copy is
    masked, nothing is judged after a change of ownership.
    """
    home = home_of(file, mark.topic)
    if home == link.target:
        return ALL
    stands = copied is not None and copied.target_topic_id == mark.target_topic_id
    begins = max(mark.target_start, copied.end if copied is not None and stands else 0)
    ranges = [(0, begins)] if begins else []
    if home is None or not control.has_changed(home, mark.topic):
        return tuple(ranges)
    if back is None or masked(file, mark.topic, home, link.target):
        return ALL
    ranges += [(run.source, run.source_end) for run in back.runs]
    scope = control.scope(home, mark.topic)
    if control.owner(scope).acting != home or control.running(scope) is not None:
        ranges.append((back.source_next, EVER))
    return _joined(ranges)


def _joined(ranges: list[tuple[int, int]]) -> Ranges:
    """Return the ranges sorted, with adjacent ones merged."""
    found: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((first, end))
    return tuple(found)
