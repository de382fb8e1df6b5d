"""A real Kafka Connect with the hub: running and failed connectors with causes, a dead worker as unknown,
and bad answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kafka_connect import INTEGERS, KafkaConnect
from pipeline import wait_until
from ports import free_ports
from processes import running_server

from hub.cli.platform.doctor import CheckResult, examine
from hub.config import Settings
from hub.errors import PeerError
from hub.observability.cluster import connect_workers

HTML = {"accept": "text/html"}


@pytest.fixture
def connect(settings: Settings, kafka: str, tmp_path: Path) -> Iterator[KafkaConnect]:
    running = KafkaConnect(settings, tmp_path / "connect", kafka, free_ports(1)[0])
    try:
        wait_until(running.answers, 120.0, lambda: running.log.read_text()[-3000:])
        yield running
    finally:
        running.kill()


@pytest.mark.timeout(300)
def test_what_runs_what_failed_and_what_nobody_can_tell(
    settings: Settings, kafka: str, connect: KafkaConnect, tmp_path: Path
) -> None:
    own = settings.model_copy(
        update={
            "home": tmp_path / "home",
            "project": tmp_path / "project",
            "http_port": free_ports(1)[0],
            "connect_urls": [connect.url],
            "embedded_kafka": False,
            "alert_every_s": 0.3,
        }
    )
    own.project.mkdir()
    (own.project / "alerts.yaml").write_text(
        "rules: {connect-failed: {for: 0s, keep: 0s}, connect-unreachable: {for: 0s, keep: 0s}}\n"
    )
    with running_server(own) as url:
        found: dict[str, Any] = {}

        def states() -> dict[str, list[str]]:
            found.clear()
            found.update(httpx2.get(f"{url}/api/connect", timeout=30).json())
            return {
                one["name"]: [one["state"], *(task["state"] for task in one["tasks"])]
                for one in found["connectors"]
            }

        def firing() -> dict[str, str]:
            alerts = httpx2.get(f"{url}/api/alerts", timeout=30).json()["alerts"]
            return {each["alert"]: each["object"] for each in alerts if each["state"] == "firing"}

        def until(wanted: dict[str, list[str]], worker: str = "") -> None:
            wait_until(
                lambda: states() == wanted and worker in ("", found["connect"]["state"]),
                90.0,
                lambda: f"{found}\n{connect.log.read_text()[-3000:]}",
            )

        until({}, "up")
        assert found["of"] == 0
        connect.heartbeats("steady", "nyc")
        until({"steady": ["RUNNING", "RUNNING"]})
        (one,) = found["connectors"]
        assert one["kind"] == "source" and one["class_name"].endswith("MirrorHeartbeatConnector")
        assert one["worker"].endswith(connect.url.rpartition(":")[2]) and one["tasks"][0]["worker"]

        # A heartbeat is not a number: its only task dies of the first record, and Connect starts it no more.
        connect.heartbeats("broken", "lon", value_converter=INTEGERS)
        until({"broken": ["FAILED", "FAILED"], "steady": ["RUNNING", "RUNNING"]})
        reason = found["connectors"][0]["reason"]
        assert reason.startswith(
            "task 0: org.apache.kafka.connect.errors.ConnectException: Tolerance exceeded"
        )
        assert "\n" not in reason and found["connectors"][0]["own"] == "RUNNING"
        page = httpx2.get(url, headers=HTML, timeout=30).text
        assert "Connect 1 failed" in page and "Tolerance exceeded" in page
        metrics = httpx2.get(f"{url}/metrics", timeout=30).text
        assert 'hub_connect_failed{connector="broken"} 1.0' in metrics
        assert 'hub_connect_tasks{state="RUNNING"} 1.0' in metrics
        wait_until(lambda: firing() == {"connect-failed": "broken"}, 60.0, lambda: str(firing()))
        finding = next(each for each in examine(own) if each.check == "connect")
        assert (
            finding.verdict is CheckResult.fail and "1 of 2 connectors failed, first broken" in finding.found
        )

        connect.pause("steady")
        until({"broken": ["FAILED", "FAILED"], "steady": ["PAUSED", "PAUSED"]})

        connect.kill()
        until({"broken": ["UNKNOWN", "UNKNOWN"], "steady": ["UNKNOWN", "UNKNOWN"]})
        assert found["connect"]["state"] == "down" and found["of"] == 2
        assert next(one for one in found["connectors"] if one["name"] == "steady")["reason"].startswith(
            "was PAUSED"
        )
        told = httpx2.get(f"{url}/api/overview", timeout=30).json()["connect"]
        assert told["failed"] is None and told["connectors_by_state"]["UNKNOWN"] == 2
        metrics = httpx2.get(f"{url}/metrics", timeout=30).text
        assert f'hub_connect_up{{worker="{connect.url}"}} 0.0' in metrics
        assert "hub_connect_failures " not in metrics.replace("# HELP hub_connect_failures ", "").replace(
            "# TYPE hub_connect_failures ", ""
        )
        assert "Connect unknown" in httpx2.get(url, headers=HTML, timeout=30).text
        both = {"connect-failed": "broken", "connect-unreachable": connect.url}
        wait_until(lambda: firing() == both, 60.0, lambda: str(firing()))

        # It forgets its connectors when it ends, as standalone ones do, and is known again at once.
        connect.start()
        wait_until(connect.answers, 120.0, lambda: connect.log.read_text()[-3000:])
        until({}, "up")
        wait_until(lambda: "connect-unreachable" not in firing(), 60.0, lambda: str(firing()))


class Odd(BaseHTTPRequestHandler):
    """Answers that are none of Connect's, by path."""

    def do_GET(self) -> None:
        what = self.path.split("/")[1]
        if what == "drip":
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b" ")
                    self.wfile.flush()
                    time.sleep(0.05)
            except OSError:
                return
        status, body = {
            "html": (200, b"<html>"),
            "list": (200, b"[]"),
            "busy": (409, b'{"error_code":409,"message":"it rebalances"}'),
            "away": (302, b""),
            "good": (200, b"{}"),
        }[what]
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/good/connectors")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(scope="module")
def odd() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as running:
        running.daemon_threads = True
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("html", "is not Kafka Connect"),
        ("list", "is not Kafka Connect"),
        ("busy", "HTTP 409 (it rebalances)"),
        ("away", "HTTP 302"),
        ("drip", "longer than"),
    ],
)
def test_an_answer_that_is_none_is_said_and_ends_in_time(odd: str, what: str, words: str) -> None:
    began_s = time.monotonic()
    with pytest.raises(PeerError) as refused:
        connect_workers.ask(f"http://ada:s3cret@{odd}/{what}", 0.5)
    assert words in refused.value.message and "s3cret" not in refused.value.message
    assert time.monotonic() - began_s < 30


def test_nobody_there_is_said(odd: str) -> None:
    assert connect_workers.ask(f"http://{odd}/good/", 0.5) == ()
    with pytest.raises(PeerError, match="no answer"):
        connect_workers.ask(f"http://127.0.0.1:{free_ports(1)[0]}", 0.5)


def test_an_answer_that_is_too_long_is_not_read(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_workers, "MOST_BYTES", 3)
    with pytest.raises(PeerError, match="longer than 3 bytes"):
        connect_workers.ask(f"http://{odd}/html", 30.0)
