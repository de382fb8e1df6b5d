"""The whole hub on a Kafka of somebody else's: over TLS, with a password, and with no more rights than docs/secured-kafka.md lists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import psutil
import pytest
from kafka_nodes import own_node
from pipeline import Pipeline, wait_until
from ports import free_ports
from processes import Server, call_hub
from secured_node import Right, SecuredNode, give

from hub.config import Settings
from hub.embedded import ensure_jars
from hub.record import Positions

USER, VARIABLE = "hub", "KAFKA_PASSWORD_OF_THE_TEST"
# With what Java's and JSON's texts would have to escape.
PASSWORD = 'Sword-4711 "fish" \\o/'
# As docs/secured-kafka.md lists them.
RIGHTS: tuple[Right, ...] = (
    *(("TOPIC", "_schemas", right, "ALLOW") for right in ("CREATE", "READ", "WRITE", "DESCRIBE_CONFIGS")),
    *(("TOPIC", "_hub.*", right, "ALLOW") for right in ("CREATE", "READ", "WRITE", "DESCRIBE_CONFIGS")),
    *(
        ("TOPIC", "views.*", right, "ALLOW")
        for right in ("CREATE", "READ", "WRITE", "DELETE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
    ),
    *(
        ("TOPIC", "plant.*", right, "ALLOW")
        for right in ("CREATE", "READ", "WRITE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
    ),
    ("GROUP", "*", "DESCRIBE", "ALLOW"),
    ("GROUP", "hub.*", "READ", "ALLOW"),
    ("TRANSACTIONAL_ID", "hub.*", "WRITE", "ALLOW"),
    ("TRANSACTIONAL_ID", "hub-alerts", "WRITE", "ALLOW"),
    ("BROKER", "kafka-cluster", "DESCRIBE", "ALLOW"),
)
READING: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "sensor", "type": "string"}, {"name": "celsius", "type": "double"}],
}
TREE = """\
topics:
  plant:
    owner: plant-team
    partitions: 1
    topics:
      readings: {schema: schemas/readings.avsc, slo: {lag: 1m}}
"""
LATEST = """\
view: latest
sources:
  r: {topic: plant.readings, key: sensor}
fields:
  celsius: r.celsius
  readings: count(r.celsius)
"""
WARM = """\
view: warm
sources:
  r: {topic: plant.readings}
sql: SELECT sensor, celsius FROM r WHERE celsius > 20
key: [sensor, celsius]
"""


def security(node: SecuredNode, **changed: Any) -> dict[str, Any]:
    """What hub.yaml says of the node."""
    sasl = {"mechanism": "SCRAM-SHA-512", "username": USER, "password": f"${{{VARIABLE}}}"}
    told = {
        "embedded_kafka": False,
        "bootstrap": f"127.0.0.1:{node.both_port}",
        "tls": {"ca": str(node.folder / "broker.pem")},
        "sasl": sasl,
    }
    return {**told, **changed}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with own_node(tmp_path_factory.mktemp("theirs"), SecuredNode) as made:
        made.make_users()
        made.make_users(USER, PASSWORD)
        yield made


@pytest.fixture(scope="module")
def password() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, PASSWORD)
        yield


@pytest.fixture(scope="module")
def hub(node: SecuredNode, password: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """All its processes, with the rights of the table and no others."""
    give(node.bootstrap, RIGHTS, f"User:{USER}")
    folder = tmp_path_factory.mktemp("ours")
    project = folder / "project"
    (project / "schemas").mkdir(parents=True)
    (project / "views").mkdir()
    (project / "topics.yaml").write_text(TREE)
    (project / "schemas" / "readings.avsc").write_text(json.dumps(READING))
    settings = Settings(home=folder / "home", project=project, http_port=free_ports(1)[0], **security(node))
    ensure_jars(settings)
    server = Server(settings)
    running = Pipeline(settings, server.url)
    running.processes["serve"] = server
    try:
        server.start()
        for command in ("apply-changelogs", "materialize", "audit-topics"):
            running.start(command)
        yield running
    finally:
        running.close()


def said(hub: Pipeline) -> str:
    """What all processes wrote into their logs, for the message of a failure."""
    return "\n".join(f"{each.name}:\n{each.read_text()[-1500:]}" for each in hub.settings.logs.glob("*.log"))


@pytest.mark.timeout(400)
def test_from_the_tree_to_rows_with_these_rights_and_no_more(hub: Pipeline) -> None:
    planned = call_hub(hub.settings, "topic", "plan")
    assert planned.returncode == 2 and "plant.readings" in planned.stdout, planned.stderr
    applied = call_hub(hub.settings, "topic", "apply")
    assert applied.returncode == 0, applied.stderr
    for name, text in (("latest", LATEST), ("warm", WARM)):
        (hub.views / f"{name}.yaml").write_text(text)
    with httpx2.Client(base_url=hub.url, timeout=70.0) as client:
        after = Positions()
        for number in range(5):
            body = {"sensor": f"s-{number % 2}", "celsius": 19.0 + number}
            answer = client.post("/topics/plant.readings/events?key=sensor", json=body)
            assert answer.status_code == 200, f"{answer.text}\n{said(hub)}"
            after = Positions.parse(answer.headers["Hub-Position"])

        def has_row() -> bool:
            found = client.get("/views/latest/s-0", params={"after": str(after), "timeout_ms": "1000"})
            return found.status_code == 200

        wait_until(has_row, 240.0, lambda: f"{hub.state('latest')}\n{said(hub)}")
        row = client.get("/views/latest/s-0").json()
        assert (row["celsius"], row["readings"]) == (23.0, 3)
        wait_until(lambda: len(hub.rows("warm")) == 3, 240.0, lambda: f"{hub.state('warm')}\n{said(hub)}")
        assert sorted(each["celsius"] for each in hub.rows("warm").values()) == [21.0, 22.0, 23.0]


@pytest.mark.timeout(200)
def test_commands_and_pages_say_how_it_is_there(hub: Pipeline) -> None:
    lag = httpx2.get(f"{hub.url}/api/lag", timeout=60.0).json()
    views = {row["name"]: row for row in lag if row["kind"] == "view"}
    assert {"latest", "warm"} <= set(views), lag
    assert all(views[name]["lag_records"] == 0 for name in ("latest", "warm")), views
    found = {
        each["check"]: each for each in json.loads(call_hub(hub.settings, "doctor", "-o", "json").stdout)
    }
    assert found["kafka"]["verdict"] == "OK" and "SASL_SSL as hub, SCRAM-SHA-512" in found["kafka"]["found"]
    assert found["rights"]["verdict"] == "OK" and found["registry"]["verdict"] == "OK"
    for command in (
        ["topic", "plan"],
        ["topic", "describe", "plant.readings"],
        ["topic", "audit", "plant.readings"],
        ["schema", "ls"],
        ["lag"],
        ["audit", "run", "plant.readings"],
        ["view", "ls"],
        ["view", "verify", "latest"],
        ["dlq", "ls"],
    ):
        done = call_hub(hub.settings, *command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


@pytest.mark.timeout(300)
def test_a_right_that_is_missing_is_named_and_given_back_all_goes_on(
    hub: Pipeline, node: SecuredNode
) -> None:
    denied: tuple[Right, ...] = (("TOPIC", "views.latest", "WRITE", "DENY"),)
    give(node.bootstrap, denied, f"User:{USER}")
    try:
        said_rights = rights_of(hub)
        assert said_rights["verdict"] == "FAIL" and 'Write on topic "views.latest"' in said_rights["found"]
        body = {"sensor": "s-0", "celsius": 30.0}
        answer = httpx2.post(f"{hub.url}/topics/plant.readings/events?key=sensor", json=body, timeout=60.0)
        after = answer.headers["Hub-Position"]
        wait_until(
            lambda: "views.latest" in str(hub.state("latest").get("reason")),
            120.0,
            lambda: f"{hub.state('latest')}",
        )
    finally:
        take(node.bootstrap, denied, f"User:{USER}")

    def has_row() -> bool:
        parameters = {"after": after, "timeout_ms": "1000"}
        return httpx2.get(f"{hub.url}/views/latest/s-0", params=parameters, timeout=60.0).is_success

    wait_until(has_row, 240.0, lambda: f"{hub.state('latest')}\n{said(hub)}")
    assert httpx2.get(f"{hub.url}/views/latest/s-0", timeout=60.0).json()["readings"] == 4
    assert rights_of(hub)["verdict"] == "OK"


def rights_of(hub: Pipeline) -> dict[str, str]:
    """The line of ``hub doctor``."""
    found: list[dict[str, str]] = json.loads(call_hub(hub.settings, "doctor", "-o", "json").stdout)
    return next(each for each in found if each["check"] == "rights")


def test_no_secret_is_anywhere(hub: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in what processes say or are started with, not in what Spark keeps, not in an answer, not in a complaint."""
    secret = re.compile(re.escape(PASSWORD) + "|Sword-4711")
    processes = [
        each
        for running in hub.processes.values()
        for each in (psutil.Process(running.process.pid), *psutil.Process(running.process.pid).children(True))
    ]
    assert any("java" in each.name() for each in processes)
    for each in processes:
        assert not secret.search("\0".join(each.cmdline())), each
    files = [path for path in hub.settings.home.rglob("*") if path.is_file()]
    assert any("offsets" in path.parts for path in files) and any(path.suffix == ".log" for path in files)
    for path in files:
        assert not secret.search(path.read_bytes().decode("latin-1")), path
    routes = httpx2.get(f"{hub.url}/openapi.json", timeout=60.0).json()["paths"]
    plain = [path for path, methods in routes.items() if "get" in methods and "{" not in path]
    assert len(plain) > 20
    for path in ["/", "/cluster", *plain]:
        with httpx2.stream("GET", f"{hub.url}{path}", timeout=60.0) as answer:
            text = "" if "event-stream" in answer.headers.get("content-type", "") else answer.read().decode()
            assert not secret.search(text), path
    monkeypatch.setenv(VARIABLE, f"{PASSWORD}!")
    for command in (["doctor"], ["topic", "ls"]):
        done = call_hub(hub.settings.model_copy(update={"kafka_timeout_s": 2.0}), *command)
        shown = done.stdout + done.stderr
        assert "password is wrong" in shown and not secret.search(shown), shown
