"""[core] The first steps of a new hub: each with its command, and whether it is done."""

from __future__ import annotations

from dataclasses import dataclass

from hub.observability.overview.overview import Overview, TopicKind


@dataclass(frozen=True, slots=True)
class FirstStep:
    """One step. ``command``: in a terminal; ``href``: the page that does it, ""."""

    title: str
    command: str
    done: bool
    href: str = ""


def first_steps(overview: Overview) -> tuple[FirstStep, ...]:
    """Return the steps of a hub without a view; () of one that has views, and while that is not known."""
    if (
        overview.views
        or not overview.views_heard
        or overview.error is not None
        or not overview.kafka_answered
    ):
        return ()
    if overview.kafka.state != "up":
        return ()
    has_topic = any(line.kind is TopicKind.events for line in overview.topics)
    event = "curl $HUB/topics/TOPIC/events -H 'content-type: application/json' -d '{…}'"
    return (
        FirstStep("Kafka answers", "hub status", True),
        FirstStep("A topic is declared and made", "hub topic apply", has_topic),
        FirstStep("Events arrive", event, bool(overview.events)),
        FirstStep("A view is made of them", "hub view new NAME --from TOPIC", False, "/workbench"),
    )
