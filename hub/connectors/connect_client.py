"""[edge] httpx: the REST API of Kafka Connect. Every answer is bounded in bytes, every call in time.

A worker that rebalances answers 409, and one that forwards to a leader that is gone 500: both are asked again
until
``REBALANCE_S`` is over. Secrets in what Connect says are the caller's to remove (``plan.redacted``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx2
import orjson

from hub.config import without_credentials
from hub.connectors.connectors_file import State
from hub.connectors.plan import ActualConnector
from hub.errors import CallerError, ConfigError, NotFound, PeerError

TIMEOUT_S = 30.0
REBALANCE_S = 60.0
MOST_BYTES = 32_000_000
_AGAIN_S = 0.5
_ACTIONS: Mapping[State, str] = {"running": "resume", "paused": "pause", "stopped": "stop"}
_TEMPORARY = frozenset({409, 502, 503, 504})


@dataclass
class ConnectClient:
    """A cluster of Connect, by the addresses of its workers; the first that answers is asked.

    Methods raise PeerError (HUB-3080: nobody answers; HUB-3081: Connect could not do it), NotFound (HUB-1456:
    no such connector), CallerError (HUB-1457: Connect refuses the request).
    """

    urls: Sequence[str]
    timeout_s: float = TIMEOUT_S
    rebalance_s: float = REBALANCE_S
    _client: httpx2.Client = field(default_factory=lambda: httpx2.Client(follow_redirects=False), repr=False)

    def connectors(self) -> dict[str, ActualConnector]:
        """Return every connector with its config and states, by name."""
        body = self._ask("GET", "/connectors?expand=info&expand=status")
        return {name: _actual(name, each) for name, each in sorted(_object(body).items())}

    def connector(self, name: str) -> ActualConnector:
        actual_connector = self.connectors().get(name)
        if actual_connector is None:
            raise NotFound(
                f'connector "{name}" does not exist', hint="hub connector ls lists all", code="HUB-1456"
            )
        return actual_connector

    def plugins(self) -> list[dict[str, str]]:
        """Return class, type and version of everything that is installed."""
        return [_object(each) for each in self._ask("GET", "/connector-plugins?connectorsOnly=false")]

    def validate(self, class_name: str, config: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        """Return Connect's findings per setting: ``definition`` and ``value`` with its ``errors``."""
        path = f"/connector-plugins/{quote(class_name, safe='')}/config/validate"
        found: Sequence[Mapping[str, Any]] = _object(self._ask("PUT", path, config)).get("configs", ())
        return found

    def create(self, name: str, config: Mapping[str, str], state: State) -> None:
        body = {"name": name, "config": dict(config), "initial_state": state.upper()}
        self._ask("POST", "/connectors", body)

    def change(self, name: str, config: Mapping[str, str]) -> None:
        self._ask("PUT", f"{_path(name)}/config", dict(config))

    def set_state(self, name: str, state: State) -> None:
        self._ask("PUT", f"{_path(name)}/{_ACTIONS[state]}")

    def restart(self, name: str, *, only_failed: bool = False) -> None:
        """Restart the connector and its tasks (KIP-745); with ``only_failed`` those that failed."""
        self._ask(
            "POST", f"{_path(name)}/restart?includeTasks=true&onlyFailed={'true' if only_failed else 'false'}"
        )

    def delete(self, name: str) -> None:
        self._ask("DELETE", _path(name))

    def offsets(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return the connector's offsets: partition and offset of each (KIP-875)."""
        found: Sequence[Mapping[str, Any]] = _object(self._ask("GET", f"{_path(name)}/offsets")).get(
            "offsets", ()
        )
        return found

    def reset_offsets(self, name: str) -> None:
        """Delete the offsets of a stopped connector."""
        self._ask("DELETE", f"{_path(name)}/offsets")

    def topics(self, name: str) -> Sequence[str]:
        """Return the topics that the connector has used."""
        body = _object(self._ask("GET", f"{_path(name)}/topics"))
        return sorted(_object(body.get(name)).get("topics", ()))

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON answer of the first worker that answers; None for an empty one."""
        until_s = time.monotonic() + self.rebalance_s
        while True:
            status, answer, url = self._answer(method, path, body)
            again = status in _TEMPORARY or (status == 500 and _is_moving(answer))
            if not again or time.monotonic() > until_s:
                break
            time.sleep(_AGAIN_S)
        if 200 <= status < 300:
            try:
                return orjson.loads(answer) if answer.strip() else None
            except ValueError:
                raise _unreachable(url, "the program that answers is not Kafka Connect") from None
        raise _refused(url, status, answer)

    def _answer(self, method: str, path: str, body: Any) -> tuple[int, bytes, str]:
        if not self.urls:
            raise ConfigError(
                "no Kafka Connect is known",
                hint="declare connectors in connectors.yaml and start the hub (hub up), or name workers in "
                "connect_urls in hub.yaml",
                code="HUB-1458",
            )
        failed: PeerError | None = None
        for url in self.urls:
            try:
                return (*self._send_once(url, method, path, body), url)
            except httpx2.TimeoutException:
                failed = failed or _unreachable(url, f"no answer within {self.timeout_s:g} s")
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                failed = failed or _unreachable(url, f"no answer ({error or type(error).__name__})")
        assert failed is not None
        raise failed

    def _send_once(self, url: str, method: str, path: str, body: Any) -> tuple[int, bytes]:
        content = None if body is None else orjson.dumps(body)
        until_s, received = time.monotonic() + 2 * self.timeout_s, bytearray()
        with self._client.stream(
            method,
            url.rstrip("/") + path,
            content=content,
            headers={"content-type": "application/json"},
            timeout=self.timeout_s,
        ) as answer:
            for part in answer.iter_bytes():
                received += part
                if len(received) > MOST_BYTES or time.monotonic() > until_s:
                    raise _unreachable(url, f"its answer is longer than {MOST_BYTES} bytes")
        return answer.status_code, bytes(received)


def _path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"


def _object(body: Any) -> dict[str, Any]:
    return body if isinstance(body, dict) else {}


def _actual(name: str, body: Any) -> ActualConnector:
    info, status = _object(_object(body).get("info")), _object(_object(body).get("status"))
    own = _object(status.get("connector"))
    tasks = tuple(
        (int(each.get("id", -1)), str(each.get("state", "UNKNOWN")), str(each.get("trace") or ""))
        for each in status.get("tasks", ())
        if isinstance(each, dict)
    )
    config = {str(key): str(value) for key, value in _object(info.get("config")).items()}
    return ActualConnector(
        name,
        config,
        str(own.get("state", "UNKNOWN")),
        str(own.get("worker_id") or ""),
        tuple(sorted(tasks)),
        str(own.get("trace") or ""),
    )


def _is_moving(answer: bytes) -> bool:
    """Return whether a 500 is of a cluster that changes its leader, or has not started."""
    message = _message(answer).casefold()
    return any(
        each in message
        for each in ("rebalance", "request timed out", "io error trying to forward", "starting up")
    )


def _message(answer: bytes) -> str:
    try:
        body = orjson.loads(answer)
    except ValueError:
        return ""
    return str(body.get("message") or "") if isinstance(body, dict) else ""


def _unreachable(url: str, why: str) -> PeerError:
    return PeerError(
        f"Kafka Connect at {without_credentials(url)}: {why}",
        hint="does the worker run? hub up starts one where the project has a connectors.yaml; "
        "the log is connect.log",
        code="HUB-3080",
    )


def _refused(url: str, status: int, answer: bytes) -> Exception:
    message = _message(answer)[:2_000] or f"HTTP {status}"
    if status == 404:
        return NotFound(
            f"Kafka Connect: {message}", hint="hub connector ls lists all connectors", code="HUB-1456"
        )
    if 400 <= status < 500 and status not in _TEMPORARY:
        return CallerError(f"Kafka Connect refuses it: {message}", code="HUB-1457")
    return PeerError(
        f"Kafka Connect at {without_credentials(url)} could not do it: {message}",
        hint="it may be starting or rebalancing: try again; else its log tells (hub connector logs)",
        code="HUB-3081",
    )
