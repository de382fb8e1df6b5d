"""alerts.yaml and alerts/*.yaml: format, errors with their place, and reload on change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hub.alerts.config.alerts_yaml import AlertsFile, filled, load_query_alert, unknown_columns
from hub.alerts.config.live_config import LiveAlerts
from hub.alerts.config.read_entries import read_alerts
from hub.alerts.model.matching import matchers_of
from hub.alerts.model.rules import RULES
from hub.errors import ConfigError
from hub.yaml_nodes import UnreadableFile

WHOLE = """
link: https://hub.example.com
group: {by: [owner], wait: 10s, repeat: 2h}
rules:
  lag: {for: 2m, severity: page}
  topic-freshness: off
channels:
  ops: {webhook: {url: "https://ops.example.com/hook", bearer: "${OPS_TOKEN}"}}
  shop: {slack: {url: "${SHOP_SLACK}"}, timeout: 3s}
  mail: {email: {server: "smtp.example.com:587", from: hub@example.com, to: [a@example.com], user: hub, password: "${PW}"}}
routes:
  - {match: {severity: page}, to: [ops], continue: true}
  - {match: {topic: ["shop.**", "crm.*"]}, to: [shop], wait: 1m, by: [topic]}
  - {to: [mail]}
"""  # noqa: E501


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def load_alerts(path: Path) -> AlertsFile:
    reading = read_alerts(path)
    for fault in reading.faults.values():
        raise fault
    return reading.file


def test_the_whole_file(tmp_path: Path) -> None:
    file = load_alerts(write(tmp_path / "alerts.yaml", WHOLE))
    first, second, third = file.as_routes()
    assert (first.matchers, first.channels, first.goes_on) == (
        matchers_of({"severity": "page"}),
        ("ops",),
        True,
    )
    assert (first.by, first.wait_ms, first.repeat_ms) == (("owner",), 10_000, 7_200_000)
    assert (second.by, second.wait_ms, second.matchers) == (
        ("topic",),
        60_000,
        matchers_of({"topic": ["shop.**", "crm.*"]}),
    )
    assert third.matchers == ()
    changes = file.changes()
    assert (changes.rule("lag").for_ms, changes.rule("lag").severity) == (120_000, "page")
    assert not changes.rule("topic-freshness").on
    assert changes.rule("loss") == RULES["loss"]
    assert [file.channels[n].kind for n in ("ops", "shop", "mail")] == ["webhook", "slack", "email"]
    assert file.channels["mail"].variables == ("PW",)


def test_without_routes_everything_goes_everywhere_and_without_a_file_nowhere(tmp_path: Path) -> None:
    file = AlertsFile.model_validate(
        {"channels": {"a": {"slack": {"url": "${A}"}}, "b": {"slack": {"url": "${B}"}}}}
    )
    (route,) = file.as_routes()
    assert (route.matchers, route.channels) == ((), ("a", "b"))
    assert load_alerts(tmp_path / "alerts.yaml").as_routes() == ()


HOOK = 'channels:\n  ops: {webhook: {url: "https://ops.example.com/hook"}}\n'


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("chanels: {}\n", "1:1", 'did you mean "channels"?'),
        ("rules: {lags: off}\n", "1:9", 'did you mean "lag"?'),
        ("rules: {lag: {fore: 1m}}\n", "1:15", 'did you mean "for"?'),
        ("rules: {lag: {for: 1 minute}}\n", "1:20", "is not a duration"),
        ("rules: {lag: {severity: loud}}\n", "1:25", "page"),
        ("group: {by: [Owner]}\n", "1:14", "not a label"),
        (f"{HOOK}routes:\n  - {{to: [opps]}}\n", "4:11", 'did you mean "ops"?'),
        ("channels:\n  a: {slack: {url: https://hooks.slack.com/services/T/B/secret}}\n", "2:20", "${NAME}"),
        ("channels:\n  a: {webhook: {url: 'https://u:p@host/x'}}\n", "2:22", "no password"),
        ("channels:\n  a: {webhook: {url: 'https://host/x', bearer: abc}}\n", "2:48", "${NAME}"),
        ("channels:\n  a: {}\n", "2:6", "one of webhook, slack and email"),
        (
            (
                'channels:\n  a: {email: {server: "x:25", from: h@x.org, to: [y@x.org], tls: off, user: u, '
                'password: "${P}"}}\n'
            ),
            "2:14",
            "not sent without TLS",
        ),
        (
            'channels:\n  a: {email: {server: "x:25", from: h@x.org, to: ["a, b"]}}\n',
            "2:51",
            "not an e-mail address",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, place: str, said: str) -> None:
    path = write(tmp_path / "alerts.yaml", text)
    with pytest.raises(ConfigError) as found:
        load_alerts(path)
    assert f"{path}:{place}: " in found.value.message
    assert said in f"{found.value.message} {found.value.hint}"


QUERY = """
alert: unpaid-orders
query: SELECT customer_id, owes FROM customer_360 WHERE owes > 100
for: 1m
when: rows
severity: page
summary: "{customer_id} owes {owes}"
by: [customer_id]
owner: billing
"""


def test_a_query_as_an_alert(tmp_path: Path) -> None:
    found = load_query_alert(write(tmp_path / "alerts" / "unpaid-orders.yaml", QUERY))
    rule = found.rule
    assert (rule.name, rule.kind, rule.severity, rule.for_ms, rule.owner, rule.runbook) == (
        "unpaid-orders",
        "query",
        "page",
        60_000,
        "billing",
        "query",
    )
    assert filled(found.summary, {"customer_id": "C-1", "owes": None}) == "C-1 owes –"
    assert filled("{a.__class__} {b}", {"a": 1}) == "{a.__class__} {b}"
    assert unknown_columns(found, ["customer_id", "owes"]) is None
    assert "customer_id" in (unknown_columns(found, ["customerid", "owes"]) or "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alert: other\nquery: SELECT 1\n", "an alert is found by its file name"),
        ("alert: x\nquery: SELECT 1\nwhen: sometimes\n", "rows"),
        ("alert: x\nquery: SELECT 1\nwhen: no rows\nsummary: '{a} is gone'\n", "there are no columns"),
        ("alert: x\nqery: SELECT 1\n", 'did you mean "query"?'),
        ("alert: x\nquery: SELECT 1\nrunbook: javascript:alert(1)\n", "runbook"),
    ],
)
def test_a_query_that_is_said_wrongly(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as found:
        load_query_alert(write(tmp_path / "alerts" / "x.yaml", text))
    assert said in f"{found.value.message} {found.value.hint}"


def test_a_query_may_not_take_a_rules_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="already"):
        load_query_alert(write(tmp_path / "alerts" / "lag.yaml", "alert: lag\nquery: SELECT 1\n"))


def test_files_are_read_again_when_they_change_and_a_broken_one_leaves_what_held(tmp_path: Path) -> None:
    live = LiveAlerts(tmp_path)
    live.refresh()
    assert (live.file, live.queries(), live.errors) == (AlertsFile(), [], {})
    config = write(tmp_path / "alerts.yaml", WHOLE)
    query = write(tmp_path / "alerts" / "unpaid-orders.yaml", QUERY)
    live.refresh()
    assert list(live.file.channels) == ["ops", "shop", "mail"]
    assert [each.alert for each in live.queries()] == ["unpaid-orders"]
    config.write_text("chanels: {}\n")
    query.write_text("alert: unpaid-orders\n")
    live.refresh()
    assert list(live.file.channels) == ["ops", "shop", "mail"]
    assert [each.alert for each in live.queries()] == ["unpaid-orders"]
    assert len(live.errors) == 2
    os.remove(config)
    os.remove(query)
    live.refresh()
    assert (live.file, live.queries(), live.errors) == (AlertsFile(), [], {})


def test_a_file_that_could_not_be_opened_says_so_and_is_tried_again_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "alerts.yaml", WHOLE)
    write(tmp_path / "alerts" / "unpaid-orders.yaml", QUERY)
    live = LiveAlerts(tmp_path)

    def closed(_path: Path) -> None:
        raise UnreadableFile("cannot be read: Permission denied")

    with monkeypatch.context() as patched:
        for load in ("read_alerts", "load_query_alert"):
            patched.setattr(f"hub.alerts.config.live_config.{load}", closed)
        live.refresh()
    assert len(live.errors) == 2
    assert all("cannot be read: Permission denied" in each.message for each in live.errors.values())
    live.refresh()  # their mode changed, not their content
    assert list(live.file.channels) == ["ops", "shop", "mail"] and len(live.queries()) == 1
    assert live.errors == {}
