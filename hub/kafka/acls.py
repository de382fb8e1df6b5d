"""[edge] Access rules on topics: which there are, new ones, fewer."""

from __future__ import annotations

from collections.abc import Iterable
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


@dataclass(frozen=True, slots=True, order=True)
class TopicRule:
    """One access rule on topics, in Kafka's words. ``name`` "*" with LITERAL is every topic."""

    name: str
    pattern: Literal["LITERAL", "PREFIXED"]
    principal: str
    host: str
    operation: str
    permission: Literal["ALLOW", "DENY"]


class Acls(Connection):
    """Access rules of a cluster's topics."""

    def topic_rules(self) -> frozenset[TopicRule] | None:
        """Every rule on topics; None when the cluster checks no access at all."""
        asked = AclBindingFilter(
            ResourceType.TOPIC,
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
        return None if found is None else frozenset(map(_rule, found))

    def add_topic_rules(self, rules: Iterable[TopicRule]) -> None:
        wanted = [_binding(each) for each in rules]
        if wanted:
            self._results(self.admin.create_acls(wanted, request_timeout=self.timeout_s))

    def remove_topic_rules(self, rules: Iterable[TopicRule]) -> None:
        """Exactly these; one that is not there is no error."""
        wanted = [
            AclBindingFilter(
                ResourceType.TOPIC,
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


def _rule(binding: AclBinding) -> TopicRule:
    return TopicRule(
        binding.name,
        "PREFIXED" if binding.resource_pattern_type is ResourcePatternType.PREFIXED else "LITERAL",
        binding.principal,
        binding.host,
        binding.operation.name,
        "DENY" if binding.permission_type is AclPermissionType.DENY else "ALLOW",
    )


def _binding(rule: TopicRule) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        rule.name,
        ResourcePatternType[rule.pattern],
        rule.principal,
        rule.host,
        AclOperation[rule.operation],
        AclPermissionType[rule.permission],
    )
