"""[edge] FastAPI: the pages of topics and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from hub.errors import HubError, NotFound, PeerError
from hub.observability.overview.overview import TopicLine
from hub.observability.web.page import html
from hub.observability.web.pages.estate import PageSources, ask
from hub.observability.web.pages.explore import topic, topics
from hub.observability.web.routes.page_router import PageRouter, Text
from hub.topics.browse.describe import as_json as described


def topic_routes(sources: PageSources) -> APIRouter:
    """Return the routes of ``/topics``, of each topic and of its settings."""
    pages = PageRouter(sources, "topics")

    @pages.page("/topics", "explore/topics.html")
    def topic_tree(
        request: Request,
        under: Text = "",
        q: Text = "",
        owner: Text = "",
        tag: Text = "",
        kind: Text = "",
        order: Text = "tree",
        page: int = 1,
    ) -> topics.TopicListing:
        """The tree of topics: ``under`` a place, with the words ``q``, of an ``owner``, with a ``tag``, of a
        ``kind``."""
        wanted = topics.Filter(under.strip().strip("."), q.strip(), owner, tag, kind, order)
        others = sources.topics.other_lines(kind)
        return topics.listing(sources.topics.overview(), others, sources.tree(), wanted, page)

    @pages.page("/topics/{name}", "explore/topic.html")
    def topic_page(request: Request, name: str) -> topic.TopicPage:
        """One topic: its owner, rates, schemas and readers, and the views made of it."""
        return page_of(sources, name)

    @pages.page("/topics/{name}/settings", "explore/settings_page.html", for_programs=True)
    def topic_settings(request: Request, name: str) -> Any:
        """Partitions, replicas, sizes, settings with where each is from.
        Asks Kafka, a few seconds at most."""
        return described(sources.describe(name))

    def own_section(_request: Request, _facts: Any) -> Mapping[str, str]:
        return {"section": "dead-letters"}

    @pages.page("/dead-letters", "explore/dead_letters.html", more=own_section)
    def dead_letters(request: Request, topic: Text = "") -> Mapping[str, str]:
        """The page of dead-letter records, whose values are at ``/dlq``."""
        return {"topic": topic}

    @pages.routes.get("/ui/topics/{name}/settings", include_in_schema=False)
    def settings_part(request: Request, name: str) -> Response:
        try:
            facts = sources.describe(name)
        except HubError as error:
            return pages.failed(request, error)
        return html("explore/settings.html", facts=described(facts), name=name)

    return pages.routes


def page_of(sources: PageSources, name: str) -> topic.TopicPage:
    """Return the facts of a topic's page. Raises NotFound, PeerError."""
    line, missing = line_of(sources, name), []
    subjects: tuple[topic.SubjectLine, ...] = ()
    try:
        subjects = ask(sources.registry, lambda registry: topic.subjects_of(registry, name))
    except HubError as error:
        missing.append(f"schemas: {error.message}")
    spec = sources.tree().get(name)
    return topic.topic_page(
        line,
        sources.topics.overview(),
        sources.lag(),
        spec,
        subjects,
        sources.topics.names(),
        tuple(missing),
        sources.unmeasured(),
        sources.lake(name) if spec is not None and spec.lake else None,
    )


def line_of(sources: PageSources, name: str) -> TopicLine:
    """Return a topic's values. Raises NotFound with a hint, or PeerError while no topic is known."""
    line = sources.topics.line(name)
    if line is not None:
        return line
    if sources.topics.overview().kafka.state == "connecting":
        raise PeerError("Kafka has not listed its topics yet", hint="load the page again in a moment")
    if name in sources.tree():
        raise NotFound(f'topic "{name}" is in topics.yaml and not in Kafka', hint="hub topic apply makes it")
    guess = topic.near(name, sources.topics.names())
    raise NotFound(
        f'topic "{name}" does not exist',
        hint=f'did you mean "{guess}"?' if guess else "all that there are: /topics",
    )
