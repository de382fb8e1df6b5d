"""Prometheus rules and dashboard: they use existing series, the files in deploy/ are current, and every rule
has a runbook.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from browser.staged_estate import estate
from mirror_statuses import status
from typer.testing import CliRunner

from hub.alerts.alert_series import families
from hub.alerts.config.alerts_yaml import QueryAlert
from hub.alerts.export.grafana_dashboard import grafana_dashboard
from hub.alerts.export.prometheus_rules import OUTSIDE, prometheus_rules
from hub.alerts.model.alert_state import AlertingState
from hub.alerts.model.rules import RULES, Promise, RuleChange, RuleChanges
from hub.alerts.runbooks import names, runbook
from hub.alerts.snapshot import AlertSnapshot
from hub.cli import app
from hub.completeness.balances import Balance, TopicCompleteness
from hub.completeness.balances import CompletenessState as LedgerState
from hub.completeness.canary.routes import families as of_canaries
from hub.completeness.canary.runner import Canaries
from hub.completeness.counts import Holes
from hub.completeness.counts_follower import series_of
from hub.connectors.postgres.slots import slot_series
from hub.errors import NotFound
from hub.materializers.verification.metrics import families as of_proofs
from hub.metrics.histogram import edges_with
from hub.observability.cluster import contact_series
from hub.observability.cluster.health_series import families as of_health
from hub.observability.export import metrics
from hub.observability.latency.recorder import LatencyRecorder
from hub.outbox.note import OutboxNote
from hub.outbox.note import families as outbox_series
from hub.replication.status.metrics import families as of_mirrors
from hub.sinks.note import families as sink_series
from hub.topics.tree.tree import Slo, TopicSpec

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"


def spec(name: str, owner: str = "shop-team", **slo: Any) -> TopicSpec:
    by = {f"slo.{key}": "shop" for key in ("lag", "freshness", "latency", "completeness")}
    return TopicSpec(name, owner, "", 1, 1, {}, None, None, (), by, Slo(**slo))


def every_rule() -> dict[str, Any]:
    topics = [
        spec("shop.orders", lag_ms=30_000, freshness_ms=60_000, completeness=1.0),
        spec("shop.payments", lag_ms=30_000, freshness_ms=90_000, completeness=0.999),
        spec("crm.customers", "crm", lag_ms=30_000),
    ]
    promises = [Promise("v", "crm", "", 2_000, 0.995, 60_000), Promise("w", "crm", "", 2_000, 0.995)]
    query = QueryAlert.model_validate({"alert": "unpaid", "query": "SELECT 1", "owner": "billing"})
    changes = RuleChanges({"lag": RuleChange(for_ms=120_000, severity="page")})
    return prometheus_rules(topics, promises, [query.rule], changes, "https://hub.example.com")


@cache
def exposition() -> str:
    """Return the output of GET /metrics with samples of everything."""
    staged = estate()
    assert staged.collector is not None and staged.node is not None
    staged.collector.ask_kafka()
    staged.collector.ask_store()
    board = LatencyRecorder(staged.collector, staged.monitor())
    balance = Balance("mirror", "m", LedgerState.SHORT, "", 1, 1, 0, 1, 0, 0, ())
    audit = TopicCompleteness("t", LedgerState.SHORT, "", 1, 1, 1, Holes(), 0, (), 1, (balance,), {})
    known = AlertSnapshot(0, AlertingState(), (), ())
    mirrors = of_mirrors([status()], known=True)
    canaries = of_canaries(Canaries(staged.cluster, None, "_hub.canary"))  # type: ignore[arg-type]
    text = metrics.exposition(
        staged.collector.overview(),
        more=[
            *board.families(),
            *of_health(staged.health),
            *families(known),
            *mirrors,
            *of_proofs({}, 0),
            *canaries,
            contact_series.family(()),
            *slot_series(()),
            *outbox_series(OutboxNote()),
            *sink_series([]),
        ],
    ).decode()
    staged.node.stop()
    return text + "".join(f"# TYPE {name} gauge\n" for name, *_ in series_of(audit))


def exported_names() -> set[str]:
    """Return the names of all series of GET /metrics, with their suffixes."""
    found = set(re.findall(r"^# TYPE (\w+) ", exposition(), re.MULTILINE))
    return found | {f"{name}{end}" for name in found for end in ("_bucket", "_count", "_sum", "_total")}


def named_in(expressions: list[str]) -> set[str]:
    return {name for each in expressions for name in re.findall(r"\bhub_\w+", each)}


def test_what_the_rules_and_the_dashboard_name_is_what_the_hub_exports() -> None:
    rules = every_rule()["groups"][0]["rules"]
    panels = grafana_dashboard()["panels"]
    named = named_in([each["expr"] for each in rules])
    named |= named_in([target["expr"] for panel in panels for target in panel["targets"]])
    assert len(named) > 10
    assert named <= exported_names()
    board_edges = {str(float(edge)) for edge in edges_with(2.0)}
    assert set(re.findall(r'le="([^"]+)"', str([each["expr"] for each in rules]))) <= board_edges


def test_names_and_units_are_those_of_prometheus_and_no_label_grows_with_what_is_in_the_log() -> None:
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", exposition(), re.MULTILINE))
    assert len(kinds) > 40
    for name, kind in kinds.items():
        assert re.fullmatch(r"hub_[a-z][a-z0-9_]*", name), name
        if not name.endswith("_created"):
            assert name.endswith("_total") == (kind == "counter"), f"{name}: {kind}"
        # Base units: seconds, bytes, shares.
        assert not re.search(r"_(ms|millis\w*|minutes|hours|kb|mb|kilobytes|megabytes|percent)(_|$)", name), (
            name
        )
    labels = set(re.findall(r'[{,](\w+)="', exposition())) - {"le"}
    assert {"broker", "mirror", "topic", "state", "view", "way"} <= labels
    assert labels.isdisjoint(
        {"partition", "offset", "key", "id", "trace", "trace_id", "message", "cause", "reason"}
    )


def test_topics_with_the_same_promise_are_one_rule() -> None:
    rules = every_rule()["groups"][0]["rules"]
    assert {each["alert"] for each in rules} == {*RULES, *OUTSIDE, "unpaid"}
    late = [each for each in rules if each["alert"] == "lag"]
    assert len(late) == 2
    assert late[1]["expr"] == 'hub_consumer_lag_seconds{topic=~"shop\\\\.orders|shop\\\\.payments"} > 30'
    assert (late[1]["for"], late[1]["labels"]) == (
        "120s",
        {"severity": "page", "owner": "shop-team", "node": "shop", "promised": "30s"},
    )
    assert late[1]["annotations"]["runbook_url"] == "https://hub.example.com/alerts/runbooks/lag"


def test_every_rule_has_its_runbook_and_every_runbook_its_rule() -> None:
    rules = {**RULES, **OUTSIDE}
    assert {each.runbook for each in rules.values()} | {"query", "test"} == set(names())
    for name in names():
        first, *rest = runbook(name)
        assert first.kind == "h1" and first.lines[0][0][1].startswith(f"{name}: ")
        if name != "test":
            heads = [block.lines[0][0][1] for block in rest if block.kind == "h2"]
            assert heads == ["Look", "Do"], name
    with pytest.raises(NotFound, match="latence"):
        runbook("latence")
    with pytest.raises(NotFound):
        runbook("../../README")


def test_commands_that_runbooks_name_exist() -> None:
    from hub.cli import COMMANDS

    for path in (ROOT / "docs" / "runbooks").glob("*.md"):
        for command in re.findall(r"`hub ([a-z]+)", path.read_text()):
            assert command in COMMANDS, f"{path.name}: hub {command}"


def test_the_files_in_deploy_are_what_the_commands_print() -> None:
    def printed(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["--project", str(ROOT / "examples/customer-360"), *arguments])
        assert done.exit_code == 0, done.output
        return done.output

    rules, dashboard = DEPLOY / "prometheus" / "rules.yaml", DEPLOY / "grafana" / "hub.json"
    assert printed("alert", "rules", "-o", "prometheus") == rules.read_text()
    assert printed("alert", "rules", "-o", "grafana") == dashboard.read_text()
    assert json.loads(dashboard.read_text())["uid"] == "event-hub"


def test_the_dashboards_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in grafana_dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.processes
@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool here: ./run test installs it where it may"
)
@pytest.mark.parametrize("which", ["deploy", "every"])
def test_promtool_takes_the_rules(tmp_path: Path, which: str) -> None:
    path = DEPLOY / "prometheus" / "rules.yaml"
    if which == "every":
        path = tmp_path / "rules.yaml"
        path.write_text(yaml.safe_dump(every_rule()))
    done = subprocess.run(
        ["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout, done.stdout  # no duplicate rules either
