"""[edge] Access rules on topics, groups, transactional ids and the cluster: list, add, remove."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from hub.kafka.connection import Connection

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
    """Access rules of a cluster."""

    def access_rules(self) -> frozenset[AccessRule] | None:
        """Return all rules on topics, transactional ids and the cluster; None if the cluster has no
        authorizer.
        """
        found = self.all_rules()
        return None if found is None else frozenset(each for each in found if each.resource != "GROUP")

    def all_rules(self) -> frozenset[AccessRule] | None:
        """Return all rules, those on consumer groups too; None if the cluster has no authorizer."""
        asked = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        future = self.admin.describe_acls(asked, request_timeout=self.timeout_s)

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
