"""Every route and command that changes something has its action in the access log."""

from __future__ import annotations

from typing import Any

import pytest

from hub.access.authenticate import AuthRequest
from hub.access_log.actions import LoggedAction
from hub.api.auditing.request_log import claimed_name
from hub.api.auditing.route_actions import (
    READS_LOGGED,
    ROUTES_LOGGED,
    changes_registry,
    logged_route,
    object_name,
)
from hub.api.route_rules import ROUTES
from hub.caller import Action
from hub.cli import COMMANDS, load_command
from hub.cli.audited import LOGGED
from hub.materializers.queries.parser import without_literals
from hub.schema_registry.http.access_rules import RULES

REGISTRY = ("/subjects", "/schemas", "/config", "/mode", "/contexts", "/compatibility", "/v1/metadata")


def test_every_writing_route_has_an_action() -> None:
    writing = {
        template
        for template, methods in ROUTES.items()
        if set(methods) - {"GET", "HEAD"} and not template.startswith(REGISTRY)
    }
    assert writing == set(ROUTES_LOGGED), "add it to hub/api/auditing/route_actions.py"
    assert set(READS_LOGGED) <= set(ROUTES)
    for template in writing:
        for method in set(ROUTES[template]) - {"GET", "HEAD"}:
            assert logged_route(template, method, template) is not None


def test_a_parameter_that_names_the_object_is_in_the_path() -> None:
    for template, route in (ROUTES_LOGGED | READS_LOGGED).items():
        if route.named and route.named != "id":
            assert f"{{{route.named}" in template


def test_operators_and_admins_routes_are_changes() -> None:
    """Fail closed: only data, SQL, and sign-in are logged after the fact."""
    for template, methods in ROUTES.items():
        for method, rule in methods.items():
            if method != "GET" and rule.action in (Action.operate, Action.admin):
                route = logged_route(template, method, template)
                assert route is not None and route.is_change, (method, template)
    after = {template for template, route in ROUTES_LOGGED.items() if not route.is_change}
    assert after == {
        *("/sign-in", "/sign-out", "/query", "/query/changes", "/views/{view}/changes", "/hooks/{name}"),
        *("/topics/{topic}/records", "/topics/{topic}/events", "/api/audit/receipts"),
        "/topics/{topic}/produce",
        "/v3/clusters/{cluster}/topics/{topic}/records",
        *("/api/workbench/plan", "/api/workbench/preview", "/api/workbench/save"),
    }


@pytest.mark.parametrize("pattern", RULES)
def test_writes_of_the_registry_are_changes(pattern: str) -> None:
    path = "/" + "/".join(part or "x" for part in pattern.split("/"))
    for place in (path, f"/contexts/.eu{path}"):
        if pattern.startswith("contexts") and place != path:
            continue
        for method, (action, _) in RULES[pattern].items():
            assert changes_registry(place, method) == (action in (Action.write, Action.admin)), (
                method,
                place,
            )


def commands(path: str, command: Any) -> dict[str, list[str]]:
    """Return the parameters of each command by its words."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return {path: [each.name for each in command.params]}
    return {
        name: params
        for word, each in inner.items()
        for name, params in commands(f"{path} {word}", each).items()
    }


# Commands that read, or that the server carries out and logs, or that are the hub's own processes.
NOT_LOGGED = """
init; up; down; status; logs; config show; config explain; doctor; demo flights; top; serve; materialize
check-conformance; apply-changelogs; schema plan; schema check; schema explain; schema diff; schema search
schema infer; schema backup; schema ls; schema show; schema versions; topic tree; topic plan; topic drift
group show; topic generations; topic consume
topic describe; topic import; topic ls; topic conformance; mirror ls; mirror plan; mirror run
mirror status; mirror report verify
mirror verify; mirror left-behind; outbox relay; outbox status; webhook ls; webhook send; connector init
connector ls; connector validate; connector plan; connector drift; connector logs; connector plugins
sink ls; sink show; sink validate; sink run; view search
connector offsets show; lake ls; lake run; lake verify; dlq ls; dlq show; backup ls; backup verify; view new
view show; view get; view history; view diff;
    view verify; view test; view plan; view apply; view rollback; view drop; view rewind; view ls
view recompute; view validate; view explain; query; sql; mcp; watch; lag; latency; lineage; completeness run
completeness show; completeness missing; canary view; alert ls; alert show; alert test; alert silence
alert unsilence; alert rules; access hash; access check; access explain; access ls; access plan; access drift
access token create; access token ls; access token revoke; access session ls; access session revoke
access usage; access request
access requests ls; access requests show; access requests approve; access requests refuse
access requests withdraw; governance report; governance check
access audit ls; access audit tail; access audit verify; access audit export
erase plan; erase request; erase approve; erase cancel; erase ls; erase show; erase proof
kek ls; kek show; kek create; kek rotate; kek delete; import ksql; import flink; upgrade
"""


def test_every_command_is_logged_or_known_not_to_change_anything() -> None:
    found: dict[str, list[str]] = {}
    for name in COMMANDS:
        found |= commands(name, load_command(name))
    quiet = {each.strip() for line in NOT_LOGGED.splitlines() for each in line.split(";") if each.strip()}
    assert set(found) == set(LOGGED) | quiet, "name it in hub/cli/audited.py, or here"
    assert not set(LOGGED) & quiet
    for name, spec in LOGGED.items():
        assert not spec.named or spec.named in found[name], name


def test_no_literal_and_no_comment_of_a_statement_is_logged() -> None:
    canary = "ann@mask.example"
    for text in (
        f"SELECT * FROM v WHERE e = '{canary}'",
        f'SELECT * FROM v WHERE e = "{canary}"',
        f"SELECT E'{canary}', $${canary}$$, $x${canary}$x$, U&'{canary}', 4711 FROM v",
        f"SELECT 1 -- {canary}\n/* {canary} 4711 */ FROM v",
        f"SELECT '{canary}",
        f"SELECT x'{canary.encode().hex()}' FROM v LIMIT 4711",
    ):
        shown = without_literals(text)
        assert canary not in shown and canary.encode().hex() not in shown and "4711" not in shown
    assert without_literals('SELECT "a.b".x FROM "a.b"') == 'SELECT "a.b" . x FROM "a.b"'


def test_a_token_in_the_place_of_a_name_is_not_logged() -> None:
    def asked(value: str) -> AuthRequest:
        return AuthRequest({"authorization": [value]}, {}, "10.0.0.7")

    assert claimed_name(asked("Basic YW5hOnB3")) == "ana"
    assert claimed_name(asked("Basic aHVidF9zZWNyZXQ6")) == ""
    assert claimed_name(asked("Bearer hubt_secret")) == ""
    assert claimed_name(asked("Basic %%%")) == ""


def test_changes_and_reads_of_keys_are_logged_by_their_path() -> None:
    template = "/dek-registry/v1/{rest:anything}"
    root = "/dek-registry/v1/keks"
    for method, path, action, name in (
        ("POST", root, LoggedAction.key_change, ""),
        ("DELETE", f"{root}/pii", LoggedAction.key_change, "pii"),
        ("POST", f"{root}/pii/deks/a-value", LoggedAction.key_change, "pii/a-value"),
        ("GET", f"{root}/pii/deks/a-value/versions/2", LoggedAction.key_read, "pii/a-value/2"),
    ):
        route = logged_route(template, method, path)
        assert route is not None and route.action is action
        assert object_name(route, path, {}) == name
    for path in (root, f"{root}/pii", f"{root}/pii/deks"):
        assert logged_route(template, "GET", path) is None
