"""[core] Rules of a mirror that a topic cannot have: masks and filters of fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from hub.log.topic_names import LONGEST_NAME
from hub.record import TopicPartition
from hub.replication.config.mirrors import Mirror
from hub.replication.config.topic_names import names_of
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.planning.schema_plan import RegistryVersions
from hub.replication.planning.steps import ClusterSide
from hub.replication.rewriting.filter_history import AS_THEY_ARE, FilterVersion
from hub.replication.rewriting.rules_of_schema import has_field, objection, shape_of
from hub.topics.tree.steps import Caution, TreeRefusal


def name_refusals(link: str, mirror: Mirror, topic: str, target: ClusterSide) -> Iterator[TreeRefusal]:
    """Refuse a topic whose copy cannot have its name, or has another one that it got before."""
    if (length := len(names_of(mirror.rename).on_wire(topic))) > LONGEST_NAME:
        yield refusal_of(
            topic,
            f"the name of its copy has {length} characters, and Kafka allows {LONGEST_NAME}",
            "use a shorter `rename`, or exclude the topic",
        )
    if (former := target.former.get(topic)) is not None:
        yield refusal_of(
            topic,
            f'its copy is "{former}" at the target, and `rename` gives it another name now',
            "to mirror it from its start under the new name, and leave the former copy as it is: "
            f"hub mirror pause {link}, hub mirror drop {link}, hub mirror resume {link}; or restore `rename`",
        )


def mask_refusals(mirror: Mirror, topic: str, schemas: RegistryVersions) -> Iterator[TreeRefusal]:
    """Refuse a mask that the schema of a value does not allow, before the first record fails."""
    shape = shape_of(mirror, topic)
    if shape is None:
        return
    for each in schemas.of(topic):
        if each.subject != f"{topic}-value":
            continue
        why = objection(shape, each.kind, each.text)
        if why is not None:
            yield refusal_of(
                topic,
                f"a mask does not fit {each.subject} v{each.version}: {why}",
                "mask it in another way (`with: hash`, `null` or `redact`), correct the schema, or "
                "exclude the topic",
            )
            return


def ruled_otherwise(
    now: FilterVersion, marks: Iterable[Checkpoint], ruled: Mapping[TopicPartition, FilterVersion]
) -> list[Checkpoint]:
    """Return the checkpoints of partitions with records that were mirrored under rules other than ``now``."""
    return [
        mark
        for mark in marks
        if mark.source_next > mark.source_start
        and not now.goes_on_from(ruled.get(TopicPartition(mark.topic, mark.partition), AS_THEY_ARE))
    ]


def rules_refusals(
    now: FilterVersion,
    topic: str,
    source: ClusterSide,
    marks: Iterable[Checkpoint],
    ruled: Mapping[TopicPartition, FilterVersion],
) -> Iterator[TreeRefusal]:
    """Refuse to continue a copy under other rules; a copy of two kinds needs an explicit request."""
    same_topic = [mark for mark in marks if mark.topic_id == source.topics[topic].topic_id]
    others = ruled_otherwise(now, same_topic, ruled)
    if not others:
        return
    then = ruled.get(TopicPartition(topic, others[0].partition), AS_THEY_ARE)
    what = f"now: {now}" if str(now) != str(then) else "the key of a hash is another now"
    count = sum(mark.source_next - mark.source_start for mark in others)
    yield refusal_of(
        topic,
        f"{count} offsets of it were mirrored under other rules ({then}; {what})",
        "`hub mirror apply --from-now` applies the rules of the file from here on and keeps existing "
        "records; to apply them to all records, run `hub mirror drop` with --delete-copies, and the topic "
        "is mirrored again",
    )


def _unknown_fields(mirror: Mirror, topics: Sequence[str], schemas: RegistryVersions) -> Iterator[Caution]:
    """Warn of mask fields that no schema of the topics has: a misspelled field masks nothing."""
    known: dict[str, tuple[str, bool]] = {}
    for topic in topics:
        shape = shape_of(mirror, topic)
        values = [each for each in schemas.of(topic) if each.subject == f"{topic}-value"]
        for path, _, _ in shape.masks if shape is not None and values else ():
            first, found = known.get(path, (topic, False))
            known[path] = first, found or any(has_field(path, each.kind, each.text) for each in values)
    for path, (topic, found) in known.items():
        if not found:
            yield Caution(
                topic,
                f'the mask of "{path}" masks nothing: no schema of the mirror\'s topics has such a field',
                "is it spelled as in the schema? A path goes from the value's top, with dots",
            )


def refusal_of(topic: str, reason: str, hint: str) -> TreeRefusal:
    return TreeRefusal(topic, reason, hint)
