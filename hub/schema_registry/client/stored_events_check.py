"""[shell] Check that a new schema can read a topic's stored events: the last of each partition, or all.

Compatibility rules judge schemas; this check judges data. It finds errors that the rules cannot find: a
default that never held, an alias that two fields claim, events that do not match their own schema.
``codecs/rereading.py`` checks one event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hub.errors import NotFound, PeerError
from hub.log import Log
from hub.record import Positions, Record
from hub.schema_registry.codecs.rereading import AvroReading, Rereader, rereader
from hub.schema_registry.codecs.wire_format import Undecodable, unframe
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.registry.snapshot import ParsedSchema

DEFAULT_SAMPLE = 200
_MOST_SHOWN = 20
_BATCH = 500
_SILENCE_S = 15.0


@dataclass(frozen=True, slots=True)
class Failure:
    """One event that the new schema cannot read."""

    partition: int
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class StoredCheck:
    """Result of a check.

    ``failed`` events can be read with their own schema but not with the new one; ``broken`` events with
    neither. ``failures`` holds the first of the failed events. Tombstones are not counted.
    """

    topic: str
    checked: int
    failed: int
    broken: int
    failures: tuple[Failure, ...]

    def __str__(self) -> str:
        broken = f", {self.broken} are broken whatever reads them" if self.broken else ""
        return f"{self.failed} of {self.checked} stored events of {self.topic} cannot be read{broken}"


def last_records(
    cluster: Log,
    topic: str,
    sample: int | None,
    take: Callable[[Record], None],
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> None:
    """Pass the last ``sample`` records of every partition (None: all records) to ``take``, oldest first.

    Stops at the end offsets read at the start. Raises NotFound, and PeerError when Kafka does not answer for
    too long.
    """
    ends = dict(cluster.end_offsets([topic]))
    begins = cluster.beginning_offsets([topic])
    starts = {
        tp: begins.get(tp) if sample is None else max(begins.get(tp), end - sample)
        for tp, end in ends.items()
    }
    starts = {tp: start for tp, start in starts.items() if start < ends[tp]}
    total = sum(ends[tp] - start for tp, start in starts.items())
    if not total:
        return
    reader = cluster.reader()
    try:
        reader.assign(Positions(starts))
        left, silent = total, 0.0
        while left:
            for record in reader.poll(_BATCH, 1.0):
                if record.offset < ends[record.topic_partition]:
                    take(record)
            position = reader.position()
            now = sum(max(0, ends[tp] - position.get(tp)) for tp in starts)
            silent = 0.0 if now < left else silent + 1.0
            if silent > _SILENCE_S:
                raise PeerError(
                    f'topic "{topic}": no events for {_SILENCE_S:.0f} s, {left} offsets before its end',
                    hint="check Kafka with hub doctor",
                )
            left = now
            progress(total - left, total)
    finally:
        reader.close()


def check_stored(
    cluster: Log,
    topic: str,
    new: ParsedSchema,
    writer_of: Callable[[int], ParsedSchema],
    *,
    sample: int | None = DEFAULT_SAMPLE,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> StoredCheck:
    """Read the topic's last ``sample`` events (None: all) with ``new``.

    ``writer_of`` returns the schema with an id, or raises NotFound. An event of another format than ``new``
    counts as unreadable. Raises InvalidSchema when ``new`` has no values; PeerError.
    """
    trial = _Trial(new, writer_of)
    last_records(cluster, topic, sample, trial.take, progress)
    return StoredCheck(topic, trial.checked, trial.failed, trial.broken, tuple(trial.failures))


class _Trial:
    """Counters of a check, its first failures, and one prepared schema per id."""

    def __init__(self, new: ParsedSchema, writer_of: Callable[[int], ParsedSchema]) -> None:
        self.checked = self.failed = self.broken = 0
        self.failures: list[Failure] = []
        self._type = new.schema_type
        self._reader = rereader(new)
        self._writer_of = writer_of
        self._writers: dict[int, tuple[str, Rereader] | None] = {}

    def take(self, record: Record) -> None:
        if record.value is None:
            return
        self.checked += 1
        try:
            schema_id, body = unframe(record.value)
        except Undecodable:
            self.broken += 1
            return
        found = self._writer(schema_id)
        if found is None:
            self.broken += 1
            return
        written_as, writer = found
        plain = bytes(body)
        if written_as == self._type:
            reason = self._reader.refusal(plain, writer)
        else:
            reason = f"it is {written_as}, the schema {self._type}"
        if reason is None:
            return
        if writer.broken(plain) is not None:
            self.broken += 1
            return
        self.failed += 1
        if len(self.failures) < _MOST_SHOWN:
            self.failures.append(Failure(record.partition, record.offset, reason))

    def _writer(self, schema_id: int) -> tuple[str, Rereader] | None:
        if schema_id not in self._writers:
            try:
                parsed = self._writer_of(schema_id)
                self._writers[schema_id] = (parsed.schema_type, rereader(parsed))
            except (NotFound, InvalidSchema):
                self._writers[schema_id] = None
        return self._writers[schema_id]


def decoded(
    value: bytes, writer_of: Callable[[int], ParsedSchema], writers: dict[int, Any]
) -> Mapping[str, Any] | Any:
    """Decode a framed Avro value with its own schema. Raises Undecodable.

    ``writers`` caches prepared schemas by id.
    """
    schema_id, body = unframe(value)
    if schema_id not in writers:
        writers[schema_id] = AvroReading(writer_of(schema_id))
    try:
        return writers[schema_id].value(bytes(body))
    except Undecodable as error:
        raise Undecodable(f"its bytes do not fit its schema id {schema_id}: {error.message}") from None
