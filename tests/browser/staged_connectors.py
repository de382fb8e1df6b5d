"""Connectors for pages of tests: one that runs, one of which a task failed; what is done to them is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hub.errors import CallerError, NotFound
from hub.observability.lineage.live_graph import ConnectorFlow
from hub.observability.web.pages.monitor.connector import ConnectorDetail, ConnectorTask, planned
from hub.observability.web.pages.monitor.sinks import SinkLine

TRACE = "org.apache.kafka.connect.errors.ConnectException: <b>no</b> index\n\tat a.B.c(B.java:1)"


def detail(name: str, *states: str, own: str = "RUNNING") -> ConnectorDetail:
    """Return a connector with a task per state; those that failed have a trace."""
    return ConnectorDetail(
        name,
        "io.example.SearchSink",
        own,
        "connect-1:8083",
        "",
        tuple(
            ConnectorTask(id, state, "connect-1:8083", TRACE if state == "FAILED" else "")
            for id, state in enumerate(states)
        ),
        (("connection.password", "${env:SEARCH_PASSWORD}"), ("topics", "shop.orders")),
        ("shop.orders",),
        "web",
        "Orders as people search for them.",
        True,
    )


@dataclass
class StagedConnectors:
    """The port of the pages (estate.HasConnectors)."""

    known: dict[str, ConnectorDetail] = field(
        default_factory=lambda: {
            "orders-search": detail("orders-search", "RUNNING", "FAILED"),
            "crm": detail("crm", "RUNNING"),
        }
    )
    done: list[tuple[str, str, str]] = field(default_factory=list)

    def detail(self, name: str) -> ConnectorDetail:
        if name not in self.known:
            raise NotFound(f'connector "{name}" does not exist')
        return self.known[name]

    def flows(self, topics: Sequence[str]) -> Sequence[ConnectorFlow]:
        there = tuple(each for each in topics if each == "shop.orders")
        return [ConnectorFlow("orders-search", False, "search:9200", there, "web")] if there else []

    def act(self, name: str, action: str, by: str) -> ConnectorDetail:
        before = self.detail(name)
        if not planned(action, before).steps:
            raise CallerError(f'connector "{name}": there is nothing to {action}')
        self.done.append((name, action, by))
        state = "PAUSED" if action == "pause" else "RUNNING"
        tasks = tuple(replace(task, state=state, trace="") for task in before.tasks)
        self.known[name] = replace(before, state=state, tasks=tasks)
        return before


@dataclass
class StagedSinks:
    """A sink in each of four states. ``flows``: none, so that the lineage stays that of other tests."""

    def lines(self) -> list[SinkLine]:
        late = SinkLine("alerts", "DELIVERING", "", "shop.orders", "webhook", "${URL}", "risk")
        return [
            SinkLine(
                "archive", "DELIVERING", "", "shop.orders", "files", "exports", "ops", "", 0.0, 0, 77, 0
            ),
            replace(
                late,
                where="amount > 1000 AND country <> 'NO'",
                lag_s=402.0,
                lag_records=12_345,
                delivered=1_000_000,
                refused=3,
                late=True,
            ),
            SinkLine("ledger", "FAILING", 'table "t" has no column <b>x</b>', "shop.orders", "database", "t"),
            SinkLine("copies", "UNKNOWN", "no worker reports: hub up", "views.customer_360", "topic", "x.y"),
        ]

    def flows(self, _topics: Sequence[str]) -> list[ConnectorFlow]:
        return []
