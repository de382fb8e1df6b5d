"""[edge] Settings, errors and contact that all clients of a cluster share, and its one admin client."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from hub.errors import CallerError, ConfigError, Conflict, HubError, NotFound, PeerError
from hub.kafka.contact.client_log import LogLimiter, client_log
from hub.kafka.contact.connect_diagnosis import ConnectDiagnosis, DiagnosisCallback, looked_at
from hub.kafka.contact.watchdog import CUT_OFF_S, Contact, Contacts
from hub.kafka.oauth_tokens import tokens_of
from hub.kafka.protocol.sockets import opened
from hub.kafka.protocol.unpacked_size import DEFAULT_BOUNDS, UnpackedBounds
from hub.kafka.read_proxy import ReadProxy, read_proxy
from hub.log import WriterFenced

log = logging.getLogger(__name__)
T = TypeVar("T")

NO_LEADER = "HUB-3014"
AWAY, BARRED = "HUB-3010", "HUB-3016"
_LOOK_AGAIN_S = 30.0
_LOOK_S = 1.5
_CONTROLLER_KNOWN_MS = 2_000
_PROBE_S = 5.0

FENCED = {
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
}
MISSING = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID,
}
# The request is wrong; a retry fails too.
_REFUSED = {
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_REQUEST,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError._INVALID_ARG,
}
# The user may not: which right is missing.
_RIGHTS: dict[int, str] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "give this user its rights on the topic "
    "(docs/how-to/connect-a-secured-kafka.md lists the hub's, docs/reference/mirrors.md a mirror's)",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "give this user Read and Describe on the group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "give this user the right on the cluster itself "
    "(Describe, Create or Alter)",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "give this user Write on the transactional id",
}
# A partition has no leader yet: it was just created, or its broker stopped.
_LEADERLESS = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
_DOWN = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._DESTROY,
    KafkaError._DESTROY_BROKER,
    KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


client_log.addFilter(LogLimiter())


class Connection:
    """Connection settings that the readers and writers of a cluster share. ``security``: librdkafka's
    settings for TLS and SASL. ``cut_off_s``: a client without an answer for this long is replaced
    (contact/watchdog.py). ``bounds``: limits on the unpacked size of batches that readers receive.
    """

    def __init__(
        self,
        bootstrap: str,
        timeout_s: float = 15.0,
        security: Mapping[str, str] | None = None,
        cut_off_s: float = CUT_OFF_S,
        bounds: UnpackedBounds = DEFAULT_BOUNDS,
    ) -> None:
        self.bootstrap = bootstrap
        self.bounds = bounds
        self.timeout_s = timeout_s
        self._security = dict(security or {})
        self._tokens = tokens_of(self._security)
        self._diagnosis = DiagnosisCallback()
        self._last_test: tuple[float, ConnectDiagnosis | None] = (-_LOOK_AGAIN_S, None)
        self._admin_lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._fresh: AdminClient | None = None  # of the last probe that was answered
        self._renewals = 0  # of the contact, when ``_admin`` was made
        probe = weakref.WeakMethod(self._probe)
        self.contacts = Contacts(bootstrap, cut_off_s, lambda: (ask := probe()) is not None and ask())
        self._contact = self.contacts.open("admin")

    def wait_ready(self, timeout_s: float) -> None:
        """Return once the cluster answers. Raises PeerError when it does not within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._ask(lambda: self.admin.list_topics(timeout=min(2.0, timeout_s)), "connect")
                return
            except PeerError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def settings(
        self, part: str, on_error: Callable[[KafkaError], None] | None = None, **more: Any
    ) -> dict[str, Any]:
        """Return the settings that all clients share. ``part`` names the client in the brokers' logs and
        metrics; ``on_error`` is called with its errors.
        """
        return {
            **self._security,
            "bootstrap.servers": self.bootstrap,
            "client.id": f"hub.{part}",
            "logger": client_log,
            "error_cb": self._diagnosis if on_error is None else _both(self._diagnosis, on_error),
            "log.connection.close": False,
            "reconnect.backoff.max.ms": 1_000,
            "socket.connection.setup.timeout.ms": 5_000,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def read_settings(self, part: str, on_error: Callable[[KafkaError], None], **more: Any) -> dict[str, Any]:
        """Return the settings of a consumer that reads through this process's proxy (read_proxy.py).

        ``on_error`` receives the client's errors. Errors of authentication go to the proxy's own connections.
        """
        shared = {
            name: value for name, value in self.settings(part, **more).items() if name not in self._security
        }
        return {**shared, "error_cb": on_error, **self.proxy.librdkafka()}

    @property
    def proxy(self) -> ReadProxy:
        return read_proxy(self.bootstrap, self._security, self._tokens, self.bounds)

    def _admin_settings(self) -> dict[str, Any]:
        """Return the settings of an admin client. librdkafka sends most requests to the broker that the
        metadata named as controller. It waits for that one while it is away, and learns of another only with
        the next metadata, by default after five minutes."""
        return self.settings("admin", topic_metadata_refresh_interval_ms=_CONTROLLER_KNOWN_MS)

    @property
    def admin(self) -> AdminClient:
        """Return the shared admin client. Raises PeerError (HUB-3010) while it is cut off."""
        with self._admin_lock:
            cut_off = self._contact.blocked
            if self._admin is not None and (cut_off or self._contact.renewals != self._renewals):
                retire(self._admin, self.timeout_s + 1.0)
                self._admin = None
            if cut_off:
                raise self.cut_off(self._contact)
            if self._admin is None:  # not by its truth: a client with an empty queue is false
                self._admin = self._fresh
            if self._admin is None:
                self._admin = made(AdminClient, self._admin_settings())
            self._fresh, self._renewals = None, self._contact.renewals
            return self._admin

    def cut_off(self, contact: Contact) -> PeerError:
        """Return the error of all calls of a cut-off client."""
        seconds = contact.failing_s(time.monotonic())
        return self.down(contact.client, f"no answer for {seconds:.0f} s: {contact.why.strip()}")

    def _probe(self) -> bool:
        """Ask Kafka with a fresh client; True when it answers and at least one broker that it
        names can be reached."""
        fresh = made(AdminClient, self._admin_settings())
        wait_s = min(_PROBE_S, self.timeout_s)
        try:
            brokers = fresh.list_topics(timeout=wait_s).brokers.values()
        except KafkaException as error:
            log.debug("a fresh client is not answered: %s", error)
            return False
        finally:
            fresh.poll(0)
        if not any(self._is_reachable(each.host, each.port, wait_s) for each in brokers):
            return False
        with self._admin_lock:
            self._fresh = fresh
        return True

    def _is_reachable(self, host: str, port: int, wait_s: float) -> bool:
        try:
            self.socket_to(host, port, wait_s).close()
        except (OSError, HubError):
            return False
        return True

    def socket_to(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """Connect to one broker with the cluster's TLS and SASL. Raises OSError, PeerError."""
        return opened(host, port, timeout_s, self._security, self._tokens)

    # ---- errors

    def down(self, doing: str, error: object) -> PeerError:
        """Return the error for a cluster that does not answer: HUB-3010, or HUB-3016 when its clients
        recently learned why brokers refuse them.
        """
        diagnosis = self._diagnosis.lately()
        if diagnosis is not None:
            return self.barred(doing, diagnosis)
        return PeerError(
            f'Kafka at "{self.bootstrap}" does not answer ({doing}: {error})',
            hint="check it with hub doctor; the hub resumes by itself when Kafka answers",
            code=AWAY,
        )

    def barred(self, doing: str, why: ConnectDiagnosis) -> PeerError:
        return PeerError(
            f'Kafka at "{self.bootstrap}" does not let the hub in: {why.why} ({doing})',
            hint=why.hint,
            code=BARRED,
        )

    def check_door(self, timeout_s: float = 3.0) -> None:
        """Raise PeerError (HUB-3016) when the first reachable bootstrap broker refuses the connection.
        Returns silently when no broker is reachable. A client would retry for its whole timeout instead.
        Raises ConfigError (HUB-1603) for files that cannot be used.
        """
        _ = self.admin
        for host, port in bootstrap_hosts(self.bootstrap):
            connect_diagnosis = looked_at(host, port, timeout_s, self._security, self._tokens)
            if connect_diagnosis is not None:
                raise self.barred("connect", connect_diagnosis)

    def _with_diagnosis(self, doing: str, error: PeerError) -> PeerError:
        """Return the error for a request without an answer, with the reason if a test connection finds one.
        Connects at most once per `_LOOK_AGAIN_S`.
        """
        now = time.monotonic()
        if now - self._last_test[0] > _LOOK_AGAIN_S:
            self._last_test = now, None
            for host, port in bootstrap_hosts(self.bootstrap)[:1]:
                self._last_test = now, looked_at(host, port, _LOOK_S, self._security, self._tokens)
        diagnosis = self._last_test[1]
        return error if diagnosis is None else self.barred(doing, diagnosis)

    def translated(self, error: KafkaError, doing: str) -> HubError:
        """Convert Kafka's error to the hub's; ``doing`` names the object, as in ``topic "orders"``."""
        code = error.code()
        if code in FENCED:
            return WriterFenced(f"{doing}: replaced by a later one of the same name")
        if code in MISSING:
            return NotFound(f"{doing} does not exist", hint="hub topic ls shows what there is")
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return Conflict(f"{doing} exists already")
        if code in _LEADERLESS or "currently fenced" in error.str():  # a new topic finds no broker
            return PeerError(f"{doing} has no leader now", hint="try again", code=NO_LEADER)
        if code in _REFUSED:
            return CallerError(f"{doing}: Kafka refuses it: {error.str()}", code="HUB-1310")
        if code in _DOWN or error.retriable():
            return self.down(doing, error.str())
        return PeerError(f"{doing}: Kafka refuses it: {error.str()}", hint=_RIGHTS.get(code), code="HUB-3012")

    def _ask(self, call: Callable[[], T], doing: str) -> T:
        try:
            answer = call()
        except KafkaException as error:
            self._serve()  # its error callback may have heard more
            failed: HubError = self.translated(error.args[0], doing)
            why = error.args[0].str()
        except TimeoutError as error:
            self._serve()
            failed, why = self.down(doing, error), "timed out"
        else:
            self._serve()
            self._contact.answered()
            return answer
        if is_no_answer(failed):
            self._contact.failed(f"{doing}: {why}")
        if isinstance(failed, PeerError) and failed.code == AWAY:
            failed = self._with_diagnosis(doing, failed)
        raise failed

    def _serve(self) -> None:
        """Serve the log lines and errors of the admin client."""
        if (admin := self._admin) is not None:
            admin.poll(0)

    def _results(self, futures: Mapping[Any, Future[T]], *, missing_ok: bool = False) -> dict[Any, T]:
        results: dict[Any, T] = {}
        for key, future in futures.items():
            try:
                results[key] = self._ask(lambda f=future: f.result(self.timeout_s + 1), _named(key))  # type: ignore[misc]
            except NotFound:
                if not missing_ok:
                    raise
        return results

    def _refusals(self, futures: Mapping[Any, Future[T]]) -> dict[str, HubError]:
        """Return the error of each topic that failed in a request about many topics."""
        refused: dict[str, HubError] = {}
        for key, future in futures.items():
            try:
                self._results({key: future})
            except HubError as error:
                refused[key.name if isinstance(key, ConfigResource) else str(key)] = error
        return refused


def is_no_answer(error: HubError | None) -> bool:
    """Return True for an error that means: Kafka did not answer this client."""
    return isinstance(error, PeerError) and error.code in (AWAY, BARRED)


def retire(client: object, after_s: float = 0.0) -> None:
    """Close a client in a thread of its own, because closing a cut-off client may take long. ``after_s``: how
    long calls of other threads may still wait for its answers. Producers are not closed, which would fail
    those calls; they end with the last reference.
    """
    threading.Thread(target=_close, args=(client, after_s), name="kafka-retired", daemon=True).start()


def _close(client: object, after_s: float) -> None:
    time.sleep(after_s)
    if isinstance(client, Consumer):
        with contextlib.suppress(KafkaException, RuntimeError):
            client.close()


def _both(
    first: Callable[[KafkaError], None], second: Callable[[KafkaError], None]
) -> Callable[[KafkaError], None]:
    def call(error: KafkaError) -> None:
        first(error)
        second(error)

    return call


def _named(key: object) -> str:
    """Return the kind and name of the object of an admin request."""
    if isinstance(key, KafkaTopicPartition):
        return f'topic "{key.topic}" partition {key.partition}'
    if isinstance(key, ConsumerGroupTopicPartitions):
        return f'group "{key.group_id}"'
    return f'topic "{key.name if isinstance(key, ConfigResource) else key}"'


def made(kind: Callable[[dict[str, Any]], T], settings: dict[str, Any]) -> T:
    """Create a client. Raises ConfigError (HUB-1603) when its settings cannot be used: usually a wrong TLS
    file or key password.
    """
    try:
        return kind(settings)
    except KafkaException as error:
        reason = error.args[0].str().partition(": ")[2] or error.args[0].str()
        raise ConfigError(
            f"the settings for Kafka's TLS and SASL cannot be used: {reason}",
            hint="ssl.ca.location is `tls.ca`, ssl.certificate.location and ssl.key.location are "
            "`tls.certificate` and `tls.key`: PEM files that belong together, and key_password the key's",
            code="HUB-1603",
        ) from None


def bootstrap_hosts(bootstrap: str) -> list[tuple[str, int]]:
    """Return host and port of each bootstrap server."""
    found = []
    for each in bootstrap.split(","):
        host, _, port = each.strip().rpartition(":")
        if port.isdecimal():
            found.append((host.strip("[]"), int(port)))
    return found
