"""[shell] Plan and prepare the targets of mirrors, as ``hub mirror plan`` and ``apply`` and the server do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from hub.errors import HubError, PeerError
from hub.replication.clusters.carry_out import carry_out, make_own, protect, record_found
from hub.replication.clusters.clusters import REFUSED, ClusterHandle, default_replicas
from hub.replication.clusters.control_state import joined, retry_record
from hub.replication.clusters.link_plan import LinkPlan, planned, rules_from_now
from hub.replication.clusters.readers import read_control_state, read_progress
from hub.replication.clusters.renaming.link_view import ends_seen_by
from hub.replication.config.load_mirrors import mask_keys, mask_secrets
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.operations.pausing import append
from hub.replication.ownership.links import Link, named
from hub.replication.planning.steps import Remember
from hub.times import epoch_ms
from hub.topics.tree.apply_lock import one_apply

Say = Callable[[str], None]


@dataclass
class AppliedPlans:
    """Result of an apply: a line for each change, the error of each topic that failed, and the plans."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, HubError] = field(default_factory=dict)
    plans: list[LinkPlan] = field(default_factory=list)

    @property
    def refusals(self) -> list[Any]:
        """Return the topics that cannot be mirrored, with reason and hint."""
        return [refusal for each in self.plans for refusal in each.made.refusals]

    def as_json(self) -> dict[str, Any]:
        """Return the result for programs."""
        return {
            "done": self.done,
            "failed": {topic: error.message for topic, error in self.failed.items()},
            "refused": [_refusal(each) for each in self.refusals],
        }


def _refusal(refusal: Any) -> dict[str, str]:
    return {"topic": refusal.topic, "reason": refusal.reason, "hint": refusal.hint}


def plan_as_json(plan: LinkPlan) -> dict[str, Any]:
    """Return a plan as ``hub mirror plan -o json`` prints it."""
    return {
        "mirror": plan.link.name,
        "topics": list(plan.topics),
        "steps": list(plan.changes),
        "cautions": [asdict(caution) for caution in plan.made.cautions],
        "refusals": [_refusal(each) for each in plan.made.refusals],
        "rules": plan.shapes,
        "copies": plan.copies,
        "deletions": dict(plan.deletions),
    }


@dataclass(frozen=True, slots=True)
class ChosenLinks:
    """Links of a file, with the clusters by name and the environment that has the secrets of masks."""

    file: MirrorsFile
    links: Sequence[Link]
    clusters: Mapping[str, ClusterHandle]
    environ: Mapping[str, str]


def plan_links(chosen: ChosenLinks) -> list[LinkPlan]:
    """Return what the targets of these links lack. Raises PeerError."""
    clusters = chosen.clusters
    boards = {
        name: read_control_state(reached, status=False)
        for name, reached in clusters.items()
        if not reached.closed
    }
    control = joined(board.control for board in boards.values())
    plans = []
    for link in chosen.links:
        target, source = clusters[link.target], clusters[link.source]
        plans.append(
            planned(
                chosen.file,
                link,
                clusters,
                control,
                boards[link.target],
                partial(read_progress, target, maps=False),
                read_progress(source, maps=False) if control.operations else None,
                mask_keys(link.mirror, chosen.environ),
            )
        )
    return plans


def apply_links(chosen: ChosenLinks, say: Say, *, from_now: bool = False) -> AppliedPlans:
    """Prepare the targets of these links. ``from_now``: changed rules apply from each partition's current
    position on. Raises Conflict while another apply is in progress at a target, PeerError.
    """
    applied = AppliedPlans()
    with _one_apply(chosen, say) as check:
        if from_now:
            applied.done += _rules_from_now(chosen, say)
        applied.plans = plan_links(chosen)
        for each in applied.plans:
            applied.failed |= _carry_out(each, chosen.clusters, applied.done, check, say)
    return applied


def _carry_out(
    each: LinkPlan,
    clusters: Mapping[str, ClusterHandle],
    done: list[str],
    check: Callable[[], None],
    say: Say,
) -> dict[str, HubError]:
    """Carry out the plan of one link, and add a line for each step to ``done``. Returns the topics that
    failed. ``check`` is called before each step, and raises when another apply took over.
    """
    for caution in each.made.cautions:
        say(str(caution))
    total = len(each.changes)
    check()
    make_own(each.own, clusters)
    mine = [f"+ topic {step.topic} at {where}" for where, step in each.own]
    for number, line in enumerate(mine, 1):
        say(f"[{number}/{total}] {line}")

    def say_step(step: Any) -> None:
        if not isinstance(step, Remember):
            mine.append(each.line(step))
            say(f"[{len(mine)}/{total}] {mine[-1]}")
        check()

    source, target = ends_seen_by(each.link, clusters)
    record_found(each, target)
    for remark in protect(each, target):
        say(f"! {remark}")
    for line in each.protection_lines:
        mine.append(line)
        say(f"[{len(mine)}/{total}] {line}")
    check()
    failed = carry_out(each.made.steps, source, target, say_step)
    done += mine
    return failed


@contextmanager
def _one_apply(chosen: ChosenLinks, say: Say) -> Iterator[Callable[[], None]]:
    """Hold the lock of applies of each target. Yields a function that raises Conflict when another apply took
    over. A target where the mirror's user may not write the lock is not locked, with a message.
    """
    locks = []
    with ExitStack() as opened:
        for name in sorted({link.target for link in chosen.links}):
            target = chosen.clusters[name]
            replicas = default_replicas(target)
            lock = one_apply(target.kafka, "hub mirror apply", replication_factor=replicas, say=say)
            try:
                locks.append(opened.enter_context(lock))
            except PeerError as error:
                if error.code != REFUSED:
                    raise
                say(f"! Other applies at {name} are not kept apart from this one: {error.message}")

        def check() -> None:
            for lock in locks:
                lock.check()

        yield check


def _rules_from_now(chosen: ChosenLinks, say: Say) -> list[str]:
    """Apply the rules of the file from each partition's current position on, and return one line per topic.
    Workers that stopped because of changed rules retry at once.
    """
    done = []
    for each in chosen.links:
        alone = chosen.file.model_copy(update={"mirrors": {each.name: each.mirror}})
        secrets = mask_secrets(alone, chosen.environ)
        for link in named(chosen.file, each.name).values():
            target = chosen.clusters[link.target]
            begun = rules_from_now(link, target, secrets)
            for topic in sorted({tp.topic for tp in begun}):
                at = {tp.partition: first for tp, (first, _) in sorted(begun.items()) if tp.topic == topic}
                rules = next(rules for tp, (_, rules) in begun.items() if tp.topic == topic)
                where = ", ".join(f"{partition}: {first}" for partition, first in at.items())
                done.append(f"~ topic {topic}  from now on {rules} (by partition from offset {where})")
                say(done[-1])
            if begun:
                append(target, [retry_record(link.name, epoch_ms())])
    return done
