"""The whole hub on a Kafka of somebody else's:
over TLS, with a password, and with no more rights than docs/how-to/connect-a-secured-kafka.md lists."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from kafka_nodes import own_node
from pipeline import Pipeline, wait_until
from ports import free_ports
from processes import Server, call_hub
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from secured_node import PASSWORD as NODE_PASSWORD
from secured_node import USER as NODE_USER
from secured_node import Right, SignedNode, Way, give, take, tokens

from hub.config import Settings
from hub.embedded import ensure_jars
from hub.errors import PeerError
from hub.kafka import KafkaCluster, own_cluster
from hub.kafka.contact.connect_diagnosis import looked_at
from hub.materializers.spark import kafka_source
from hub.record import NewRecord

USER, VARIABLE = "hub", "KAFKA_PASSWORD_OF_THE_TEST"
# With what Java's and JSON's texts would have to escape.
PASSWORD = 'Sword-4711 "fish" \\o/'
# As docs/how-to/connect-a-secured-kafka.md lists them.
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


def security(node: SignedNode, **changed: Any) -> dict[str, Any]:
    """Settings of the node in hub.yaml."""
    sasl = {"mechanism": "SCRAM-SHA-512", "username": USER, "password": f"${{{VARIABLE}}}"}
    told = {
        "embedded_kafka": False,
        "bootstrap": f"127.0.0.1:{node.both_port}",
        "tls": {"ca": str(node.folder / "broker.pem")},
        "sasl": sasl,
    }
    return {**told, **changed}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignedNode]:
    with own_node(tmp_path_factory.mktemp("theirs"), SignedNode) as made:
        made.make_users()
        made.make_users(USER, PASSWORD)
        yield made


@pytest.fixture(scope="module")
def password() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, PASSWORD)
        yield


@pytest.fixture(scope="module")
def hub(node: SignedNode, password: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
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
        for command in ("apply-changelogs", "materialize", "check-conformance"):
            running.start(command)
        yield running
    finally:
        running.close()


def said(hub: Pipeline) -> str:
    """Return the logs of all processes, for the message of a failure."""
    return "\n".join(f"{each.name}:\n{each.read_text()[-1500:]}" for each in hub.settings.logs.glob("*.log"))


@pytest.fixture(scope="module")
def filled(hub: Pipeline) -> Pipeline:
    """Topics and schemas applied from the tree, both kinds of views declared, events put in by the gateway,
    rows there."""
    planned = call_hub(hub.settings, "topic", "plan")
    assert planned.returncode == 2 and "plant.readings" in planned.stdout, planned.stderr
    applied = call_hub(hub.settings, "topic", "apply")
    assert applied.returncode == 0, applied.stderr
    for name, text in (("latest", LATEST), ("warm", WARM)):
        (hub.views / f"{name}.yaml").write_text(text)
    after = [write(hub, f"s-{number % 2}", 19.0 + number) for number in range(5)][-1]
    wait_until(lambda: reads(hub, "s-0", after), 240.0, lambda: f"{hub.state('latest')}\n{said(hub)}")
    wait_until(lambda: len(hub.rows("warm")) == 3, 240.0, lambda: f"{hub.state('warm')}\n{said(hub)}")
    return hub


def write(hub: Pipeline, sensor: str, celsius: float) -> str:
    """An event by the gateway; its position."""
    path = f"{hub.url}/topics/plant.readings/events?key=sensor"
    answer = httpx2.post(path, json={"sensor": sensor, "celsius": celsius}, timeout=70.0)
    assert answer.status_code == 200, f"{answer.text}\n{said(hub)}"
    return str(answer.headers["Hub-Position"])


def reads(hub: Pipeline, sensor: str, after: str) -> bool:
    """Return whether the row contains a write."""
    parameters = {"after": after, "timeout_ms": "1000"}
    return httpx2.get(f"{hub.url}/views/latest/{sensor}", params=parameters, timeout=60.0).status_code == 200


@pytest.mark.timeout(600)
def test_from_the_tree_to_rows_with_these_rights_and_no_more(filled: Pipeline) -> None:
    row = filled.rows("latest")["s-0"]
    assert (row["celsius"], row["readings"]) == (23.0, 3)
    assert sorted(each["celsius"] for each in filled.rows("warm").values()) == [21.0, 22.0, 23.0]


@pytest.mark.timeout(200)
def test_commands_and_pages_say_how_it_is_there(filled: Pipeline) -> None:
    hub = filled
    views: dict[str, Any] = {}

    def measured() -> bool:
        rows = httpx2.get(f"{hub.url}/api/lag", timeout=60.0).json()
        views.update({row["name"]: row for row in rows if row["kind"] == "view"})
        return {"latest", "warm"} <= views.keys() and all(row["records"] == 0 for row in views.values())

    wait_until(measured, 60.0, lambda: str(views))
    found = {
        each["check"]: each for each in json.loads(call_hub(hub.settings, "doctor", "-o", "json").stdout)
    }
    assert found["kafka"]["verdict"] == "OK" and "SASL_SSL as hub, SCRAM-SHA-512" in found["kafka"]["found"]
    assert found["rights"]["verdict"] == "OK" and found["registry"]["verdict"] == "OK"
    for command in (
        ["topic", "plan"],
        ["topic", "describe", "plant.readings"],
        ["topic", "conformance", "plant.readings"],
        ["schema", "ls"],
        ["lag"],
        ["completeness", "run", "plant.readings"],
        ["view", "ls"],
        ["view", "verify", "latest"],
        ["dlq", "ls"],
    ):
        done = call_hub(hub.settings, *command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


@pytest.mark.timeout(300)
def test_what_cannot_be_taken_goes_to_its_own_topic_with_these_rights(
    filled: Pipeline, node: SignedNode
) -> None:
    """The prefix of a topic's name covers its dead-letter topic, too."""
    writer = KafkaCluster(node.bootstrap).writer()
    writer.append([NewRecord("plant.readings", b"s-9", b"no event")])
    writer.close()

    def told() -> bool:
        return "plant.readings" in call_hub(filled.settings, "dlq", "ls").stdout

    wait_until(told, 120.0, lambda: f"{filled.state('latest')}\n{said(filled)}")
    assert "plant.readings.dlq" in filled.cluster.topics()


def test_nothing_was_refused_to_the_hub(filled: Pipeline, node: SignedNode) -> None:
    """Also for optional requests, without which it continues."""
    assert node.refused(USER) == set(), said(filled)


@pytest.mark.timeout(300)
def test_a_right_that_is_missing_is_named_and_given_back_all_goes_on(
    filled: Pipeline, node: SignedNode
) -> None:
    hub = filled
    denied: tuple[Right, ...] = (("TOPIC", "views.latest", "WRITE", "DENY"),)
    give(node.bootstrap, denied, f"User:{USER}")
    try:
        said_rights = rights_of(hub)
        assert said_rights["verdict"] == "FAIL" and 'Write on topic "views.latest"' in said_rights["found"]
        after = write(hub, "s-0", 30.0)
        wait_until(
            lambda: "views.latest" in str(hub.state("latest").get("reason")),
            120.0,
            lambda: f"{hub.state('latest')}",
        )
        assert "Sword-4711" not in json.dumps(hub.state("latest"))
        assert any("views.latest" in each for each in node.refused(USER))
    finally:
        take(node.bootstrap, denied, f"User:{USER}")

    wait_until(lambda: reads(hub, "s-0", after), 240.0, lambda: f"{hub.state('latest')}\n{said(hub)}")
    assert hub.rows("latest")["s-0"]["readings"] == 4
    assert rights_of(hub)["verdict"] == "OK"


def rights_of(hub: Pipeline) -> dict[str, str]:
    """The line of ``hub doctor``."""
    found: list[dict[str, str]] = json.loads(call_hub(hub.settings, "doctor", "-o", "json").stdout)
    return next(each for each in found if each["check"] == "rights")


def test_no_secret_is_anywhere(filled: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """No secret is in outputs or arguments of processes, in Spark's files, in an answer, or in an error."""
    hub = filled
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


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a plain client at a TLS port": ({"tls": None, "sasl": None}, "this port requires TLS"),
    "a password in the open at a TLS port": ({"tls": None}, "this port requires TLS"),
    "nobody said who comes": ({"sasl": None}, "it requires SASL authentication"),
    "another authority": ({"tls": {"ca": "mirror.pem"}}, "its certificate is not trusted"),
    "TLS at a plain port": ({"bootstrap": "port", "sasl": None}, "it does not speak TLS"),
    "a name at an open port": (
        {"bootstrap": "port", "tls": None},
        "this port does not offer SASL authentication",
    ),
    "no certificate of its own": (
        {"bootstrap": "tls_port", "sasl": None},
        "does not take the hub's certificate",
    ),
    "a mechanism that is not offered": (
        {"bootstrap": "sasl_port", "tls": None},
        "it does not offer SCRAM-SHA-512",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_who_is_not_let_in_is_told_why_and_what_to_do(
    node: SignedNode, password: None, tmp_path: Path, case: str
) -> None:
    """Reported by ``hub doctor`` at once, and by every command in place of "does not answer"."""
    changed, words = WRONG[case]
    changed = dict(changed)
    if "bootstrap" in changed:
        changed["bootstrap"] = f"127.0.0.1:{getattr(node, changed['bootstrap'])}"
    if changed.get("tls"):
        changed["tls"] = {"ca": str(node.folder / "mirror.pem")}
    settings = Settings(
        home=tmp_path,
        project=tmp_path,
        kafka_timeout_s=2.0,
        http_port=free_ports(1)[0],
        **security(node, **changed),
    )
    with pytest.raises(PeerError, match=words) as looked:
        own_cluster(settings).check_door()
    assert looked.value.code == "HUB-3016" and looked.value.hint
    with pytest.raises(PeerError, match=words) as asked:
        own_cluster(settings).topics()
    assert asked.value.code == "HUB-3016" and asked.value.hint == looked.value.hint


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_broker_that_hangs_up_on_everybody_is_away_and_bars_nobody(protocol: str) -> None:
    """A broker that behaves like one that is stopping."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        port = server.getsockname()[1]
        assert looked_at("127.0.0.1", port, 2.0, {"security.protocol": protocol}) is None
        with pytest.raises(PeerError) as away:
            KafkaCluster(f"127.0.0.1:{port}", 1.0).topics()
        assert away.value.code == "HUB-3010"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


@pytest.mark.parametrize("command", [["up"], ["up", "--detach"]], ids=["up", "up --detach"])
def test_hub_up_says_it_before_it_starts_anything(
    node: SignedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    settings = Settings(home=tmp_path, project=tmp_path, http_port=free_ports(1)[0], **security(node))
    monkeypatch.delenv(VARIABLE, raising=False)
    unset = call_hub(settings, *command)
    assert unset.returncode == 1 and f"the variable {VARIABLE} is not set" in unset.stderr
    monkeypatch.setenv(VARIABLE, "wrong")
    wrong = call_hub(settings, *command)
    assert wrong.returncode == 1 and "Error HUB-3016" in wrong.stderr and "password is wrong" in wrong.stderr
    assert "up after" not in wrong.stderr


@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", ["TLS", "PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_spark_gets_in_every_way(
    spark_session: SparkSession, node: SignedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    """The hub writes and reads; with a key and certificate of its own, too."""
    topic, client = f"ways.{way.lower()}", f"User:{NODE_USER}"
    KafkaCluster(node.bootstrap).create_topic(topic, partitions=1, config={}, replication_factor=1)
    give(node.bootstrap, [("TOPIC", topic, "READ", "ALLOW"), ("TOPIC", topic, "WRITE", "ALLOW")], client)
    monkeypatch.setenv("MIRROR_PASSWORD", NODE_PASSWORD)
    with tokens(node.issuer.token) as token_url:
        settings = Settings(project=tmp_path, embedded_kafka=False, **node.access(way, token_url))
        kafka_source.let_ask_for_tokens(spark_session, settings)
        _there_and_back(spark_session, settings, topic)
        own_cluster(settings).check_door()


@pytest.mark.timeout(240)
def test_an_encrypted_key_that_java_reads_is_read_by_all_clients(
    spark_session: SparkSession, node: SignedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Convert a key as the hint recommends."""
    topic = "ways.encrypted"
    KafkaCluster(node.bootstrap).create_topic(topic, partitions=1, config={}, replication_factor=1)
    rights: list[Right] = [("TOPIC", topic, "READ", "ALLOW"), ("TOPIC", topic, "WRITE", "ALLOW")]
    give(node.bootstrap, rights, f"User:{NODE_USER}")
    monkeypatch.setenv(VARIABLE, "secret")
    key, made = node.folder / "mirror.key", tmp_path / "mirror.pk8"
    command = ["openssl", "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-in", str(key), "-out", str(made)]
    subprocess.run([*command, "-passout", "pass:secret"], check=True, capture_output=True)
    told = node.access("TLS", "")
    told["tls"] |= {"key": str(made), "key_password": f"${{{VARIABLE}}}"}
    settings = Settings(project=tmp_path, embedded_kafka=False, **told)
    _there_and_back(spark_session, settings, topic)
    cluster = own_cluster(settings)
    cluster.check_door()
    assert topic in cluster.topics()


def _there_and_back(spark_session: SparkSession, settings: Settings, topic: str) -> None:
    row = spark_session.createDataFrame([(bytearray(b"k"), bytearray(b"v"))], "key binary, value binary")
    row.write.format("kafka").options(**kafka_source.writing(settings)).option("topic", topic).save()
    read = spark_session.read.format("kafka").options(**kafka_source.reading(settings))
    assert [bytes(each.value) for each in read.option("subscribe", topic).load().collect()] == [b"v"]


@pytest.mark.timeout(240)
def test_what_spark_says_of_a_query_that_fails_has_no_secret(
    spark_session: SparkSession, node: SignedNode, tmp_path: Path, password: None
) -> None:
    """Its plan, options and all, is in the error, which goes into the log and to whoever asks
    for the view's state."""
    KafkaCluster(node.bootstrap).create_topic("closed", partitions=1, config={}, replication_factor=1)
    give(node.bootstrap, [("TOPIC", "closed", "READ", "ALLOW")], f"User:{USER}")
    settings = Settings(project=tmp_path, **security(node))
    events = kafka_source.events(spark_session, settings, ["closed"], "live").selectExpr("key", "value")
    query = (
        events.union(
            spark_session.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 1)
            .load()
            .selectExpr("cast('k' AS binary) AS key", "cast('v' AS binary) AS value")
        )
        .writeStream.format("kafka")
        .options(**kafka_source.writing(settings))
        .option("topic", "closed")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination(120)
    shown = f"{failed.value}{query._jsq.streamingQuery().toDebugString(True)}"
    plans = query._jsq.streamingQuery().lastExecution()
    shown += plans.toString() if plans is not None else ""
    assert "WriteToMicroBatchDataSource KafkaTable" in shown, shown[:3000]
    assert "Sword-4711" not in shown and "fish" not in shown
    for path in (tmp_path / "checkpoint").rglob("*"):
        assert path.is_dir() or b"Sword-4711" not in path.read_bytes()


def test_spark_redacts_what_it_is_told_of_kafka(
    spark_session: SparkSession, node: SignedNode, tmp_path: Path, password: None
) -> None:
    """Places that print a query's options use Spark's own redaction."""
    own = {"certificate": str(node.folder / "mirror.pem"), "key": str(node.folder / "mirror.key")}
    tls = {"ca": str(node.folder / "broker.pem"), **own, "key_password": f"${{{VARIABLE}}}"}
    told = kafka_source.writing(Settings(project=tmp_path, **security(node, tls=tls)))
    jvm: Any = spark_session._jvm
    options = jvm.PythonUtils.toScalaMap(dict(told))
    shown = jvm.org.apache.spark.sql.internal.SQLConf.get().redactOptions(options)
    printed = {name: shown.apply(name) for name in told}
    hidden = {name for name in told if "redacted" in printed[name]}
    assert hidden >= {
        "kafka.sasl.jaas.config",
        "kafka.ssl.keystore.key",
        "kafka.ssl.key.password",
    }
    assert "kafka.bootstrap.servers" not in hidden and "kafka.security.protocol" not in hidden
