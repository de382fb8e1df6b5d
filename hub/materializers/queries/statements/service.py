"""[shell] Run statements about views and topics, and wait for a view if asked."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hub.caller import Action, Kind, Resource, require
from hub.errors import PeerError
from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.statements.answers import HubLists, StatementRows
from hub.materializers.queries.statements.changes import WAIT, ProjectViews
from hub.materializers.queries.statements.grammar import (
    CODE,
    CreateView,
    DescribeTable,
    DropView,
    Explain,
    HubStatement,
    ShowCreate,
    ShowList,
)

T = TypeVar("T")
Run = Callable[[Callable[[], T]], Awaitable[T]]
_LONGEST_WAIT_S = 60
_LOOK_S = 0.25
_SPAN = re.compile(r"(\d{1,2})\s*(?:s|seconds?)?")
_LIVE = ("live", "realtime")


@dataclass(frozen=True, slots=True)
class Statements:
    """Runs statements over one project and one store."""

    files: ProjectViews
    lists: HubLists

    async def answer(self, statement: HubStatement, run: Run[Any]) -> StatementRows:
        """Return the rows of a statement. Raises SqlError, ConfigError, Conflict, Forbidden, PeerError.

        ``run`` runs what blocks in a thread.
        """
        wait_s = _wait_of(statement) if isinstance(statement, CreateView) else 0
        rows: StatementRows = await run(lambda: self._answered(statement))
        if wait_s and isinstance(statement, CreateView):
            await self._until_live(statement.name, wait_s, run)
        return rows

    def _answered(self, statement: HubStatement) -> StatementRows:
        match statement:
            case ShowList():
                return self.lists.shown(statement)
            case ShowCreate(name):
                require(Action.read, Resource(Kind.view, name))
                text = self.files.text(name)
                return StatementRows(("line",), [(line,) for line in text.splitlines()])
            case DescribeTable(name):
                return self.lists.described(name)
            case Explain(str() as sql):
                return self.lists.explained(sql)
            case Explain(CreateView() | DropView() as change):
                return self._changed(change, dry=True)
            case _:
                assert isinstance(statement, CreateView | DropView)
                return self._changed(statement, dry=False)

    def _changed(self, statement: CreateView | DropView, *, dry: bool) -> StatementRows:
        if isinstance(statement, CreateView):
            change, outcome = self.files.created(statement), "nothing: it exists"
        else:
            change, outcome = self.files.dropped(statement), "nothing: it does not exist"
        if change is None:
            return StatementRows(("item", "value"), [("view", statement.name), ("done", outcome)])
        if not dry:
            self.files.write(change)
        return self.lists.change(
            change, "nothing, this is a dry run" if dry else _done(change.before, change.text)
        )

    async def _until_live(self, view: str, wait_s: float, run: Run[Any]) -> None:
        """Wait until the view reports that it is live. Raises PeerError with its state after the time."""
        deadline = time.monotonic() + wait_s
        while True:
            records = await run(lambda: self.lists.newest(self.lists.store.progress()))
            state = records.get(f"state:{view}", {})
            if state.get("state") in _LIVE:
                return
            if time.monotonic() > deadline:
                status = f"it is {state['state']}" if state else "the materializer has not reported it"
                raise PeerError(
                    f'view "{view}" is created, but not live after {wait_s:g} s: {status}',
                    hint=state.get("reason") or f"it starts all the same: SHOW VIEWS LIKE '{view}'",
                    code="HUB-3053",
                )
            await asyncio.sleep(_LOOK_S)


def _done(before: str, text: str | None) -> str:
    if text is None:
        return "dropped"
    return "replaced: the new version serves as soon as it is ready" if before else "created"


def _wait_of(statement: CreateView) -> int:
    """Return the seconds to wait. Raises SqlError."""
    wait = statement.options.get(WAIT)
    if wait is None:
        return 0
    match = _SPAN.fullmatch(wait.strip())
    if match is None or not 1 <= int(match[1]) <= _LONGEST_WAIT_S:
        raise SqlError(
            f'option wait: "{wait[:40]}" is not a time of 1 to {_LONGEST_WAIT_S} seconds',
            hint="WITH (wait = '30 seconds')",
            code=CODE,
        )
    if statement.replace:
        raise SqlError(
            "option wait is for a new view: a replaced one serves its former version meanwhile",
            hint=f"leave wait out; hub view show {statement.name} shows the versions",
            code=CODE,
        )
    return int(match[1])
