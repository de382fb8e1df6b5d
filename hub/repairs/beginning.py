"""[shell] Begin a repair or an undo: note it in the journal, so that any process can continue it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hub.errors import Conflict, NotFound
from hub.log import TopicDescription
from hub.record import Positions
from hub.repairs.journal import RepairJournal
from hub.repairs.model import GenerationChange, TopicGeneration, TopicGenerations
from hub.repairs.plan import described_topic
from hub.repairs.selection import RepairRange
from hub.topics.tree.confirmed_plans import plan_digest


@dataclass(frozen=True, slots=True)
class ChangeOrigin:
    """Origin of a change: command, person and time. ``plan``: digest of the plan."""

    command: str
    by: str
    at_ms: int
    plan: str


def begin_repair(journal: RepairJournal, wanted: RepairRange, origin: ChangeOrigin) -> None:
    """Note a repair of the whole topic. Raises Conflict (HUB-1942) if another change is under way, NotFound,
    PeerError.
    """
    cluster, topic = journal.cluster, journal.topic
    begins = cluster.beginning_offsets([topic])
    state, change = _new_change(journal, _offsets(begins), origin)
    end = None if wanted.end is None else _offsets(wanted.end)
    journal.append(
        state=replace(state, change=replace(change, range_start=_offsets(wanted.start), range_end=end))
    )


def undone_generation(state: TopicGenerations, description: TopicDescription) -> TopicGeneration:
    """Return the generation that an undo brings back: the one before the current. Raises NotFound (HUB-1942),
    Conflict for a topic that somebody else made again.
    """
    if len(state.generations) < 2:
        raise NotFound(
            f'topic "{state.topic}" was never repaired: there is nothing to undo',
            hint=f"hub topic generations {state.topic}",
            code="HUB-1942",
        )
    if state.topic_id != description.topic_id:
        raise Conflict(
            f'topic "{state.topic}" was deleted and created again after its repair: nothing is undone',
            hint=f"its generations can be read: hub topic consume {state.topic} --generation {state.current}",
            code="HUB-1942",
        )
    return state.generations[-2]


def undo_digest(state: TopicGenerations, base: TopicGeneration) -> str:
    """Return the digest of the plan of an undo."""
    return plan_digest([state.topic, state.topic_id, "undo", str(state.current), str(base.number)])


def begin_undo(journal: RepairJournal, origin: ChangeOrigin) -> None:
    """Note an undo: the events of the generation before, then those that came after the repair. Raises as
    ``undone_generation`` and ``begin_repair``.
    """
    base = undone_generation(journal.state, described_topic(journal.cluster, journal.topic))
    state, change = _new_change(journal, journal.state.archived, origin)
    journal.append(state=replace(state, change=replace(change, base=base.number)))


def _new_change(
    journal: RepairJournal, began: Mapping[str, int], origin: ChangeOrigin
) -> tuple[TopicGenerations, GenerationChange]:
    """Return the state and the change with which a repair or an undo begins. A topic that somebody else made
    again is a generation of its own.
    """
    state = journal.state
    if state.change is not None:
        raise Conflict(
            f'topic "{state.topic}": a change by {state.change.by} is under way: {state.change.command}',
            hint="continue it (--continue) or end it (--abort)",
            code="HUB-1942",
        )
    description = described_topic(journal.cluster, journal.topic)
    if state.topic_id not in ("", description.topic_id):
        state = TopicGenerations(state.topic, state.next_number, "", {}, state.generations)
    change = GenerationChange(
        target=max(state.next_number, state.current + 1),
        command=origin.command,
        by=origin.by,
        at_ms=origin.at_ms,
        plan=origin.plan,
        topic_id=description.topic_id,
        partitions=description.partitions,
        replication_factor=description.replication_factor,
        config=dict(journal.cluster.topic_config([journal.topic])[journal.topic]),
        began=dict(began),
    )
    return state, change


def _offsets(positions: Positions) -> dict[str, int]:
    return {str(tp.partition): at for tp, at in positions}
