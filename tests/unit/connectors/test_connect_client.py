"""The client of Connect's REST API: what is asked again, what is whose fault,
and that no credentials are shown."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hub.config import Settings
from hub.connectors.connect_client import ConnectClient
from hub.connectors.plugins import add_plugin
from hub.errors import CallerError, ConfigError, NotFound, PeerError

ONE = {
    "crm": {
        "info": {"config": {"connector.class": "io.acme.Source"}},
        "status": {
            "connector": {"state": "RUNNING", "worker_id": "a:1"},
            "tasks": [{"id": 0, "state": "FAILED"}],
        },
    }
}


class Answers(BaseHTTPRequestHandler):
    """Answers with the next of ``left``: (status, body)."""

    left: list[tuple[int, object]]

    def do_GET(self) -> None:
        status, body = self.left.pop(0)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def client() -> Iterator[ConnectClient]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as running:
        running.daemon_threads = True
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield ConnectClient([f"http://ada:s3cret@127.0.0.1:{running.server_address[1]}"], timeout_s=5.0)
        running.shutdown()
        thread.join()


def test_a_cluster_that_rebalances_is_asked_again(client: ConnectClient) -> None:
    Answers.left = [(409, {"message": "rebalance"}), (500, {"message": "Request timed out"}), (200, ONE)]
    (crm,) = client.connectors().values()
    assert (crm.state, crm.tasks, crm.config["connector.class"]) == (
        "RUNNING",
        ((0, "FAILED", ""),),
        "io.acme.Source",
    )
    assert Answers.left == []


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (404, {"message": "Connector x not found"}, NotFound, "HUB-1456"),
        (400, {"message": "no class"}, CallerError, "HUB-1457"),
        (500, {"message": "it broke"}, PeerError, "HUB-3081"),
        (200, b"<html>", PeerError, "HUB-3080"),
    ],
)
def test_an_error_says_whose_fault_it_is(
    client: ConnectClient, status: int, body: object, kind: type[Exception], code: str
) -> None:
    Answers.left = [(status, body)]
    with pytest.raises(kind) as refused:
        client.offsets("x")
    assert refused.value.code == code and "s3cret" not in str(refused.value)  # type: ignore[attr-defined]


def test_a_rebalance_without_end_is_an_error(client: ConnectClient) -> None:
    client.rebalance_s = 0.0
    Answers.left = [(409, {"message": "rebalance"})]
    with pytest.raises(PeerError, match="rebalance"):
        client.restart("x")


def test_the_next_worker_is_asked_and_nobody_is_said(client: ConnectClient) -> None:
    both = ConnectClient(["http://127.0.0.1:1", *client.urls], timeout_s=5.0)
    Answers.left = [(200, ONE)]
    assert list(both.connectors()) == ["crm"]
    with pytest.raises(PeerError, match="no answer"):
        ConnectClient(["http://127.0.0.1:1"], timeout_s=5.0).connectors()
    with pytest.raises(ConfigError) as refused:
        ConnectClient([]).connectors()
    assert refused.value.code == "HUB-1458"


def test_a_coordinate_that_is_none_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    for odd in ("io.acme:x", "a:b:c:d", "a b:c:d", "../a:b:1/2"):
        with pytest.raises(ConfigError) as refused:
            add_plugin(Settings(project=tmp_path), odd)
        assert refused.value.code == "HUB-1459"
    assert list(tmp_path.iterdir()) == []
