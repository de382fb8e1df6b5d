"""[shell] Plan and carry out operations on the mirrors of the project, as ``hub mirror`` does.

A server carries out one operation at a time. Changes of ownership are recorded step by step in both clusters,
so another server or the command line continues them after a crash.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any

from hub.access_log.chain import LogSigner
from hub.api.masking.flow_gate import refuse_flows
from hub.api.mirroring.comparison import compare_within
from hub.config.settings import Settings
from hub.errors import Conflict, HubError, NotFound, PeerError
from hub.home_key import make_key
from hub.observability.web.pages.mirror_actions import MirrorPlan, MirrorRequest, plan_of
from hub.record import TopicPartition
from hub.replication.clusters.closed_cluster import CLOSED
from hub.replication.clusters.clusters import ClusterHandle, own_environ, reach_all
from hub.replication.config.load_mirrors import load
from hub.replication.config.mirrors import MIRRORS_FILE, MirrorsFile
from hub.replication.operations import pausing
from hub.replication.operations.by_topic import check_all, states_of
from hub.replication.operations.change_plan import carry_out, chosen_topics, plan_change
from hub.replication.operations.divergence.tail_plan import plan_tail
from hub.replication.operations.link_apply import ChosenLinks, apply_links, plan_as_json, plan_links
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.operations.operator import Operator
from hub.replication.ownership.links import Link, check_not_renamed, checked, declared_link
from hub.replication.ownership.operation_steps import Kind, OwnershipChange
from hub.replication.ownership.topic_state import TopicState
from hub.replication.positions.mirror_maps import MirrorMaps
from hub.replication.rehearsal.attempt import rehearse_now
from hub.replication.status.rehearsal_status import rehearsal_row
from hub.topics.tree.confirmed_plans import require_same_plan

log = logging.getLogger(__name__)

_CHANGES: Mapping[str, Kind] = {
    "switchover": "switchover",
    "failover": "failover",
    "failback": "failback",
    "promote": "promote",
}
_MOST_LINES = 20
_Steps = Sequence[Mapping[str, str]]


@dataclass
class MirrorOperations:
    """Operations of one server on the mirrors of ``folder``. ``check_flows`` raises ConfigError for flows
    that flows.yaml refuses. ``_running``: the comparison (True) and the other operation that it carries out
    now: a long comparison must not hold up a failover."""

    folder: Path
    environ: Mapping[str, str]
    timeout_s: float
    home: Path
    check_flows: Callable[[], None] = lambda: None
    _running: dict[bool, str] = field(default_factory=dict)
    _locks: Mapping[bool, threading.Lock] = field(
        default_factory=lambda: {True: threading.Lock(), False: threading.Lock()}
    )
    _opening: threading.Lock = field(default_factory=threading.Lock)
    _file: MirrorsFile | None = None
    _reached: Mapping[str, ClusterHandle] = field(default_factory=dict)
    _maps: dict[str, MirrorMaps] = field(default_factory=dict)  # by mirror, of the present file

    def plan(self, request: MirrorRequest) -> MirrorPlan:
        """Return what a request would do now. Raises NotFound, CallerError, PeerError, and Conflict when it
        would be refused."""
        with _command_for_inside(request):
            return self._plan(request)

    def _plan(self, request: MirrorRequest) -> MirrorPlan:
        clusters, link = self._open(request.mirror)
        kind = _CHANGES.get(request.action)
        if kind is not None:
            return _change_plan(clusters, link, kind, request)
        match request.action:
            case "apply":
                return self._apply_plan(request, clusters, link)
            case "verify":
                does = f"compare {', '.join(request.topics) or 'all topics'} with {link.source}"
                return plan_of(request, [_step("verify", does, link.target)])
            case "drop":
                dropped = pausing.plan_drop(clusters, link, request.topics)
                verb = "forget, and delete the copy" if request.delete_copies else "forget"
                steps = [_step("drop", f"{verb}: {topic}", link.target) for topic in dropped.topics]
                return plan_of(request, steps)
            case "rehearse":
                does = f"plan a failover of {link.name}, and record the result"
                return plan_of(request, [_step("rehearse", does, link.target)])
            case "pause":
                meant = states_of(clusters, link, request.topics) if request.topics else []
                names = check_all(meant, "pause")
                steps = [_step("pause", f"pause {name}", link.target) for name in names or (link.name,)]
                return plan_of(request, steps, topics=_rows(meant))
            case _:
                due = self._due(clusters, link, request)
                if request.action == "abort":
                    return plan_of(request, [_step("abort", _progress(each), each.new) for each in due])
                resumed = pausing.accepting(clusters, link, request.topics, "resume")
                steps = [_step("resume", f"resume {name}", link.target) for name in resumed or (link.name,)]
                steps += [_step("continue", _progress(each), each.new) for each in due]
                return plan_of(request, steps)

    def _chosen(self, clusters: MirroredClusters, link: Link) -> ChosenLinks:
        return ChosenLinks(clusters.file, [link], clusters.clusters, self.environ)

    def _apply_plan(self, request: MirrorRequest, clusters: MirroredClusters, link: Link) -> MirrorPlan:
        (made,) = plan_links(self._chosen(clusters, link))
        self.check_flows()
        refused = [f'topic "{each.topic}" is refused: {each.reason}' for each in made.made.refusals]
        return plan_of(
            request,
            [_step("apply", line, link.target) for line in made.changes],
            notes=[*map(str, made.made.cautions), *refused],
            plan=plan_as_json(made),
        )

    def act(self, request: MirrorRequest, by: str, wait_s: float) -> Mapping[str, Any]:
        """Carry out a request, and return its result. Raises the errors of ``plan``; Conflict (HUB-1974)
        while this server carries out another one."""
        with self._alone(request), _command_for_inside(request):
            clusters, link = self._open(request.mirror)
            kind = _CHANGES.get(request.action)
            if kind is not None:
                folder = self.home / "divergence" if request.exports else None
                return _change(clusters, link, kind, request, wait_s, folder)
            done = {"mirror": link.name, "action": request.action}
            if request.action == "apply":
                self.check_flows()
                applied = apply_links(self._chosen(clusters, link), log.info)
                return {**done, **applied.as_json()}
            if request.action == "verify":
                return {**done, **compare_within(clusters, link, request, self.environ, wait_s)}
            if request.action == "rehearse":
                made = rehearse_now(clusters.file, clusters.clusters, link, by, round(wait_s * 1000))
                return {**done, "rehearsal": rehearsal_row(made, (), made.started_at_ms)}
            if request.action == "drop":
                plan = pausing.plan_drop(clusters, link, request.topics)
                count = pausing.drop(clusters, plan)
                if request.delete_copies:
                    pausing.delete_copies(clusters, plan)
                deleted = request.delete_copies
                return {**done, "topics": plan.topics, "partitions": count, "deleted": deleted}
            if request.action == "pause":
                names = pausing.accepting(clusters, link, request.topics, "pause")
                pausing.set_paused(clusters, link, names, by, paused=True)
                return {**done, "topics": names}
            due = self._due(clusters, link, request)
            if request.action == "abort":
                aborted = [_operator(clusters, each.topics, wait_s).abort(each).id for each in due]
                return {**done, "aborted": aborted}
            return {**done, **_resume(clusters, link, request, due, by, wait_s)}

    def translate(self, mirror: str, place: TopicPartition, offset: int, back: bool) -> Mapping[str, Any]:
        """Return a position at the other side. Raises NotFound, CallerError, PeerError. The first call of a
        mirror reads its maps; later ones read the newer records."""
        clusters, link = self._open(mirror)
        check_not_renamed(link, "translated positions")
        with self._opening:
            maps = self._maps.setdefault(link.name, MirrorMaps(clusters.file, link, clusters.clusters))
        maps.refresh()
        return maps.translate(place, offset, back=back).as_json()

    @staticmethod
    def _due(clusters: MirroredClusters, link: Link, request: MirrorRequest) -> list[OwnershipChange]:
        aborts = request.action == "abort"
        due = pausing.interrupted(clusters.control(), link.source, request.topics, abort=aborts)
        if aborts and not due:
            raise Conflict(
                f"no change of ownership of {link.source} is in progress",
                hint=f"hub mirror status {link.name} shows its state",
            )
        return due

    def _open(self, mirror: str) -> tuple[MirroredClusters, Link]:
        """Return the clusters of mirrors.yaml, opened again when the file changed, and a mirror of it."""
        path = self.folder / MIRRORS_FILE
        if not path.exists():
            raise NotFound(f'file "{path}" does not exist', hint="write one: docs/reference/mirrors.md")
        with self._opening:
            file = checked(load(path))
            if file != self._file:
                self._reached = reach_all(file, self.environ, self.folder, self.timeout_s)
                self._file = file
                while self._maps:
                    self._maps.popitem()[1].close()
            signer = partial(_signer, self.home)
            clusters = MirroredClusters(file, self._reached, signer=signer, by=f"hub at {gethostname()}")
            link = declared_link(file, mirror)
            return clusters.seen_by(link), link

    @contextmanager
    def _alone(self, request: MirrorRequest) -> Iterator[None]:
        compares = request.action == "verify"
        if not self._locks[compares].acquire(blocking=False):
            raise Conflict(
                f'mirror "{request.mirror}": this server is carrying out {self._running[compares]}',
                hint="wait until it is complete; /api/mirrors shows its next step",
                code="HUB-1974",
            )
        self._running[compares] = f"{request.action} of {request.mirror}"
        try:
            yield
        finally:
            self._locks[compares].release()


@contextmanager
def _command_for_inside(request: MirrorRequest) -> Iterator[None]:
    """Add the command to run inside of a closed region to the hint of HUB-3623."""
    try:
        yield
    except PeerError as error:
        if error.code == CLOSED:
            error.hint = f"{error.hint}: {request.command}"
        raise


def mirror_operations(settings: Settings) -> MirrorOperations:
    """Return the operations on the project's mirrors.yaml."""

    def check_flows() -> None:
        refuse_flows(settings, "mirror", None, log.warning)

    environ = own_environ(settings)
    return MirrorOperations(
        settings.project, environ, settings.kafka_timeout_s, settings.home, check_flows=check_flows
    )


def _signer(home: Path) -> LogSigner:
    return LogSigner(make_key(home))


def _change_plan(clusters: MirroredClusters, link: Link, kind: Kind, request: MirrorRequest) -> MirrorPlan:
    topics = chosen_topics(clusters, link, kind, request.topics)
    plan = plan_change(clusters, link, kind, topics, request.tail)
    old, new = plan.operation.old, plan.operation.new
    masked = [
        f"{topic}: its copy at {link.target} is masked: records written there are never copied to "
        f"{link.source}"
        for topic in plan.masked
    ]
    stuck = [f'topic "{topic}" is not mirrored: {why}' for topic, why in plan.not_mirrored.items()]
    if stuck and kind != "failover":
        stuck.append(f"This {kind} would be refused for that.")
    losses = [
        f"{each.place.topic} partition {each.place.partition}: {each.count:,} offsets from {each.first} stay "
        f"at {old}"
        for each in plan.report.losses
        if each.count
    ]
    again = [
        f"group {each.group}, {each.place.topic} partition {each.place.partition}: {each.redelivered:,} "
        f"records are read again at {new}"
        for each in plan.report.effects
        if each.redelivered
    ]
    tail = plan.tail.lines(new, old) if plan.tail is not None else []
    effects = [
        plan.report.words(old, plan.at_ms), *losses[:_MOST_LINES], *again[:_MOST_LINES], *tail[:_MOST_LINES]
    ]  # fmt: skip
    return plan_of(
        request,
        plan.steps,
        topics=_rows(topics),
        notes=[*plan.rights, *masked, *stuck],
        effects=effects,
        plan=plan.as_json(),
    )


def _change(
    clusters: MirroredClusters,
    link: Link,
    kind: Kind,
    request: MirrorRequest,
    wait_s: float,
    folder: Path | None,
) -> Mapping[str, Any]:
    """Carry out a change. ``folder``: for a folder with the exported files, named after the operation."""
    topics = [each.topic for each in chosen_topics(clusters, link, kind, request.topics)]
    operator = _operator(clusters, topics, wait_s)
    new = link.source if kind == "failback" else link.target
    id = uuid.uuid4().hex[:8]
    export = "" if folder is None else str((folder / f"{link.name}-{id}").absolute())
    operation = operator.begin(kind, link.name, link.source, new, id=id, tail=request.tail, export=export)
    if kind == "failback" and request.confirmed is not None:
        plan = plan_tail(operator.world, operation.new, operation.old, request.tail)
        require_same_plan(request.confirmed, plan.digest, f'failback of mirror "{link.name}"')
    return _completed(operator, operation)


def _resume(
    clusters: MirroredClusters,
    link: Link,
    request: MirrorRequest,
    due: Sequence[OwnershipChange],
    by: str,
    wait_s: float,
) -> Mapping[str, Any]:
    names = pausing.accepting(clusters, link, request.topics, "resume")
    if not due:
        _operator(clusters, (), wait_s).remind(link.source)
    pausing.set_paused(clusters, link, names, by, paused=False)
    completed = [_completed(_operator(clusters, each.topics, wait_s), each) for each in due]
    return {"topics": names, "completed": completed}


def _completed(operator: Operator, operation: OwnershipChange) -> Mapping[str, Any]:
    try:
        return carry_out(operator, operation).as_json()
    except HubError as error:
        way = f"then continue with `resume` or `abort` of mirror {operation.mirror}"
        error.hint = f"{error.hint}; {way}" if error.hint else way
        raise


def _operator(clusters: MirroredClusters, topics: Sequence[str], wait_s: float) -> Operator:
    return Operator(replace(clusters, only=frozenset(topics)), wait_s, log.info)


def _step(name: str, does: str, at: str) -> Mapping[str, str]:
    return {"step": name, "does": does, "at": at}


def _progress(change: OwnershipChange) -> str:
    step = change.next
    return f'{change.kind} "{change.id}", next step: {step.name if step else "finish"}'


def _rows(states: Sequence[TopicState]) -> _Steps:
    return [{"topic": each.topic, "now": each.state, "owner": each.owner} for each in states]
