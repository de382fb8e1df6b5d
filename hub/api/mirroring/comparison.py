"""[shell] Comparison of both sides of a mirror over HTTP, bounded in time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from hub.errors import NotFound, PeerError
from hub.observability.web.pages.mirror_actions import MirrorRequest
from hub.replication.clusters.readers import read_progress
from hub.replication.operations.compare_sides import compare_sides
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.ownership.links import Link
from hub.topics.tree.tree import matches


def compare_within(
    clusters: MirroredClusters,
    link: Link,
    request: MirrorRequest,
    environ: Mapping[str, str],
    wait_s: float,
) -> Mapping[str, Any]:
    """Return the result of ``hub mirror verify``. Raises NotFound for patterns that fit no mirrored topic,
    PeerError (HUB-3624) when it takes longer than ``wait_s``.
    """
    topics: list[str] = []
    if request.topics:
        mirrored = {
            tp.topic for tp in read_progress(clusters.clusters[link.target], maps=False).of(link.name)
        }
        topics = sorted(
            name for name in mirrored if any(matches(pattern, name) for pattern in request.topics)
        )
        if not topics:
            raise NotFound(
                f'mirror "{link.name}": none of its topics fits {", ".join(request.topics)}',
                hint=f"hub mirror status {link.name} lists its topics",
            )
    deadline_s = time.monotonic() + wait_s

    def check_time(done: int, total: int) -> None:
        if time.monotonic() > deadline_s:
            raise PeerError(
                f'mirror "{link.name}": {done:,} of {total:,} offsets were compared within {wait_s:g} s, '
                "and the comparison was stopped",
                hint=f"name `topics`, `newest` or a longer `wait_s`, or run: {request.command}",
                code="HUB-3624",
            )

    found = compare_sides(
        clusters.file,
        link,
        clusters.clusters,
        clusters.control(),
        environ,
        topics=topics,
        newest=request.newest,
        progress=check_time,
    )
    return found.as_json()
