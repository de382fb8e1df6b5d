"""[shell] Ports that the pages read: provided by the app (hub.api.web) or by a test."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from hub.alerts.model.alert_state import Silence
from hub.alerts.model.matching import Matchers
from hub.alerts.snapshot import AlertSnapshot as KnownAlerts
from hub.caller import HUB, Action, may, sees_schema, sees_subject
from hub.errors import HubError, NotFound, PeerError
from hub.observability.cluster.health import Health
from hub.observability.cluster.processes import Process
from hub.observability.lag.consumers import LagRow
from hub.observability.latency.latency import LatencyRow
from hub.observability.lineage.live_graph import ConnectorFlow, ViewStorage
from hub.observability.lineage.open_lineage import Columns
from hub.observability.overview.overview import BatchSummary, Overview, TopicLine
from hub.observability.overview.reports import ViewSource
from hub.observability.series.reading import HasSeries
from hub.observability.web.pages.mirror_actions import MirrorPlan, MirrorRequest
from hub.observability.web.pages.monitor.completeness import CountedTopics
from hub.observability.web.pages.monitor.connector import ConnectorDetail
from hub.observability.web.pages.monitor.mirrors import MirrorFacts
from hub.observability.web.pages.monitor.sinks import SinkLine
from hub.observability.web.pages.row_history import HasHistory
from hub.quotas.usage import UsagePage
from hub.record import TopicPartition
from hub.sandbox.platforms import PythonOfViews
from hub.schema_registry.compat.compatibility import Incompatibility
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.describe import Warned
from hub.schema_registry.model.facts import SchemaStored
from hub.schema_registry.policy.policy_checks import PolicyViolation
from hub.schema_registry.registry.errors import RequestRefused
from hub.schema_registry.registry.state_machine import Command, RegisterSchema, Registry
from hub.schema_registry.server.node import RegistryNode
from hub.times import epoch_ms
from hub.topics.browse.browse import Browser
from hub.topics.browse.describe import DescribedTopic
from hub.topics.editing.editor import TopicEditor
from hub.topics.gateway.produce_batch import GatewayAnswer, ProduceRequest
from hub.topics.groups.reset import GroupPositions
from hub.topics.tree.tree import TopicSpec

T = TypeVar("T")


class HasTopics(Protocol):
    """Topics and views from the collector's memory."""

    def overview(self) -> Overview: ...

    def line(self, topic: str) -> TopicLine | None: ...

    def other_lines(self, kind: str) -> Sequence[TopicLine]: ...

    def names(self) -> Sequence[str]: ...

    def batches(self, view: str) -> Sequence[BatchSummary]:
        """Return the last observed batches of a view, newest first."""


class HasRegistry(Protocol):
    """A registry node. ``ready``: whether it answers at once; ``position``: as of which offset of its log."""

    @property
    def position(self) -> int: ...

    @property
    def ready(self) -> bool: ...

    def read(self, question: Callable[[Registry], T]) -> T:
        """Return the result of ``question``. Raises PeerError while the node is not ready."""


class RegistersSchemas(HasRegistry, Protocol):
    """A registry node that checks and registers schemas. Each method raises RequestRefused, PeerError."""

    def lookup(self, command: RegisterSchema, *, deleted: bool = False) -> SchemaStored | None: ...

    def incompatibilities(
        self, command: RegisterSchema, version: int | str | None
    ) -> tuple[Incompatibility, ...]: ...

    def violations(self, command: RegisterSchema) -> list[PolicyViolation]: ...

    def remarks(self, command: RegisterSchema) -> list[Warned]: ...

    def submit(self, command: Command) -> tuple[Any, int]: ...


class HasViews(Protocol):
    """Facts about views besides their reports. Each method raises NotFound, PeerError."""

    def describe(self, view: str) -> Mapping[str, Any]: ...

    def versions(self, view: str) -> Mapping[str, Any]: ...

    def search(self, view: str, words: str, after: str) -> Mapping[str, Any]:
        """Return a page of a text search: ``rows`` with key, score and highlights, and ``next``, the
        cursor of the next page. ``after``: the cursor of this one; "": the first. Raises CallerError for a
        wrong query.
        """

    def storage(self) -> Mapping[str, ViewStorage]:
        """Return the storage of every view."""

    def made_of(self, views: Collection[str]) -> Mapping[str, Columns]:
        """Return, by view and column, the topics' columns that it is made of, as far as known."""


class HasAlerts(Protocol):
    """The alert manager (hub.alerts.alert_manager)."""

    def snapshot(self) -> KnownAlerts: ...

    def silence(self, matchers: Matchers, reason: str, by: str, ends_ms: int) -> Silence:
        """Create a silence. Raises CallerError, Conflict, PeerError."""

    def unsilence(self, id: str) -> Silence:
        """End a silence. Raises NotFound, Conflict, PeerError."""


class HasConnectors(Protocol):
    """Connectors of Kafka Connect. Each method raises NotFound, CallerError, PeerError."""

    def detail(self, name: str) -> ConnectorDetail: ...

    def flows(self, topics: Sequence[str]) -> Sequence[ConnectorFlow]:
        """Return the declared connectors with those of ``topics`` that each writes or reads."""

    def act(self, name: str, action: str, by: str) -> ConnectorDetail:
        """Carry out an action of ``pages.monitor.connector``; return the connector before it."""


class HasMirrorOperations(Protocol):
    """Operations on mirrors. Each method raises NotFound, CallerError, Conflict, PeerError."""

    def plan(self, request: MirrorRequest) -> MirrorPlan: ...

    def act(self, request: MirrorRequest, by: str, wait_s: float) -> Mapping[str, Any]:
        """Carry out a request, and return its result when it is complete."""

    def translate(self, mirror: str, place: TopicPartition, offset: int, back: bool) -> Mapping[str, Any]:
        """Return the position at the other side, with its precision: a TranslatedPosition as JSON."""


class Writes(Protocol):
    """The gateway (hub.topics.gateway.gateway.Gateway)."""

    def write(self, request: ProduceRequest) -> GatewayAnswer:
        """Write a request's records, and return the answer. Raises CallerError, PeerError."""


class HasSinks(Protocol):
    """Sinks of the project, with their states. Reads files alone."""

    def lines(self) -> Sequence[SinkLine]: ...

    def flows(self, topics: Sequence[str]) -> Sequence[ConnectorFlow]: ...


@dataclass(frozen=True, slots=True)
class LakeTableLine:
    """State of a topic's Iceberg table: WRITING, FAILING (``trouble`` has the reason), STARTING or UNKNOWN.
    ``behind``: records that are not in it yet; ``committed_at_ms``: of the newest commit. None: unknown.
    """

    state: str = "UNKNOWN"
    table: str | None = None
    rows: int | None = None
    behind: int | None = None
    committed_at_ms: int | None = None
    trouble: str = "no writer of Iceberg tables reports: hub lake run"


@dataclass(frozen=True)
class PageSources:
    """Sources of all pages.

    ``describe``: queries Kafka for one topic, within a few seconds. ``mirrors``, ``health``, ``processes``
    (the hub's, on the server's machine), ``canary`` (None: not enabled) and ``latency`` return the last known
    values at once. ``unmeasured``: why missing rows in ``lag`` do not mean that nobody reads ("": readers are
    being measured for the first time); None: they do. ``python``: how Python of views runs on the server's
    machine. ``lake``: a topic's Iceberg table by its writer's note.
    """

    topics: HasTopics
    rows: ViewSource
    registry: HasRegistry
    browser: Browser
    describe: Callable[[str], DescribedTopic]
    views: HasViews
    tree: Callable[[], Mapping[str, TopicSpec]] = dict
    lag: Callable[[], Sequence[LagRow]] = tuple
    unmeasured: Callable[[], str | None] = lambda: None
    mirrors: Callable[[], MirrorFacts] = MirrorFacts
    completeness: Callable[[], CountedTopics] = CountedTopics
    saved: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    bootstrap: str = ""
    alerts: HasAlerts | None = None
    connectors: HasConnectors | None = None
    sinks: HasSinks | None = None
    mirror_operations: HasMirrorOperations | None = None
    groups: GroupPositions | None = None
    topic_editor: TopicEditor | None = None
    gateway: Writes | None = None
    schemas: RegistersSchemas | None = None
    health: Callable[[], Health] = Health
    processes: Callable[[], Sequence[Process]] = tuple
    canary: Callable[[], Mapping[str, Any] | None] = lambda: None
    latency: Callable[[], Sequence[LatencyRow]] = tuple
    lake: Callable[[str], LakeTableLine] = lambda _topic: LakeTableLine()
    series: HasSeries | None = None
    history: HasHistory | None = None
    python: Callable[[], PythonOfViews | None] = lambda: None
    usage: Callable[[], UsagePage] = lambda: UsagePage((), False, True)
    now_ms: Callable[[], int] = epoch_ms

    def connector_flows(self) -> Sequence[ConnectorFlow]:
        """Return the connectors and sinks of the lineage, for callers who may read the hub: systems are
        named."""
        if not may(Action.read, HUB):
            return ()
        topics = self.topics.names()
        found = [] if self.connectors is None else [*self.connectors.flows(topics)]
        return found if self.sinks is None else [*found, *self.sinks.flows(topics)]

    def columns_of(self, views: Collection[str]) -> Mapping[str, Columns]:
        """Return ``views.made_of``; nothing while it is unknown."""
        try:
            return self.views.made_of(views)
        except HubError:
            return {}


def ask(registry: HasRegistry, question: Callable[[Registry], T]) -> T:
    """Return the answer to ``question`` at once. Raises PeerError (HUB-3034) while the registry has not
    read its log."""
    if not registry.ready:
        raise PeerError(
            "the registry has not read its log yet", hint="check Kafka with hub doctor", code="HUB-3034"
        )
    return registry.read(question)


@dataclass(frozen=True)
class NodeSchemas:
    """A registry node as the schema source of the message browser
    (hub.topics.browse.browse.BrowseSchemas)."""

    node: RegistryNode

    def source(self, schema_id: int) -> SchemaSource:
        try:
            return ask(self.node, lambda registry: registry.source_of(registry.by_id(schema_id)))
        except RequestRefused as refused:
            raise NotFound(refused.message) from None

    def sees(self, schema_id: int) -> bool:
        def subjects() -> list[str]:
            uses = ask(self.node, lambda registry: registry.uses_of(schema_id, deleted=True))
            return [each.subject for each in uses]

        return sees_schema(subjects)

    def registered(self, schema_id: int, topic: str) -> tuple[str, int] | None:
        uses = ask(self.node, lambda registry: registry.uses_of(schema_id, deleted=True))
        uses = [each for each in uses if sees_subject(each.subject)]
        own = [each for each in uses if each.subject in (f"{topic}-value", f"{topic}-key")]
        first = next(iter([*own, *uses]), None)
        return None if first is None else (first.subject, first.version)
