"""[edge] Read the progress of one view from ``_hub.progress``, from its start."""

from __future__ import annotations

import time

from hub.errors import PeerError
from hub.log import Log
from hub.materializers.progress.records import PROGRESS_TOPIC, Progress, progress_of


def published_progress(cluster: Log, table: str, changelog: str, timeout_s: float) -> Progress | None:
    """Return the last progress of a version's latest generation from the progress topic.

    Raises PeerError (HUB-3055) when the topic cannot be read to its end within ``timeout_s``: a part of it
    could give an earlier generation, or none.
    """
    end = cluster.end_offsets([PROGRESS_TOPIC])
    reader = cluster.reader()
    try:
        reader.assign(cluster.beginning_offsets([PROGRESS_TOPIC]))
        latest: Progress | None = None
        deadline = time.monotonic() + timeout_s
        while not reader.position().covers(end):
            if time.monotonic() > deadline:
                raise PeerError(f'topic "{PROGRESS_TOPIC}" cannot be read to its end', code="HUB-3055")
            for record in reader.poll(1_000, 0.5):
                if record.key != f"progress:{table}".encode():
                    continue
                progress = progress_of(record, changelog)
                if progress is not None and (latest is None or progress.generation >= latest.generation):
                    latest = progress
        return latest
    finally:
        reader.close()
