"""The state of an older release under this one, and back: rows, positions, dead letters, tokens, reads.

The home of ``tests/fixtures/previous_release`` was written by the commit of ``commit.txt``. Where this clone
has it, its code runs, too: two of its servers are replaced one by one while rows are read
by key, and the whole hub goes back to it at the end.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from kafka_nodes import running_node
from patience import patient
from pipeline import wait_until
from processes import HubProcess, Server, call_hub, own_settings

from hub.config import Settings
from hub.embedded import KafkaNode
from hub.formats.home import FOLDER, read_stamps
from hub.kafka import own_cluster
from hub.log import whole
from hub.replication.clusters.control_state import ControlState
from hub.replication.maps.checkpoint import CONTROL_TOPIC

FIXTURE = Path(__file__).parents[1] / "fixtures" / "previous_release"
ROOT = Path(__file__).parents[2]
TOKEN = "hubt_of_a_fixture_and_of_nothing_else_00000000000"
EXPECTED = json.loads((FIXTURE / "expected.json").read_text())


def get(url: str, path: str, timeout_s: float = 60.0) -> Any:
    """Return the body of a GET with the token of the older release's access.yaml. Raises OSError."""
    request = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        return json.load(answer)


def rows(url: str, view: str) -> list[dict[str, Any]]:
    return sorted(get(url, f"/views/{view}")["rows"], key=lambda row: str(row["key"]))


class Reads(threading.Thread):
    """Reads a row by key every 20 ms, at the other server when one does not answer."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__(daemon=True)
        self.urls, self.done, self.failed = urls, 0, list[str]()
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(0.02):
            errors = []
            for url in (self.urls[self.done % 2], self.urls[(self.done + 1) % 2]):
                try:
                    assert get(url, "/views/members_now/M-1")["name"] == "Ada"
                    break
                except (OSError, AssertionError, KeyError) as error:
                    errors.append(f"{url}: {error!r}")
            else:
                self.failed.append("; ".join(errors))
            self.done += 1

    def stop(self) -> None:
        self._stopped.set()
        self.join(patient(70.0))


class Upgraded:
    """A hub on the older release's home: Kafka, and processes of either release. ``code``: folder of the
    older release's code; None: the clone is shallow."""

    def __init__(self, settings: Settings, code: Path | None) -> None:
        self.settings, self.code = settings, code
        self.running: dict[str, HubProcess] = {}

    def start(self, command: str, *, old: bool = False) -> HubProcess:
        """Start a process, instead of that of the other release."""
        self.stop(command)
        older = {"PYTHONPATH": str(self.code), "PYTHONSAFEPATH": "1"} if old else {}
        log = f"{command}-{'old' if old else 'new'}.log"
        kind = Server(self.settings, log=log, environment=older) if command == "serve" else None
        made = kind or HubProcess(self.settings, command, log=log, environment=older)
        made.start()
        self.running[command] = made
        return made

    def stop(self, *commands: str) -> None:
        for command in commands or tuple(self.running):
            if command in self.running:
                self.running.pop(command).stop(60.0)

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until it holds. Fails with the last lines of the logs."""
        logs = self.running.items()
        wait_until(holds, 90.0, lambda: "\n".join(f"{name}: {each.last_words()}" for name, each in logs))

    def publish(self, **event: Any) -> None:
        """Write an order as a producer does."""
        order = {"order_id": "O-9", "member_id": "M-3", "status": "paid", "cents": 1000, **event}
        body = json.dumps({**order, "updated_at": "2026-01-01T12:00:00Z"}).encode()
        request = urllib.request.Request(
            f"{self.settings.url}/topics/tea.orders/events?key=order_id",
            body,
            {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=60).close()

    def paid_cents(self, member: str) -> int:
        return int(get(self.settings.url, f"/views/members_now/{member}")["paid_cents"])


def older_code(folder: Path) -> Path | None:
    """Return the code of the fixture's commit; None where this clone does not have it."""
    commit = (FIXTURE / "commit.txt").read_text().strip()
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, "hub", "locks"], capture_output=True, check=False
    )
    if packed.returncode:
        return None
    folder.mkdir()
    subprocess.run(["tar", "x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgraded]:
    folder = tmp_path_factory.mktemp("upgrade")
    settings = own_settings(folder / "home", FIXTURE / "project", proof_core_share=0.0, access_log=False)
    settings = settings.model_copy(
        update={"stores": {"analysis": "duckdb", "files": "parquet"}, "lake_commit_s": 1.0}
    )
    with tarfile.open(FIXTURE / "state.tar.xz") as state:
        state.extractall(settings.home, filter="data")
    made = Upgraded(settings, older_code(folder / "code"))
    with running_node(KafkaNode(settings)):
        try:
            yield made
        finally:
            made.stop()


def generations(home: Path) -> dict[str, int]:
    """Return the generation of every view's state: another one was computed again from its log."""
    notes = {
        path.parent.name: orjson.loads(path.read_bytes()) for path in home.glob("checkpoints/*/plan.json")
    }
    return {view: note["generation"] for view, note in notes.items()}


def test_two_servers_are_upgraded_one_by_one_under_reads(upgraded: Upgraded) -> None:
    settings = upgraded.settings
    before = call_hub(settings, "upgrade", "--check", "-o", "json")
    report = json.loads(before.stdout)
    assert before.returncode == 0, report
    assert {each["action"] for each in report["formats"]} == {"nothing"}
    assert {"tokens", "sessions", "checkpoint", "view-rules", "incremental-state", "store", "progress"} & {
        each["format"] for each in report["formats"]
    } >= {"sessions", "checkpoint", "view-rules", "incremental-state", "store", "progress"}
    assert report["rollback"]["possible"] is True and not (settings.home / FOLDER).exists()
    (port,) = {own_settings(settings.home).http_port}
    other = Upgraded(settings.model_copy(update={"http_port": port}), upgraded.code)
    old = upgraded.code is not None
    for each in (upgraded, other):
        each.start("serve", old=old)
    reads = Reads([settings.url, other.settings.url])
    reads.start()
    try:
        for each in (upgraded, other):
            each.start("serve")
            seen = reads.done
            upgraded.until(lambda seen=seen: reads.done > seen + 5)
    finally:
        reads.stop()
        other.stop()
    assert reads.done > 20 and reads.failed == []


def test_rows_letters_tokens_and_control_records_are_read(upgraded: Upgraded) -> None:
    settings = upgraded.settings
    upgraded.start("serve")
    for view, expected in EXPECTED["rows"].items():
        assert rows(settings.url, view) == expected, view
    letters = get(settings.url, "/dlq/tea.orders.dlq")["letters"]
    assert len(letters) == 2 * len(EXPECTED["rows"]) - 1, "two of each view; one is dismissed"
    expected = {(each["offset"], each["by"], each["reason"]) for each in EXPECTED["letters"]["letters"]}
    assert expected <= {(each["offset"], each["by"], each["reason"]) for each in letters}
    assert get(settings.url, "/dlq/tea.orders.dlq/0/0")["state"] == "dismissed"
    assert (settings.home / "sessions.ended").read_text()
    control = ControlState()
    for record in whole(own_cluster(settings), CONTROL_TOPIC):
        control.apply(record, 0.0, 0)
    assert control.paused == {"coast": "ana"} and control.control.owner("nyc").epoch == 3


def test_views_and_stores_continue_at_their_positions(upgraded: Upgraded) -> None:
    settings, kept = upgraded.settings, generations(upgraded.settings.home)
    for command in ("serve", "apply-changelogs", "materialize"):
        upgraded.start(command)
    before = {row["key"]: row for row in rows(settings.url, "cents_by_status")}
    upgraded.publish()
    upgraded.until(lambda: upgraded.paid_cents("M-3") == 1000)
    upgraded.until(lambda: "O-9" in str(rows(settings.url, "orders_with_members")))
    upgraded.until(lambda: "O-9" in str(rows(settings.url, "paid_orders")))
    paid = next(key for key in before if "paid" in key)

    def counted() -> bool:
        row = next(row for row in rows(settings.url, "cents_by_status") if row["key"] == paid)
        return bool(
            row["events"] == before[paid]["events"] + 1 and row["cents"] == before[paid]["cents"] + 1000
        )

    upgraded.until(counted)
    assert generations(settings.home) == kept, "no view was computed again"
    assert not list(settings.checkpoints.glob("*.damaged"))
    assert {"tokens", "sessions", "access-key"} <= read_stamps(settings.home).keys()
    after = json.loads(call_hub(settings, "upgrade", "--check", "-o", "json").stdout)
    written = {each["format"]: each["written_by"] for each in after["formats"]}
    assert written["progress"] and written["store"] and written["tokens"]


def test_the_older_release_starts_again_on_the_state_of_this_one(upgraded: Upgraded) -> None:
    if upgraded.code is None:
        pytest.skip("the older commit is not in this clone; unit tests judge the way back by formats")
    kept = generations(upgraded.settings.home)
    upgraded.stop()
    for command in ("serve", "apply-changelogs", "materialize"):
        upgraded.start(command, old=True)
    upgraded.publish(order_id="O-10", cents=7)
    upgraded.until(lambda: upgraded.paid_cents("M-3") == 1007)
    assert generations(upgraded.settings.home) == kept
    upgraded.stop()


def test_a_newer_state_is_refused_before_anything_starts(upgraded: Upgraded) -> None:
    upgraded.stop()
    noted = upgraded.settings.home / FOLDER / "tokens.json"
    noted.parent.mkdir(exist_ok=True)
    noted.write_text('{"version": 2, "release": "9.0.0"}')
    checked = call_hub(upgraded.settings, "upgrade", "--check")
    assert checked.returncode == 1 and "refused" in checked.stdout
    for command in ("up", "serve"):
        refused = call_hub(upgraded.settings, command)
        assert refused.returncode == 1
        assert 'format "tokens" has version 2 (written by release 9.0.0)' in refused.stderr
        assert "start that release or a newer one" in refused.stderr
