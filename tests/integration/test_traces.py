"""A trace from a producer to a subscriber, on real Kafka and Spark:
walked from the produce span by parents and links alone."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator

import httpx2
import pytest
from integration.collector import Collector, Told, collecting
from pipeline import Pipeline, wait_until
from plant import Plant
from ports import free_ports
from processes import running_server
from typer.testing import CliRunner

from hub.cli import app
from hub.cli.context import environment_of
from hub.client import Hub
from hub.config import Settings
from hub.embedded import ensure_jars
from hub.record import Positions
from hub.tracing.context import parse
from hub.tracing.otel import Spans, open_spans

PATIENCE_S = 240.0
OWN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture(scope="module")
def traced(
    settings: Settings, kafka: str, collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pipeline]:
    """A hub of its own on the shared Kafka, whose processes send their spans to the collector."""
    home = tmp_path_factory.mktemp("traced")
    own = settings.model_copy(
        update={
            "home": home,
            "project": home / "project",
            "http_port": free_ports(1)[0],
            "otlp_endpoint": collector.url,
        }
    )
    ensure_jars(own)
    (own.project / "views").mkdir(parents=True)
    with running_server(own) as url:
        running = Pipeline(own, url)
        try:
            for command in ("apply-changelogs", "materialize"):
                running.start(command)
            yield running
        finally:
            running.close()


@pytest.fixture
def client_spans(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    made = open_spans("shop", collector.url)
    monkeypatch.setattr("hub.tracing.otel._spans", made)
    yield made
    made.close()


def headers_at(pipeline: Pipeline, topic: str, token: Positions) -> list[tuple[str, bytes]]:
    ((place, after),) = list(token)
    reader = pipeline.cluster.reader()
    try:
        reader.assign(Positions({place: after - 1}))
        found: list[tuple[str, bytes]] = []

        def read() -> bool:
            for record in reader.poll(1, 1.0):
                found.extend(record.headers)
                return True
            return False

        wait_until(read, 60.0)
        return found
    finally:
        reader.close()


def test_a_produced_event_is_walked_to_its_subscriber(
    traced: Pipeline, collector: Collector, client_spans: Spans
) -> None:
    plant = Plant(traced, "traces")
    plant.declare({"celsius": "r.celsius"})
    plant.running()
    plant.covered("s-0", plant.write("s-0", plant.reading("s-0", 0.0)))
    heard, stop = [], threading.Event()

    def listen() -> None:
        with Hub(traced.url).subscribe(plant.view) as changes:
            for change in changes:
                heard.append(change)
                if stop.is_set():
                    return

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    with Hub(traced.url) as hub:
        written: list[tuple[Positions, str]] = []

        def walked() -> bool:
            """An event more, and from each that was written as far as links lead."""
            time.sleep(1.0)
            value = {"sensor": "s-1", "celsius": float(len(written))}
            token = hub.produce(plant.topic, value, key="s-1", headers={"mine": "kept"})
            told = dict(headers_at(traced, plant.topic, token))
            assert told["mine"] == b"kept"
            trace = parse(told["traceparent"])
            assert trace is not None
            written.append((token, trace.trace_id))
            hub.get(plant.view, "s-1", after=token, timeout_s=60.0)
            for _, trace_id in written:
                produced = [each for each in collector.spans if each.trace_id == trace_id]
                folded = collector.linked_to(produced, f"process {plant.view}")
                applied = collector.linked_to(folded, f"apply {plant.view}")
                if collector.linked_to(applied, f"push {plant.view}"):
                    return True
            return False

        wait_until(walked, PATIENCE_S, lambda: str(sorted({each.name for each in collector.spans})))
        stop.set()
        hub.produce(plant.topic, {"sensor": "s-2", "celsius": 1.0}, key="s-2")
        own = hub.produce(
            plant.topic, {"sensor": "s-3", "celsius": 1.0}, key="s-3", headers={"traceparent": OWN}
        )
        names = [name for name, _ in headers_at(traced, plant.topic, own)]
        assert names.count("traceparent") == 1
        assert dict(headers_at(traced, plant.topic, own))["traceparent"] == OWN.encode()
    listener.join(60.0)
    wanted = [
        ("shop", f"send {plant.topic}"),
        ("hub-server", f"send {plant.topic}"),
        ("hub-server", "POST /v3/clusters/{cluster_id}/topics/{topic}/records"),
    ]
    found: dict[tuple[str, str], Told] = {}

    def told_by_all() -> bool:  # each process sends its spans by a clock of its own
        mine = [each for each in collector.spans if each.trace_id == written[0][1]]
        found.update({(each.service, each.name): each for each in mine})
        return found.keys() >= {*wanted}

    wait_until(told_by_all, 60.0, lambda: str(found.keys()))
    client, gateway, server = (found[each] for each in wanted)
    assert (server.parent_id, gateway.parent_id) == (client.span_id, server.span_id)
    assert gateway.attributes["messaging.system"] == "kafka"
    assert gateway.attributes["messaging.destination.name"] == plant.topic
    ((place, after),) = list(written[0][0])
    assert gateway.attributes["messaging.destination.partition.id"] == str(place.partition)
    assert (
        gateway.attributes["messaging.kafka.offset"]
        == after - 1
        == client.attributes["messaging.kafka.offset"]
    )
    assert all(len(each.links) <= 8 for each in collector.spans)
    routes = {each.attributes.get("http.route") for each in collector.spans if each.kind == 2}
    assert not any("s-1" in (route or "") for route in routes)


def test_a_wait_continues_the_callers_trace(traced: Pipeline, collector: Collector) -> None:
    plant = Plant(traced, "waits")
    plant.declare({"celsius": "r.celsius"})
    plant.running()
    token = plant.write("s-0", plant.reading("s-0", 0.0))
    plant.covered("s-0", token)
    asked = httpx2.get(
        f"{traced.url}/views/{plant.view}/s-0",
        params={"after": str(token), "timeout_ms": "60000"},
        headers={"traceparent": OWN},
        timeout=70.0,
    )
    assert asked.status_code == 200

    def told() -> bool:
        mine = {each.name: each for each in collector.spans if each.trace_id == OWN.split("-")[1]}
        wait, get = mine.get(f"wait {plant.view}"), mine.get("GET /views/{view}/{key:path}")
        return wait is not None and get is not None and wait.parent_id == get.span_id

    wait_until(told, 60.0, lambda: str([each.name for each in collector.spans][-20:]))


def test_every_process_counts_its_spans(traced: Pipeline, collector: Collector) -> None:
    """The server reports its own; the others report theirs through the log and the store."""
    plant = Plant(traced, "counts")
    plant.declare({"celsius": "r.celsius"})
    plant.running()
    services = ("hub-server", "hub-materializer", "hub-applier")

    def counted() -> bool:
        plant.covered("s-1", plant.write("s-1", plant.reading("s-1", 1.0)))
        text = httpx2.get(f"{traced.url}/metrics", timeout=60.0).text
        found = re.findall(
            r'hub_traces_spans_total{outcome="exported",service="([a-z-]+)"} ([0-9.e+]+)', text
        )
        return {service for service, number in found if float(number) > 0} == set(services)

    wait_until(counted, PATIENCE_S, lambda: httpx2.get(f"{traced.url}/metrics", timeout=60.0).text)


def test_latency_names_a_trace(traced: Pipeline, collector: Collector, client_spans: Spans) -> None:
    plant = Plant(traced, "exemplars")
    plant.declare({"celsius": "r.celsius"})
    plant.running()
    environment = environment_of(traced.settings)
    with Hub(traced.url) as hub:

        def shown() -> bool:
            time.sleep(1.0)
            hub.produce(plant.topic, {"sensor": "s", "celsius": 1.0}, key="s")
            rows = httpx2.get(f"{traced.url}/api/latency", params={"view": plant.view}, timeout=60.0).json()
            traces = {row["exemplar"]["trace_id"] for row in rows if row["exemplar"] is not None}
            return bool(traces & {each.trace_id for each in collector.spans})

        wait_until(shown, PATIENCE_S)
    told = httpx2.get(
        f"{traced.url}/metrics", headers={"accept": "application/openmetrics-text"}, timeout=60.0
    )
    assert told.headers["content-type"].startswith("application/openmetrics-text")
    assert '# {trace_id="' in told.text and told.text.endswith("# EOF\n")
    listed = CliRunner().invoke(app, ["latency", plant.view], env=environment)
    assert listed.exit_code == 0 and "trace" in listed.stdout
