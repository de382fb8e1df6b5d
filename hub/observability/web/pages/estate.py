"""[shell] What the pages ask, by ports: filled in by the app (hub.api.web), or by a test."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from hub.alerts.alert_manager import AlertSnapshot as KnownAlerts
from hub.alerts.model.matching import Matchers
from hub.alerts.model.state_machine import Silence
from hub.caller import sees_schema, sees_subject
from hub.errors import NotFound, PeerError
from hub.observability.cluster.health import Health
from hub.observability.cluster.processes import Process
from hub.observability.lag.consumers import LagRow
from hub.observability.latency.latency import LatencyRow
from hub.observability.lineage.lineage import Columns, ViewStorage
from hub.observability.overview.overview import BatchSummary, Overview, TopicLine
from hub.observability.overview.reports import ViewSource
from hub.observability.web.pages.monitor.completeness import CountedTopics
from hub.observability.web.pages.monitor.mirrors import MirrorFacts
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.registry.errors import RequestRefused
from hub.schema_registry.registry.state_machine import Registry
from hub.schema_registry.server.node import RegistryNode
from hub.topics.browse.browse import Browser
from hub.topics.browse.describe import TopicFacts
from hub.topics.tree.tree import TopicSpec

T = TypeVar("T")


class HasTopics(Protocol):
    """The collector: everything from memory."""

    def overview(self) -> Overview: ...

    def line(self, topic: str) -> TopicLine | None: ...

    def other_lines(self, kind: str) -> Sequence[TopicLine]: ...

    def names(self) -> Sequence[str]: ...

    def batches(self, view: str) -> Sequence[BatchSummary]:
        """The last ones that were seen, the newest first."""


class HasRegistry(Protocol):
    """A registry node. ``ready``: whether it answers at once."""

    position: int

    @property
    def ready(self) -> bool: ...

    def read(self, question: Callable[[Registry], T]) -> T:
        """Raises PeerError while it is not ready."""


class HasViews(Protocol):
    """What is known of views beside their reports. Each raises NotFound, PeerError."""

    def describe(self, view: str) -> Mapping[str, Any]: ...

    def versions(self, view: str) -> Mapping[str, Any]: ...

    def kept(self) -> Mapping[str, ViewStorage]:
        """Of every view, where it is kept."""

    def made_of(self, views: Collection[str]) -> Mapping[str, Columns]:
        """Which columns of which topics the columns of these views are made of, as far as it is known."""


class HasAlerts(Protocol):
    """The desk of alerts (hub.alerts.alert_manager)."""

    def known(self) -> KnownAlerts: ...

    def silence(self, matchers: Matchers, reason: str, by: str, ends_ms: int) -> Silence:
        """Raises CallerError, Conflict, PeerError."""

    def unsilence(self, id: str) -> Silence:
        """Raises NotFound, Conflict, PeerError."""


@dataclass(frozen=True)
class PageSources:
    """Everything the pages are made of. ``describe`` asks Kafka for one topic, within a few seconds; ``mirrors`` answers
    at once with what was last heard, as do ``health``, ``processes`` (of the hub, on the server's machine), ``canary`` (None: there
    are none) and ``latency``. ``unmeasured``: why no row of ``lag`` does not mean that nobody reads ("": readers are looked at for the
    first time); None: it does."""

    topics: HasTopics
    rows: ViewSource
    registry: HasRegistry
    browser: Browser
    describe: Callable[[str], TopicFacts]
    views: HasViews
    tree: Callable[[], Mapping[str, TopicSpec]] = dict
    lag: Callable[[], Sequence[LagRow]] = tuple
    unmeasured: Callable[[], str | None] = lambda: None
    mirrors: Callable[[], MirrorFacts] = MirrorFacts
    completeness: Callable[[], CountedTopics] = CountedTopics
    saved: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    bootstrap: str = ""
    alerts: HasAlerts | None = None
    health: Callable[[], Health] = Health
    processes: Callable[[], Sequence[Process]] = tuple
    canary: Callable[[], Mapping[str, Any] | None] = lambda: None
    latency: Callable[[], Sequence[LatencyRow]] = tuple


def ask(registry: HasRegistry, question: Callable[[Registry], T]) -> T:
    """Its answer, at once: while the registry has not read its log yet a page says so and does not wait."""
    if not registry.ready:
        raise PeerError(
            "the registry has not read its log yet", hint="is Kafka well? hub doctor tells", code="HUB-3034"
        )
    return registry.read(question)


@dataclass(frozen=True)
class NodeSchemas:
    """A registry node as the browser of messages asks it (hub.topics.browse.browse.BrowseSchemas)."""

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
