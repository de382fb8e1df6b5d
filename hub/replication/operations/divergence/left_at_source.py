"""[shell] Records that a failover left at the old source, counted once it answers again.

While the source is away only bounds are known (``loss_report.FailoverRecord``). When it is back, its end
offsets are compared with the checkpoints of the mirror, which have not moved since the failover: the
difference is the exact loss, including records that producers wrote there after the failover without noticing
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from hub.errors import PeerError
from hub.log import between
from hub.record import Positions, Record
from hub.replication.clusters.clusters import ClusterHandle, topics_of
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.ownership.links import Link, home_of
from hub.replication.ownership.loss_report import Loss
from hub.replication.status.mirror_status import failed_over, failed_over_topics

_ANSWER_S = 3.0
_SILENT_S = 30.0


def losses_now(
    file: MirrorsFile,
    link: Link,
    clusters: Mapping[str, ClusterHandle],
    board: ControlState,
    progress: WrittenState,
) -> tuple[Loss, ...] | None:
    """Return what exists only at the old source, by partition; () when there was no failover. None: the
    source does not answer.

    Waits at most 3 s for an answer. Offsets are those that a reader of committed records sees.
    """
    whole, alone = failed_over(board, link), failed_over_topics(board, link)
    if not whole and not alone:
        return ()
    others = board.control.apart(link.source) - alone
    source = clusters[link.source]
    try:
        source.kafka.wait_ready(_ANSWER_S)
        there = topics_of(source)
        topics = sorted(
            name
            for name in there
            if home_of(file, name) == link.source
            and link.mirror.selects(name)
            and (name in alone or (whole and name not in others))
        )
        begins, ends = source.kafka.beginning_offsets(topics), source.kafka.end_offsets(topics)
    except PeerError:
        return None
    marks = progress.of(link.name)
    found = []
    for tp, end in ends:
        mark = marks.get(tp)
        same = mark is not None and mark.topic_id in ("", there[tp.topic].topic_id)
        first = max(begins.get(tp), mark.source_next if mark is not None and same else 0)
        if end > first:
            found.append(Loss(tp, first, end, True))
    return tuple(sorted(found, key=lambda each: each.place))


def records(source: ClusterHandle, losses: Sequence[Loss], limit: int) -> Iterator[Record]:
    """Yield the first ``limit`` records that exist only at the old source, by partition and offset. Reads one
    partition at a time.

    Raises PeerError when the source stops answering for 30 s.
    """
    found = (
        record
        for loss in losses
        for record in between(
            Positions({loss.place: loss.first}),
            Positions({loss.place: loss.end}),
            source.kafka.reader(queue_kb=1_024),
            _SILENT_S,
        )
    )
    yield from islice(found, limit)
