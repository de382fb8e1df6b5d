"""[core] Results of a repair for each event: decoded, changed, encoded, and checked.

An event that the change leaves as it is keeps its bytes. Every other result has to satisfy the topic: its
schema and data rules, and the key that the tree declares. What does not is refused with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, Protocol

from hub.errors import CallerError, HubError
from hub.record import Record
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.contracts.encrypted_fields import encrypted_fields
from hub.schema_registry.encryption.sealing import SEALER
from hub.topics.conformance.rules import judge
from hub.topics.dead_letters.encoder import RepairedEventEncoder
from hub.topics.dead_letters.listing import text_of
from hub.topics.dead_letters.repair import dumped, sight
from hub.topics.tree.key_fields import at_path

Kind = Literal["unchanged", "changed", "dropped", "split", "refused"]
KINDS: Final[Sequence[Kind]] = ("unchanged", "changed", "dropped", "split", "refused")
MOST_SPLIT: Final = 1_000


class Unchanged:
    """Result of a change for an event that it leaves as it is."""


UNCHANGED: Final = Unchanged()


class EventChange(Protocol):
    """A change of events."""

    def results(self, records: Sequence[Record], events: Sequence[Any]) -> Sequence[Any]:
        """Return for each record UNCHANGED, the list of its new events (empty: it is dropped), or a
        HubError that refuses it. ``events``: the decoded values of the records.
        """


@dataclass(frozen=True, slots=True)
class RepairOutcome:
    """Result for one record. ``values``: of the events that replace it. ``reason``: why it is refused."""

    kind: Kind
    values: tuple[bytes | None, ...] = ()
    reason: str = ""


@dataclass
class EventRepair:
    """A change, applied to the events of one topic. ``declared_key``: path of the key that the tree
    declares; None: no path. ``selects`` returns whether a record is in the range of the repair.
    """

    topic: str
    registry: SchemaRegistry
    change: EventChange
    declared_key: str | None = None
    selects: Callable[[Record], bool] = lambda _record: True
    _sealed: dict[int, bool] = field(default_factory=dict)

    @cached_property
    def _encoder(self) -> RepairedEventEncoder:
        return RepairedEventEncoder(self.registry)

    def outcomes(self, records: Sequence[Record]) -> list[RepairOutcome]:
        """Return the outcome of each record, in their order. Tombstones and records outside of the range are
        unchanged. Raises PeerError if the registry does not answer.
        """
        chosen = [each for each in records if each.value is not None and self.selects(each)]
        events = [sight(each.value, self._encoder.source) for each in chosen]
        results = self.change.results(chosen, [each.value for each in events])
        found = {
            (record.partition, record.offset): self._outcome(record, event.schema_id, result)
            for record, event, result in zip(chosen, events, results, strict=True)
        }
        same = RepairOutcome("unchanged")
        return [_unread(each) or found.get((each.partition, each.offset), same) for each in records]

    def _outcome(self, record: Record, schema_id: int | None, result: Any) -> RepairOutcome:
        if result is UNCHANGED:
            return RepairOutcome("unchanged")
        if isinstance(result, HubError):
            return RepairOutcome("refused", reason=result.message)
        if not result:
            return RepairOutcome("dropped")
        try:
            if len(result) > MOST_SPLIT:
                raise CallerError(f"{len(result)} events are too many for one: at most {MOST_SPLIT}")
            values = tuple(self._built(record, schema_id, event) for event in result)
        except HubError as error:
            if error.retriable:
                raise
            return RepairOutcome("refused", reason=error.message)
        if values == (record.value,):
            return RepairOutcome("unchanged")
        return RepairOutcome("changed" if len(values) == 1 else "split", values)

    def _built(self, record: Record, schema_id: int | None, event: Any) -> bytes:
        """Return the bytes of a new event. Raises CallerError if it does not satisfy the topic."""
        if not isinstance(event, Mapping):
            raise CallerError(f"its result is {type(event).__name__}, not an object")
        if self.declared_key is not None and str(at_path(event, self.declared_key)) != text_of(record.key):
            raise CallerError(
                f'its key field "{self.declared_key}" is {at_path(event, self.declared_key)!r}, and the '
                f"record's key is {text_of(record.key)!r}: another key belongs to another partition"
            )
        subject = f"{self.topic}-value"
        if subject not in self._encoder.subjects:
            return dumped(event)
        if self._is_sealed(self._encoder.schema(self.topic, schema_id)):
            raise CallerError("its topic has encrypted fields: its events can be dropped, not changed")
        value = self._encoder.encoded(self.topic, schema_id, event)
        violation = judge(record._replace(topic=self.topic, value=value), self._encoder.schemas.of(subject))
        if violation is not None:
            raise CallerError(f"it does not satisfy its schema: {violation.reason}: {violation.detail}")
        return value

    def _is_sealed(self, schema: tuple[int, SchemaSource]) -> bool:
        """Return whether events of a schema have encrypted fields, which must not be encrypted again."""
        schema_id, source = schema
        if schema_id not in self._sealed:
            sealed = bool(encrypted_fields(source)) or SEALER.fields_of(self.topic) is not None
            self._sealed[schema_id] = sealed
        return self._sealed[schema_id]


def counted(outcomes: Sequence[RepairOutcome]) -> Counter[str]:
    """Return the number of outcomes by kind."""
    return Counter(each.kind for each in outcomes)


def _unread(record: Record) -> RepairOutcome | None:
    if record.unread is None:
        return None
    return RepairOutcome("refused", reason=f"it is not read: {record.unread}")
