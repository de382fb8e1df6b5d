"""Requests through the real guard: every writing route has its records, made from the list of routes."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from alert_receivers import until
from cheap_scrypt import cheap_scrypt
from patience import patient

from hub.access.authenticate import AuthenticatedCaller, AuthRequest
from hub.access.decide import Principal
from hub.access.live_config import LiveAccess
from hub.access.secrets import hash_of_password
from hub.access_log.chain import LogSigner
from hub.access_log.entry import StoredEntry
from hub.access_log.request import note_sql
from hub.access_log.search import LogFilter, find
from hub.access_log.writer import AccessLog
from hub.api.auditing.request_log import FirstUses, RequestLog
from hub.api.auditing.route_actions import logged_route
from hub.api.auditing.statement_log import DatabaseLog
from hub.api.guard import AuthenticationContext, Guard
from hub.api.route_rules import ROUTES, rule_of
from hub.caller import Unauthenticated
from hub.log import MemoryCluster
from hub.schema_registry.http.access_rules import RULES

PASSWORD = "correct horse"
with cheap_scrypt():
    FILE = f"""\
users:
  ana:
    password: "{hash_of_password(PASSWORD, b"0" * 16)}"
    grants: [{{role: read, topics: [shop.orders]}}]
  root:
    password: "{hash_of_password(PASSWORD, b"1" * 16)}"
    grants: [{{role: admin, topics: ["**"], views: ["**"], hub: true}}]
"""


@pytest.fixture(scope="module", autouse=True)
def _cheap_passwords() -> Iterator[None]:
    with cheap_scrypt():
        yield


class World:
    """The guard before an app that answers ``status``; the log in memory."""

    def __init__(self, folder: Path) -> None:
        (folder / "access.yaml").write_text(FILE)
        self.cluster, self.status, self.answered = MemoryCluster(), 200, 0
        door = AuthenticationContext(LiveAccess(folder), folder)
        self.log = AccessLog(self.cluster, LogSigner(b"k" * 32), "server", timeout_s=patient(5.0))
        door.request_log = RequestLog(self.log)
        self.guard = Guard(self.answer, door)

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        self.answered += 1
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            return
        if scope["path"] == "/query":
            note_sql(lambda: "SELECT ?", ["shop.orders"])
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(self, _message: Any) -> None: ...

    async def ask(self, method: str, path: str, user: str = "root", password: str = PASSWORD) -> int:
        value = b"Basic " + base64.b64encode(f"{user}:{password}".encode())
        scope = {
            "type": "websocket" if method == "WEBSOCKET" else "http",
            **({} if method == "WEBSOCKET" else {"method": method}),
            "path": path,
            "query_string": b"",
            "headers": [(b"host", b"hub"), (b"authorization", value)] if user else [(b"host", b"hub")],
            "client": ("10.0.0.7", 1),
            "extensions": {"websocket.http.response": {}},
        }
        status = 101

        async def send(message: Mapping[str, Any]) -> None:
            nonlocal status
            if message["type"].endswith("response.start"):
                status = message["status"]

        async def receive() -> Mapping[str, Any]:
            return {"type": "http.disconnect"}

        await self.guard(scope, receive, send)
        return status

    def entries(self, **filters: Any) -> list[StoredEntry]:
        return list(find(self.cluster, LogFilter(**filters), 10_000).entries)


@contextmanager
def world(folder: Path) -> Iterator[World]:
    made = World(folder)
    made.log.start()
    try:
        yield made
    finally:
        made.log.stop()


def writing_requests() -> Iterator[tuple[str, str]]:
    """Yield method and path of every request that writes, by the rules of access."""
    registry = ("/subjects", "/schemas", "/config", "/mode", "/contexts", "/compatibility", "/v1/metadata")
    for template, methods in ROUTES.items():
        if not template.startswith(registry):
            path = re.sub(r"\{[^}]*\}", "x", template)
            yield from ((method, path) for method in methods if method not in ("GET", "HEAD"))
    for pattern, rules in RULES.items():
        path = "/" + "/".join(part or "x" for part in pattern.split("/"))
        for method, (action, _) in rules.items():
            if action in ("write", "admin"):
                yield method, path


def test_every_writing_route_yields_its_records(tmp_path: Path) -> None:
    requests = list(writing_requests())
    assert len(requests) > 30

    async def crawl(made: World) -> None:
        for method, path in requests:
            await made.ask(method, path)

    with world(tmp_path) as made:
        asyncio.run(crawl(made))
        assert made.answered == len(requests)
    found = made.entries()
    for method, path in requests:
        template = next(
            each.entry.detail["route"]
            for each in found
            if each.entry.detail.get("method") == method
            and re.fullmatch(re.sub(r"\{[^}]*\}", ".+", each.entry.detail["route"]), path)
        )
        route = logged_route(template, method, path)
        assert route is not None
        results = [
            each.entry.result
            for each in found
            if (each.entry.detail.get("method"), each.entry.detail.get("route")) == (method, template)
            and each.entry.action == route.action
        ]
        assert results[:2] == (["started", "ok"] if route.is_change else ["ok"]), (method, path, results)


def test_refusals_reads_and_sign_ins(tmp_path: Path) -> None:
    async def act(made: World) -> None:
        assert await made.ask("GET", "/api/topics/hr.pay/messages", "ana") == 403
        assert await made.ask("POST", "/connect/x/restart", "ana") == 403
        assert await made.ask("GET", "/api/cluster", "ana", "wrong") == 401
        assert await made.ask("GET", "/api/cluster", "") == 401
        for _ in range(3):
            assert await made.ask("GET", "/api/topics/shop.orders/messages", "ana") == 200
        assert await made.ask("POST", "/query", "ana") == 200
        assert await made.ask("GET", "/views/customers/C-1") == 200  # neither masked nor refused
        made.status = 429
        assert await made.ask("GET", "/api/topics/shop.orders/messages", "ana") == 429
        made.status = 500
        assert await made.ask("PUT", "/config", "root") == 500

    with world(tmp_path) as made:
        asyncio.run(act(made))
    shown = {
        (each.entry.action, each.entry.result, each.entry.who.name, each.entry.name, each.entry.count)
        for each in made.entries()
    }
    assert shown == {
        ("export", "denied", "ana", "hr.pay", 1),
        ("connector.change", "denied", "ana", "x", 1),
        ("sign-in", "failed", "", "", 1),
        ("request", "denied", "", "", 1),
        ("sign-in", "ok", "ana", "", 1),
        ("export", "ok", "ana", "shop.orders", 1),
        ("export", "ok", "ana", "shop.orders", 2),
        ("sql", "ok", "ana", "", 1),
        ("sign-in", "ok", "root", "", 1),
        ("export", "denied", "ana", "shop.orders", 1),
        ("schema.change", "started", "root", "", 1),
        ("schema.change", "failed", "root", "", 1),
    }
    (failed,) = made.entries(action="sign-in", result="failed")
    assert failed.entry.detail["claimed"] == "ana" and failed.entry.who.address == "10.0.0.7"
    (sql,) = made.entries(action="sql", on="shop.orders")
    assert (sql.entry.detail["statement"], sql.entry.detail["tables"]) == ("SELECT ?", ["shop.orders"])


def test_the_app_is_not_asked_for_a_change_that_cannot_be_logged(tmp_path: Path) -> None:
    made = World(tmp_path)  # its log does not run: no record is ever acknowledged
    made.log.timeout_s = 0.01 - 1
    assert asyncio.run(made.ask("POST", "/connect/x/restart")) == 503
    assert made.answered == 0
    assert asyncio.run(made.ask("GET", "/api/topics/shop.orders/messages")) == 200
    made.log.start()
    until(lambda: len(made.entries(action="connector.change")) == 1, 10.0)
    made.log.stop()
    (only,) = made.entries(action="connector.change")
    assert (only.entry.result, only.entry.detail["error"]) == ("failed", "HUB-3094")


def refused_statement(log: DatabaseLog, known: AuthenticatedCaller) -> None:
    with log.statement(known, AuthRequest({}, {}, "10.0.0.7")):
        note_sql(lambda: "SELECT ?, ?", ["w"])
        raise Unauthenticated("sign in")


def test_statements_of_postgres_protocol(tmp_path: Path) -> None:
    ana = AuthenticatedCaller(Principal("ana", "user"), "password")
    basic = f"Basic {base64.b64encode(b'ana:wrong').decode()}"
    with world(tmp_path) as made:
        log = DatabaseLog(RequestLog(made.log))
        log.refused(AuthRequest({"authorization": [basic]}, {}, "10.0.0.7"), Unauthenticated("wrong"))
        log.signed_in(ana, AuthRequest({}, {}, "10.0.0.7"))
        with log.statement(ana, AuthRequest({}, {}, "10.0.0.7")):
            note_sql(lambda: "SELECT ?", ["v"])
        with pytest.raises(Unauthenticated):
            refused_statement(log, ana)
    assert [(each.entry.action, each.entry.result) for each in made.entries()] == [
        ("sign-in", "failed"),
        ("sign-in", "ok"),
        ("sql", "ok"),
        ("sql", "denied"),
    ]


@pytest.mark.parametrize(("kind", "shown"), [("own", "ana@laptop"), ("user", None)])
def test_only_the_hubs_own_commands_name_an_account(tmp_path: Path, kind: str, shown: str | None) -> None:
    asked = AuthRequest({"hub-account": ["ana@laptop"]}, {}, "10.0.0.7")
    scope = {"type": "http", "method": "POST", "path": "/connect/x/restart"}
    with world(tmp_path) as made:
        known = AuthenticatedCaller(Principal("someone", kind), "password")
        logged = RequestLog(made.log).request(rule_of(scope["path"], "POST"), known, asked, scope)
        asyncio.run(logged.run(made.answer, scope, None, made.send))
    assert {each.entry.detail.get("account") for each in made.entries(action="connector.*")} == {shown}


def test_a_use_counts_once_in_ten_minutes() -> None:
    uses, key = FirstUses(), ("token", "ci", "10.0.0.7")
    assert uses.is_first(key, 0.0) and not uses.is_first(key, 599.0) and uses.is_first(key, 600.0)
    assert uses.is_first(("token", "ci", "10.0.0.8"), 1.0)
