"""[edge] Access rules on topics, groups, transactional ids and the cluster, and client quotas of users: list,
add, remove."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from hub.errors import HubError, PeerError
from hub.kafka.connection import Connection, bootstrap_hosts
from hub.kafka.protocol.client_quotas import ClientQuota, QuotasRefused, alter_user_quotas, user_quotas

T = TypeVar("T")
_NO_AUTHORIZER = {KafkaError.SECURITY_DISABLED}


Resource = Literal["TOPIC", "TRANSACTIONAL_ID", "CLUSTER", "GROUP"]
# Kafka's protocol calls the cluster so; librdkafka has its former name.
_TYPES: Mapping[Resource, ResourceType] = {
    "TOPIC": ResourceType.TOPIC,
    "TRANSACTIONAL_ID": ResourceType.TRANSACTIONAL_ID,
    "CLUSTER": ResourceType.BROKER,
    "GROUP": ResourceType.GROUP,
}


@dataclass(frozen=True, slots=True, order=True)
class AccessRule:
    """An access rule in Kafka's terms. ``name`` "*" with LITERAL matches every resource of the type."""

    name: str
    pattern: Literal["LITERAL", "PREFIXED"]
    principal: str
    host: str
    operation: str
    permission: Literal["ALLOW", "DENY"]
    resource: Resource = "TOPIC"


class Acls(Connection):
    """Access rules and client quotas of a cluster."""

    def access_rules(self) -> frozenset[AccessRule] | None:
        """Return all rules on topics, transactional ids and the cluster; None if the cluster has no
        authorizer.
        """
        found = self.all_rules()
        return None if found is None else frozenset(each for each in found if each.resource != "GROUP")

    def all_rules(self) -> frozenset[AccessRule] | None:
        """Return all rules, those on consumer groups too; None if the cluster has no authorizer."""
        every_rule = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        future = self.admin.describe_acls(every_rule, request_timeout=self.timeout_s)

        def answer() -> list[AclBinding] | None:
            try:
                return list(future.result(self.timeout_s + 1))
            except KafkaException as error:
                if error.args[0].code() in _NO_AUTHORIZER:
                    return None
                raise

        found = self._ask(answer, "list access rules")
        known = {kind: name for name, kind in _TYPES.items()}
        if found is None:
            return None
        return frozenset(_rule(each, known[each.restype]) for each in found if each.restype in known)

    def add_rules(self, rules: Iterable[AccessRule]) -> None:
        wanted = [_binding(each) for each in rules]
        if wanted:
            self._results(self.admin.create_acls(wanted, request_timeout=self.timeout_s))

    def remove_rules(self, rules: Iterable[AccessRule]) -> None:
        """Remove exactly these rules. Rules that do not exist are ignored."""
        wanted = [
            AclBindingFilter(
                _TYPES[each.resource],
                each.name,
                ResourcePatternType[each.pattern],
                each.principal,
                each.host,
                AclOperation[each.operation],
                AclPermissionType[each.permission],
            )
            for each in rules
        ]
        if wanted:
            self._results(self.admin.delete_acls(wanted, request_timeout=self.timeout_s))

    def user_quotas(self) -> tuple[ClientQuota, ...]:
        """Return the client quotas of all users. Raises PeerError."""
        return self._at_a_broker(lambda connection: tuple(user_quotas(connection)), "list client quotas")

    def alter_user_quotas(self, wanted: Collection[ClientQuota], removed: Collection[ClientQuota]) -> None:
        """Set and remove client quotas of users. Raises PeerError."""
        if wanted or removed:
            self._at_a_broker(lambda each: alter_user_quotas(each, wanted, removed), "set client quotas")

    def _at_a_broker(self, ask: Callable[[socket.socket], T], doing: str) -> T:
        """Return the answer of the first bootstrap server that answers."""
        failed: HubError = self.down(doing, "it has no address")
        for host, port in bootstrap_hosts(self.bootstrap):
            try:
                return ask(self.socket_to(host, port, self.timeout_s))
            except QuotasRefused as refused:
                raise PeerError(
                    f"{doing}: Kafka refuses it: {refused}",
                    hint="give the hub's user DescribeConfigs and AlterConfigs on the cluster"
                    if refused.may_not
                    else None,
                    code="HUB-3012",
                ) from None
            except (OSError, struct.error, IndexError) as error:
                failed = self.down(doing, error or type(error).__name__)
        raise failed


def _rule(binding: AclBinding, resource: Resource) -> AccessRule:
    return AccessRule(
        binding.name,
        "PREFIXED" if binding.resource_pattern_type is ResourcePatternType.PREFIXED else "LITERAL",
        binding.principal,
        binding.host,
        binding.operation.name,
        "DENY" if binding.permission_type is AclPermissionType.DENY else "ALLOW",
        resource,
    )


def _binding(rule: AccessRule) -> AclBinding:
    return AclBinding(
        _TYPES[rule.resource],
        rule.name,
        ResourcePatternType[rule.pattern],
        rule.principal,
        rule.host,
        AclOperation[rule.operation],
        AclPermissionType[rule.permission],
    )
