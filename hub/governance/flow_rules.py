"""[core] Judge the flows of tagged fields by the rules of flows.yaml."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hub.governance.flows import flows_of, possible_flows
from hub.governance.flows_file import FlowRule, FlowsFile
from hub.governance.model import Flow, GovernanceFacts, GovernedTopic
from hub.topics.tree.tree import matches


@dataclass(frozen=True, slots=True)
class FlowViolation:
    """A flow that breaks a rule. ``is_refused`` False: a warning. ``hint``: the way out."""

    rule: str
    topic: str
    flow: Flow
    reason: str
    is_refused: bool
    hint: str

    def __str__(self) -> str:
        unknown = "" if self.flow.is_traced else "UNKNOWN: "
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.rule}: {unknown}{' → '.join(self.flow.steps)}{reason}"


@dataclass(frozen=True, slots=True)
class FlowJudgement:
    """The result of all rules. ``rules``: how many. ``unread``: files whose declarations are unknown, so that
    nothing is proved."""

    rules: int
    violations: tuple[FlowViolation, ...]
    unread: tuple[str, ...] = ()

    @property
    def is_kept(self) -> bool:
        """Return whether every rule is known to be kept."""
        return not self.unread and not any(each.is_refused for each in self.violations)


def judged(facts: GovernanceFacts, file: FlowsFile) -> FlowJudgement:
    """Return every flow that breaks a rule, ordered by rule, topic and place."""
    flows = {name: _flows(facts, topic) for name, topic in facts.topics.items()} if file.rules else {}
    found = [
        each
        for name, rule in sorted(file.rules.items())
        for topic in sorted(facts.topics)
        if any(matches(pattern, topic) for pattern in rule.topics)
        for each in _of_topic(name, rule, file, facts.topics[topic], flows[topic])
    ]
    return FlowJudgement(len(file.rules), tuple(found), facts.unread if file.rules else ())


def _flows(facts: GovernanceFacts, topic: GovernedTopic) -> Sequence[Flow]:
    return flows_of(facts, topic) if topic.fields is not None else [*possible_flows(facts, topic.name)]


def _of_topic(
    name: str, rule: FlowRule, file: FlowsFile, topic: GovernedTopic, flows: Sequence[Flow]
) -> Iterator[FlowViolation]:
    without_schema = f"give {topic.name} a schema with its tags, or leave the topic out of the rule's topics"
    about = [each for each in flows if topic.fields is None or {*each.tags} & {*rule.tags}]
    for flow in _refused(rule, file, about):
        is_refused = flow.is_traced or rule.unknown == "refuse"
        hint = without_schema if topic.fields is None else _hint(flow)
        yield FlowViolation(name, topic.name, flow, rule.reason, is_refused, hint)


def _refused(rule: FlowRule, file: FlowsFile, flows: Iterable[Flow]) -> Iterator[Flow]:
    """Yield the flows that the rule does not allow."""
    allowed = file.places(rule.only or [])
    refused = file.places(rule.never or [])
    for flow in flows:
        if rule.only is not None:
            if flow.leaves and not any(is_place(each, flow) for each in allowed):
                yield flow
        elif any(is_place(each, flow) for each in refused):
            yield flow


def is_place(pattern: str, flow: Flow) -> bool:
    """Return whether a flow ends at a place of flows.yaml.

    >>> lon = Flow("email", ("PII",), "mirror nyc-lon (region lon)", (), True, "mirror", "nyc-lon", "lon")
    >>> [is_place(each, lon) for each in ("region:lon", "mirror:nyc-*", "region:fra", "lake")]
    [True, True, False, False]
    """
    kind, _, name = pattern.partition(":")
    if kind == "region":
        return bool(flow.region) and fnmatchcase(flow.region, name)
    if kind == "topic":
        return flow.kind == "topic" and matches(name, flow.name)
    return kind == flow.kind and (not name or fnmatchcase(flow.name, name))


_HINTS = {
    "mirror": "mask the field in mirrors.yaml (`mask`), or exclude the topic there",
    "sink": "leave the field out of the sink's `fields` in sinks.yaml",
    "lake": "set `lake: false` for the topic in topics.yaml",
    "backup": "back up other topics there",
    "view": "leave the column out of the view",
    "topic": "leave the field out of the sink's `fields` in sinks.yaml",
}


def _hint(flow: Flow) -> str:
    if not flow.is_traced and flow.kind != "backup":
        return "name the columns instead of `*`, so that their origin is known; or set `unknown: warn`"
    return f"{_HINTS[flow.kind]}, or allow the place in flows.yaml"
