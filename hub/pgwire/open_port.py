"""[edge] Open the port of Postgres' protocol in the server's process,
with its query service and its sign-in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

from hub.access.authenticate import Authenticator
from hub.access.live_config import LiveAccess
from hub.config import Settings
from hub.materializers.queries.answering.service import QueryService
from hub.pgwire.catalog.engine import Catalogs
from hub.pgwire.queries import PgQueries
from hub.pgwire.results import ResultLimits
from hub.pgwire.server import ListenerOptions, PgServer, tls_context
from hub.pgwire.sign_in import DatabaseSignIn
from hub.pgwire.statement_log import StatementLog


async def open_database_port(
    settings: Settings,
    access: LiveAccess,
    authenticator: Authenticator,
    service: QueryService,
    opened: AsyncExitStack,
    log: Callable[[], StatementLog | None] = lambda: None,
) -> None:
    """Listen for SQL tools by Postgres' protocol if the settings name a port. Raises ConfigError."""
    if settings.pgwire_port is None:
        return
    folder = settings.project
    certificate, key = (
        None if each is None else folder / each for each in (settings.pgwire_certificate, settings.pgwire_key)
    )
    options = ListenerOptions(
        settings.pgwire_host or settings.http_host,
        settings.pgwire_port,
        settings.pgwire_connections,
        settings.pgwire_connections_per_caller,
        settings.pgwire_idle_s,
        tls_context(certificate, key),
    )
    limits = ResultLimits(settings.pgwire_rows, settings.pgwire_result_mb << 20)
    queries = PgQueries(service, Catalogs(service), limits)
    server = PgServer(options, queries, DatabaseSignIn(access, authenticator, log))
    await server.start()
    opened.push_async_callback(server.close)
