"""Every process of a replicated hub restarts in turn under load: nothing is lost or doubled, and reads by key
are answered throughout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres import BINARIES, Postgres
from rolling import READS, TOPIC, VIEW, Load, RollingHub, await_success, restarts

pytestmark = pytest.mark.skipif(not BINARIES, reason="no Postgres here: apt-get install postgresql")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RollingHub]:
    postgres = Postgres()
    try:
        postgres.start()
        running = RollingHub(tmp_path, postgres)
        try:
            yield running
        finally:
            running.stop()
    finally:
        postgres.stop()


@pytest.mark.timeout(1_500)
def test_a_rolling_restart_loses_nothing_and_reads_are_answered(hub: RollingHub) -> None:
    schema_id = hub.start()
    with Load(hub.urls, hub.brokers.bootstrap, schema_id) as load:
        await_success(hub, load)
        count = 0
        for restart in restarts(hub, load):
            gaps = load.journal.gaps_s(restart)
            print(restart.name, {kind: f"{gap:.2f} s" for kind, gap in gaps.items()})
            assert not load.journal.wrong, (restart.name, load.journal.wrong[:5])
            count += 1
    assert count == 8  # three brokers, two servers, the applier, two materializers
    assert not load.journal.wrong, load.journal.wrong[:5]
    assert load.journal.refused, "no client has noticed anything: nothing was restarted"
    hub.pipeline.covers(VIEW, [TOPIC])
    rows = {key: row["events"] for key, row in hub.pipeline.rows(VIEW).items()}
    assert rows == dict(load.journal.acknowledged), (hub.ended, load.journal.refused)
    assert len(load.journal.times[READS]) > 100
    assert not [name for name in hub.ended if not name.startswith("materializer")], hub.ended
