"""Guard of the real app with an access file: every route has a rule, and the rule is enforced.

Kafka is unavailable: 5xx or 404 come from behind the guard, 401 and 403 from the guard itself.
"""

from __future__ import annotations

import base64
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cheap_scrypt import cheap_scrypt
from fastapi import FastAPI, Request, WebSocket
from fastapi.testclient import TestClient
from patience import wait_until
from starlette.routing import WebSocketRoute
from starlette.testclient import WebSocketDenialResponse

from hub.access.authenticate import Proxies
from hub.access.live_config import LiveAccess
from hub.access.secrets import hash_of_password, hash_of_token
from hub.access.throttle import MOST_FAILURES
from hub.api import app as app_module
from hub.api import sign_in
from hub.api.app import create_app
from hub.api.guard import READ_EVERY_S, AuthenticationContext, Guard
from hub.api.route_rules import ROUTES, rule_of
from hub.caller import CALLER, Action
from hub.config import Settings
from hub.errors import CallerError
from hub.home_key import OWN, make_key, own_password
from hub.log import MemoryCluster
from hub.observability.web.forms import posted
from hub.schema_registry.http.access_rules import RULES
from hub.schema_registry.http.routes import Api
from hub.schema_registry.server.node import RegistryNode

TOKEN = "hubt_checkout"
with cheap_scrypt():
    ANA_HASH, BOB_HASH, ADMIN_HASH, EVE_HASH = (
        hash_of_password(word, salt * 16)
        for word, salt in (
            ("correct horse", b"0"),
            ("battery staple", b"1"),
            ("all of it", b"2"),
            ("nothing at all", b"3"),
        )
    )
FILE = f"""\
contact: "#data-platform"
groups:
  shop: [{{role: read, topics: ["shop.**"], views: [customer_360]}}]
  ops:
    - {{role: operate, topics: ["**"], views: ["**"], hub: true}}
    - {{role: read, topics: ["**"], views: ["**"], hub: true}}
users:
  ana: {{password: "{ANA_HASH}", groups: [shop]}}
  bob: {{password: "{BOB_HASH}", groups: [ops]}}
  admin: {{password: "{ADMIN_HASH}", grants: [{{role: admin, topics: ["**"], views: ["**"], hub: true}}]}}
  eve: {{password: "{EVE_HASH}"}}
  carl: {{groups: [ops]}}
tokens:
  checkout: {{token: "{hash_of_token(TOKEN)}", grants: [{{role: write, topics: [shop.orders]}}]}}
"""
ANA, BOB, ADMIN, EVE = (
    ("ana", "correct horse"),
    ("bob", "battery staple"),
    ("admin", "all of it"),
    ("eve", "nothing at all"),
)
BEARER = {"Authorization": f"Bearer {TOKEN}"}
PAGE = {"Accept": "text/html"}


def settings_of(folder: Path, **more: Any) -> Settings:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    return Settings(
        project=folder,
        home=home,
        bootstrap="127.0.0.1:1",
        kafka_timeout_s=0.2,
        http_port=1,
        access_log=False,  # without Kafka it would refuse changes before the routes do
        **more,
    )


@pytest.fixture(scope="module", autouse=True)
def cheap_passwords() -> Iterator[None]:
    with cheap_scrypt():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guarded")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    (folder / "access.yaml").write_text(FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app_module, "REGISTRY_WAIT_S", 0.1)
        app = create_app(settings_of(folder, alerts=True))
        with TestClient(app, follow_redirects=False, raise_server_exceptions=False) as opened:
            yield opened


@pytest.fixture(autouse=True)
def no_cookies(client: TestClient) -> Iterator[None]:
    yield
    client.cookies.clear()


def routes_of(router: Any) -> Iterator[Any]:
    """Return every route, including those of nested routers."""
    for route in router.routes:
        inner = getattr(route, "original_router", None)
        if inner is None:
            yield route
        else:
            yield from routes_of(inner)


def shape(template: str) -> str:
    return re.sub(r"\{[^}:]*", "{", template)


RULED = {shape(template): methods for template, methods in ROUTES.items()}


def test_every_route_of_the_app_has_a_rule(client: TestClient) -> None:
    seen = 0
    for route in routes_of(client.app.router):  # type: ignore[attr-defined]
        seen += 1
        if route.path == "/{rest:path}":  # the page of an address that is not there
            assert rule_of("/anything", "GET") is None
            continue
        rules = RULED.get(shape(route.path))
        assert rules is not None, f"{route.path} has no rule: add it to hub/api/route_rules.py"
        # A route for every method has rules for all of its methods.
        methods = {"WEBSOCKET"} if isinstance(route, WebSocketRoute) else set(route.methods or rules)
        assert methods
        for method in methods:
            assert method in rules, f"{method} {route.path} has no rule: add it to hub/api/route_rules.py"
    assert seen > 80


def test_a_rule_is_asked_for_its_own_route_and_for_no_other(client: TestClient) -> None:
    """Guard and router interpret a path alike: no template hides another one with different rules."""
    for template, methods in ROUTES.items():
        path = re.sub(r"\{[^}]*\}", "x", template)
        for method, rule in methods.items():
            found = rule_of(path, method)
            assert found is not None and found[0] == rule, (method, path)


def test_the_registry_has_a_rule_for_each_of_its_paths() -> None:
    table = {pattern: set(methods) for pattern, methods in Api(RegistryNode(MemoryCluster())).paths.paths}
    assert table == {pattern: set(methods) for pattern, methods in RULES.items()}


def test_what_is_open_is_counted() -> None:
    """A new open route must be added here."""
    opened = {
        template for template, methods in ROUTES.items() if any(each.is_open for each in methods.values())
    }
    login = {"/sign-in/oidc", "/sign-in/oidc/callback"}
    # A webhook's sender proves itself by its signature.
    signed = {"/hooks/{name}"}
    assert opened == {"/health", "/ui/static/{name}", "/sign-in", "/sign-out"} | login | signed
    # Routes that are open to everybody and change something are checked further inside: by the registry,
    # tables or topics.
    changed = {
        (method, template)
        for template, methods in ROUTES.items()
        for method, rule in methods.items()
        if method not in ("GET", "HEAD") and rule.action is None and not rule.is_open
    }
    registry = (
        *("/subjects", "/schemas", "/config", "/mode", "/contexts", "/compatibility", "/v1/metadata"),
        "/dek-registry",
    )
    assert {each for each in changed if not each[1].startswith(registry)} == {
        ("POST", "/query"),
        # hub/materializers/workbench/service.py requires the grants
        ("POST", "/api/workbench/plan"),
        ("POST", "/api/workbench/preview"),
        ("POST", "/api/workbench/save"),
        ("WEBSOCKET", "/query/changes"),
        ("POST", "/api/audit/receipts"),
        # hub/topics/groups/reset.py requires operate of each topic
        ("POST", "/groups/{group:path}/offsets"),
        ("POST", "/api/groups/{group:path}/offsets"),
        ("POST", "/alerts/silences"),
        ("POST", "/alerts/silences/{id}/end"),
        ("POST", "/api/alerts/silences"),
        ("DELETE", "/api/alerts/silences/{id}"),
        # one's own tokens and sessions: hub/access/personal_token_routes.py and session_routes.py
        ("POST", "/tokens"),
        # hub/access_requests/asking.py: whoever has a name asks; owners and admins answer
        ("POST", "/access-requests"),
        ("POST", "/api/access/requests"),
        *(
            ("POST", f"{root}/{{id}}/{action}")
            for root in ("/access-requests", "/api/access/requests")
            for action in ("approve", "refuse", "withdraw")
        ),
        ("POST", "/tokens/{id}/revoke"),
        ("POST", "/api/access/tokens"),
        ("DELETE", "/api/access/tokens/{id}"),
        ("POST", "/sessions/{id}/end"),
        ("DELETE", "/api/access/sessions/{id}"),
    }


def test_a_route_without_a_rule_is_refused(client: TestClient) -> None:
    client.app.add_api_route("/brand-new", lambda: {"secret": 1})  # type: ignore[attr-defined]
    client.app.add_api_route("/topics/{topic}/brand-new", lambda topic: {"secret": 1})  # type: ignore[attr-defined]
    for path in ("/brand-new", "/topics/shop.orders/brand-new"):
        for headers in ({}, PAGE):
            assert client.get(path, auth=ADMIN, headers=headers).status_code == 404
            assert client.get(path, headers=headers).status_code in (303, 401)
    assert client.delete("/topics/shop.orders", auth=ADMIN).status_code == 404


@pytest.mark.parametrize("template", sorted(ROUTES))
def test_nobody_reaches_anything_without_saying_who(client: TestClient, template: str) -> None:
    path = re.sub(r"\{[^}]*\}", "x", template)
    for method, rule in ROUTES[template].items():
        if rule.is_open or method == "WEBSOCKET":
            continue
        answer = client.request(method, path)
        assert answer.status_code == 401, (method, path, answer.text)
        assert "Basic" in answer.headers["www-authenticate"]


@pytest.mark.parametrize("template", sorted(ROUTES))
def test_whom_nothing_is_granted_reaches_nothing_in_particular(client: TestClient, template: str) -> None:
    path = re.sub(r"\{[^}]*\}", "x", template)
    for method, rule in ROUTES[template].items():
        if rule.action is not None and method != "WEBSOCKET":
            answer = client.request(method, path, auth=EVE)
            assert answer.status_code == 403, (method, path, answer.text)


@pytest.mark.parametrize(
    ("method", "path", "who", "status"),
    [
        ("GET", "/api/topics/shop.orders/messages", ANA, None),
        ("GET", "/api/topics/shop.orders.dlq/messages", ANA, None),
        ("GET", "/api/topics/hr.salaries/messages", ANA, 403),
        ("GET", "/api/topics/views.customer_360/messages", ANA, None),
        ("GET", "/api/topics/_schemas/messages", BOB, 403),
        ("GET", "/api/topics/_schemas/messages", ADMIN, None),
        ("GET", "/views/customer_360", ANA, None),
        ("GET", "/views/customer_360/C-1", ANA, None),
        ("GET", "/views/salaries/C-1", ANA, 403),
        ("GET", "/views/salaries/changes", ANA, 403),
        ("GET", "/view-versions/customer_360", ANA, None),
        ("POST", "/view-versions/customer_360", BOB, 403),
        ("POST", "/topics/shop.orders/records", ANA, 403),
        ("POST", "/dlq/shop.orders.dlq/0/1/replay", ANA, 403),
        ("POST", "/dlq/shop.orders.dlq/0/1/replay", BOB, None),
        ("GET", "/api/mirrors", ANA, 403),
        ("GET", "/api/mirrors", BOB, None),
        ("GET", "/regions", ANA, 403),
        ("GET", "/api/regions", ANA, 403),
        ("GET", "/api/regions", BOB, None),
        ("GET", "/api/mirrors/x/translate?topic=shop.orders&offset=1", ANA, 403),
        ("GET", "/api/mirrors/x/translate?topic=shop.orders&offset=1", BOB, None),
        ("GET", "/api/alerts", ANA, None),
        ("GET", "/api/alerts", BOB, None),
        ("DELETE", "/api/alerts/silences/x", ANA, 403),
        ("DELETE", "/api/alerts/silences/x", BOB, None),
        ("POST", "/api/alerts/channels/ops/test", ANA, 403),
        ("GET", "/latency", ANA, None),
        ("GET", "/api/cluster", ANA, 403),
        ("GET", "/api/cluster", BOB, None),
        ("GET", "/api/connect", ANA, 403),
        ("GET", "/metrics", ANA, 403),
        ("GET", "/metrics", BOB, None),
        ("GET", "/subjects/hr.salaries-value/versions", ANA, 403),
        ("GET", "/contexts/eu/subjects/hr.salaries-value/versions", ANA, 403),
        ("GET", "/subjects/:.eu:hr.salaries-value/versions/1", ANA, 403),
        ("GET", "/subjects/hr.salaries-value/versions/latest", ANA, 403),
        ("PUT", "/config", BOB, 403),
        ("PUT", "/config/shop.orders-value", BOB, 403),
        ("PUT", "/config/:.eu:", ANA, 403),
        ("DELETE", "/subjects/shop.orders-value", BOB, 403),
        ("DELETE", "/contexts/eu", BOB, 403),
        ("POST", "/dek-registry/v1/keks", ANA, 403),
        ("GET", "/dek-registry/v1/keks/pii/deks/hr.salaries-value", ANA, 403),
        ("DELETE", "/dek-registry/v1/keks/pii", BOB, 403),
    ],
)
def test_who_may_do_what(
    client: TestClient, method: str, path: str, who: tuple[str, str], status: int | None
) -> None:
    """``status`` None: the request passes the guard, with any outcome."""
    body = {"json": {}} if method in ("POST", "PUT") else {}
    answer = client.request(method, path, auth=who, **body)  # type: ignore[arg-type]
    if status is None:
        assert answer.status_code not in (401, 403), answer.text
    else:
        assert answer.status_code == status, answer.text


def test_a_service_by_its_token_as_bearer_and_as_password(client: TestClient) -> None:
    for how in (
        {"headers": BEARER},
        {"auth": ("checkout", TOKEN)},
        {"auth": ("", TOKEN)},
        {"auth": ("token", TOKEN)},
    ):
        assert client.post("/topics/shop.orders/records", json={}, **how).status_code == 400  # type: ignore[arg-type]
        assert client.post("/topics/shop.refunds/records", json={}, **how).status_code == 403  # type: ignore[arg-type]
        assert client.get("/api/topics/shop.orders/messages", **how).status_code == 403  # type: ignore[arg-type]
    assert client.get("/topics", auth=("ana", TOKEN)).status_code == 401


def test_the_hubs_own_processes_prove_it_by_the_key_of_the_home(client: TestClient, folder: Path) -> None:
    key = make_key(folder / "home")
    assert client.get("/api/mirrors", auth=(OWN, own_password(key))).status_code == 200
    assert client.get("/api/mirrors", auth=(OWN, "0" * 64)).status_code == 401


@pytest.mark.parametrize(
    "header",
    [
        "Basic",
        "Basic ===",
        "Basic " + base64.b64encode(b"nocolon").decode(),
        "Bearer",
        "Bearer hubt_x",
        "Digest x",
    ],
)
def test_what_proves_nothing_is_refused(client: TestClient, header: str) -> None:
    answer = client.get("/topics", headers={"Authorization": header})
    assert answer.status_code in (401, 429), answer.text


def test_registry_clients_get_numbers_as_codes(client: TestClient) -> None:
    body = client.get("/subjects").json()
    assert body["error_code"] == 40101 and set(body) == {"error_code", "message"}
    body = client.get("/subjects/hr.salaries-value/versions", auth=ANA).json()
    assert body["error_code"] == 40301 and 'topics: ["hr.salaries"]' in body["message"]


def test_a_refusal_names_the_grant_and_who_can_give_it(client: TestClient) -> None:
    body = client.get("/api/topics/hr.salaries/messages", auth=ANA).json()
    assert body["error_code"] == "HUB-1702" and "ana may not read" in body["message"]
    assert 'topics: ["hr.salaries"]' in body["hint"] and "#data-platform" in body["hint"]


def test_a_web_socket_is_refused_before_it_opens(client: TestClient) -> None:
    evil = {"Authorization": basic(ANA), "Origin": "http://evil.example"}
    for headers, status in (({}, 401), ({"Authorization": basic(EVE)}, 403), (evil, 403)):
        with (
            pytest.raises(WebSocketDenialResponse) as denied,
            client.websocket_connect("/views/customer_360/changes", headers=headers),
        ):
            pass
        assert denied.value.status_code == status


def basic(who: tuple[str, str]) -> str:
    return "Basic " + base64.b64encode(":".join(who).encode()).decode()


def door_of(app: FastAPI) -> Any:
    (guard,) = (each for each in app.user_middleware if each.cls is Guard)
    return guard.kwargs["door"]


def still(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock of an app's password throttle:
    on a slow machine no attempt is allowed again meanwhile."""
    app = client.app
    assert isinstance(app, FastAPI)
    now_s = time.monotonic()
    monkeypatch.setattr(door_of(app).authenticator, "steady_s", lambda: now_s)


def test_failures_are_bounded_by_address_and_who_is_known_passes(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    still(client, monkeypatch)
    assert client.get("/api/overview", auth=ANA).status_code == 200
    told = [client.get("/topics", auth=("ana", f"guess {n}")).status_code for n in range(MOST_FAILURES + 2)]
    assert told[-1] == 429 and told.count(401) <= MOST_FAILURES
    last = client.get("/topics", auth=("ana", "again"))
    assert int(last.headers["retry-after"]) > 0
    assert client.get("/api/overview", auth=ANA).status_code == 200
    client.get("/health").raise_for_status()


# ---- browsers


def nothing() -> dict[str, str]:
    return {}


@pytest.fixture
def fresh(tmp_path: Path) -> TestClient:
    """Build an app with its own failure counts. Its lifespan is not started: its routes are enough."""
    (tmp_path / "access.yaml").write_text(FILE)
    app = create_app(settings_of(tmp_path))
    app.add_api_route("/topics", lambda: {"as": getattr(CALLER.get(), "name", None)})
    app.add_api_route("/alerts/silences", nothing, methods=["POST"])
    return TestClient(app, base_url="http://hub.test", follow_redirects=False)


SAME = {"Origin": "http://hub.test"}


def signed_in(client: TestClient, who: tuple[str, str] = BOB, to: str = "/topics") -> Any:
    form = {"name": who[0], "password": who[1], "next": to}
    return client.post("/sign-in", data=form, headers=SAME)


def another_server(folder: Path) -> TestClient:
    app = create_app(settings_of(folder))
    app.add_api_route("/topics", lambda: {"as": getattr(CALLER.get(), "name", None)})
    return TestClient(app, base_url="http://hub.test", follow_redirects=False)


def test_a_page_leads_to_the_sign_in_page_and_back(fresh: TestClient, tmp_path: Path) -> None:
    sent = fresh.get("/topics?q=a", headers=PAGE)
    assert (sent.status_code, sent.headers["location"]) == (303, "/sign-in?next=%2Ftopics%3Fq%3Da")
    assert 'value="/topics?q=a"' in fresh.get(sent.headers["location"], headers=PAGE).text
    back = signed_in(fresh, to="/topics?q=a")
    assert (back.status_code, back.headers["location"]) == (303, "/topics?q=a")
    cookie = back.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "battery" not in cookie
    assert fresh.get("/topics").json() == {"as": "bob"}
    copied = fresh.cookies["hub_session"]
    out = fresh.post("/sign-out", headers=SAME)
    assert out.headers["location"] == "/sign-in"
    assert fresh.get("/topics").status_code == 401
    # A copy of the cookie has ended, too: here, at another server of this home, and after a restart.
    other = signed_in(fresh).cookies["hub_session"]
    for client in (fresh, another_server(tmp_path), another_server(tmp_path)):
        client.cookies.clear()
        assert client.get("/topics", headers={"Cookie": f"hub_session={copied}"}).status_code == 401
        assert client.get("/topics", headers={"Cookie": f"hub_session={other}"}).json() == {"as": "bob"}
    assert stat.S_IMODE((tmp_path / "home" / "sessions.ended").stat().st_mode) == 0o600
    # Invalid sessions do not grow the file.
    size = (tmp_path / "home" / "sessions.ended").stat().st_size
    fresh.post("/sign-out", headers={**SAME, "Cookie": "hub_session=Ym9i.1.x"})
    assert (tmp_path / "home" / "sessions.ended").stat().st_size == size


@pytest.mark.parametrize(
    "to", ["//evil.example", "https://evil.example", "/\\evil.example", "/sign-in", "javascript:x"]
)
def test_nobody_is_sent_elsewhere(fresh: TestClient, to: str) -> None:
    assert signed_in(fresh, to=to).headers["location"] == "/"


def test_wrong_passwords_tell_nothing_and_are_bounded(
    fresh: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    still(fresh, monkeypatch)
    known, unknown, without = (signed_in(fresh, (name, "wrong")) for name in ("ana", "nobody", "carl"))
    for answer in (known, unknown, without):
        assert answer.status_code == 401 and "wrong user, password or token" in answer.text
        assert "set-cookie" not in answer.headers
    told = [signed_in(fresh, ("ana", str(n))).status_code for n in range(MOST_FAILURES)]
    assert told[-1] == 429
    assert signed_in(fresh, ANA).status_code == 429


def test_a_form_of_another_site_changes_nothing(fresh: TestClient) -> None:
    assert signed_in(fresh).status_code == 303
    posted = {"matchers": "a=b"}
    for headers in (
        {},
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://hub.test"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert fresh.post("/alerts/silences", data=posted, headers=headers).status_code == 403, headers
    for headers in (SAME, {"Sec-Fetch-Site": "same-origin"}):
        assert fresh.post("/alerts/silences", data=posted, headers=headers).status_code == 200
    # A browser also sends a remembered password.
    fresh.cookies.clear()
    evil = {"Origin": "http://evil.example"}
    assert fresh.post("/alerts/silences", auth=BOB, headers=evil).status_code == 403
    assert fresh.post("/alerts/silences", auth=BOB).status_code == 200


NO_ORIGINS = (
    "http://[",
    "http://[::1",
    "http://hub.test:99999",
    b"http://\xe9\xff",
    "hub.test",
    "://hub.test:",
    "null",
)


@pytest.mark.parametrize("origin", NO_ORIGINS)
def test_an_origin_that_is_no_address_is_another_sites(fresh: TestClient, origin: Any) -> None:
    posted, headers = {"matchers": "a=b"}, {"Origin": origin}
    assert fresh.post("/alerts/silences", data=posted, auth=BOB, headers=headers).status_code == 403
    assert fresh.post("/sign-in", data=posted, headers=headers).status_code == 403


def test_a_form_is_asked_for_its_origin_also_where_nobody_signs_in() -> None:
    """Refused by the page's own check, behind the guard."""
    app = FastAPI()

    @app.post("/form")
    async def form(request: Request) -> dict[str, str]:
        try:
            return {"said": (await posted(request))["a"]}
        except CallerError as error:
            return {"said": error.message}

    client = TestClient(app, base_url="http://hub.test")
    for origin in NO_ORIGINS:
        said = client.post("/form", data={"a": "b"}, headers={"Origin": origin}).json()["said"]  # type: ignore[dict-item]
        assert "not sent from the hub's own page" in said, origin
    assert client.post("/form", data={"a": "b"}, headers=SAME).json() == {"said": "b"}


def test_sign_in_itself_takes_no_other_sites_form(fresh: TestClient) -> None:
    form = {"name": "bob", "password": "battery staple"}
    answer = fresh.post("/sign-in", data=form, headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403 and "set-cookie" not in answer.headers


def test_a_session_that_was_changed_is_none(fresh: TestClient) -> None:
    signed_in(fresh)
    session = fresh.cookies["hub_session"]
    fresh.cookies.clear()
    name, _, rest = session.partition(".")
    other = base64.urlsafe_b64encode(b"admin").rstrip(b"=").decode()
    signed_otherwise = f"{session[:-2]}{'B' if session[-2] == 'A' else 'A'}{session[-1]}"
    for text in (f"{other}.{rest}", signed_otherwise, f"{name}.9999999999.{rest}", "", "..", "a.b.c"):
        assert fresh.get("/topics", headers={"Cookie": f"hub_session={text}"}).status_code == 401, text


@pytest.mark.parametrize(
    "others",
    [
        'prefs={"a": 1}; hub_session=…',
        "a/b=1; hub_session=…",
        "version=2; hub_session=…",
        "hub_session=…; =; x",
    ],
)
def test_cookies_of_other_programs_on_this_host_hide_no_session(fresh: TestClient, others: str) -> None:
    signed_in(fresh)
    session = fresh.cookies["hub_session"]
    fresh.cookies.clear()
    assert fresh.get("/topics", headers={"Cookie": others.replace("…", session)}).json() == {"as": "bob"}


def test_a_long_address_leads_through_the_sign_in_page_too(fresh: TestClient) -> None:
    for words, back in (("a" * 3_000, "/topics?q=" + "a" * 3_000), ("a" * 9_000, "/topics")):
        sent = fresh.get(f"/topics?q={words}", headers=PAGE)
        page = fresh.get(sent.headers["location"], headers=PAGE)
        assert page.status_code == 200 and f'value="{back}"' in page.text
        assert signed_in(fresh, to=back).headers["location"] == back
        fresh.cookies.clear()
    assert fresh.get("/sign-in", params={"next": "/" * 9_000}, headers=PAGE).status_code == 200


def test_a_page_that_is_not_granted_says_which_grant_is_missing(client: TestClient) -> None:
    answer = client.get("/mirrors", auth=ANA, headers=PAGE)
    assert answer.status_code == 403 and "You have no access to this" in answer.text
    assert "hub: true" in answer.text and "#data-platform" in answer.text and ">ana</span>" in answer.text


def test_a_part_of_a_page_leads_to_the_sign_in_page(client: TestClient) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": "http://hub.test/lag?state=LATE"}
    answer = client.get("/ui/overview", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["hx-redirect"] == "/sign-in?next=%2Flag%3Fstate%3DLATE"
    odd = client.get("/topics", headers={**headers, "HX-Current-URL": "http://["})
    assert (odd.status_code, odd.headers["hx-redirect"]) == (401, "/sign-in?next=%2F")
    assert "www-authenticate" not in answer.headers


def test_pages_show_who_is_signed_in(client: TestClient) -> None:
    page = client.get("/topics", auth=ANA, headers=PAGE).text
    assert ">ana</span>" in page and "Sign out" not in page  # Basic has no session to end


# ---- behind a proxy


def test_a_trusted_proxy_says_who_it_is_and_nobody_else_does(tmp_path: Path) -> None:
    (tmp_path / "access.yaml").write_text(FILE)
    app = create_app(settings_of(tmp_path, proxy_header="X-Forwarded-User", proxy_addresses=["10.1.0.0/16"]))
    app.add_api_route("/topics", lambda: {"as": getattr(CALLER.get(), "name", None)})
    told = {"X-Forwarded-User": "carl"}
    trusted = TestClient(app, client=("10.1.2.3", 5), raise_server_exceptions=False)
    assert trusted.get("/topics", headers=told).json() == {"as": "carl"}
    # granted; this app does not have the route
    assert trusted.get("/metrics", headers=told).status_code == 404
    assert trusted.get("/topics").status_code == 401
    for name in (OWN, "checkout", "", "x" * 200):
        assert trusted.get("/topics", headers={"X-Forwarded-User": name}).status_code == 401, name
    other = TestClient(app, client=("10.2.0.1", 5))
    assert other.get("/topics", headers=told).status_code == 401
    assert other.get("/topics", headers={**told, "X-Forwarded-For": "10.1.2.3"}).status_code == 401


def behind_proxies(folder: Path) -> FastAPI:
    """App with a fixed clock: an address with too many failures never gets another attempt."""
    (folder / "access.yaml").write_text(FILE)
    door = AuthenticationContext(LiveAccess(folder), folder, Proxies(addresses=["10.1.0.0/16"]))
    door.authenticator.steady_s = lambda: 0.0
    app = FastAPI()
    app.add_middleware(Guard, door=door)
    app.include_router(sign_in.create_router(door))
    app.add_api_route("/topics", nothing)
    return app


def test_the_settings_proxies_are_the_doors(tmp_path: Path) -> None:
    app = create_app(settings_of(tmp_path, proxy_addresses=["10.1.0.0/16"]))
    assert door_of(app).proxies == Proxies("", ("10.1.0.0/16",))


def test_who_asks_through_a_proxy_counts_by_their_own_address(tmp_path: Path) -> None:
    app = behind_proxies(tmp_path)
    proxy = TestClient(app, client=("10.1.2.3", 5), raise_server_exceptions=False)

    def tried(client: TestClient, who: tuple[str, str], address: str, way: str = "page") -> int:
        told = {"X-Forwarded-For": address}
        if way == "basic":
            return client.get("/topics", auth=who, headers=told).status_code
        form = {"name": who[0], "password": who[1]}
        headers = {**told, "Sec-Fetch-Site": "same-origin"}
        return client.post("/sign-in", data=form, headers=headers, follow_redirects=False).status_code

    for way in ("page", "basic"):
        for _ in range(MOST_FAILURES + 1):
            refused = tried(proxy, ("bob", "guess"), "203.0.113.9", way)
        assert refused == 429
        assert tried(proxy, BOB, "203.0.113.9", way) == 429
    # Another client behind the same proxy, even if the first one writes the header itself.
    assert tried(proxy, BOB, "203.0.113.10", "basic") == 200
    assert tried(proxy, ANA, "203.0.113.10, 203.0.113.9", "page") == 429


def test_a_forwarded_address_of_nobody_trusted_is_not_believed(tmp_path: Path) -> None:
    app = behind_proxies(tmp_path)
    other = TestClient(app, client=("203.0.113.9", 5), raise_server_exceptions=False)
    told = [
        other.get(
            "/topics", auth=("bob", "guess"), headers={"X-Forwarded-For": f"198.51.100.{n}"}
        ).status_code
        for n in range(MOST_FAILURES + 1)
    ]
    assert told[-1] == 429
    headers = {"X-Forwarded-For": "10.1.2.3", "X-Forwarded-Proto": "https"}
    assert other.get("/topics", auth=BOB, headers=headers).status_code == 429
    # A trusted address does not make its caller a proxy: this one's header names a user.
    app = create_app(settings_of(tmp_path, proxy_header="X-User", proxy_addresses=["10.1.0.0/16"]))
    app.add_api_route("/topics", lambda: {"as": getattr(CALLER.get(), "name", None)})
    proxy = TestClient(app, client=("10.1.2.3", 5))
    said = {"X-User": "carl", "X-Forwarded-For": "203.0.113.9"}
    assert proxy.get("/topics", headers=said).json() == {"as": "carl"}
    forged = TestClient(app, client=("203.0.113.9", 5))
    assert forged.get("/topics", headers={**said, "X-Forwarded-For": "10.1.2.3"}).status_code == 401


@pytest.mark.parametrize(
    ("peer", "by", "secure"),
    [
        ("10.1.2.3", "https", True),
        ("10.1.2.3", "http", False),
        ("10.1.2.3", "ftp", False),
        ("10.2.0.1", "https", False),
    ],
)
def test_a_session_is_for_https_alone_where_a_proxy_has_it(
    tmp_path: Path, peer: str, by: str, secure: bool
) -> None:
    (tmp_path / "access.yaml").write_text(FILE)
    app = create_app(settings_of(tmp_path, proxy_addresses=["10.1.0.0/16"]))
    client = TestClient(app, client=(peer, 5), base_url="http://hub.test", follow_redirects=False)
    form = {"name": BOB[0], "password": BOB[1]}
    headers = {**SAME, "Origin": f"{by}://hub.test", "X-Forwarded-Proto": by}
    cookie = client.post("/sign-in", data=form, headers=headers).headers["set-cookie"]
    assert ("Secure" in cookie) == secure


def test_a_request_for_another_name_is_refused_where_nobody_has_to_sign_in(tmp_path: Path) -> None:
    app = create_app(settings_of(tmp_path, registry_url="http://server:8088"))
    app.add_api_route("/here", nothing, methods=["GET", "POST"])
    client = TestClient(app, raise_server_exceptions=False)
    for host in (
        "127.0.0.1:1",
        "localhost:1",
        "hub.localhost",
        "[::1]:1",
        "192.0.2.7",
        "server:8088",
        "SERVER.",
    ):
        assert client.get("/here", headers={"Host": host}).status_code == 200, host
    for host in (
        "evil.example",
        "evil.example:1",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "server.evil",
    ):
        answer = client.get("/here", headers={"Host": host})
        assert answer.status_code == 421, host
        assert "allowed_hosts" in answer.json()["hint"]
        assert client.post("/here", headers={"Host": host}).status_code == 421
        assert client.get("/health", headers={"Host": host}).status_code == 200
    page = client.get("/here", headers={**PAGE, "Host": "<b>evil.example"})
    assert page.status_code == 421 and "<b>evil" not in page.text
    # With an access file, a page with another name has no session; names in parameters are checked there,
    # too.
    (tmp_path / "access.yaml").write_text(FILE)
    for settings, status in (
        (settings_of(tmp_path), 401),
        (settings_of(tmp_path, allowed_hosts=["*.example"]), 421),
    ):
        closed = TestClient(create_app(settings), raise_server_exceptions=False)
        assert closed.get("/topics", headers={"Host": "evil.test"}).status_code == status
        assert closed.get("/topics", headers={"Host": "hub.example"}).status_code == 401


def test_a_name_with_a_port_is_no_setting(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without a port"):
        settings_of(tmp_path, allowed_hosts=["hub.example.com:8088"])


def test_a_header_without_addresses_is_no_setting(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="belong together"):
        settings_of(tmp_path, proxy_header="X-User")


# ---- changes at runtime


def test_without_a_file_everything_is_as_it_was_and_a_file_closes_the_door(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app_module, "REGISTRY_WAIT_S", 0.1)
        with TestClient(create_app(settings_of(tmp_path, allowed_hosts=["testserver"]))) as client:
            assert client.get("/api/overview").status_code == 200
            assert client.get("/sign-in", follow_redirects=False).headers["location"] == "/"
            (tmp_path / "access.yaml").write_text(FILE)
            until(lambda: client.get("/api/overview").status_code == 401)
            assert client.get("/api/overview", auth=ANA).status_code == 200
            rewrite(tmp_path / "access.yaml", "users: [")
            time.sleep(2 * READ_EVERY_S)
            assert client.get("/api/overview", auth=ANA).status_code == 200
            assert client.get("/api/overview").status_code == 401
            (tmp_path / "access.yaml").unlink()
            time.sleep(2 * READ_EVERY_S)
            assert client.get("/api/overview").status_code == 401


@pytest.mark.parametrize(
    ("who", "hears"), [(BOB, True), (ADMIN, True), (EVE, False), (("ana", "wrong"), False), (None, False)]
)
def test_a_stream_from_before_there_was_a_file_goes_on_for_who_may_hear_it(
    tmp_path: Path, who: tuple[str, str] | None, hears: bool
) -> None:
    door = AuthenticationContext(LiveAccess(tmp_path), tmp_path)

    async def stream(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"before, ", "more_body": True})
        (tmp_path / "access.yaml").write_text(FILE)
        door.access.refresh()
        await send({"type": "http.response.body", "body": b"after, ", "more_body": True})
        await send({"type": "http.response.body", "body": b"later", "more_body": False})

    answer = TestClient(Guard(stream, door)).get("/api/topics/hr.salaries/tail", auth=who)
    assert answer.text == ("before, after, later" if hears else "before, ")


@pytest.mark.parametrize(("who", "status"), [(ADMIN, 200), (EVE, 403), (None, 401)])
def test_a_request_without_an_answer_yet_is_refused_when_a_file_closes_the_door(
    tmp_path: Path, who: tuple[str, str] | None, status: int
) -> None:
    door = AuthenticationContext(LiveAccess(tmp_path), tmp_path)

    async def slow(_scope: Any, _receive: Any, send: Any) -> None:
        (tmp_path / "access.yaml").write_text(FILE)
        door.access.refresh()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"secret", "more_body": False})

    answer = TestClient(Guard(slow, door)).get("/api/topics/hr.salaries/tail", auth=who)
    assert answer.status_code == status
    assert ("secret" in answer.text) == (status == 200)


def test_another_sites_page_changes_nothing_where_nobody_signs_in_either(tmp_path: Path) -> None:
    app = create_app(settings_of(tmp_path, allowed_hosts=["hub.test"]))
    app.add_api_route("/topics", nothing)
    app.add_api_route("/topics/{topic}/events", lambda topic: {}, methods=["POST"])

    @app.websocket("/views/{view}/changes")
    async def changes(socket: WebSocket, view: str) -> None:
        await socket.accept()
        await socket.close()

    client, path = TestClient(app, base_url="http://hub.test"), "/topics/shop.orders/events"
    followed = "ws://hub.test/views/customer_360/changes"
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        refused = client.post(path, content="[{}]", headers=headers)
        assert refused.status_code == 403 and "another site" in refused.json()["message"], headers
        assert client.post(path, headers={**headers, **PAGE, "Sec-Fetch-Mode": "navigate"}).status_code == 403
        with pytest.raises(WebSocketDenialResponse), client.websocket_connect(followed, headers=headers):
            pass
        assert (
            client.get("/topics", headers=headers).status_code == 200
        )  # browsers do not show it to that page
    for headers in ({}, SAME, {"Sec-Fetch-Site": "same-origin"}):
        assert client.post(path, content="[{}]", headers=headers).status_code == 200
        with client.websocket_connect(followed, headers=headers):
            pass


def until(holds: Any, seconds: float = 30.0) -> None:
    wait_until(holds, seconds, pause_s=0.1)


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, ns=(path.stat().st_mtime_ns + 1_000_000,) * 2)


def test_metrics_can_be_open_and_are_whole_then(tmp_path: Path) -> None:
    (tmp_path / "access.yaml").write_text(FILE)
    app = create_app(settings_of(tmp_path, metrics_open=True))
    app.add_api_route("/metrics", lambda: {"as": CALLER.get()})
    assert TestClient(app).get("/metrics").json() == {"as": None}


def test_every_action_is_of_some_rule() -> None:
    used = {rule.action for methods in ROUTES.values() for rule in methods.values()}
    used |= {action for methods in RULES.values() for action, _ in methods.values()}
    assert used == {None, *Action}


def test_a_session_that_ends_itself_is_answered_and_then_gone(fresh: TestClient) -> None:
    signed_in(fresh, ADMIN)
    listed = fresh.get("/api/access/sessions")
    assert listed.status_code == 200, listed.text
    (own,) = [each for each in listed.json() if each["name"] == "admin"][-1:]
    assert fresh.delete(f"/api/access/sessions/{own['id']}", headers=SAME).json()["name"] == "admin"
    assert fresh.get("/api/access/sessions").status_code == 401
