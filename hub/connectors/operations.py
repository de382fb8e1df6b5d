"""[shell] Connectors for the web pages: one in detail, and the actions of operators, each with an entry in
the audit log.

The audit log is the logger ``hub.audit``: who did what to which connector, and what it was before.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hub.connectors.connect_client import ConnectClient
from hub.connectors.connectors_file import Connectors, load_connectors
from hub.connectors.kinds import system_of
from hub.connectors.plan import ActualConnector, redacted, shown
from hub.connectors.rendering import covers
from hub.errors import CallerError, ConfigError, HubError
from hub.observability.lineage.live_graph import ConnectorFlow
from hub.observability.web.pages.monitor.connector import ConnectorDetail, ConnectorTask, planned
from hub.topics.dead_letters.record_format import kind_of

PAGE_S = 5.0
_LONGEST_TRACE = 20_000
audit = logging.getLogger("hub.audit")


@dataclass(frozen=True)
class ConnectOperations:
    """Reads and acts at Connect for people; bounded by ``PAGE_S`` seconds a request."""

    urls: Sequence[str]
    project: Path

    def detail(self, name: str) -> ConnectorDetail:
        """Return one connector. Raises NotFound, PeerError, ConfigError without workers."""
        connect = self._client()
        return self._detail(connect, connect.connector(name))

    def act(self, name: str, action: str, by: str) -> ConnectorDetail:
        """Carry out an action whose steps ``planned`` shows. Raises CallerError if there is nothing to do."""
        connect = self._client()
        actual_connector = connect.connector(name)
        detail = self._detail(connect, actual_connector)
        if not planned(action, detail).steps:
            raise CallerError(f'connector "{name}": there is nothing to {action.replace("-", " ")}')
        match action:
            case "pause":
                connect.set_state(name, "paused")
            case "resume":
                connect.set_state(name, "running")
            case _:
                connect.restart(name, only_failed=action == "restart-failed")
        audit.info(
            'connector "%s": %s by %s; it was %s', name, action, by or "somebody", actual_connector.state
        )
        return detail

    def flows(self, topics: Sequence[str]) -> Sequence[ConnectorFlow]:
        """Return the declared connectors with their topics and systems, from the file alone."""
        return [
            ConnectorFlow(
                name,
                spec.direction == "source",
                system_of(spec.java_class, spec.config),
                tuple(each for each in topics if covers(spec.topics, each) and kind_of(each) is None),
                spec.owner,
            )
            for name, spec in self._declared().by_name.items()
        ]

    def _client(self) -> ConnectClient:
        return ConnectClient(self.urls, timeout_s=PAGE_S, rebalance_s=0.0)

    def _detail(self, connect: ConnectClient, connector: ActualConnector) -> ConnectorDetail:
        file = self._declared()
        spec = file.by_name.get(connector.name)
        secrets = [os.environ.get(name, "") for name in file.variables]
        try:
            topics = tuple(connect.topics(connector.name))
        except HubError:  # the worker may not track topics (topic.tracking.enable)
            topics = ()
        return ConnectorDetail(
            connector.name,
            connector.config.get("connector.class", ""),
            connector.state,
            connector.worker,
            redacted(connector.trace, secrets)[:_LONGEST_TRACE],
            tuple(
                ConnectorTask(id, state, connector.worker, redacted(trace, secrets)[:_LONGEST_TRACE])
                for id, state, trace in connector.tasks
            ),
            tuple(
                (key, (shown(key, value) or "").strip('"')) for key, value in sorted(connector.config.items())
            ),
            topics,
            "" if spec is None else spec.owner,
            "" if spec is None else spec.doc,
            spec is not None,
        )

    def _declared(self) -> Connectors:
        try:
            return load_connectors(self.project)
        except ConfigError:
            return Connectors(self.project, {})
