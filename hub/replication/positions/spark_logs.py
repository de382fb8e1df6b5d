"""[core] Translate the logs of a Spark checkpoint for another region.

::

    metadata        id of the query                                         copied
    offsets/N       planned batch: "v1", a line of metadata, a line per source, "-" for none
    commits/N       batch N is complete                                     copied
    sources/I/0     where source I began, before its first batch
    state/…         stateful operators, by version                          copied

A line of Spark's Kafka source is JSON: ``{"topic": {"partition": offset}}`` (KafkaSourceOffset). Lines of
other kinds of sources stay as they are. Positions of the batches that Spark may go back to must be translated
exactly; where older ones cannot be, these batches are left out, as Spark itself removes them later.

Source: ``OffsetSeqLog``, ``CommitLog``, ``JsonUtils.partitionOffsets`` and ``MicroBatchExecution`` of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import orjson

from hub.errors import CallerError, Conflict
from hub.record import TopicPartition
from hub.replication.positions.translation import MapsOfMirror, TranslatedPosition

InFlight = Literal["refuse", "repeat"]

_VERSION = "v1"
_NEEDED = 2  # Spark reads the last batch and the one before


@dataclass(frozen=True, slots=True)
class CheckpointLogs:
    """Texts of a checkpoint's logs by batch, and of ``sources/I/0`` by source; ``folder`` for messages."""

    folder: str
    offsets: Mapping[int, str]
    commits: frozenset[int]
    sources: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class MovedCheckpoint:
    """Plan of a move. ``offsets`` and ``sources``: new texts. ``left_out``: older batches that are not in the
    new checkpoint. ``repeated``: the batch in flight, which Spark runs again with the same records.
    ``positions``: where the query continues.
    """

    offsets: Mapping[int, str]
    sources: Mapping[int, str]
    left_out: tuple[int, ...]
    repeated: int | None
    positions: tuple[TranslatedPosition, ...]


def moved(
    logs: CheckpointLogs, maps: MapsOfMirror, *, back: bool = False, in_flight: InFlight = "refuse"
) -> MovedCheckpoint:
    """Return the logs for the other side. Raises CallerError (HUB-1641) for a folder that is not a
    checkpoint, Conflict for a batch in flight (HUB-1976) and for a position without an exact translation
    (HUB-1975).
    """
    last = _last_batch(logs)
    repeated = last if last not in logs.commits else None
    if repeated is not None and in_flight == "refuse":
        raise Conflict(
            f'checkpoint "{logs.folder}": batch {last} was begun and not committed',
            hint="run the query once more where it ran (trigger availableNow), which commits the batch; if "
            "that side is gone, add --in-flight repeat: Spark runs the batch again with the same records, "
            "which is right for sinks that know batches by id or replace rows",
            code="HUB-1976",
        )
    batches = sorted(logs.offsets, reverse=True)
    texts: dict[int, str] = {}
    positions: tuple[TranslatedPosition, ...] = ()
    for index, batch in enumerate(batches):
        text, translated_positions = _translated_log(
            logs.offsets[batch], f"{logs.folder}/offsets/{batch}", maps, back
        )
        inexact = next((each for each in translated_positions if not each.is_exact), None)
        if inexact is not None:
            if index < _NEEDED:
                raise _inexact(inexact, f"{logs.folder}/offsets/{batch}")
            break
        texts[batch] = text
        positions = positions or tuple(translated_positions)
    sources = {
        number: moved_log
        for number, log in logs.sources.items()
        if (moved_log := _translated_source(log, maps, back)) is not None
    }
    left_out = tuple(sorted(set(batches) - texts.keys()))
    return MovedCheckpoint(texts, sources, left_out, repeated, positions)


def _last_batch(logs: CheckpointLogs) -> int:
    if not logs.offsets:
        raise CallerError(
            f'"{logs.folder}" has no offsets: it is not the checkpoint of a query that ran',
            hint="name the folder of the option checkpointLocation, with the folders offsets and commits",
            code="HUB-1641",
        )
    last = max(logs.offsets)
    if logs.commits and max(logs.commits) > last:
        raise CallerError(
            f'checkpoint "{logs.folder}": batch {max(logs.commits)} is committed and has no offsets',
            hint="it is corrupt, or it was copied while the query ran: stop the query, then copy it again",
            code="HUB-1641",
        )
    return last


def _translated_log(
    text: str, where: str, maps: MapsOfMirror, back: bool
) -> tuple[str, list[TranslatedPosition]]:
    lines = text.split("\n")
    if lines[0] != _VERSION or len(lines) < 3:
        raise CallerError(
            f'"{where}" is not an offset log of version {_VERSION} (it begins with "{lines[0][:20]}")',
            hint="this release of the hub moves checkpoints of Spark's micro-batches with log version 1",
            code="HUB-1641",
        )
    translated_positions: list[TranslatedPosition] = []
    for index in range(2, len(lines)):
        if (offsets := kafka_offsets(lines[index])) is not None:
            lines[index] = _translated_line(offsets, maps, back, translated_positions)
    return "\n".join(lines), translated_positions


def _translated_source(text: str, maps: MapsOfMirror, back: bool) -> str | None:
    """Return the initial positions of a source, with those that can be translated. None: the source is of
    another kind, or its text is in a form that is copied.

    They count only before the first batch, so a partition whose beginning is not in the map is left out.
    """
    first, newline, rest = text.partition("\n")
    offsets = kafka_offsets(rest.strip()) if newline else None
    if offsets is None or not first.lstrip("\0").startswith(_VERSION):
        return None
    translated_positions: list[TranslatedPosition] = []
    _translated_line(offsets, maps, back, translated_positions)
    exact = [each for each in translated_positions if each.is_exact]
    return f"{first}\n{_text_of(exact)}"


def _translated_line(
    offsets: Mapping[TopicPartition, int], maps: MapsOfMirror, back: bool, found: list[TranslatedPosition]
) -> str:
    translated = [maps.translate(place, offset, back=back) for place, offset in offsets.items()]
    found += translated
    return _text_of(translated)


def _text_of(positions: Sequence[TranslatedPosition]) -> str:
    topics: dict[str, dict[str, int | None]] = {}
    for each in positions:
        topics.setdefault(each.place.topic, {})[str(each.place.partition)] = each.translated
    return orjson.dumps(topics).decode()


def kafka_offsets(line: str) -> dict[TopicPartition, int] | None:
    """Return the positions in a line of Spark's Kafka source; None: the line is of another kind of source.

    >>> kafka_offsets('{"orders":{"0":42}}'), kafka_offsets('{"logOffset":3}'), kafka_offsets("-")
    ({TopicPartition(topic='orders', partition=0): 42}, None, None)
    """
    try:
        body = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(body, dict) or not body:
        return None
    found: dict[TopicPartition, int] = {}
    for topic, partitions in body.items():
        if not isinstance(partitions, dict):
            return None
        for partition, offset in partitions.items():
            if not partition.isdecimal() or type(offset) is not int or offset < 0:
                return None
            found[TopicPartition(topic, int(partition))] = offset
    return found or None


def _inexact(translated_position: TranslatedPosition, where: str) -> Conflict:
    place = translated_position.place
    return Conflict(
        f'"{where}": topic "{place.topic}" partition {place.partition} offset {translated_position.offset:,} '
        f"has no exact translation: {translated_position.why}",
        hint="wait until the mirror has copied it (hub mirror status), then translate again; a query over "
        "topics that are not mirrored cannot move",
        code="HUB-1975",
    )
