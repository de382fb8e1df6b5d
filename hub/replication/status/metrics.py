"""[edge] Prometheus metrics of mirrors, computed from the same values as ``hub mirror status``.

Series: some per mirror, three for each of its worst partitions, three for each of its worst groups, one for
each topic that lost records. An unknown value has no sample: a missing series can be alerted on, a zero would
be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import Metric

from hub.metrics.gauges import gauge

STATES = (
    "mirroring",
    "paused",
    "starting",
    "handed over",
    "no worker",
    "trouble",
    "unknown",
)
# Series limit per mirror, for partitions, for groups, and for topics with gaps.
MOST = 200

_OF_MIRROR: tuple[tuple[str, str, str], ...] = (
    ("workers", "workers", "Workers that hold a part of the mirror"),
    ("lag_records_all", "lag_records", "Offsets of the source that the target lacks, over all partitions"),
    ("lag_bytes_all", "lag_bytes", "About how many bytes that is"),
    ("lag_seconds_max", "lag_s", "How long ago the source reached the offset of its latest partition"),
    ("records_per_second", "records_per_s", "Records mirrored a second"),
    ("bytes_per_second", "bytes_per_s", "Bytes mirrored a second, as they are on the wire"),
    ("commit_age_seconds", "last_commit_s", "Since the last transaction"),
    ("restarts", "restarts", "Restarts of shards without progress"),
    ("verified_records", "verified_records", "Records that were compared on both sides"),
    ("unverified_offsets", "unverified_records", "Offsets that were mirrored and not compared yet"),
    ("verified_age_seconds", "verified_s", "Since anything was compared"),
    ("different_partitions", "different", "Partitions in which the sides differ"),
    ("standing", "stands", "1 while a part of it is stopped that should run, or no worker runs it"),
)
_OF_PARTITION: tuple[tuple[str, str, str], ...] = (
    ("lag_records", "lag_records", "Offsets of the source that the target lacks"),
    ("lag_bytes", "lag_bytes", "About how many bytes that is"),
    ("lag_seconds", "lag_s", "How long ago the source reached the offset that the mirror is at"),
)
_OF_GROUP: tuple[tuple[str, str, str], ...] = (
    (
        "rpo_records",
        "rpo_records",
        "Offsets that a group has not read and the target lacks: lost to it if the source were gone",
    ),
    ("rpo_seconds", "rpo_s", "How old the oldest of them is"),
    ("redelivered_records", "redelivered", "Records that a failover would give a group again"),
)


def families(
    statuses: Sequence[Mapping[str, Any]], most: int = MOST, known: bool | None = None
) -> Iterator[Metric]:
    """Yield the metric families. ``statuses`` are made by mirror_status.py; a target that does not answer has
    the short form. ``known``: whether the statuses could be read; None: not tried yet.
    """
    reported = [each for each in statuses if "workers" in each]
    yield _gauge("known", "1 while mirrors.yaml can be read and its clusters were asked", [], [([], known)])
    yield _gauge(
        "up", "1 while the mirror's target answers", ["mirror"], (([each["mirror"]], "workers" in each)
        for each in statuses)
    )  # fmt: skip
    yield _gauge(
        "state",
        "1 for the state a mirror is in",
        ["mirror", "state"],
        (([each["mirror"], state], each["state"] == state) for each in statuses for state in STATES),
    )
    for name, key, description in _OF_MIRROR:
        yield _gauge(name, description, ["mirror"], (([each["mirror"]], each[key]) for each in reported))
    yield from _families_of_parts(reported, most)
    yield from _families_of_rehearsals(reported)
    yield from _families_of_worst(reported, most)


def _families_of_parts(reported: Sequence[Mapping[str, Any]], most: int) -> Iterator[Metric]:
    """Yield heartbeats, stopped and unknown partitions, and gaps of each mirror."""
    yield _gauge(
        "heartbeat_age_seconds",
        "Since the last heartbeat of the worker that was silent longest",
        ["mirror"],
        (
            ([each["mirror"]], max((beat["ago_s"] for beat in each["heartbeats"]), default=None))
            for each in reported
        ),
    )
    yield _gauge(
        "stopped_partitions",
        "Partitions that are stopped for a known reason",
        ["mirror"],
        (([each["mirror"]], sum(_stands(each, row) for row in each["partitions"])) for each in reported),
    )
    yield _gauge(
        "unknown_partitions",
        "Partitions that no worker reports",
        ["mirror"],
        (
            ([each["mirror"]], sum(row["state"] == "unknown" for row in each["partitions"]))
            for each in reported
        ),
    )
    yield _gauge(
        "drifted_topics",
        "Copies that somebody changed by hand; absent where drift is keep",
        ["mirror"],
        (
            ([each["mirror"]], sum(bool(row["open"]) for row in each["drift"]))
            for each in reported
            if each["drift_policy"] != "keep"
        ),
    )
    yield _gauge("gaps", "Ranges that the target will never have", ["mirror"], (([each["mirror"]],
        len(each["gaps"])) for each in reported))  # fmt: skip
    yield _gauge(
        "gap_age_seconds",
        "Age of the newest range of a topic that the target will never have",
        ["mirror", "topic"],
        (([each["mirror"], topic], age_s) for each in reported for topic, age_s in gap_ages(each)[:most]),
    )


def _families_of_rehearsals(reported: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """Yield age and result of the last complete rehearsal of each mirror; no sample where there is none."""
    found = [(each["mirror"], each["rehearsal"]) for each in reported if each["rehearsal"] is not None]
    last = [(mirror, one["last"]) for mirror, one in found if one["last"] is not None]
    yield _gauge("rehearsal_age_seconds", "Since the last complete rehearsal began", ["mirror"],
        (([mirror], one["ago_s"]) for mirror, one in last))  # fmt: skip
    yield _gauge(
        "rehearsal_passed",
        "1 if the last complete rehearsal showed that a failover would succeed, 0 if not",
        ["mirror"],
        (([mirror], one["state"] == "passed") for mirror, one in last),
    )
    yield _gauge(
        "rehearsal_lag_seconds",
        "How old the oldest record was that the target lacked at the last complete rehearsal",
        ["mirror"],
        (([mirror], one["lag_s"]) for mirror, one in last),
    )
    yield _gauge(
        "rehearsal_overdue_seconds",
        "Since a rehearsal was due that was not made; absent while none is due",
        ["mirror"],
        (([mirror], one["overdue_s"]) for mirror, one in found if one["schedule"] is not None),
    )


def _families_of_worst(reported: Sequence[Mapping[str, Any]], most: int) -> Iterator[Metric]:
    """Yield the worst partitions and groups of each mirror, at most ``most`` of each."""
    # A topic that a mirror does not carry any more is not late: the way back reports it, if anything does.
    # Neither is one that is paused by itself.
    carried = (
        (
            each["mirror"],
            [
                row
                for row in each["partitions"]
                if row["state"] != "left" and (row["state"] != "paused" or each["state"] == "paused")
            ],
        )
        for each in reported
    )
    rows = [(mirror, row) for mirror, those in carried for row in worst(those, "lag_records", most)]
    for name, key, description in _OF_PARTITION:
        labelled = (([mirror, row["topic"], str(row["partition"])], row[key]) for mirror, row in rows)
        yield _gauge(name, description, ["mirror", "topic", "partition"], labelled)
    groups = [
        (each["mirror"], row) for each in reported for row in worst(each["groups"], "rpo_records", most)
    ]
    for name, key, description in _OF_GROUP:
        yield _gauge(
            f"group_{name}", description, ["mirror", "group"], (([mirror, row["group"]], row[key]) for mirror,
            row in groups)
        )  # fmt: skip


def _stands(status: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    if row["state"] == "unknown":
        return False
    return bool(row["reason"]) and (row["state"] != "left" or row["topic"] in status["trouble"])


def gap_ages(status: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the topics with permanently lost records and the age of the newest gap, in seconds; the newest
    first.
    """
    found: dict[str, float] = {}
    for gap in status["gaps"]:
        found[gap["topic"]] = min(gap["found_s"], found.get(gap["topic"], gap["found_s"]))
    return sorted(found.items(), key=lambda each: (each[1], each[0]))


def worst(rows: Iterable[Mapping[str, Any]], key: str, most: int) -> list[Mapping[str, Any]]:
    """Return the ``most`` rows with the highest numbers, unknown ones first; rows with equal numbers keep
    their order.
    """
    return sorted(rows, key=lambda row: (row[key] is not None, -(row[key] or 0)))[:most]


def _gauge(
    name: str, description: str, labels: list[str], samples: Iterable[tuple[list[str], Any]]
) -> Metric:
    return gauge(f"hub_mirror_{name}", description, labels, samples)
