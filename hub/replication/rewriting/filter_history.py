"""[core] Filter history: the rules (``only``, ``mask``, ``schema_ids``) a mirror's records were made under,
by source offset.

::

    _hub.mirror.checkpoints   compact   rules|link|topic|topicId|partition|first   from offset ``first`` on

Written in one transaction with the first records made under these rules. A range without such a record was
copied unchanged. So a changed file is noticed before a record is made under the new rules: a copy of both
kinds is never made silently (``hub mirror apply --from-now`` does it), and ``verify`` checks each range by
its own rules.

The key of a hash is never stored; a short fingerprint of it is, so that another key is noticed, too.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from hub.record import NewRecord, Record
from hub.replication.config.mirrors import Mirror, RecordCondition
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, not_ours
from hub.replication.rewriting.record_filter import RecordRules
from hub.replication.rewriting.rules_of_schema import shape_of

_KIND = b"rules|"
_SIGN_BYTES = 4
_SIGNED = b"hub mirror: the key of a mask"


def sign_of(key: str) -> str:
    """Return a short fingerprint that distinguishes keys and reveals nothing else."""
    return hmac.digest(key.encode(), _SIGNED, "sha256")[:_SIGN_BYTES].hex()


@dataclass(frozen=True, slots=True)
class FilterVersion:
    """Rules for the records of one topic. ``shape`` None: records are copied unchanged. ``signs``:
    fingerprints of the known keys, by their references.
    """

    shape: RecordRules | None = None
    signs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def now(
        cls,
        mirror: Mirror,
        topic: str,
        secrets: Mapping[str, str] | None = None,
        *,
        rewrites: bool = False,
    ) -> FilterVersion:
        """Return the file's rules for a topic. ``secrets``: the available keys, by reference. ``rewrites``:
        see ``shape_of``.
        """
        return cls.of(shape_of(mirror, topic, rewrites=rewrites), secrets or {})

    @classmethod
    def of(cls, shape: RecordRules | None, secrets: Mapping[str, str]) -> FilterVersion:
        wanted = shape.secrets if shape is not None else frozenset[str]()
        return cls(shape, {name: sign_of(secrets[name]) for name in sorted(wanted & secrets.keys())})

    def same_as(self, other: FilterVersion) -> bool:
        """Return whether both produce the same result for every readable record. A key that one side does not
        know makes them not different.

        The handling of unreadable records is not compared.
        """
        if _body(self.shape) != _body(other.shape):
            return False
        return all(self.signs[name] == other.signs[name] for name in self.signs.keys() & other.signs.keys())

    def goes_on_from(self, then: FilterVersion) -> bool:
        """Return whether records made under these rules may follow records made under ``then``.

        This holds if both are the same, and if schema ids are replaced from here on because the mirror found
        that they mean other schemas at the target (``schema_ids: auto``): the ids of the earlier records mean
        the same there.
        """
        if self.same_as(then):
            return True
        if self.shape is None or not (self.shape.rewrites_ids and self.shape.as_needed):
            return False
        former = replace(then.shape or RecordRules(self.shape.topic), rewrites_ids=True, as_needed=True)
        return self.same_as(replace(then, shape=former))

    def other_keys(self, secrets: Mapping[str, str]) -> frozenset[str]:
        """Return the references of keys that differ from the recorded ones."""
        return frozenset(
            name for name, sign in self.signs.items() if name in secrets and sign_of(secrets[name]) != sign
        )

    def __str__(self) -> str:
        return "as they are" if self.shape is None else str(self.shape)


AS_THEY_ARE = FilterVersion()


@dataclass(frozen=True, slots=True)
class FilterPeriod:
    """Rules under which one partition's records were made from source offset ``first`` on."""

    link: str
    topic: str
    partition: int
    topic_id: str
    first: int
    rules: FilterVersion
    at_ms: int = 0

    @property
    def key(self) -> bytes:
        return f"rules|{self.link}|{self.topic}|{self.topic_id}|{self.partition}|{self.first}".encode()

    @property
    def of(self) -> tuple[str, str, str, int]:
        return self.link, self.topic, self.topic_id, self.partition

    def record(self, partition: int | None = None) -> NewRecord:
        """Return the record to write. ``partition``: of the checkpoints topic, see
        ``checkpoint_partition``.
        """
        body = {"rules": _body(self.rules.shape), "signs": dict(self.rules.signs), "at_ms": self.at_ms}
        return NewRecord(CHECKPOINTS_TOPIC, self.key, orjson.dumps(body), partition=partition)


def is_ruled(record: Record) -> bool:
    """Return whether a record of the checkpoints topic is of this kind, tombstones included."""
    return record.key is not None and record.key.startswith(_KIND)


def ruled_of(record: Record) -> FilterPeriod | None:
    """Parse a record; None for a tombstone and for other kinds. Raises HubFault (HUB-5603)."""
    if record.value is None or not is_ruled(record):
        return None
    try:
        _, link, topic, topic_id, partition, first = (record.key or b"").decode().split("|")
        body: dict[str, Any] = orjson.loads(record.value)
        rules = FilterVersion(_shape(topic, body["rules"]), dict(body["signs"]))
        return FilterPeriod(link, topic, int(partition), topic_id, int(first), rules, int(body["at_ms"]))
    except (ValueError, TypeError, KeyError) as error:
        raise not_ours(record, repr(error)) from None


def in_force(ruled: Iterable[FilterPeriod]) -> FilterVersion:
    """Return the rules of one partition's newest records."""
    newest = max(ruled, key=lambda each: each.first, default=None)
    return newest.rules if newest is not None else AS_THEY_ARE


def stretches_of(
    ruled: Iterable[FilterPeriod], first: int, end: int
) -> Iterator[tuple[int, int, FilterVersion]]:
    """Split the source offsets [first, end) of one partition by the rules they were made under.

    >>> [(first, end, str(rules)) for first, end, rules in stretches_of([], 3, 9)]
    [(3, 9, 'as they are')]
    """
    at, rules = first, AS_THEY_ARE
    for each in sorted(ruled, key=lambda one: one.first):
        if each.first >= end:
            break
        if each.first > at:
            yield at, each.first, rules
            at = each.first
        rules = each.rules
    if at < end:
        yield at, end, rules


def history_text(stretches: Sequence[tuple[int, int, FilterVersion]]) -> str:
    """Format ranges for people; "" when all records are copied unchanged.

    >>> history_text([(0, 5, AS_THEY_ARE)])
    ''
    """
    if len(stretches) == 1:
        _, _, rules = stretches[0]
        return "" if rules.shape is None else str(rules)
    return "; then ".join(f"offsets {first} to {end - 1}: {rules}" for first, end, rules in stretches)


def _body(shape: RecordRules | None) -> dict[str, Any] | None:
    """Return a shape as JSON, equal for shapes that do the same. Of two masks of one path the first counts,
    so they keep their order.
    """
    if shape is None:
        return None
    wanted = [
        {
            "header": where.header,
            "field": where.field,
            "in": _listed(where.in_),
            "not_in": _listed(where.not_in),
        }
        for where in shape.only
    ]
    return {
        "only": sorted(wanted, key=orjson.dumps),
        "mask": [list(mask) for mask in sorted(shape.masks, key=lambda mask: mask[0])],
        "ids": shape.rewrites_ids,
    }


def _listed(values: Sequence[object] | None) -> list[object] | None:
    return None if values is None else sorted(values, key=orjson.dumps)


def _shape(topic: str, body: dict[str, Any] | None) -> RecordRules | None:
    if body is None:
        return None
    wanted = tuple(
        RecordCondition.model_validate({name: value for name, value in each.items() if value is not None})
        for each in body["only"]
    )
    masks = tuple((str(path), str(how), key) for path, how, key in body["mask"])
    return RecordRules(topic, wanted, masks, bool(body["ids"]))
