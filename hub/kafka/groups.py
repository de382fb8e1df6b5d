"""[edge] Consumer groups: committed positions, members, and the hub's own positions published as group
offsets.

Everything that a coordinator answers is requested with kafka-python (group_admin.py) instead of librdkafka.
librdkafka's admin client ends the whole process with a segmentation fault when a coordinator answers
NOT_COORDINATOR (librdkafka issue 5040, open as of 2.16), which happens at each restart of a broker. After a
coordinator was killed, its requests to it time out for ever, or an assertion ends the process later. Also,
kafka-python puts many groups into one request (KIP-709); librdkafka only one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ListConsumerGroupsResult
from kafka import errors as kafka_errors

from hub.errors import HubError, PeerError
from hub.kafka.connection import Connection
from hub.kafka.contact.connect_diagnosis import unknown
from hub.kafka.contact.watchdog import Contact
from hub.kafka.group_admin import CommitOutcome, GroupAdmin, GroupMember, GroupMembers, group_admin
from hub.log import GroupDescription
from hub.record import Positions, TopicPartition

T = TypeVar("T")
AT_ONCE = 200
REFUSED = "HUB-3012"
_AGAIN_S = 0.1
_RIGHTS = "try again; or does the hub lack the right DESCRIBE on groups?"


class Groups(Connection):
    """Consumer groups of a cluster."""

    @cached_property
    def _groups_contact(self) -> Contact:
        return self.contacts.open("groups")

    def publish_group(self, group: str, positions: Positions) -> None:
        """`publish_groups()` of one group. Raises its error."""
        for error in self.publish_groups({group: positions}).values():
            raise error

    def publish_groups(self, positions: Mapping[str, Positions]) -> Mapping[str, PeerError]:
        """Commit positions as the offsets of groups, with leader epoch -1 (unknown). Return the error of each
        group that was not written: HUB-3012 when brokers refuse it, for example because it has members, else
        HUB-3010. Raises PeerError when Kafka does not answer at all.

        One client makes all requests; a new one retries while coordinators move or load, for at most
        ``timeout_s``.
        """
        due = {group: at for group, at in positions.items() if at.offsets}
        refused: dict[str, str] = {}
        deadline_s = time.monotonic() + self.timeout_s
        while due:
            done = self._with_group_admin(lambda admin: admin.commit(due, deadline_s), _some(due))  # noqa: B023
            refused |= done.refused
            due = {group: due[group] for group in done.unanswered}
            if due and time.monotonic() > deadline_s:
                return self._unwritten(CommitOutcome(refused, done.unanswered))
            if due:
                time.sleep(_AGAIN_S)
        return self._unwritten(CommitOutcome(refused, {}))

    def _unwritten(self, done: CommitOutcome) -> dict[str, PeerError]:
        if done.unanswered:
            self._groups_contact.failed(next(iter(done.unanswered.values())))
        return {group: self.down(f'group "{group}"', why) for group, why in done.unanswered.items()} | {
            group: _refused(f'group "{group}"', why, "a group that has members keeps its own positions")
            for group, why in done.refused.items()
        }

    def group_positions(self, group: str) -> Positions:
        """Return the committed positions of a group; empty if it has committed nothing or does not exist."""
        found = self._with_group_admin(lambda admin: admin.list_group_offsets([group]), f'group "{group}"')
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
        """Return the current members of each group. Raises PeerError if one cannot be described."""
        found: dict[str, Sequence[GroupMember]] = {}
        for group, described in self._described(groups).items():
            if isinstance(described, HubError):
                raise described
            found[group] = described.members
        return found

    def groups(self) -> list[str]:
        """Return the ids of all consumer groups that brokers report.
        Raises PeerError when no broker answers."""

        def ask() -> ListConsumerGroupsResult:
            listing = self.admin.list_consumer_groups(request_timeout=self.timeout_s).result(
                self.timeout_s + 1
            )
            # When no broker answers, the list is empty and contains errors: the client has had no answer.
            if listing.errors and not listing.valid:
                raise KafkaException(_error_of(listing.errors[0]))
            return listing

        listing = self._ask(ask, "list consumer groups")
        return sorted(group.group_id for group in listing.valid)

    def group_offsets(self, groups: Sequence[str]) -> Mapping[str, Positions | HubError]:
        """Return the committed positions of each group, or the error of that group. Raises PeerError when
        Kafka does not answer.
        """
        found: dict[str, Positions | HubError] = {}
        for some in _chunks(groups):
            answers = self._each(some, lambda admin, names: admin.list_group_offsets(list(names)))
            for group in some:
                answer = answers.get(group, {})
                found[group] = answer if isinstance(answer, HubError) else _positions(answer)
        return found

    def describe_groups(self, groups: Sequence[str]) -> Mapping[str, GroupDescription]:
        """Return state and members of many groups; groups that cannot be described are left out. Raises
        PeerError when Kafka does not answer.
        """
        return {
            group: GroupDescription(
                group,
                each.state,
                len(each.members),
                frozenset().union(*(member.topics for member in each.members)),
            )
            for group, each in self._described(groups).items()
            if not isinstance(each, HubError)
        }

    def _described(self, groups: Sequence[str]) -> dict[str, GroupMembers | HubError]:
        found: dict[str, GroupMembers | HubError] = {}
        for some in _chunks(groups):
            for group, each in self._each(some, lambda admin, names: admin.describe(names)).items():
                failed = isinstance(each, GroupMembers) and each.error
                found[group] = _refused(f'group "{group}"', each.error, _RIGHTS) if failed else each
        return found

    def _each(self, groups: Sequence[str], ask: Callable[[Any, Sequence[str]], Any]) -> dict[str, Any]:
        """Return the answer for each group; if one group fails a request for many, each is requested
        separately.
        """
        try:
            answers: dict[str, Any] = self._with_group_admin(lambda admin: ask(admin, groups), "groups")
            return answers
        except PeerError as error:
            if error.code != REFUSED:
                raise  # Kafka is away: asking for each would only take longer
        found: dict[str, Any] = {}
        for group in groups:
            try:
                found |= self._with_group_admin(lambda admin, g=group: ask(admin, [g]), f'group "{group}"')  # type: ignore[misc]
            except PeerError as error:
                if error.code != REFUSED:
                    raise
                found[group] = error
        return found

    def _with_group_admin(self, ask: Callable[[GroupAdmin], T], doing: str) -> T:
        """Return the answer to the requests of one step, from a client of their own."""
        contact = self._groups_contact
        try:
            with group_admin(self.bootstrap, self.timeout_s, self._security, self._tokens) as admin:
                answer = ask(admin)
            contact.answered()
            return answer
        except kafka_errors.SaslAuthenticationFailedError as error:
            raise self.barred(doing, unknown(str(error))) from None
        except kafka_errors.BrokerResponseError as error:
            raise _refused(doing, type(error).__name__, _RIGHTS) from None
        except (kafka_errors.KafkaError, OSError, ValueError, RuntimeError) as error:
            contact.failed(f"{doing}: {type(error).__name__}")
            raise self.down(doing, type(error).__name__) from None


def _refused(doing: str, why: str, hint: str) -> PeerError:
    return PeerError(f"{doing}: Kafka refuses it: {why}", hint=hint, code=REFUSED)


def _some(groups: Mapping[str, object]) -> str:
    """Name the groups of a request in an error."""
    return f'group "{next(iter(groups))}"' if len(groups) == 1 else f"{len(groups)} groups"


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


def _error_of(failed: KafkaError | KafkaException) -> KafkaError:
    """Return the KafkaError itself: some lists of errors hold exceptions, others the errors."""
    found: KafkaError = failed.args[0] if isinstance(failed, KafkaException) else failed
    return found
