"""The history of rows with real Kafka and Spark, and kill -9 of the materializer and the applier: each
answer about the past is the fold of the changelog by then."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from patience import patient
from pipeline import Pipeline, wait_until
from plant import Plant

from hub.client import Hub, NotFound, RowChange
from hub.errors import HubError
from hub.schema_registry.codecs.wire_format import decode, parsed

pytestmark = pytest.mark.timeout(900)
KEYS, ROUNDS = 6, 7


@dataclass(frozen=True)
class Version:
    """A record of the changelog that replaced a row."""

    number: int
    at_ms: int
    row: dict[str, Any] | None


def test_every_answer_about_the_past_is_the_fold_of_the_log_through_kill_9(pipeline: Pipeline) -> None:
    plant, chance = Plant(pipeline, "past"), random.Random(7)
    (pipeline.views / f"{plant.view}.yaml").write_text(
        f"view: {plant.view}\nhistory: 1h\nsources:\n  r: {{topic: {plant.topic}, key: sensor}}\n"
        "fields:\n  celsius: r.celsius\n  readings: count(r.celsius)\n"
    )
    plant.write("k-0", plant.reading("k-0", 0.0))
    plant.running()
    begun_ms = time.time() * 1000
    with Hub(pipeline.url, timeout_s=patient(180.0)) as hub:
        for number in range(ROUNDS):
            written = [chance.randrange(KEYS) for _ in range(8)]
            for key in written:
                last = plant.write(f"k-{key}", plant.reading(f"k-{key}", float(chance.randrange(1_000))))
            if number == 2:  # in the midst of these events
                pipeline.kill("materialize", "too")
                pipeline.start("materialize")
            elif number == 4:
                pipeline.kill("apply-changelogs")
                pipeline.start("apply-changelogs")
            hub.get(plant.view, f"k-{key}", after=last)
        versions = folded(pipeline, plant.view)
        assert sum(map(len, versions.values())) > KEYS * 2
        wait_until(lambda: has_all(hub, plant.view, versions), 120.0)
        for key, known in versions.items():
            compare(hub, plant.view, key, known, begun_ms)


def folded(pipeline: Pipeline, view: str) -> dict[str, list[Version]]:
    """Return the versions of each key, the earliest first, as the changelog has them."""
    found: dict[str, list[Version]] = {}
    for record in sorted(pipeline.changelog(view), key=lambda each: (each.partition, each.offset)):
        if record.key is None or (header := record.header("hub.version")) is None:
            continue
        row = None if record.value is None else decode(record.value, lambda id_: schema(pipeline, id_))[1]
        mine = found.setdefault(record.key.decode(), [])
        if not mine or int(header) > mine[-1].number:
            mine.append(Version(int(header), record.timestamp_ms, row))
    return found


def schema(pipeline: Pipeline, schema_id: int) -> Any:
    return parsed(json.loads(pipeline.registry.source(schema_id).text))


def has_all(hub: Hub, view: str, versions: dict[str, list[Version]]) -> bool:
    try:
        newest = {key: next(hub.history(view, key)).version for key in versions}
    except (HubError, StopIteration):
        return False
    return newest == {key: known[-1].number for key, known in versions.items()}


def compare(hub: Hub, view: str, key: str, known: list[Version], begun_ms: float) -> None:
    """Compare history, rows of times, and the events of a key with its versions in the log."""
    changes: list[RowChange] = list(hub.history(view, key, page_changes=5))
    numbers = [each.number for each in reversed(known)]
    told = [each.version for each in changes]
    assert told == numbers[: len(told)], key
    assert changes[-1].kind in ("created", "known"), key
    for change, version in zip(changes, reversed(known), strict=False):
        assert change.row is not None and version.row is not None
        fields = {name: change.row[name] for name in ("celsius", "readings")}
        assert fields == {name: version.row[name] for name in fields}, (key, version)
        assert change.kind == "known" or change.at_ms == version.at_ms
        if change.events is not None and change.events.precision == "exact":
            assert change.events.count == len(change.events.events)
    for number, version in enumerate(known):
        if version.at_ms < begun_ms:
            continue
        later = known[number + 1].at_ms if number + 1 < len(known) else None
        if later == version.at_ms:
            continue  # published in the same millisecond: the higher version is the answer
        assert row_at(hub, view, key, version.at_ms) == version.row["readings"], (key, version)  # type: ignore[index]
        before = known[number - 1] if number else None
        if before is not None and before.at_ms >= begun_ms:
            assert before.row is not None
            assert row_at(hub, view, key, version.at_ms - 1) == before.row["readings"], (key, version)
        elif number == 0:
            assert row_at(hub, view, key, version.at_ms - 1) is None


def row_at(hub: Hub, view: str, key: str, at_ms: int) -> int | None:
    try:
        return int(hub.get(view, key, as_of=datetime.fromtimestamp(at_ms / 1000, UTC))["readings"])
    except NotFound:
        return None
