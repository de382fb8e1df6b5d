"""The rules and the dashboard of deploy/ in a real Prometheus that scrapes a real hub: the sample project, on
real Kafka and Spark.

promtool knows whether an expression can be read; only a server with samples knows whether it finds anything.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from pipeline import EXAMPLES, Pipeline, wait_until
from ports import free_ports
from processes import Server, own_settings, run_hub

from hub.demo import customers
from hub.demo.feeder import Feeder
from hub.embedded import KafkaNode, ensure_jars
from hub.errors import Conflict, PeerError
from hub.kafka import KafkaCluster
from hub.observability.series.catalog import CLUSTER, HUB, SeriesObject, reader_object
from hub.observability.series.prometheus import PrometheusSeries
from hub.observability.series.reading import SeriesReader
from hub.observability.series.rollup import RANGES
from hub.record import NewRecord, Positions
from hub.runtime import die_with_parent
from hub.supervisor import end

DEPLOY = Path(__file__).parents[2] / "deploy"
PROJECT = "customer-360"
VIEW = "customer_360"
LATE = "shop.orders"
GROUP = "billing"
PATIENCE_S = 240.0
pytestmark = pytest.mark.timeout(900)
PROMETHEUS = shutil.which("prometheus")

# Series that a hub may well not have, and why. Everything else that a rule or a panel names must be there.
CONDITIONAL = {
    "hub_connect_tasks": "no worker of Kafka Connect has ever answered here: nothing is known of its tasks",
    "hub_connect_failed": "no connector failed",
    "hub_view_recomputed_match": "no view was computed a second time",
    "hub_outbox_up": "no relay reads an outbox",
    "hub_sink_up": "the project declares no sinks",
    "hub_postgres_slot_retained_bytes": "no connector reads a database",
    **dict.fromkeys(
        ("hub_canary_lost", "hub_canary_seconds_bucket", "hub_canary_state"),
        "the settings ask for no canaries",
    ),
    **dict.fromkeys(
        (
            "hub_mirror_different_partitions",
            "hub_mirror_gap_age_seconds",
            "hub_mirror_known",
            "hub_mirror_lag_seconds",
            "hub_mirror_lag_seconds_max",
            "hub_mirror_standing",
            "hub_mirror_state",
        ),
        "the project declares no mirrors",
    ),
}


@dataclass
class Watching:
    """A running Prometheus. ``log`` is its complete output."""

    url: str
    log: Path

    def api(self, path: str, **asked: str) -> Any:
        answer = httpx2.get(f"{self.url}/api/v1/{path}", params=asked, timeout=30)
        said = answer.json()
        assert said["status"] == "success", f"{path} {asked}: {said}"
        return said["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api("query", query=expression)["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self.api("rules")["groups"] for rule in group["rules"]]

    def firing(self) -> set[tuple[str, str]]:
        """Firing alerts: the rule's name, and the object."""
        return {
            (each["labels"]["alertname"], each["labels"].get("consumer", ""))
            for each in self.api("alerts")["alerts"]
            if each["state"] == "firing"
        }


def expressions() -> dict[str, str]:
    """Every expression of the dashboard's panels and of the rules, by where it stands."""
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())["groups"][0]["rules"]
    panels = json.loads((DEPLOY / "grafana" / "hub.json").read_text())["panels"]
    found = {f"rule {number} {rule['alert']}": rule["expr"] for number, rule in enumerate(rules)}
    for panel in panels:
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            found[f"panel {panel['title']} {target['refId']}"] = target["expr"]
    return found


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\bhub_\w+", expression))


def _made(cluster: KafkaCluster) -> bool:
    """A broker that answers may not know its controller yet, on a busy machine for a while."""
    try:
        cluster.create_topic(LATE, partitions=2, config={}, replication_factor=1)
    except PeerError:
        return False
    except Conflict:
        pass
    return True


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """The sample project as `hub demo` runs it: history, one event that nobody can read,
    a reader that stopped, live events."""
    if PROMETHEUS is None:
        pytest.skip("no prometheus on this machine: ./run test installs it where it may")
    settings = own_settings(
        tmp_path_factory.mktemp("watched"),
        lag_sample_s=0.5,
        alert_every_s=0.5,
        connect_urls=[f"http://127.0.0.1:{free_ports(1)[0]}"],  # where nobody answers
    )
    ensure_jars(settings)
    shutil.copytree(EXAMPLES / PROJECT, settings.project)
    alerts = settings.project / "alerts.yaml"  # the same rules, without the patience of a first start
    alerts.write_text(alerts.read_text().replace("for: 2m", "for: 1s"))
    node = KafkaNode(settings)
    node.start()
    server = Server(settings, environment={"OPS_URL": "http://127.0.0.1:1/nobody"})
    running: Pipeline | None = None
    try:
        node.wait_ready()
        cluster = KafkaCluster(settings.bootstrap, 15.0)
        wait_until(lambda: _made(cluster), PATIENCE_S)
        hours_ago = time.time_ns() // 1_000_000 - 2 * 3_600_000
        cluster.writer().append([NewRecord(LATE, b"k", b"no Avro", (), hours_ago, 0)])
        wait_until(lambda: _committed(cluster, Positions.of([(LATE, 0, 0)])), PATIENCE_S)
        server.start()
        running = Pipeline(settings, server.url)
        running.processes["serve"] = server
        running.install(PROJECT)
        for command in ("apply-changelogs", "materialize"):
            running.start(command)
        yield running
    finally:
        if running is not None:
            running.close()
        server.stop()
        node.stop()


def _committed(cluster: KafkaCluster, positions: Positions) -> bool:
    cluster.publish_group(GROUP, positions)
    return cluster.group_positions(GROUP).covers(positions)


@pytest.fixture(scope="module")
def prometheus(hub: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watching]:
    """Prometheus with the files of deploy/: as they are, but for the target, the pauses,
    and how long a rule waits."""
    folder = tmp_path_factory.mktemp("prometheus")
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    # A scrape may take no longer than the pause between two: a busy machine is not a fault of the metrics.
    config["global"] = {"scrape_interval": "3s", "evaluation_interval": "1s"}
    (scrape,) = config["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": ["server:8088"]}]
    scrape["static_configs"] = [{"targets": [hub.url.removeprefix("http://")]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    (rules,) = config["rule_files"]
    text = (DEPLOY / "prometheus" / rules).read_text()
    (folder / rules).write_text(re.sub(r"^    for: [1-9]\w*$", "    for: 2s", text, flags=re.MULTILINE))
    address, log = f"127.0.0.1:{free_ports(1)[0]}", folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            die_with_parent(
                [
                    str(PROMETHEUS),
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'samples'}",
                    f"--web.listen-address={address}",
                ]
            ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    watching = Watching(f"http://{address}", log)
    try:
        wait_until(
            lambda: httpx2.get(f"{watching.url}/-/ready", timeout=5).is_success, 60.0, lambda: log.read_text()
        )
        yield watching
    finally:
        end(process, 20.0)


@pytest.fixture(scope="module")
def fed(hub: Pipeline, prometheus: Watching) -> Pipeline:
    """Events of before and of now have gone all the way, and the ledger has counted them."""
    now_ms = time.time_ns() // 1_000_000
    feeder = Feeder(hub.cluster, hub.publisher(), customers.TOPICS)
    feeder.epoch_ms = now_ms - 3_600_000
    stream = customers.Stream(7, 50, feeder.epoch_ms)
    for event in islice(stream, 600):
        feeder.feed(event)
    feeder.publisher.flush()
    hub.covers(VIEW, customers.TOPICS, PATIENCE_S)
    live = stream.at(lambda: time.time_ns() // 1_000_000)

    def measured() -> bool:
        feeder.feed(next(live))
        feeder.publisher.flush()
        found = 'hub_view_latency_seconds_bucket{le="+Inf",origin="live",stage="readable",store="serving"}'
        return len(prometheus.query(found)) == 1

    wait_until(measured, PATIENCE_S, lambda: str(hub.state(VIEW)))
    hub.covers(VIEW, customers.TOPICS, PATIENCE_S)
    audited = run_hub(hub.settings, "completeness", "run", "shop.payments", f"views.{VIEW}")
    assert audited.returncode == 0, audited.stdout + audited.stderr
    for sooner_or_later in ("hub_completeness_missing", "hub_alert_firing"):
        wait_until(lambda: bool(prometheus.query(sooner_or_later)), PATIENCE_S)  # noqa: B023 called at once
    return hub


def test_prometheus_takes_everything_that_the_hub_tells(fed: Pipeline, prometheus: Watching) -> None:
    (target,) = prometheus.api("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    assert prometheus.query('sum(min_over_time(up{job="hub"}[5m]))')[0]["value"][1] == "1"
    said = prometheus.log.read_text()
    # A duplicate sample, one of the past, a rule that cannot be evaluated: all are warnings in its log.
    assert not re.findall(r"^.*level=(?:warn|error).*$", said, re.MULTILINE), said
    assert {rule["health"] for rule in prometheus.rules()} == {"ok"}


def test_what_rules_and_panels_name_is_there(fed: Pipeline, prometheus: Watching) -> None:
    named = {name for each in expressions().values() for name in names_in(each)}

    def missing() -> set[str]:
        return named - set(prometheus.api("label/__name__/values"))

    wait_until(lambda: missing() <= set(CONDITIONAL), PATIENCE_S, lambda: str(missing() - set(CONDITIONAL)))
    assert missing() == set(CONDITIONAL)
    promised = {rule["name"] for rule in prometheus.rules()}
    assert {"lag", "latency", "topic-freshness", "view-freshness", "not-watched"} <= promised


def test_every_panel_and_every_rule_looks_at_something(fed: Pipeline, prometheus: Watching) -> None:
    """Each can be worked out, and each of its selectors has series:
    its topics, views, labels and buckets are those of the hub."""
    empty = set()
    for where, expression in expressions().items():
        prometheus.query(expression)
        selectors = re.findall(r"\bhub_\w+(?:\{[^}]*\})?", expression)
        assert selectors, where
        empty |= {(where, each) for each in selectors if names_in(each).isdisjoint(CONDITIONAL)}

    def all_there() -> bool:  # values that depend on a clock may come a moment later
        empty.difference_update([each for each in empty if prometheus.query(each[1])])
        return not empty

    wait_until(all_there, PATIENCE_S, lambda: str(empty))


def test_a_reader_that_stopped_fires_until_it_has_read(fed: Pipeline, prometheus: Watching) -> None:
    late = ("lag", GROUP)
    wait_until(lambda: late in prometheus.firing(), PATIENCE_S, lambda: str(prometheus.rules()))
    (alert,) = (
        each for each in prometheus.api("alerts")["alerts"] if each["labels"].get("consumer") == GROUP
    )
    assert alert["labels"]["owner"] == "shop-team" and alert["labels"]["severity"] == "warning"
    assert re.search(
        r"billing is 2h .*behind on shop.orders; promised are 60 s", alert["annotations"]["summary"]
    )
    # The worker of Kafka Connect that was never there.
    wait_until(lambda: ("connect-unreachable", "") in prometheus.firing(), PATIENCE_S)
    assert ("not-watched", "") not in prometheus.firing()
    # Never since it began: no topic was idle for the five minutes of the objective.
    wrong = 'count_over_time(ALERTS{alertname=~"topic-freshness|loss",alertstate="firing"}[1h])'
    assert not prometheus.query(wrong)
    _committed(fed.cluster, fed.cluster.end_offsets([LATE]))
    wait_until(lambda: late not in prometheus.firing(), PATIENCE_S, lambda: str(prometheus.firing()))


def test_charts_are_read_from_prometheus(fed: Pipeline, prometheus: Watching) -> None:
    """Prometheus has the metrics of the hub's own store: each expression finds the series of its object."""
    reader = SeriesReader(fed.settings.home, prometheus=PrometheusSeries(prometheus.url, 30.0))
    group = reader_object("group", GROUP, LATE)
    wanted = {
        SeriesObject("topic", LATE): {"in_per_s", "undecodable", "lag_s", "lag_records"},
        SeriesObject("view", VIEW): {"lag_s", "p50_s", "p95_s", "p99_s", "batch_s", "rows"},
        group: {"lag_s", "lag_error_s", "lag_records"},
        HUB: {"in_per_s", "lag_s", "lag_records", "undecodable", "firing"},
        CLUSTER: {"bytes", "offline", "under_replicated", "brokers"},
    }
    for about, metrics in wanted.items():

        def known(about: SeriesObject = about) -> dict[str, float]:
            found = reader.read([about], (), RANGES["15m"])
            assert found.source == "prometheus" and found.notes == ()
            exported = [each for each in found.lines if each.metric.promql]
            return {
                each.metric.name: value for each in exported for value in each.values if value is not None
            }

        wait_until(lambda: known().keys() >= metrics, PATIENCE_S, lambda: f"{about}: {known()}")  # noqa: B023
    assert known()["brokers"] == 1.0
    own = SeriesReader(fed.settings.home).read([group], ["lag_records"], RANGES["15m"])
    assert any(value is not None for value in own.lines[0].values)


def test_a_hub_that_is_gone_is_told_by_prometheus(fed: Pipeline, prometheus: Watching) -> None:
    fed.processes["serve"].kill()
    wait_until(
        lambda: ("not-watched", "") in prometheus.firing(), PATIENCE_S, lambda: str(prometheus.rules())
    )
