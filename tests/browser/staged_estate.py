"""A staged hub with all data of the pages other than the overview: schemas, messages, readers, views,
mirrors."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from fastapi import FastAPI

from hub.alerts import routes as alert_routes
from hub.alerts.delivery.notification_queues import ChannelStatus
from hub.alerts.model.alert_state import AlertingState, Silence
from hub.alerts.model.matching import Matchers, labels_of
from hub.alerts.model.rules import AlertRule, Observation, RuleObservations, Verdict
from hub.alerts.model.state_machine import step
from hub.alerts.snapshot import AlertSnapshot as KnownAlerts
from hub.alerts.snapshot import RuleStatus
from hub.api.app import on_hub_error
from hub.api.help_pages import add_help
from hub.errors import CallerError, HubError, NotFound
from hub.log import LogDir, PartitionReplicas, Placement
from hub.materializers.search.highlights import highlights
from hub.materializers.search.text_query import parse_query
from hub.observability.cluster.connect import WorkerAnswer, connect_of, connectors_of
from hub.observability.cluster.health import Health, health_of
from hub.observability.cluster.processes import Process
from hub.observability.lag.consumers import LagRow
from hub.observability.latency import routes as latency_routes
from hub.observability.latency.latency import LatencyRow
from hub.observability.lineage.live_graph import ViewStorage
from hub.observability.lineage.open_lineage import Columns
from hub.observability.overview.collector import Collector
from hub.observability.series.reading import HasSeries
from hub.observability.web.pages.estate import LakeTableLine, NodeSchemas, PageSources
from hub.observability.web.pages.monitor.mirrors import MirrorFacts
from hub.observability.web.pages.row_history import HasHistory
from hub.observability.web.routes.all_pages import create_router, nowhere
from hub.record import NewRecord
from hub.schema_registry.codecs.wire_format import encode, parsed
from hub.schema_registry.model.facts import Reference
from hub.schema_registry.registry.state_machine import RegisterSchema
from hub.schema_registry.server.node import RegistryNode
from hub.times import epoch_ms
from hub.topics.browse.browse import Browser
from hub.topics.browse.describe import DescribedPartition, DescribedTopic, TopicSetting
from hub.topics.groups.reset import GroupPositions
from hub.topics.tree.tree import Slo, TopicSpec

from .staged_connectors import StagedConnectors, StagedSinks
from .staged_groups import StagedGateway, StagedGroups
from .staged_hub import SOURCES, VIEW, StagedHub, customers, served
from .staged_ledger import StagedLedger, staged
from .staged_mirrors import StagedMirrorOperations, staged_rehearsals

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
ORDERS = "shop.orders"
V1 = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "doc": "An order of the shop.",
    "fields": [
        {"name": "order_id", "type": "string"},
        {"name": "customer_id", "type": "string", "doc": "Whose it is."},
        {"name": "amount_cents", "type": "long"},
    ],
}
V2 = {**V1, "fields": [*V1["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}


def spec(name: str, owner: str, doc: str = "", tags: tuple[str, ...] = ()) -> TopicSpec:
    return TopicSpec(
        name,
        owner,
        doc,
        2,
        1,
        {"retention.ms": "604800000"},
        "BACKWARD",
        None,
        tags,
        {},
        Slo(2_000, 60_000, 30_000, 0.999),
        lake=name == ORDERS,
    )


@dataclass
class StagedAlerts:
    """The alert manager without a loop: a test's observations, evaluated at once."""

    state: AlertingState = field(default_factory=AlertingState)
    error: str | None = None
    channels: tuple[ChannelStatus, ...] = ()
    rules: tuple[RuleStatus, ...] = ()
    troubles: tuple[str, ...] = ()

    def see(self, rule: AlertRule, *those: Observation) -> None:
        """The rule sees this now; twice, so that what is well is over."""
        now = epoch_ms()
        for at in (now - 60_000, now):
            self.state, _ = step(self.state, [RuleObservations(rule, those, Verdict.GOOD)], (), at)
        self.rules = (RuleStatus(rule, 3, len(those), 1, len(self.state.firing)),)

    def snapshot(self) -> KnownAlerts:
        return KnownAlerts(epoch_ms(), self.state, self.rules, self.channels, self.error, self.troubles)

    def silence(self, matchers: Matchers, reason: str, by: str, ends_ms: int) -> Silence:
        if not reason.strip():
            raise CallerError("a silence needs a reason")
        made = Silence(f"s{len(self.state.silences)}", matchers, reason, by, epoch_ms(), ends_ms)
        self.state = replace(self.state, silences={**self.state.silences, made.id: made})
        return made

    def unsilence(self, id: str) -> Silence:
        if id not in self.state.silences:
            raise NotFound(f'silence "{id}" does not exist')
        ended = replace(self.state.silences[id], ends_ms=epoch_ms())
        self.state = replace(self.state, silences={**self.state.silences, id: ended})
        return ended

    def test(self, channel: str) -> None: ...


LATE = AlertRule("lag", "slo", "A reader is later than `slo.lag` of the topic.", "page", 0, 0, "lag")


def late(consumer: str, owner: str = "shop", summary: str = "") -> Observation:
    return Observation(
        labels_of({"consumer": consumer, "kind": "group", "topic": ORDERS}),
        Verdict.BAD,
        summary or f"group {consumer} is 41 s ± 0.5 s behind on {ORDERS}; promised are 30 s",
        41.0,
        labels_of({"owner": owner, "node": "shop"}),
        "STALLED: nothing read for 4 min, though 2 members are connected",
    )


@dataclass
class StagedEstate(StagedHub):
    """Levers of all pages."""

    tree: dict[str, TopicSpec] = field(default_factory=dict)
    rows: list[LagRow] = field(default_factory=list)
    mirrors: MirrorFacts = field(default_factory=MirrorFacts)
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    ledger: StagedLedger = field(default_factory=StagedLedger)
    node: RegistryNode | None = None
    collector: Collector | None = None
    alerts: StagedAlerts = field(default_factory=StagedAlerts)
    connectors: StagedConnectors = field(default_factory=StagedConnectors)
    mirror_operations: StagedMirrorOperations = field(default_factory=StagedMirrorOperations)
    gateway: StagedGateway = field(default_factory=StagedGateway)
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    health: Health = field(default_factory=Health)
    processes: tuple[Process, ...] = ()
    canary: Mapping[str, Any] | None = None
    latency: list[LatencyRow] = field(default_factory=list)
    unmeasured: str | None = None
    lake: LakeTableLine = field(default_factory=LakeTableLine)
    series: HasSeries | None = None
    history: HasHistory | None = None

    def estate(self) -> PageSources:
        if self.node is None:
            self.node = RegistryNode(self.cluster)
            self.node.start()
        self.collector = Collector(
            self.cluster, self.views, "127.0.0.1:9092", poll_s=self.poll_s, connect=lambda: self.connect
        )
        return PageSources(
            topics=self.collector,
            rows=self.views,
            registry=self.node,
            browser=Browser(self.cluster, NodeSchemas(self.node)),
            describe=self.describe,
            tree=lambda: self.tree,
            lag=lambda: self.rows,
            unmeasured=lambda: self.unmeasured,
            views=StagedViewFacts(self),
            mirrors=lambda: self.mirrors,
            completeness=lambda: self.ledger.latest(),
            saved=lambda: [{"name": "big", "doc": "Big spenders", "sql": "SELECT 1"}],
            alerts=self.alerts,
            connectors=self.connectors,
            sinks=StagedSinks(),
            mirror_operations=self.mirror_operations,
            gateway=self.gateway,
            schemas=self.node,
            groups=GroupPositions(StagedGroups(self.cluster, self.members)),
            bootstrap="127.0.0.1:9092",
            health=lambda: self.health,
            processes=lambda: self.processes,
            canary=lambda: self.canary,
            latency=lambda: self.latency,
            lake=lambda _topic: self.lake,
            series=self.series,
            history=self.history,
        )

    def app(self) -> FastAPI:
        estate = self.estate()
        app = super().app()
        # The staged hub's own collector is another one; this one is fresh at every request.
        collector = self.collector
        assert collector is not None

        @app.middleware("http")
        async def fresh(request: Any, call_next: Any) -> Any:
            if not request.url.path.startswith("/ui/static"):
                collector.topics_at_ms = None  # a new topic is known at once
                collector.ask_kafka()
                collector.ask_store()
            return await call_next(request)

        app.add_exception_handler(HubError, on_hub_error)
        before = len(app.router.routes)
        app.include_router(create_router(estate))
        add_help(app)
        app.include_router(alert_routes.create_router(self.alerts))
        app.include_router(latency_routes.create_router(StagedLatency(self)))
        routes = app.router.routes
        routes[:] = routes[before:] + routes[:before]
        app.include_router(nowhere(estate))
        return app

    def known_alerts(self) -> KnownAlerts:
        return self.alerts.snapshot()

    def monitor(self) -> StagedMonitor:
        return StagedMonitor(self)

    def describe(self, topic: str) -> DescribedTopic:
        self.cluster._reachable()
        if topic not in self.cluster.logs:
            raise NotFound(f'topic "{topic}" does not exist')
        partitions = tuple(
            DescribedPartition(PartitionReplicas(number, 1, (1, 2), (1,)), 0, len(log), {1: 5_000})
            for number, log in enumerate(self.cluster.logs[topic])
        )
        settings = (
            TopicSetting("cleanup.policy", "delete", "default"),
            TopicSetting("retention.ms", "604800000", "tree: shop"),
        )
        return DescribedTopic(
            topic, self.tree.get(topic), partitions, settings, (), (), ("sizes: not asked",)
        )

    def register(self, subject: str, schema: Any, references: Sequence[Reference] = (), **more: Any) -> int:
        assert self.node is not None
        stored, _ = self.node.submit(
            RegisterSchema(subject, json.dumps(schema), references=tuple(references), **more)
        )
        return int(stored.schema_id)

    def write(self, topic: str, *values: bytes | None, key: bytes | None = b"k", **more: Any) -> None:
        now = epoch_ms()
        self.cluster.writer().append(
            [
                NewRecord(topic, key, value, timestamp_ms=more.pop("at", now), partition=0, **more)
                for value in values
            ]
        )


@dataclass
class StagedMonitor:
    hub: StagedEstate
    round_s: float | None = None

    def rows(self) -> Sequence[LagRow]:
        return self.hub.rows


@dataclass
class StagedLatency:
    hub: StagedEstate

    def rows(self) -> Sequence[LatencyRow]:
        return self.hub.latency


@dataclass
class StagedViewFacts:
    hub: StagedEstate

    def describe(self, view: str) -> Mapping[str, Any]:
        if f"state:{view}" not in self.hub.views.records:
            raise NotFound(f'view "{view}" does not exist')
        store = {
            "store": "main",
            "kind": "sqlite",
            "state": "live",
            "lag": 0,
            "positions": "",
            "reason": None,
            "proof": {
                "state": "MATCHES",
                "reason": None,
                "rows": 1_500,
                "matched_ms": round(time.time() * 1000) - 12_000,
                "differing": [],
            },
        }
        edited = {
            **store,
            "store": "warehouse",
            "kind": "postgresql",
            "proof": {
                **store["proof"],
                "state": "DIFFERS",
                "reason": "1 of 256 regions of keys differ",
                "differing": [{"key": "C-1007", "why": "another row of version 41"}],
            },
        }
        return {
            "fields": ["name", "city", "paid_cents"],
            "indexes": ["city"],
            "text_index": {"fields": ["name", "city"], "language": "simple"},
            "stores": [store, edited],
            "changelog": f"views.{view}",
            "positions": "crm.customers:0:1500",
            "cut": {
                "name": "shop",
                "state": "apart",
                "why": "orders_by_city is 4 s behind",
                "views": [view, "orders_by_city"],
                "engine_why": "its batches go one by one",
            },
        }

    def search(self, view: str, words: str, after: str) -> Mapping[str, Any]:
        query = parse_query(words)
        if words == "nobody":
            return {"rows": [], "next": None}
        texts = {f"C-{1_000 + n}": f"Ada & <Lovelace> {'of Oslo, ' * n}" for n in range(3)}
        rows = []
        for key, text in texts.items():
            parts = [
                {"text": part, "match": match} for part, match in highlights(text, query.wanted, "simple")
            ]
            rows.append({"key": key, "score": 1.5, "highlights": {"name": parts} if parts else {}})
        return {"rows": rows, "next": None if after else "next-page"}

    def storage(self) -> Mapping[str, ViewStorage]:
        names = [key.partition(":")[2] for key in self.hub.views.records if key.startswith("state:")]
        other = {"store": "lake", "kind": "iceberg", "state": "filling", "lag": 20_000, "reason": None}
        return {
            view: ViewStorage(
                f"views.{view}", [{**self.describe(view)["stores"][0], "store": "serving"}, other]
            )
            for view in names
        }

    def made_of(self, views: Collection[str]) -> Mapping[str, Columns]:
        columns: Columns = {
            "name": (("crm.customers", "first_name"), ("crm.customers", "last_name")),
            "paid_cents": (("shop.payments", "amount_cents"),),
            "": (("crm.customers", "customer_id"),),
        }
        return dict.fromkeys(views, columns)

    def versions(self, view: str) -> Mapping[str, Any]:
        if view not in self.hub.versions:
            raise NotFound(f'view "{view}" has no versions')
        return self.hub.versions[view]


def lag_row(name: str, topic: str, state: str, **more: Any) -> LagRow:
    said: dict[str, Any] = {
        "kind": "group",
        "name": name,
        "view": None,
        "topic": topic,
        "owner": "shop",
        "state": state,
        "cause": "partition 1: nothing read for 4 min, though 2 members are connected",
        "since_ms": epoch_ms() - 300_000,
        "records": 1_204,
        "seconds": 41.0,
        "error_s": 0.5,
        "basis": "timestamp",
        "eta_s": None,
        "loss_s": None,
        "lost_records": None,
        "position": 100,
        "members": 2,
        "measured_at_ms": epoch_ms() - 2_000,
        "trend": (1.0, 8.0, 20.0, 41.0),
    }
    return LagRow(**{**said, **more})


def staged_health() -> Health:
    """Three brokers of which one is away, a partition without a leader, a disk that is nearly full."""
    placement = Placement(
        {1: ("kafka-1", 9092), 2: ("kafka-2", 9092)},
        1,
        {
            ORDERS: (PartitionReplicas(0, 1, (1, 2), (1, 2)), PartitionReplicas(1, 2, (2, 3), (2,))),
            "crm.consent": (PartitionReplicas(0, None, (3,), ()),),
        },
    )
    tera = 10**12
    dirs: dict[int, tuple[LogDir, ...] | str] = {
        1: (LogDir("/var/lib/kafka", 3 * 10**11, tera, tera // 2),),
        2: (
            LogDir("/var/lib/kafka", 9 * 10**11, tera, tera // 20),
            LogDir("/mnt/b", None, error="Kafka's error 56: the broker cannot use it"),
        ),
    }
    return health_of(placement, dirs, epoch_ms() - 2_000)


def staged_canary() -> Mapping[str, Any]:
    way = {"repeated": 0, "late": 0, "waiting": 1, "p50_s": 0.01, "p99_s": 0.05}
    return {
        "enabled": True,
        "state": "LOSING",
        "cause": "mirror:nyc-lon: 17 did not come within 20 s",
        "sent": 3_600,
        "ways": [
            {
                **way,
                "way": "mirror:nyc-lon",
                "state": "LOSING",
                "read": 3_582,
                "lost": 17,
                "cause": "17 did not come",
            },
            {**way, "way": "ack", "state": "OK", "read": 3_600, "lost": 0, "cause": "all came in time"},
        ],
    }


def staged_latency() -> list[LatencyRow]:
    fresh: dict[str, Any] = {
        "freshness_s": 0.4,
        "freshness_error_s": 0.1,
        "state": "OK",
        "cause": "within 10 s",
        "objective_s": 2.0,
    }
    return [
        LatencyRow(VIEW, "read", "", "live", 18_180, 0.12, 0.3, 0.45, within=1.0, **fresh),
        LatencyRow(VIEW, "changelog", "", "live", 18_204, 0.31, 0.62, 0.9, within=1.0, **fresh),
        LatencyRow(VIEW, "readable", "serving", "live", 18_204, 0.34, 0.7, 0.98, within=0.9994, **fresh),
        LatencyRow(
            VIEW,
            "readable",
            "lake",
            "replay",
            90_000,
            4.1,
            1_800.0,
            1_800.0,
            ("p95", "p99"),
            within=0.03,
            **fresh,
        ),
        LatencyRow(VIEW, "pushed", "", "live", None, **fresh),
    ]


def estate(seed: int = 7) -> StagedEstate:
    """Seven systems, schemas with versions, messages good and hostile, readers in trouble, a mirror."""
    base = customers(seed)
    hub = StagedEstate(cluster=base.cluster, views=base.views, changed=base.changed)
    hub.estate()
    dice = random.Random(seed)
    for topic in SOURCES.values():
        owner = topic.partition(".")[0]
        hub.tree[topic] = spec(topic, owner, f"Events of {topic}.", ("pii",) if owner == "crm" else ())
    hub.tree[ORDERS] = spec(ORDERS, "shop", "Orders as the shop takes them.", ("money",))
    first = hub.register(f"{ORDERS}-value", V1)
    second = hub.register(f"{ORDERS}-value", V2)
    shared = {
        "type": "record",
        "name": "Money",
        "namespace": "shared",
        "fields": [{"name": "cents", "type": "long"}],
    }
    hub.register("shared.Money", shared)
    payment = {
        "type": "record",
        "name": "Payment",
        "namespace": "shop",
        "fields": [{"name": "payment_id", "type": "string"}, {"name": "amount", "type": "shared.Money"}],
    }
    hub.register("shop.payments-value", payment, [Reference("shared.Money", "shared.Money", 1)])
    order = {"order_id": "O-1", "customer_id": "C-1007", "amount_cents": 4_990}
    now = epoch_ms()
    hub.topic("shop.returns", 1)
    hub.cluster.delete_topic(ORDERS)
    hub.topic(ORDERS)
    hub.write(ORDERS, encode(first, parsed(V1), order), key=b"O-1", at=now - 60_000)
    for number in range(2, 30):
        value = {**order, "order_id": f"O-{number}", "amount_cents": dice.randrange(90_000), "note": None}
        hub.write(
            ORDERS,
            encode(second, parsed(V2), value),
            key=f"O-{number}".encode(),
            at=now - 59_000 + number * 1_000,
        )
    hub.write(
        ORDERS, encode(second, parsed(V2), {**order, "note": HOSTILE}), key=HOSTILE.encode(), at=now - 20_000
    )
    hub.write(
        ORDERS, encode(second, parsed(V2), {**order, "note": "x" * 90_000}), key=b"huge", at=now - 19_000
    )
    hub.write(ORDERS, b"\x00\x00\x00\x00\x63broken", key=b"\xff\xfe\x00", at=now - 18_000)
    hub.write(ORDERS, b"\x00" + second.to_bytes(4, "big") + b"\xff\xff", key=b"wrong", at=now - 17_000)
    hub.write(ORDERS, None, key=b"O-2", at=now - 16_000)
    hub.write(
        ORDERS,
        HOSTILE.encode(),
        key=b"plain",
        at=now - 15_000,
        headers=((HOSTILE, HOSTILE.encode()), ("trace", b"\xff\x00")),
    )
    hub.rows = [
        lag_row("billing", ORDERS, "STALLED"),
        lag_row("search-indexer", ORDERS, "CATCHING_UP", cause="reads 90 records/s, 10 arrive", eta_s=18.0),
        lag_row("billing", "shop.payments", "OK", records=0, seconds=0.0, cause="everything is read"),
        lag_row(
            "crm-sync",
            "crm.customers",
            "AT_RISK",
            owner="crm",
            loss_s=7_200.0,
            seconds=500_000.0,
            records=88_123,
        ),
        lag_row(
            VIEW,
            ORDERS,
            "OK",
            kind="view",
            view=VIEW,
            records=0,
            seconds=0.1,
            owner="customer-data",
            cause="within 60 s",
        ),
    ]
    hub.health = staged_health()
    hub.processes = (
        Process("kafka", 4_101, 12.0, 812, epoch_ms() - 7_200_000),
        Process("server", 4_102, None, 240, epoch_ms() - 7_100_000),
    )
    hub.canary = staged_canary()
    hub.latency = staged_latency()
    hub.alerts.see(LATE, late("billing"), late("old"))
    hub.alerts.see(LATE, late("billing"), late("search-indexer", "web"))
    hub.alerts.silence((("owner", ("web",)),), "new machines", "ada", epoch_ms() + 3_600_000)
    hub.alerts.channels = (
        ChannelStatus("ops", "webhook", 0, 12, 0, 0, None, epoch_ms() - 5_000),
        ChannelStatus("mail", "email", 2, 0, 6, 1, 'channel "mail": smtp:587 does not take mail now'),
    )
    hub.versions[VIEW] = {
        "view": VIEW,
        "served": 2,
        "served_changelog": f"views.{VIEW}",
        "judged": None,
        "answered": None,
        "refusal": None,
        "versions": [
            {
                "number": 1,
                "state": "former",
                "text": "view: customer_360\n",
                "engine": None,
                "reason": None,
                "behind": None,
                "changelog": f"views.{VIEW}",
                "swap": "auto",
            },
            {
                "number": 2,
                "state": "served",
                "text": f"view: {VIEW}\nsources:\n  crm: {{topic: crm.customers}}\n",
                "engine": "live",
                "reason": None,
                "behind": 0,
                "changelog": f"views.{VIEW}.v2",
                "swap": "auto",
            },
        ],
    }
    place = {
        "topic": ORDERS,
        "partition": 0,
        "worker": "w1",
        "state": "mirroring",
        "reason": "",
        "seen_s": 0.6,
        "source_next": 34,
        "target_next": 33,
        "lag_records": 1,
        "lag_bytes": 90,
        "lag_s": 0.4,
    }
    group = {"group": "billing", "rpo_records": 1, "rpo_s": 0.4, "redelivered": 0, "at_ms": now, "places": []}
    mirror = {
        "mirror": "nyc-lon",
        "source": "nyc",
        "target": "lon",
        "state": "mirroring",
        "reason": "",
        "ok": True,
        "workers": 2,
        "heartbeats": [
            {"worker": f"w{n}", "host": "h", "pid": n, "shards": [n], "ago_s": 0.7} for n in (1, 2)
        ],
        "restarts": 0,
        "verified_records": 30,
        "unverified_records": 0,
        "verified_s": 4.0,
        "different": 0,
        "topics": 1,
        "lag_records": 1,
        "lag_bytes": 90,
        "lag_s": 0.4,
        "records_per_s": 12.5,
        "bytes_per_s": 1_100.0,
        "last_commit_s": 0.3,
        "trouble": {},
        "cautions": [],
        "operations": [],
        "acting": {},
        "topic_states": [
            {
                "topic": topic,
                "state": state,
                "owner": owner,
                "reason": reason,
                "commands": [f"hub mirror {each} nyc-lon --topic {topic}" for each in commands],
            }
            for topic, state, owner, reason, commands in (
                (ORDERS, "mirroring", "nyc", "", ("pause", "promote", "failover")),
                (f"{ORDERS}.held", "paused", "nyc", "paused by ada@ops-1", ("resume", "failover", "drop")),
                (f"{ORDERS}.moved", "failed over", "lon", "lon serves it", ("failback",)),
            )
        ],
        "partitions": [place],
        "groups": [group],
        "gaps": [],
        "rehearsal": staged_rehearsals(now),
    }
    away = {
        "mirror": "lon-tyo",
        "source": "lon",
        "target": "tyo",
        "state": "unknown",
        "reason": "cluster tyo does not answer",
        "ok": False,
        "topics_known": [ORDERS],
    }
    hub.mirrors = MirrorFacts([mirror, away], now, here=frozenset({"nyc"}), clusters={"lon": "lon-1:9092"})
    hub.ledger = staged(now)
    hub.connect = connect_of(
        [_worker("http://connect-1:8083", now), WorkerAnswer("http://connect-2:8083")], now
    )
    return hub


def _worker(url: str, now_ms: int) -> WorkerAnswer:
    """A Kafka Connect with one running connector and one with a failed task."""

    def part(state: str, **more: Any) -> dict[str, Any]:
        return {"state": state, "worker_id": "10.0.0.7:8083", **more}

    trace = "org.apache.kafka.connect.errors.ConnectException: <b>no</b> index\n\tat a.B.c(B.java:1)"
    body = {
        "orders-to-search": {
            "status": {
                "connector": part("RUNNING"),
                "tasks": [part("RUNNING", id=0), part("FAILED", id=1, trace=trace)],
                "type": "sink",
            },
            "info": {"config": {"connector.class": "io.example.SearchSink"}},
        },
        "<b>odd</b> & old": {
            "status": {"connector": part("PAUSED"), "tasks": [], "type": "source"},
            "info": {},
        },
    }
    return WorkerAnswer(url).answered(connectors_of(body), now_ms)


__all__ = ["HOSTILE", "ORDERS", "StagedEstate", "estate", "lag_row", "spec"]


@contextmanager
def served_estate() -> Iterator[StagedEstate]:
    """Serve an estate; its ``url`` is the address."""
    made = estate()
    with served(made.app()) as url:
        made.url = url
        yield made
    assert made.node is not None
    made.node.stop()
