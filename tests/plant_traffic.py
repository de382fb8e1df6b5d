"""Continuous readings and readers of a plant, and the states of its view's versions meanwhile."""

from __future__ import annotations

import json
import threading
from typing import Any, Self

import httpx2
from plant import SCHEMA, Plant

from hub.record import NewRecord, Positions
from hub.schema_registry.codecs.wire_format import encode, parsed

SENSORS = 40


class Reader:
    """Reads the view all the time, as a whole and by key, and follows its changes;
    keeps whatever was wrong."""

    def __init__(self, plant: Plant) -> None:
        self.plant = plant
        self.wrong: list[str] = []
        self.reads = 0
        self.copy: dict[str, Any] = {}
        self.resets = 0
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=each, daemon=True) for each in (self._read, self._follow)]

    def __enter__(self) -> Self:
        for each in self.threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for each in self.threads:
            each.join(60.0)

    def _read(self) -> None:
        url = f"{self.plant.pipeline.url}/views/{self.plant.view}"
        with httpx2.Client(timeout=60.0) as client:
            while not self.stop.is_set():
                for path, check in (("?limit=1000", self._whole), ("/s7", self._one)):
                    answer = client.get(url + path)
                    if answer.status_code != 200:
                        self.wrong.append(f"{path}: {answer.status_code} {answer.text}")
                    else:
                        check(answer.json())
                sql = client.post(
                    f"{self.plant.pipeline.url}/query",
                    json={"sql": f"SELECT count(*) AS n FROM {self.plant.view}"},
                )
                if sql.status_code != 200 or sql.json()["rows"] != [{"n": SENSORS}]:
                    self.wrong.append(f"SQL: {sql.text}")
                self.reads += 1
                self.stop.wait(0.2)

    def _whole(self, body: dict[str, Any]) -> None:
        if len(body["rows"]) != SENSORS:
            self.wrong.append(f"{len(body['rows'])} rows")

    def _one(self, body: dict[str, Any]) -> None:
        if body["key"] != "s7":
            self.wrong.append(f"row {body}")

    def _follow(self) -> None:
        url = f"{self.plant.pipeline.url}/views/{self.plant.view}/changes"

        try:
            with httpx2.stream("GET", url, timeout=60.0) as stream:
                name = ""
                for line in stream.iter_lines():
                    if self.stop.is_set():
                        return
                    if line.startswith("event: "):
                        name = line[7:]
                    elif line.startswith("data: "):
                        self._take(name, json.loads(line[6:]))
        except httpx2.HTTPError as error:
            self.wrong.append(f"subscription: {error!r}")

    def _take(self, name: str, body: dict[str, Any]) -> None:
        if name == "reset":
            self.resets += 1
            self.copy.clear()
        elif name in ("snapshot", "upsert"):
            self.copy[body["key"]] = body["row"]
        elif name == "delete":
            self.copy.pop(body["key"], None)
        elif name == "closing":
            self.wrong.append(f"closing: {body}")


class Events:
    """Readings of every sensor, round after round, until it ends."""

    def __init__(self, plant: Plant) -> None:
        self.plant = plant
        self.rounds = 0
        self.last = Positions()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._write, daemon=True)

    def once(self) -> None:
        records = []
        for sensor in range(SENSORS):
            body = {"sensor": f"s{sensor}", "celsius": float(self.rounds)}
            value = encode(self.plant.schema_id, parsed(SCHEMA), body)
            records.append(NewRecord(self.plant.topic, f"s{sensor}".encode(), value))
        self.last = self.plant.writer.append(records)
        self.rounds += 1

    def _write(self) -> None:
        while not self.stop.wait(1.0):  # what a slow machine keeps up with
            self.once()

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(60.0)


def versions(plant: Plant, said: str = "state") -> dict[int, str]:
    """Return a field of each version, by version number."""
    answer = httpx2.get(f"{plant.pipeline.url}/view-versions/{plant.view}", timeout=60.0)
    return {each["number"]: each[said] for each in answer.json()["versions"]}


def served(plant: Plant, number: int) -> bool:
    return versions(plant).get(number) == "served"


def shown(plant: Plant) -> str:
    return f"{httpx2.get(f'{plant.pipeline.url}/view-versions/{plant.view}', timeout=60.0).text[:3000]}"
