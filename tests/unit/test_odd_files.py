"""Whatever stands in a file: its loader gives a value or the hub's own error, never another exception."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from odd_yaml import documents

from hub.access.access_yaml import load_access
from hub.access.live_config import AccessRules, LiveAccess
from hub.alerts.config.alerts_yaml import load_query_alert
from hub.alerts.config.live_config import LiveAlerts
from hub.alerts.config.read_entries import read_alerts
from hub.cli.context import load_settings
from hub.connectors.connectors_file import load_connectors
from hub.connectors.rendering import RenderContext, render
from hub.errors import HubError
from hub.materializers.definition.load import files_of, load_view
from hub.materializers.golden.cases import load_golden
from hub.replication.config import load_mirrors
from hub.schema_registry.folder import load as folder
from hub.schema_registry.policy.policy import explain, load_policies
from hub.topics.tree import tree
from hub.topics.tree.live_rules import LiveRules
from hub.topics.tree.tree import inherited

# How many documents a loader is given; 5,000 take minutes.
NUMBER = int(os.environ.get("HUB_YAML_DOCUMENTS", "300"))
SEED = int(os.environ.get("HUB_YAML_SEED", "1"))

ENTITY = """
view: x
doc: d
owner: o
mode: live
indexes: [name]
partitions: 2
stores: [history]
swap: {when: manual, keep_hours: 1, rows_within: 0.1, same: [name]}
slo: {latency: 5s for 90%, freshness: 5m}
ttl: 30d
cut: shop
proof: {recompute: 1h}
sources:
  orders: {topic: shop.orders, key: customer_id, order: occurred_at, unique_by: order_id, where: amount > 0}
  lines: {topic: shop.lines, key: id, format: csv, schema: {id: string, n: int}, csv: {separator: ";", "null": "-"}}
fields: {name: orders.name, total: sum(orders.amount)}
computed: {twice: total * 2}
delete_when: orders._deleted
"""  # noqa: E501
SQL = """
view: x
sql: SELECT id, count(*) AS n FROM orders GROUP BY id
sources:
  orders: {topic: shop.orders, event_time: at, watermark: 10 minutes}
indexes: [n]
"""
GOLDEN = """
view: x
tests:
  one:
    events:
      - {source: orders, at: 2024-01-01T00:00:00Z, key: a, value: {id: 1, amount: 2.5}, partition: 1}
      - next batch
      - {source: orders, topic: shop.orders, text: "{", key: 1}
    rows: {a: {name: b, total: 5}}
    dead: [{event: 2, reason: x}]
    late: 0
"""
TOPICS = """
defaults: {partitions: 3, owner: o}
topics:
  shop:
    retention: 7d
    tags: [pii]
    slo: {latency: 5s for 90%, freshness: 5m, lag: 1m, completeness: 99.9%}
    config: {max.message.bytes: 1MiB}
    topics:
      orders: {schema: schemas/x.avsc, compatibility: FULL, key: id, partitions: 2, audit: quarantine, doc: d}
      lines: {topic: true, topics: {deep: {max_size: 1GiB}}}
"""
POLICIES = """
policies:
  "**": {compatibility: BACKWARD, owner: required, override: {compatibility: any}}
  retail:
    formats: [AVRO, PROTOBUF]
    fields: {event_id: [string, uuid], at: timestamp}
    naming: {records: PascalCase, fields: snake_case}
    doc: record
    pii: {"e_?mail|phone": PII}
    severity: {doc: warn}
    max_fields: 30
  retail.orders: {registrars: ["User:bot"], freeze: true}
"""
MIRRORS = """
clusters:
  nyc: {bootstrap: "127.0.0.1:9092", owns: ["nyc.**"], registry: "http://127.0.0.1:8088"}
  lon: {bootstrap: "a:9093,b:9093", tls: {ca: c.pem}, sasl: {mechanism: PLAIN, username: u, password: "${P}"}, registry: "http://x"}
mirrors:
  nyc-lon:
    source: nyc
    target: lon
    topics: ["nyc.**"]
    exclude: ["nyc.*.x"]
    start: {timestamp: 2024-01-01T00:00:00Z}
    shards: 4
    limits: {bytes_per_second: 20MiB}
    schedule: {zone: Europe/London, windows: [{days: [mon], from: "22:00", to: "06:00"}]}
    commit: {interval: 5s, size: 1MiB, records: 100}
    groups: {include: ["**"], interval: 5s}
    acls: {copy: true, principals: {"User:a": "User:b"}}
    only: [{topics: ["nyc.**"], where: {field: a, in: [1, x]}}]
    mask: [{topics: ["nyc.**"], fields: [a.b], with: hash, key: "${K}"}]
    schema_ids: rewrite
"""  # noqa: E501
CONNECTORS = """
connectors:
  crm:
    kind: postgres-cdc
    owner: o
    topics: [crm.**]
    tasks: 1
    config: {database.hostname: db, database.password: "${P}", tombstones: true, max.batch.size: 3}
    secrets: {P: "file:/run/secrets/a.properties:p"}
    converter: json
    state: paused
  out: {class: io.acme.SinkConnector, topics: [crm.*.x], on_error: stop, config: {url: "http://a:${Q}@b"}}
"""
ALERTS = """
link: https://hub.example
group: {by: [owner, node], wait: 30s, repeat: 4h}
rules: {lag: {for: 2m, severity: page}, latency: off}
channels:
  ops: {webhook: {url: "${OPS_URL}", bearer: "${B}"}, timeout: 5s}
  chat: {slack: {url: "${S}"}}
  mail: {email: {server: "h:25", from: a@b.c, to: [d@e.f], tls: off}}
routes:
  - {match: {severity: [page, warning], topic: "shop.*"}, to: [ops], continue: true, by: [owner], wait: 1s, repeat: 1h}
"""  # noqa: E501
QUERY = """
alert: x
query: SELECT 1
when: rows
for: 5m
every: 30s
severity: page
summary: "{a}"
by: [a]
runbook: https://x
"""
ACCESS = f"""
contact: the team
groups: {{shop: [{{role: read, topics: ["shop.**"], views: [v], hub: true}}]}}
users: {{ana: {{password: "scrypt$14$8$5${"s" * 22}${"h" * 43}", groups: [shop]}}, bob: {{groups: [shop]}}}}
tokens: {{svc: {{token: "sha256${"0" * 64}", grants: [{{role: write, topics: ["shop.orders"]}}]}}}}
anonymous: [{{role: read, topics: ["public.**"]}}]
"""
SETTINGS = """
bootstrap: a:9092
embedded_kafka: false
tls: {ca: c.pem}
sasl: {mechanism: PLAIN, username: u, password: "${P}"}
home: .hub
http_port: 8088
proxy_header: X-User
proxy_addresses: [10.0.0.0/8]
stores: {history: duckdb}
connect_urls: ["http://c:8083"]
lag_sample_s: 5
canary: true
spark_master: local[2]
"""
SCHEMAS = """
defaults: {owner: o, tags: [a], metadata: {k: v}, compatibility: FULL}
schemas:
  x.avsc: {subject: s, references: [{name: n, subject: s2, version: 1}], tags: {a.b: [pii]}}
"""


def _policies(path: Path) -> object:
    found = load_policies(path, ["retail.orders"])
    rules = LiveRules(path.parent)
    return explain(found, "retail.orders-value"), rules()


def _alerts(path: Path) -> object:
    live = LiveAlerts(path.parent)
    live.refresh()
    found = read_alerts(path).file
    return found.as_routes(), found.changes(), [each.variables for each in found.channels.values()]


def _access(path: Path) -> object:
    LiveAccess(path.parent).refresh()
    return AccessRules.of(load_access(path))


def _topics(path: Path) -> object:
    live = tree.LiveTree(path)
    live.topics()
    found = tree.load(path)
    return [(each.subject, found.place(each.name)) for each in found.topics]


def _mirrors(path: Path) -> object:
    file = load_mirrors.load(path)
    return [(file.rule(name), each.rewrites, each.selects("nyc.a")) for name, each in file.mirrors.items()]


def _connectors(path: Path) -> object:
    found = load_connectors(path.parent)
    topics = RenderContext(
        (), "http://hub", 1, {p: inherited(None, p) for c in found.by_name.values() for p in c.topics}
    )
    return [render(name, each, topics) for name, each in found.by_name.items()]


def _view(path: Path) -> object:
    return load_view(path), files_of(path)


def _golden(path: Path) -> object:
    view = path.parent / "v" / "x.yaml"
    view.parent.mkdir(exist_ok=True)
    view.write_text(ENTITY)
    return load_golden(path, {"x": load_view(view)})


def _schemas(path: Path) -> object:
    path.with_name("x.avsc").write_text('"string"')
    return folder.load(path.parent)


def _settings(path: Path) -> object:
    return load_settings(project=path.parent, home=path.parent / "home").store_urls


LOADERS: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "entity view": ("views/x.yaml", ENTITY, _view),
    "sql view": ("views/x.yaml", SQL, _view),
    "golden": ("views/tests/x.yaml", GOLDEN, _golden),
    "topics": ("topics.yaml", TOPICS, _topics),
    "policies": ("policies.yaml", POLICIES, _policies),
    "mirrors": ("mirrors.yaml", MIRRORS, _mirrors),
    "connectors": ("connectors.yaml", CONNECTORS, _connectors),
    "alerts": ("alerts.yaml", ALERTS, _alerts),
    "query alert": ("alerts/x.yaml", QUERY, load_query_alert),
    "access": ("access.yaml", ACCESS, _access),
    "hub": ("hub.yaml", SETTINGS, _settings),
    "schemas": ("schemas/schemas.yaml", SCHEMAS, _schemas),
}


@pytest.mark.parametrize("name", LOADERS)
def test_the_valid_document_is_one(name: str, tmp_path: Path) -> None:
    file, text, load = LOADERS[name]
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    load(path)


@pytest.mark.processes
def test_the_largest_documents_take_bounded_time_and_memory(tmp_path: Path) -> None:
    """In a process that may use 1.5 GB and a minute of processor:
    without limits each of them takes more, or hours."""
    program = f"""
import resource
from pathlib import Path
from hub.errors import HubError
from hub.topics.tree.tree import load
resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
path = Path({str(tmp_path / "topics.yaml")!r})
bomb = b"a0: &a0 [x]\\n" + b"".join(b"a%d: &a%d [%s]\\n" % (n + 1, n + 1, b", ".join([b"*a%d" % n] * 9)) for n in range(30))
merges = b"a0: &a0 {{x: 1}}\\n" + b"".join(b"a%d: &a%d {{<<: [*a%d, *a%d]}}\\n" % (n + 1, n + 1, n, n) for n in range(40))
for document in (
    bomb, merges, b"a: 0x" + b"f" * 990_000, b"a: " + b"59:" * 330_000 + b"1", b"[" * 990_000, b"? " * 490_000,
    b"{{a: " * 190_000, b"a: |\\n" + b" x\\n" * 10_000, b"topics: [" + b"a," * 220_000 + b"]", b"x" * 3_000_000,
):
    path.write_bytes(document)
    try:
        load(path)
    except HubError as error:
        print(error)
"""  # noqa: E501
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for refusal in (
        "anchors and aliases",
        "a number of 990002",
        "nested deeper",
        "more than 200000",
        "larger than",
    ):
        assert refusal in done.stdout


def each_with(value: Any, instead: object) -> Iterator[Any]:
    """The document once for each of its nodes, with something else in that node's place."""
    yield instead
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            for other in each_with(value[key], instead):
                copy = dict(value) if isinstance(value, dict) else list(value)
                copy[key] = other
                yield copy


@pytest.mark.parametrize("name", LOADERS)
def test_every_key_may_be_null_or_of_another_type(name: str, tmp_path: Path) -> None:
    file, text, load = LOADERS[name]
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    escaped: dict[str, object] = {}
    for instead in (None, 0, "", [], {}):
        for document in each_with(yaml.safe_load(text), instead):
            path.write_text(yaml.safe_dump(document))
            try:
                load(path)
            except HubError as error:
                if "defect of the hub" in str(error):
                    escaped.setdefault(str(error), document)
    assert not escaped


@pytest.mark.parametrize("name", LOADERS)
def test_odd_documents_are_refused_by_the_hubs_own_error(name: str, tmp_path: Path) -> None:
    file, text, load = LOADERS[name]
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    valid: Any = yaml.safe_load(text)
    escaped: dict[str, bytes] = {}
    taken = 0
    for document in documents(valid, SEED, NUMBER):
        path.write_bytes(document)
        try:
            load(path)
            taken += 1
        except HubError as error:
            str(error).encode()  # it can be shown
            if "defect of the hub" in str(error):
                escaped.setdefault(str(error)[:400], document[:400])
        except Exception as error:  # noqa: BLE001 - that there is none is what is tested
            escaped.setdefault(f"{type(error).__name__}: {error}"[:400], document[:400])
    assert not escaped, "\n\n".join(f"{error}\n    {document!r}" for error, document in escaped.items())
    assert taken > 0
