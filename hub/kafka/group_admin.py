"""[edge] Client of kafka-python for requests to the coordinators of consumer groups.

A client is opened for the requests of one step and closed after them. A long-lived client of kafka-python
has a thread that keeps reconnecting when its cluster is gone, and it keeps outdated coordinators;
librdkafka's client loses coordinators that were killed (docs/explanation/notes-on-kafka.md).
``ConsumerGroupDescribe`` (KIP-848), which kafka-python lacks, is declared here in Kafka's own message format,
in JSON files of ``hub/kafka/protocol``.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaTopicPartition
from kafka import errors as kafka_errors
from kafka.protocol.api_message import ApiMessage
from kafka.structs import OffsetAndMetadata

from hub.kafka.protocol.sockets import TokenProvider
from hub.record import Positions

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
ABSENT = "DEAD"
"""Kafka's state of a group that does not exist."""
# The coordinator moves or loads: another one, or the same a moment later, takes the positions.
_COORDINATOR_AWAY = (
    kafka_errors.NotCoordinatorError,
    kafka_errors.CoordinatorNotAvailableError,
    kafka_errors.CoordinatorLoadInProgressError,
)
# Codes of a group of another protocol or of none, and of brokers that have the protocol switched off.
_NOT_OF_KIP_848 = (kafka_errors.GroupIdNotFoundError.errno, kafka_errors.UnsupportedVersionError.errno)
# The caller gets every error; kafka-python's log would repeat it at each try.
logging.getLogger("kafka").setLevel(logging.CRITICAL)


class ConsumerGroupDescribeRequest(ApiMessage, load_json="hub.kafka.protocol"):  # type: ignore[misc, call-arg]
    pass


class ConsumerGroupDescribeResponse(ApiMessage, load_json="hub.kafka.protocol"):  # type: ignore[misc, call-arg]
    pass


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer that is in a group now, and the topics of which it has partitions."""

    client_id: str
    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """State of a group in Kafka's terms, in capitals, and its members. ``error``: why its coordinator does
    not describe it, "" if it does.
    """

    state: str
    members: tuple[GroupMember, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class CommitOutcome:
    """Result of commits of several groups: errors of refused groups, and errors of coordinators that did not
    answer. A group in neither was written.
    """

    refused: Mapping[str, str]
    unanswered: Mapping[str, str]


class GroupAdmin(KafkaAdminClient):  # type: ignore[misc]
    """Admin client with the requests about groups that the hub makes."""

    def describe(self, groups: Sequence[str]) -> dict[str, GroupMembers]:
        """Return each group as its coordinator describes it, of the classic protocol or of KIP-848. A group
        that does not exist has the state ``ABSENT``.
        """
        group_members = {name: _classic(each) for name, each in self.describe_groups(list(groups)).items()}
        # Brokers answer DEAD, or an error, for groups of the other protocol and for groups that do not exist.
        others = [name for name, each in group_members.items() if each.error or each.state == ABSENT]
        newer: dict[str, GroupMembers] = {}
        with contextlib.suppress(kafka_errors.IncompatibleBrokerVersion):  # it has no groups of KIP-848
            newer = self._manager.run(self._describe_newer, others) if others else {}
        for name, each in newer.items():
            if each.state != ABSENT or _is_absent(group_members[name].error):
                group_members[name] = each
        return group_members

    def commit(self, groups: Mapping[str, Positions], deadline_s: float) -> CommitOutcome:
        """Commit positions of groups, with leader epoch -1 (unknown). After ``deadline_s`` (monotonic) the
        rest is not asked for.
        """
        refused: dict[str, str] = {}
        unanswered: dict[str, str] = {}
        for group, positions in groups.items():
            if time.monotonic() > deadline_s:
                unanswered[group] = "time is over"
                continue
            try:
                answers = self.alter_group_offsets(group, _offsets(positions)).values()
            except kafka_errors.SaslAuthenticationFailedError:
                raise
            except kafka_errors.KafkaError as error:
                answers = [type(error)]
            errors = {each for each in answers if each is not kafka_errors.NoError}
            if errors:
                kind = unanswered if any(map(_is_no_answer, errors)) else refused
                kind[group] = ", ".join(sorted(each.__name__ for each in errors))
        return CommitOutcome(refused, unanswered)

    async def _describe_newer(self, groups: Sequence[str]) -> dict[str, GroupMembers]:
        by_coordinator: dict[int, list[str]] = defaultdict(list)
        for group, node in (await self._find_coordinator_ids(groups)).items():
            by_coordinator[node].append(group)
        group_members: dict[str, GroupMembers] = {}
        for node, some in by_coordinator.items():
            request = ConsumerGroupDescribeRequest(group_ids=some, include_authorized_operations=False)
            answer = await self._manager.send(request, node_id=node)
            group_members |= {each.group_id: _newer(each) for each in answer.groups}
        return group_members


@contextlib.contextmanager
def group_admin(
    bootstrap: str, timeout_s: float, security: Mapping[str, str], tokens: Callable[[], str] | None
) -> Iterator[GroupAdmin]:
    """Open a client, and close it. Raises kafka-python's errors.

    The client is created and started in two steps: a constructor that fails would leave a thread that nothing
    can stop.
    """
    admin = GroupAdmin.__new__(GroupAdmin)
    admin._closed = False
    try:
        admin.__init__(  # type: ignore[misc]
            bootstrap_servers=bootstrap,
            client_id="hub.groups",
            request_timeout_ms=int(timeout_s * 1000),
            bootstrap_timeout_ms=int(timeout_s * 1000),
            reconnect_backoff_max_ms=1_000,
            **_secured(security, tokens),
        )
        yield admin
    finally:
        with contextlib.suppress(Exception):
            admin.close()


def _secured(security: Mapping[str, str], tokens: Callable[[], str] | None) -> dict[str, Any]:
    settings: dict[str, Any] = {
        _SECURITY[name]: value for name, value in security.items() if name in _SECURITY
    }
    if security.get("ssl.endpoint.identification.algorithm") == "none":
        settings["ssl_check_hostname"] = False
    if tokens is not None:
        settings["sasl_oauth_token_provider"] = TokenProvider(tokens)
    return settings


def _offsets(positions: Positions) -> dict[KafkaTopicPartition, OffsetAndMetadata]:
    return {
        KafkaTopicPartition(tp.topic, tp.partition): OffsetAndMetadata(offset, "", -1)
        for tp, offset in positions
    }


def _is_no_answer(error: type[Exception]) -> bool:
    """Return True if the same commit may succeed later: no broker refused it."""
    return issubclass(error, _COORDINATOR_AWAY) or not issubclass(error, kafka_errors.BrokerResponseError)


def _is_absent(error: str) -> bool:
    return kafka_errors.GroupIdNotFoundError.__name__ in error


def _classic(described: Mapping[str, Any]) -> GroupMembers:
    """Return a group of DescribeGroups, as kafka-python decodes it."""
    members = []
    for member in described.get("members") or ():
        assignment = member.get("member_assignment")
        parts = assignment.get("assigned_partitions") if isinstance(assignment, Mapping) else None
        topics = frozenset(str(each["topic"]) for each in parts or ())
        members.append(GroupMember(str(member.get("client_id", "")), topics))
    state = str(described.get("group_state", "")).upper()
    return GroupMembers(state, tuple(members), described.get("error") or "")


def _newer(described: Any) -> GroupMembers:
    """Return a group of ConsumerGroupDescribe."""
    if described.error_code in _NOT_OF_KIP_848:
        return GroupMembers(ABSENT)
    if described.error_code:
        return GroupMembers("", error=kafka_errors.for_code(described.error_code).__name__)
    members = (
        GroupMember(
            member.client_id, frozenset(each.topic_name for each in member.assignment.topic_partitions)
        )
        for member in described.members
    )
    return GroupMembers(described.group_state.upper(), tuple(members))
