"""[shell] Plan of a repair: read the topic, count the outcomes of its events, write nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hub.errors import CallerError, Conflict, NotFound, nearest
from hub.log import Log, TopicDescription
from hub.record import Record
from hub.repairs.copying import Outcomes, pages
from hub.repairs.model import MOST_TOPIC_NAME, generation_topic
from hub.repairs.outcomes import RepairOutcome, counted
from hub.topics.tree.confirmed_plans import plan_digest
from hub.topics.tree.plan import is_own

MOST_SAMPLED = 10
_SAMPLED = ("refused", "split", "changed", "dropped")


@dataclass(frozen=True, slots=True)
class SampledOutcome:
    """One event of a plan and its outcome."""

    record: Record
    outcome: RepairOutcome


@dataclass
class RepairPlan:
    """Plan of a repair. ``digest``: of the topic, the repair and its range. ``counts``: outcomes by kind.
    ``samples``: some outcomes of each kind that is not unchanged.
    """

    topic: str
    description: TopicDescription
    digest: str
    counts: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[SampledOutcome]] = field(default_factory=dict)

    @property
    def changes(self) -> int:
        """Number of events that the repair changes, drops or splits."""
        return sum(self.counts[kind] for kind in ("changed", "dropped", "split"))

    def add(self, records: Sequence[Record], outcomes: Sequence[RepairOutcome]) -> None:
        """Count a page and sample it."""
        self.counts += counted(outcomes)
        for record, outcome in zip(records, outcomes, strict=True):
            found = self.samples.setdefault(outcome.kind, []) if outcome.kind in _SAMPLED else None
            if found is not None and len(found) < MOST_SAMPLED:
                found.append(SampledOutcome(record, outcome))


def described_topic(cluster: Log, topic: str) -> TopicDescription:
    """Return a topic that can be repaired. Raises NotFound, CallerError for one of the hub's own."""
    if is_own(topic):
        raise CallerError(
            f'topic "{topic}" belongs to the hub or to Kafka: its records are not repaired',
            hint="repair the topic that it is made of; views are built again from it",
            code="HUB-1332",
        )
    found = cluster.described([topic]).get(topic)
    if found is None:
        guess = nearest(topic, (each for each in cluster.topics() if not is_own(each)))
        hint = f'did you mean "{guess}"?' if guess else "hub topic ls lists all topics"
        raise NotFound(f'topic "{topic}" does not exist', hint=hint)
    if len(generation_topic(topic, 10_000)) > MOST_TOPIC_NAME:
        raise CallerError(
            f'topic "{topic}": its name is too long for the topics of its generations',
            hint=f"a topic's name has at most {MOST_TOPIC_NAME} characters, its generations' names have more",
            code="HUB-1332",
        )
    return found


def plan_repair(
    cluster: Log,
    topic: str,
    outcomes: Outcomes,
    what: Sequence[str],
    check: Callable[[], None] = lambda: None,
) -> RepairPlan:
    """Read the topic up to its present end and return the plan. ``what``: texts that name the repair and its
    range. Raises NotFound, CallerError, PeerError.
    """
    description = described_topic(cluster, topic)
    plan = RepairPlan(topic, description, plan_digest([topic, description.topic_id, *what]))
    start = cluster.beginning_offsets([topic])
    for records, _ in pages(cluster, start, cluster.end_offsets([topic])):
        check()
        plan.add(records, outcomes(records))
    return plan


def require_possible(plan: RepairPlan) -> None:
    """Raise Conflict (HUB-1332) for a plan with refused events."""
    refused = plan.counts["refused"]
    if refused:
        first = plan.samples["refused"][0]
        raise Conflict(
            f'topic "{plan.topic}": the repair is refused for {refused:,} event{"s" * (refused > 1)}, the '
            f"first is partition {first.record.partition} offset {first.record.offset}: "
            f"{first.outcome.reason}",
            hint="correct the script or the SQL; --plan lists the refused events",
            code="HUB-1332",
        )
