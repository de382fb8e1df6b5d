"""Client credentials: settings, the registry client and hub.client send them, and never show them."""

from __future__ import annotations

import base64
from pathlib import Path

import httpx2 as httpx
import pytest
from typer.testing import CliRunner

from hub.access.access_yaml import load_access
from hub.access.secrets import fits_password, hash_of_token
from hub.cli.platform.access import app, check_closed, open_to_others, resource_of
from hub.cli.platform.doctor import CheckResult, check_access
from hub.client.requests import caller_settings, headers_of
from hub.config import Settings, with_credentials, without_credentials
from hub.errors import CallerError, ConfigError, PeerError
from hub.home_key import OWN, make_key, own_password
from hub.replication.clusters.clusters import OWN_REGISTRY, registry_of
from hub.schema_registry.client.http import RegistryHttp


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def test_a_hub_asks_its_own_server_by_the_key_of_its_home(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, project=tmp_path)
    assert settings.registry == "http://127.0.0.1:8088" and settings.authorization == {}
    password = own_password(make_key(tmp_path))
    assert settings.registry == f"http://{OWN}:{password}@127.0.0.1:8088"
    assert settings.authorization == {"Authorization": basic(OWN, password)}


def test_the_key_goes_to_no_other_server_and_a_token_does(tmp_path: Path) -> None:
    make_key(tmp_path)
    elsewhere = Settings(home=tmp_path, project=tmp_path, registry_url="http://hub:8088")
    assert elsewhere.registry == "http://hub:8088"
    told = elsewhere.model_copy(update={"token": "hubt_x"})
    assert told.registry == "http://token:hubt_x@hub:8088"
    named = told.model_copy(update={"registry_url": "http://ana:pw@hub:8088"})
    assert named.registry == "http://ana:pw@hub:8088"
    person = told.model_copy(update={"token": "ana:a b:c"})
    assert person.registry == "http://ana:a%20b%3Ac@hub:8088"
    assert person.authorization == {"Authorization": basic("ana", "a b:c")}
    empty = elsewhere.model_copy(update={"token": ""})
    assert empty.registry == "http://hub:8088"


def test_the_registrys_client_sends_who_asks_and_never_shows_it() -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("Authorization"))
        if len(seen) > 1:
            raise httpx.ConnectError("away")
        return httpx.Response(200, json=[])

    url = with_credentials("http://hub:8088", ("ana", "se cret"))
    client = RegistryHttp(url, 1.0, httpx.MockTransport(answer))
    assert client.request("GET", "/subjects") == []
    assert client.url == "http://hub:8088" == without_credentials(url)
    with pytest.raises(PeerError) as away:
        client.request("GET", "/subjects")
    assert seen == [basic("ana", "se cret")] * 2
    assert "cret" not in str(away.value)


def test_the_client_takes_a_token_a_password_an_address_or_the_variable() -> None:
    assert headers_of("hubt_x")["Authorization"] == "Bearer hubt_x"
    assert headers_of("ana:pw:x")["Authorization"] == basic("ana", "pw:x")
    assert "Authorization" not in headers_of(None)
    variable = {"HUB_TOKEN": "hubt_env"}
    assert caller_settings("http://hub", None, variable) == ("http://hub", "hubt_env")
    assert caller_settings("http://hub", "hubt_x", variable) == ("http://hub", "hubt_x")
    assert caller_settings("http://ana:p%40w@hub:1/x", None, variable) == ("http://hub:1/x", "ana:p@w")
    assert caller_settings("http://hub", None, {}) == ("http://hub", None)


def test_a_registry_of_mirrors_yaml() -> None:
    own = {OWN_REGISTRY: "http://_hub:key@127.0.0.1:8088"}
    assert registry_of("nyc", "http://127.0.0.1:8088/", own) == own[OWN_REGISTRY]
    assert registry_of("lon", "http://lon:8088", own) == "http://lon:8088"
    filled = registry_of("lon", "http://token:${LON}@lon:8088", {"LON": "a/b"})
    assert filled == "http://token:a%2Fb@lon:8088"
    with pytest.raises(ConfigError, match="the variable LON is not set"):
        registry_of("lon", "http://token:${LON}@lon:8088", {})
    assert registry_of("lon", None, own) is None


@pytest.mark.parametrize(
    ("host", "others"),
    [
        ("127.0.0.1", False),
        ("::1", False),
        ("localhost", False),
        ("0.0.0.0", True),
        ("10.0.0.7", True),
        ("hub.example.com", True),
    ],
)
def test_doctor_warns_of_a_port_that_others_reach(tmp_path: Path, host: str, others: bool) -> None:
    settings = Settings(home=tmp_path, project=tmp_path, http_host=host)
    assert open_to_others(settings) is others
    assert check_access(settings).verdict is (CheckResult.warn if others else CheckResult.ok)
    assert not open_to_others(settings.model_copy(update={"require_access": True}))
    if others:
        with pytest.raises(ConfigError, match="could do everything") as refused:
            check_closed(settings)
        assert refused.value.hint and "open_to_everybody: true" in refused.value.hint
    check_closed(settings.model_copy(update={"open_to_everybody": True}))
    check_closed(settings.model_copy(update={"admin_token": "hubt_" + "a" * 40}))
    (tmp_path / "access.yaml").write_text("anonymous: []\n")
    assert not open_to_others(settings) and check_access(settings).verdict is CheckResult.ok
    (tmp_path / "access.yaml").write_text("anonymuos: []\n")
    with pytest.raises(ConfigError, match=r"access\.yaml:1:1"):
        check_access(settings)


def test_hash_prints_a_line_for_the_file(tmp_path: Path) -> None:
    runner = CliRunner()
    made = runner.invoke(app, ["hash"], input="correct horse\n")
    assert made.exit_code == 0 and "correct" not in made.stdout
    line = made.stdout.strip().splitlines()[-1]
    token, entry = (
        each
        for each in runner.invoke(app, ["hash", "--token"]).stdout.splitlines()
        if "hubt_" in each or "$" in each
    )
    (tmp_path / "access.yaml").write_text(f"users: {{ana: {{{line}}}}}\ntokens: {{checkout: {{{entry}}}}}\n")
    file = load_access(tmp_path / "access.yaml")
    assert fits_password("correct horse", file.users["ana"].password or "")
    assert file.tokens["checkout"].token == hash_of_token(token)
    short = runner.invoke(app, ["hash"], input="short\n")
    assert isinstance(short.exception, CallerError)


def test_the_command_line_names_what_is_asked_for() -> None:
    assert str(resource_of("subject:shop.orders-value")) == 'subject "shop.orders-value"'
    for wrong in ("user:ana", "view:"):
        with pytest.raises(CallerError, match="nothing that is granted"):
            resource_of(wrong)
