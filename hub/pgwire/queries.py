"""[shell] Queries of a connection: over views and topics by the query service, over catalogs by theirs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hub.errors import ConfigError, HubError
from hub.materializers.queries.answering.calls import QueryCall
from hub.materializers.queries.answering.service import QueryService
from hub.materializers.queries.inspection import placeholders
from hub.materializers.queries.parser import ParsedStatement, parse
from hub.materializers.queries.push.statement import push_statement
from hub.materializers.queries.relations import OutputColumn, Value
from hub.materializers.queries.running import RunningQuery
from hub.materializers.queries.saved_queries import load_queries
from hub.materializers.queries.statements.answers import columns_of
from hub.materializers.queries.statements.grammar import hub_statement
from hub.materializers.queries.topic_rows import missing_text
from hub.pgwire.actions import OpenPortal
from hub.pgwire.catalog.engine import Catalogs
from hub.pgwire.catalog.known_questions import plain_question
from hub.pgwire.catalog.rewrite import CatalogSession, is_catalog, parameter_types
from hub.pgwire.hub_sql import HubQuery, hub_query, parameter_count
from hub.pgwire.protocol.backend import Field
from hub.pgwire.push_rows import pushed
from hub.pgwire.results import ResultLimits, ResultSpool, fields_of
from hub.pgwire.session_settings import body_of, timeout_ms
from hub.pgwire.sqlstates import PgError, catching_up_fields, missing_fields
from hub.pgwire.statement_log import STATEMENT
from hub.pgwire.statements import SelectStatement, quoted_aliases
from hub.pgwire.values import types as t
from hub.pgwire.values.decode import Items, decoded
from hub.quotas.spending import pause_if_refused

log = logging.getLogger(__name__)

Gone = Callable[[], Awaitable[bool]]
_SAMPLES: Mapping[int, Value] = {
    **dict.fromkeys((t.INT2, t.INT4, t.INT8, t.OID), 0),
    **dict.fromkeys((t.FLOAT4, t.FLOAT8, t.NUMERIC), 0.5),
    t.BOOL: True,
}


@dataclass(slots=True)
class RunningPortal:
    """A query that runs or has run, and its rows. ``done`` are those that were sent."""

    query: SelectStatement
    running: RunningQuery
    spool: ResultSpool
    task: asyncio.Task[None]
    done: int = 0

    def close(self) -> None:
        if not self.task.done():
            self.running.cancel()
        self.spool.close()


@dataclass(frozen=True, slots=True)
class PgQueries:
    """Describes and runs the queries of all connections of a server."""

    service: QueryService
    catalogs: Catalogs
    limits: ResultLimits

    async def described(
        self,
        query: SelectStatement,
        types: Sequence[int],
        settings: Mapping[str, str],
        session: CatalogSession,
    ) -> tuple[list[int], list[Field]]:
        """Return the types of a query's parameters and its columns, without running it. Raises HubError."""
        if (hub_command := hub_statement(query.sql)) is not None:
            return [], fields_of([OutputColumn(name, "string") for name in columns_of(hub_command)], ())
        push = push_statement(query.sql)
        statement = push.statement if push is not None else parse(quoted_aliases(plain_question(query.sql)))
        count = max(parameter_count(statement), len(types))
        declared = [*types, *(0 for _ in range(count - len(types)))]
        with self.service.gate.admitted():
            deadline = self.service.deadline(timeout_ms(settings))
            async with self.service.gate.slot(deadline):
                if is_catalog(statement):
                    samples = [_SAMPLES.get(each) for each in declared]
                    describe = partial(self.catalogs.describe, statement, samples, session)
                    fields = await self.service.gate.run(describe)
                    return parameter_types(statement, declared), fields
                samples = [_SAMPLES.get(each) for each in declared]
                work = partial(self._described, statement, samples, settings)
                return await self.service.gate.run(partial(work, declared))

    def _described(
        self,
        statement: ParsedStatement,
        samples: Sequence[Value | Items],
        settings: Mapping[str, str],
        declared: list[int],
    ) -> tuple[list[int], list[Field]]:
        query = self._query_of_hub(statement, samples)
        body = body_of(settings, statement.text, query.parameters, 1)
        running = RunningQuery(self.service.deadline(timeout_ms(settings)))
        call = QueryCall(
            *(self.service.queries, self.service.topics, query.statement, body, None, running),
            self.service.not_yet,
        )
        compiled = call.describe()
        found = []
        for number, oid in enumerate(declared, 1):
            kind = compiled.parameter_kinds.get(f"p{number}")
            one_of = compiled.parameter_kinds.get(f"p{number}_1")
            inferred = t.OID_OF_KIND[kind or one_of or "string"]
            found.append(oid or (t.BY_OID[inferred].array if one_of else inferred))
        return found, fields_of(compiled.columns, ())

    def opened(
        self, portal: OpenPortal, settings: Mapping[str, str], session: CatalogSession, gone: Gone
    ) -> RunningPortal:
        """Begin a query in a task of its own, which writes the portal's rows."""
        running = RunningQuery(self.service.deadline(timeout_ms(settings)))
        loop = asyncio.get_running_loop()
        spool = ResultSpool(loop, self.limits, portal.result_formats, portal.copy)
        work = self._run(portal, settings, session, gone, running, spool)
        return RunningPortal(portal.query, running, spool, loop.create_task(work))

    async def _run(
        self,
        portal: OpenPortal,
        settings: Mapping[str, str],
        session: CatalogSession,
        gone: Gone,
        running: RunningQuery,
        spool: ResultSpool,
    ) -> None:
        try:
            with STATEMENT.get()():
                behind = await self._answered(portal, settings, session, gone, running, spool)
        except (HubError, PgError) as error:
            await pause_if_refused()
            spool.finish(error)
        except Exception as error:
            log.exception("a query of Postgres' protocol failed")
            spool.finish(
                PgError("XX000", f"the hub failed to answer ({type(error).__name__}); its log says why")
            )
        else:
            spool.finish(None, behind)

    async def _answered(
        self,
        portal: OpenPortal,
        settings: Mapping[str, str],
        session: CatalogSession,
        gone: Gone,
        running: RunningQuery,
        spool: ResultSpool,
    ) -> Sequence[Mapping[str, str]]:
        """Fill the spool; return the fields of warnings about missing rows. Raises HubError, PgError."""
        if hub_statement(portal.query.sql) is not None:
            body = body_of(settings, portal.query.sql, {}, self.limits.rows + 1)
            await self.service.answer(body, gone, take=spool.take)
            return ()
        if (push := push_statement(portal.query.sql)) is not None:
            values = _values(portal, parameter_count(push.statement))
            query = hub_query(push.statement, values, {})
            push = replace(push, statement=query.statement)
            await pushed(self.service.push, push, query.parameters, running, spool)
            return ()
        statement = parse(quoted_aliases(plain_question(portal.query.sql)))
        values = _values(portal, parameter_count(statement))
        if is_catalog(statement):
            await self._on_catalog(statement, values, session, running, spool)
            return ()
        query = await self.service.gate.run(partial(self._query_of_hub, statement, values))
        body = body_of(settings, portal.query.sql, query.parameters, self.limits.rows + 1)
        answer, scanned = await self.service.answer(
            body, gone, statement=query.statement, running=running, take=spool.take
        )
        warnings = [catching_up_fields(answer.catching_up)] if answer.catching_up else []
        missing = missing_text(scanned)
        return [*warnings, missing_fields(missing)] if missing else warnings

    async def _on_catalog(
        self,
        statement: ParsedStatement,
        values: Sequence[Value | Items],
        session: CatalogSession,
        running: RunningQuery,
        spool: ResultSpool,
    ) -> None:
        with self.service.gate.admitted():
            async with self.service.gate.slot(running.deadline):
                await self.service.gate.run(
                    partial(self.catalogs.run, statement, values, session, running, spool)
                )

    def _query_of_hub(self, statement: ParsedStatement, values: Sequence[Value | Items] | None) -> HubQuery:
        saved: dict[str, str] = {}
        if "queries" in statement.text.lower():
            try:
                saved = {each.name: each.sql for each in load_queries(self.service.project)}
            except ConfigError as error:
                raise PgError("58030", error.message, error.hint) from None
            saved = {name: sql for name, sql in saved.items() if not placeholders(parse(sql))}
        return hub_query(statement, values, saved)


def _values(portal: OpenPortal, count: int) -> list[Value | Items]:
    """Return the values of the parameters. Raises PgError, SqlError."""
    if len(portal.values) < count:
        raise PgError(
            "08P01", f"bind message supplies {len(portal.values)} parameters, but {count} are required"
        )
    found: list[Value | Items] = []
    for number, raw in enumerate(portal.values):
        oid = portal.types[number] if number < len(portal.types) else 0
        form = portal.formats[number] if len(portal.formats) > 1 else next(iter(portal.formats), 0)
        found.append(decoded(raw, oid, form, number + 1))
    return found
