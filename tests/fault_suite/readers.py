"""Readers of a trial. Each reads all the time, through every fault, and accuses what may never be seen."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from typing import Any

import httpx2
from httpx2 import HTTPError
from patience import patient

from fault_suite.journal import Journal
from fault_suite.model import CITIES, CUSTOMERS, ORDERS
from hub.client import Hub
from hub.client.errors import HubError as ClientError

_PAUSE_S = 0.25
_NOT_NOW = (429, 503, 504)
"""Answers that say that something is not there now, and no more."""


class Reader:
    """A thread that calls ``read`` until ``stop``."""

    def __init__(self, journal: Journal, url: str, seed: int) -> None:
        self.journal, self.url = journal, url
        self.chance = random.Random(f"{seed}/{type(self).__name__}")
        self.reads = 0
        self.client = httpx2.Client(timeout=15.0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60.0)
        self.client.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.read()
            except HTTPError as error:
                self.journal.meet(f"{type(self).__name__}: {type(error).__name__}")
            except Exception as error:  # noqa: BLE001 (the trial fails by it)
                self.journal.accuse(f"{type(self).__name__}: {type(error).__name__}: {error}")
                return
            self._stop.wait(_PAUSE_S)

    def read(self) -> None:
        raise NotImplementedError

    def body(self, answer: httpx2.Response) -> dict[str, Any] | None:
        """Return the JSON of an answer, or None for 429, 503 and 504. Any other status is a violation."""
        if answer.status_code in _NOT_NOW:
            self.journal.meet(f"{type(self).__name__}: {answer.status_code}")
            return None
        if answer.status_code != 200:
            self.journal.accuse(
                f"{type(self).__name__}: {answer.request.url}: {answer.status_code} {answer.text[:300]}"
            )
            return None
        self.reads += 1
        body: dict[str, Any] = answer.json()
        return body


class TokenReader(Reader):
    """Reads by key with the token of an acknowledged write:
    the row must include it and everything before it."""

    def read(self) -> None:
        known = self.journal.acknowledged
        if not known:
            return
        event_id = self.chance.choice(list(known)[-200:])
        topic, partition, offset = known[event_id]
        if topic != ORDERS:
            return
        customer = self.journal.sent[event_id]["customer"]
        fewest = len(
            {
                other
                for other, place in list(known.items())
                if place[:2] == (topic, partition)
                and place[2] <= offset
                and self.journal.sent[other]["customer"] == customer
            }
        )
        answer = self.client.get(
            f"{self.url}/views/distinct_orders/{customer}",
            # Half of the reads do not wait: they see the moments in which a promise is too early.
            params={
                "after": f"{topic}:{partition}:{offset + 1}",
                "timeout_ms": self.chance.choice(("0", "4000")),
            },
        )
        row = self.body(answer)
        if row is not None and row["orders"] < fewest:
            self.journal.accuse(
                f"token {topic}:{partition}:{offset + 1}: {customer} has {row['orders']} orders, "
                f"the token promises {fewest}"
            )


class KeyReader(Reader):
    """Reads keys repeatedly: a row's version must never go back."""

    def __init__(self, journal: Journal, url: str, seed: int) -> None:
        super().__init__(journal, url, seed)
        self.versions: dict[str, int] = {}
        self.paused = False
        """While a view is rolled back or dropped on purpose."""

    def read(self) -> None:
        key = f"c{self.chance.randrange(CUSTOMERS)}"
        answer = self.client.get(f"{self.url}/views/distinct_orders/{key}")
        if answer.status_code == 404:
            if key in self.versions and not self.paused:
                self.journal.accuse(f"row {key} was there and is gone: {answer.text[:200]}")
            return
        row = self.body(answer)
        if row is None or self.paused:
            self.versions.clear()
            return
        version = int(row.get("_version", 0))
        if version < self.versions.get(key, 0):
            self.journal.accuse(f"row {key}: version {version} after {self.versions[key]}")
        self.versions[key] = version


class SqlReader(Reader):
    """Requests a sum over a view repeatedly: events are only added, so the sum must never fall."""

    def __init__(self, journal: Journal, url: str, seed: int) -> None:
        super().__init__(journal, url, seed)
        self.most = 0

    def read(self) -> None:
        answer = self.client.post(
            f"{self.url}/query", json={"sql": "SELECT sum(orders) AS n, count(*) AS cities FROM city_totals"}
        )
        if "HUB-1472" in answer.text:  # a machine so busy that the time of the query ended
            self.journal.meet("SqlReader: HUB-1472")
            return
        body = self.body(answer)
        if body is None or not body["rows"] or body["rows"][0]["n"] is None:
            return
        found, cities = int(body["rows"][0]["n"]), int(body["rows"][0]["cities"])
        if found < self.most:
            self.journal.accuse(f"SQL: sum of orders {found} after {self.most}")
        if cities > len(CITIES):
            self.journal.accuse(f"SQL: {cities} cities, there are {len(CITIES)}")
        self.most = max(self.most, found)


class ListReader(Reader):
    """Reads a whole view page by page: keys come once, in order."""

    def read(self) -> None:
        keys: list[str] = []
        after: str | None = None
        while True:
            answer = self.client.get(
                f"{self.url}/views/customer_totals",
                params={"limit": "100", **({"after": after} if after else {})},
            )
            body = self.body(answer)
            if body is None:
                return
            keys += [row["key"] for row in body["rows"]]
            after = body["next"]
            if after is None:
                break
        if len(set(keys)) != len(keys):
            self.journal.accuse("list of customer_totals: a key comes twice")


class Subscriber:
    """A copy of a view in this process by its changes, as the product's client keeps it."""

    def __init__(self, url: str, view: str) -> None:
        self.hub = Hub(url)
        self.view = view
        self._copy: Any = None

    def start(self) -> None:
        self._copy = self.hub.follow(self.view, timeout_s=patient(150.0))
        self._copy.__enter__()

    def rows(self) -> Mapping[str, Mapping[str, Any]]:
        """The copy now. Raises the client's error when the view is gone for it."""
        return {key: dict(self._copy[key]) for key in list(self._copy)}

    def stop(self) -> None:
        if self._copy is not None:
            self._copy.__exit__(None, None, None)
        self.hub.close()


__all__ = ["ClientError", "KeyReader", "ListReader", "Reader", "SqlReader", "Subscriber", "TokenReader"]
