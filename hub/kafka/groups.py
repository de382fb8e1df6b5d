"""[edge] Consumer groups: committed positions, members, and the hub's own positions published as group
offsets.

Offsets, and members in bulk, are requested with kafka-python instead of librdkafka. librdkafka's admin client
ends the whole process with a segmentation fault when a coordinator answers NOT_COORDINATOR (librdkafka issue
5040, open as of 2.16), which happens at each restart of a broker. Also, kafka-python puts many groups into
one request (KIP-709); librdkafka only one.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import ListConsumerGroupsResult
from kafka import KafkaAdminClient
from kafka import errors as kafka_errors

from hub.errors import HubError, PeerError
from hub.kafka.connection import Connection
from hub.kafka.contact.connect_diagnosis import unknown
from hub.kafka.contact.watchdog import Contact
from hub.kafka.protocol.sockets import TokenProvider
from hub.log import GroupDescription
from hub.record import Positions, TopicPartition

T = TypeVar("T")
# kafka-python's names of librdkafka's settings; what is fetched from a token endpoint: see Bearer.
_SECURITY = {
    "security.protocol": "security_protocol",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}
AT_ONCE = 200
REFUSED = "HUB-3012"
_COORDINATOR_AWAY = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
_WITHOUT_MEMBERS = ("EMPTY", "DEAD")
# The caller gets every error; kafka-python's log would repeat it at each try.
logging.getLogger("kafka").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer that is in a group now, and the topics of which it has partitions."""

    client_id: str
    topics: frozenset[str]


class Groups(Connection):
    """Consumer groups of a cluster."""

    @cached_property
    def _groups_contact(self) -> Contact:
        return self.contacts.open("groups")

    def publish_group(self, group: str, positions: Positions) -> None:
        """Commit positions as a group's offsets, with leader epoch -1 (unknown). Brokers refuse it while the
        group has members, and write nothing. Retries while the coordinator moves or loads, for at most
        ``timeout_s``.
        """
        request = ConsumerGroupTopicPartitions(
            group, [KafkaTopicPartition(tp.topic, tp.partition, offset) for tp, offset in positions]
        )
        deadline = time.monotonic() + self.timeout_s
        while positions:
            answers = self._results(
                self.admin.alter_consumer_group_offsets([request], request_timeout=self.timeout_s)
            )
            # librdkafka reports this error per partition only; the request itself succeeds.
            errors = [
                each.error for answer in answers.values() for each in answer.topic_partitions if each.error
            ]
            away = next((error for error in errors if error.code() in _COORDINATOR_AWAY), None)
            if away is None:
                return
            if time.monotonic() > deadline:
                raise self.down(f'group "{group}"', away.str())
            time.sleep(0.1)

    def group_positions(self, group: str) -> Positions:
        """Return the committed positions of a group; empty if it has committed nothing or does not exist."""
        found = self._group_asked(lambda admin: admin.list_group_offsets([group]), f'group "{group}"')
        return _positions(found.get(group, {}))

    def positions_of_groups(self, groups: Sequence[str]) -> Mapping[str, Positions]:
        """Return the committed positions of several groups. Raises PeerError if the positions of one cannot
        be read.
        """
        found: dict[str, Positions] = {}
        for group, positions in self.group_offsets(groups).items():
            if isinstance(positions, HubError):
                raise positions
            found[group] = positions
        return found

    def group_members(self, groups: Sequence[str]) -> Mapping[str, Sequence[GroupMember]]:
        """Return the current members of each group."""
        if not groups:
            return {}
        described = self._results(
            self.admin.describe_consumer_groups(list(groups), request_timeout=self.timeout_s)
        )
        return {
            group: [
                GroupMember(
                    member.client_id,
                    frozenset(tp.topic for tp in member.assignment.topic_partitions)
                    if member.assignment is not None
                    else frozenset(),
                )
                for member in found.members
            ]
            for group, found in described.items()
        }

    def groups(self) -> list[str]:
        """Return the ids of all consumer groups that brokers report.
        Raises PeerError when no broker answers."""
        return sorted(self._listed())

    def _listed(self) -> dict[str, str]:
        """Return the state of each group, in Kafka's terms."""

        def ask() -> ListConsumerGroupsResult:
            listing = self.admin.list_consumer_groups(request_timeout=self.timeout_s).result(
                self.timeout_s + 1
            )
            # When no broker answers, the list is empty and contains errors: the client has had no answer.
            if listing.errors and not listing.valid:
                raise KafkaException(_error_of(listing.errors[0]))
            return listing

        listing = self._ask(ask, "list consumer groups")
        return {group.group_id: group.state.name for group in listing.valid}

    def group_offsets(self, groups: Sequence[str]) -> Mapping[str, Positions | HubError]:
        """Return the committed positions of each group, or the error of that group. Raises PeerError when
        Kafka does not answer.
        """
        found: dict[str, Positions | HubError] = {}
        for some in _chunks(groups):
            answers = self._each(some, lambda admin, asked: admin.list_group_offsets(list(asked)))
            for group in some:
                answer = answers.get(group, {})
                found[group] = answer if isinstance(answer, HubError) else _positions(answer)
        return found

    def describe_groups(self, groups: Sequence[str]) -> Mapping[str, GroupDescription]:
        """Return state and members of many groups; groups that cannot be described are left out. Raises
        PeerError as ``groups`` does.
        """
        found: dict[str, GroupDescription] = {}
        for some in _chunks(groups):
            answers = self._each(some, lambda admin, asked: admin.describe_groups(list(asked)))
            for group, answer in answers.items():
                if not isinstance(answer, HubError) and not answer.get("error"):
                    found[group] = _description(group, answer)
        others = set(groups) - found.keys()
        # Groups of the newer protocol (KIP-848) are described by a request of their own, which kafka-python
        # has not; whether they have members is in the list of groups.
        listed = self._listed() if others else {}
        for group in others & listed.keys():
            members = 0 if listed[group] in _WITHOUT_MEMBERS else None
            found[group] = GroupDescription(group, listed[group], members)
        return found

    def _each(self, groups: Sequence[str], ask: Callable[[Any, Sequence[str]], Any]) -> dict[str, Any]:
        """Return the answer for each group; if one group fails a request for many, each is requested
        separately.
        """
        try:
            answers: dict[str, Any] = self._group_asked(lambda admin: ask(admin, groups), "groups")
            return answers
        except PeerError as error:
            if error.code != REFUSED:
                raise  # Kafka is away: asking for each would only take longer
        found: dict[str, Any] = {}
        for group in groups:
            try:
                found |= self._group_asked(lambda admin, g=group: ask(admin, [g]), f'group "{group}"')  # type: ignore[misc]
            except PeerError as error:
                if error.code != REFUSED:
                    raise
                found[group] = error
        return found

    def _group_asked(self, ask: Callable[[Any], T], doing: str) -> T:
        """Return the answer to one request from a new admin client. A long-lived client of kafka-python has a
        thread that keeps reconnecting when its cluster is gone, and caches outdated coordinators.
        """
        contact = self._groups_contact
        try:
            with self._group_admin() as admin:
                answer = ask(admin)
            contact.answered()
            return answer
        except kafka_errors.SaslAuthenticationFailedError as error:
            raise self.barred(doing, unknown(str(error))) from None
        except kafka_errors.BrokerResponseError as error:
            raise PeerError(
                f"{doing}: Kafka refuses it: {type(error).__name__}",
                hint="try again; or does the hub lack the right DESCRIBE on groups?",
                code=REFUSED,
            ) from None
        except (kafka_errors.KafkaError, OSError, ValueError, RuntimeError) as error:
            contact.failed(f"{doing}: {type(error).__name__}")
            raise self.down(doing, type(error).__name__) from None

    @contextlib.contextmanager
    def _group_admin(self) -> Iterator[Any]:
        """Create and start the client in two steps: a constructor that fails would leave a thread that
        nothing can stop.
        """
        admin: Any = KafkaAdminClient.__new__(KafkaAdminClient)
        admin._closed = False
        try:
            admin.__init__(
                bootstrap_servers=self.bootstrap,
                client_id="hub.groups",
                request_timeout_ms=int(self.timeout_s * 1000),
                bootstrap_timeout_ms=int(self.timeout_s * 1000),
                reconnect_backoff_max_ms=1_000,
                **_secured(self._security, self._tokens),
            )
            yield admin
        finally:
            with contextlib.suppress(Exception):
                admin.close()


def _chunks(groups: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(groups), AT_ONCE):
        yield groups[start : start + AT_ONCE]


def _positions(found: Mapping[Any, Any]) -> Positions:
    return Positions(
        {
            TopicPartition(tp.topic, tp.partition): each.offset
            for tp, each in found.items()
            if each.offset >= 0
        }
    )


def _description(group: str, found: Mapping[str, Any]) -> GroupDescription:
    members = found.get("members") or []
    topics: set[str] = set()
    for member in members:
        assignment = member.get("member_assignment")
        if isinstance(assignment, Mapping):
            topics |= {str(each["topic"]) for each in assignment.get("assigned_partitions") or ()}
    state = str(found.get("group_state", "")).upper()
    return GroupDescription(group, state, len(members), frozenset(topics))


def _error_of(failed: KafkaError | KafkaException) -> KafkaError:
    """Return the KafkaError itself: some lists of errors hold exceptions, others the errors."""
    found: KafkaError = failed.args[0] if isinstance(failed, KafkaException) else failed
    return found


def _secured(security: Mapping[str, str], tokens: Callable[[], str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {_SECURITY[name]: said for name, said in security.items() if name in _SECURITY}
    if security.get("ssl.endpoint.identification.algorithm") == "none":
        found["ssl_check_hostname"] = False
    if tokens is not None:
        found["sasl_oauth_token_provider"] = TokenProvider(tokens)
    return found
