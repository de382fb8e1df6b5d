"""[core] State of the generations of one topic. It is the fold of its records in ``_hub.generations``.

Keys are ``state TOPIC`` for the state, and ``progress TOPIC …`` for positions, which are written in the
transaction of the records that they count. Maps have partition numbers as text, as JSON has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import orjson

from hub.formats.fields import fields_of, known_fields
from hub.formats.stamps import Stamp
from hub.formats.table import GENERATIONS
from hub.formats.verdicts import require_readable
from hub.record import Headers, Record

STATE_TOPIC: Final = "_hub.generations"
GENERATION_PREFIX: Final = "_hub.generation."
# Position that an archived record had in its topic.
SOURCE_HEADER: Final = "hub.generation.source"
MOST_TOPIC_NAME: Final = 249

Step = Literal["copy", "hold", "switch", "fill", "finish"]
PartitionOffsets = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TopicGeneration:
    """A generation that was the topic's content, or is. ``command`` made it; ``plan``: digest of its plan.
    ``counts``: results by kind.
    """

    number: int
    command: str
    by: str
    at_ms: int
    plan: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GenerationChange:
    """A change that is under way.

    ``target``: the next generation. ``base``: an earlier generation that it begins with; None: it is made of
    the topic's own records. ``topic_id``: of the topic that is replaced. ``ends``: positions at which the
    topic stopped, plus events that were carried over. ``groups``: noted positions by group. ``round``: counts
    how often the topic was made again. ``began``: positions from which the topic's records are read;
    ``range_start`` and ``range_end``: the range of the repair.
    """

    target: int
    command: str
    by: str
    at_ms: int
    plan: str
    topic_id: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]
    base: int | None = None
    step: Step = "copy"
    new_id: str = ""
    round: int = 0
    began: PartitionOffsets = field(default_factory=dict)
    range_start: PartitionOffsets = field(default_factory=dict)
    range_end: PartitionOffsets | None = None
    ends: PartitionOffsets = field(default_factory=dict)
    groups: Mapping[str, PartitionOffsets] = field(default_factory=dict)
    left_groups: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicGenerations:
    """Generations of a topic. ``archived``: positions in the topic up to which the archive of the generation
    ``current`` has its records. ``topic_id``: of the topic with that generation; "" until one was replaced.
    """

    topic: str
    current: int = 1
    topic_id: str = ""
    archived: PartitionOffsets = field(default_factory=dict)
    generations: tuple[TopicGeneration, ...] = ()
    change: GenerationChange | None = None

    def generation(self, number: int) -> TopicGeneration | None:
        """Return a generation; None if the topic never had it."""
        return next((each for each in self.generations if each.number == number), None)

    @property
    def next_number(self) -> int:
        return max((each.number for each in self.generations), default=self.current) + 1


@dataclass(frozen=True, slots=True)
class FilledPartition:
    """A partition of a topic that is filled. ``next``: position in the generation; ``end``: position in the
    topic after the last record of the fill; ``marks``: positions of groups, before → after.
    """

    next: int = 0
    end: int = 0
    marks: PartitionOffsets = field(default_factory=dict)


def generation_topic(topic: str, number: int) -> str:
    """Return the topic that has a generation.

    >>> generation_topic("shop.orders", 1)
    '_hub.generation.shop.orders.1'
    """
    return f"{GENERATION_PREFIX}{topic}.{number}"


def state_key(topic: str) -> bytes:
    return b"state " + topic.encode()


def progress_key(topic: str, *names: object) -> bytes:
    """Return the key of a progress record; ``names`` say of which work, the partition last."""
    return " ".join(["progress", topic, *map(str, names)]).encode()


def state_text(state: TopicGenerations) -> bytes:
    return orjson.dumps({**fields_of(state), "version": GENERATIONS.version})


def state_of(text: bytes) -> TopicGenerations:
    """Return a state from its JSON. Raises ConfigError (HUB-1150) when a newer release wrote it."""
    body: dict[str, Any] = orjson.loads(text)
    stamp = Stamp(int(body.get("version", 1)))
    require_readable(GENERATIONS, stamp, f'topic "{STATE_TOPIC}"')
    generations = tuple(known_fields(TopicGeneration, each) for each in body.pop("generations", ()))
    change = body.pop("change", None)
    if change is not None:
        change["left_groups"] = tuple(change.get("left_groups", ()))
        change = known_fields(GenerationChange, change)
    return known_fields(TopicGenerations, body, generations=generations, change=change)


def finished(state: TopicGenerations, archived: PartitionOffsets) -> TopicGenerations:
    """Return the state after the change of ``state``. ``archived``: ends of the filled records."""
    change = state.change
    assert change is not None
    known = state.generations
    if state.generation(state.current) is None:
        known = (*known, TopicGeneration(state.current, "", "", change.at_ms))
    made = TopicGeneration(change.target, change.command, change.by, change.at_ms, change.plan, change.counts)
    return replace(
        state,
        current=change.target,
        topic_id=change.new_id,
        archived=archived,
        generations=(*known, made),
        change=None,
    )


def source_of(record: Record) -> int:
    """Return the position that an archived record had in its topic; -1 if it has none."""
    text = record.header(SOURCE_HEADER)
    return -1 if text is None else int(text)


def without_source(headers: Headers) -> Headers:
    """Return the headers of an event, without the one of its archive.

    >>> without_source((("a", b"1"), ("hub.generation.source", b"7")))
    (('a', b'1'),)
    """
    return tuple(each for each in headers if each[0] != SOURCE_HEADER)
