"""[core] Build and check the events that return to their original topics.

The cluster and the registry are asked through their ports; each fact is looked up once per action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hub.errors import CallerError, NotFound
from hub.log import Cluster, TopicDescription
from hub.record import NewRecord, Record
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.codecs.wire_format import frame
from hub.schema_registry.contracts.rules import RuleRefused
from hub.topics.conformance.rules import judge, size_of
from hub.topics.dead_letters.actions import no_origin
from hub.topics.dead_letters.encoder import RepairedEventEncoder
from hub.topics.dead_letters.listing import text_of
from hub.topics.dead_letters.model import DeadLetter, TrackedDeadLetter
from hub.topics.dead_letters.repair import changed, dumped, sight
from hub.topics.tree.key_fields import at_path

_DEFAULT_LARGEST = 1_048_588
_REPLAY_HEADER_BYTES = 200

# (JSON value of the event, its dead-letter record) → new JSON value; None leaves the record as it is.
Change = Callable[[Any, DeadLetter], Any]


@dataclass(frozen=True, slots=True)
class Repair:
    """A requested repair: ``change`` builds the new value, or ``schema_id`` alone sets the schema of the
    existing bytes.
    """

    change: Change | None = None
    schema_id: int | None = None
    key: str | None = None


def sets(assignments: Sequence[tuple[str, Any]]) -> Change:
    """Return a change that sets fields."""
    return lambda value, _letter: changed(value, assignments)


def whole(value: Any) -> Change:
    """Return a change that replaces the whole event."""
    return lambda _value, _letter: value


@dataclass
class EventBuilder:
    """Builder and checker of events for one action. ``declared_key`` returns the key field that the topic
    tree declares for a topic.
    """

    cluster: Cluster
    registry: SchemaRegistry
    declared_key: Callable[[str], str | None]
    _largest: dict[str, int] = field(default_factory=dict)

    @cached_property
    def topics(self) -> Mapping[str, TopicDescription]:
        return self.cluster.topics()

    @cached_property
    def encoder(self) -> RepairedEventEncoder:
        return RepairedEventEncoder(self.registry)

    def target(self, letter: DeadLetter) -> str:
        """Return the topic that the event returns to. Raises CallerError, NotFound."""
        if letter.of is None:
            raise no_origin(letter)
        topic = self.topics.get(letter.of.topic)
        if topic is None or letter.of.partition >= topic.partitions:
            raise NotFound(
                f"dead-letter record {letter.at}: {letter.of.topic} partition "
                f"{letter.of.partition} no longer exists",
                hint="create the topic again (hub topic apply), or dismiss the dead-letter record",
            )
        return letter.of.topic

    def repaired(self, tracked: TrackedDeadLetter, how: Repair) -> tuple[bytes | None, bytes | None]:
        """Return (key, value) of the repaired event. Raises CallerError, NotFound."""
        letter = tracked.letter
        topic = self.target(letter)
        key = tracked.key if how.key is None else how.key.encode()
        if how.change is None:
            return key, tracked.value if how.schema_id is None else _reframed(tracked, how.schema_id)
        decoded = sight(tracked.value, self.encoder.source, how.schema_id)
        try:
            value = how.change(decoded.value, letter)
            if value is None:
                return key, tracked.value
            if how.schema_id is None and f"{topic}-value" not in self.encoder.subjects:
                return key, dumped(value)  # the topic has no value schema
            return key, self.encoder.encoded(topic, how.schema_id or decoded.schema_id, value)
        except RuleRefused as error:
            raise error.of(f"dead-letter record {letter.at}") from None
        except CallerError as error:
            raise CallerError(
                f"dead-letter record {letter.at}: {error.message}",
                hint=error.hint or f"hub dlq show {letter.at.named} shows its readable part",
                code=error.code,
            ) from None

    def check(self, letter: DeadLetter, key: bytes | None, value: bytes | None) -> None:
        """Check that the event may return to its topic: schema, declared key, size. Raises CallerError."""
        topic = self.target(letter)
        assert letter.of is not None
        event = Record(topic, letter.of.partition, letter.of.offset, 0, key, value)
        if f"{topic}-value" in self.encoder.subjects:
            violation = judge(event, self.encoder.schemas.of(f"{topic}-value"))
            if violation is not None:
                raise CallerError(
                    f'dead-letter record {letter.at}: its event does not conform to topic "{topic}": '
                    f"{violation.reason}: "
                    f"{violation.detail}",
                    hint=f"repair it: hub dlq repair {letter.at.named} --set FIELD=VALUE",
                    code="HUB-1330",
                )
        declared = self.declared_key(topic)
        if declared is not None and value is not None:
            self._check_key(letter, topic, declared, key, value)
        largest = self._largest_of(topic)
        size = size_of(NewRecord(topic, key, value, letter.headers)) + _REPLAY_HEADER_BYTES
        if size > largest:
            raise CallerError(
                f"dead-letter record {letter.at}: its event takes {size} bytes, topic "
                f'"{topic}" accepts {largest}',
                hint="raise max.message.bytes of the topic, or make the event smaller",
                code="HUB-1330",
            )

    def _check_key(
        self, letter: DeadLetter, topic: str, declared: str, key: bytes | None, value: bytes
    ) -> None:
        decoded = sight(value, self.encoder.source)
        in_event = at_path(decoded.value, declared) if isinstance(decoded.value, Mapping) else None
        if str(in_event) != text_of(key):
            raise CallerError(
                f'dead-letter record {letter.at}: the tree declares "{declared}" as the key of '
                f'topic "{topic}"; it is '
                f"{in_event!r} in the event, and the record's key is {text_of(key)!r}",
                hint=f"--set {declared}=…, or --key …: an event with another key belongs to another "
                "partition, publish it",
                code="HUB-1330",
            )

    def _largest_of(self, topic: str) -> int:
        """Return the maximum size of a record of the topic, in bytes."""
        if topic not in self._largest:
            config = self.cluster.topic_config([topic])[topic]
            self._largest[topic] = int(config.get("max.message.bytes", _DEFAULT_LARGEST))
        return self._largest[topic]


def _reframed(found: TrackedDeadLetter, schema_id: int) -> bytes:
    """Return the same body with another schema id."""
    if found.value is None:
        raise CallerError(f"dead-letter record {found.letter.at} has no value that a schema could describe")
    framed = len(found.value) >= 5 and found.value[0] == 0
    return frame(schema_id, found.value[5:] if framed else found.value)
