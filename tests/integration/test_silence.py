"""A frozen process: every page, route and command names the silent link, and the others are not blamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from patience import wait_until
from pipeline import Pipeline
from processes import call_hub

from hub.demo import customers as shop
from hub.materializers.progress.view_states import SILENT_S

VIEW = "customer_360"
NOTICED_S = SILENT_S + 120.0


@pytest.fixture
def view(pipeline: Pipeline) -> Pipeline:
    """One live view, and a stream that may continue."""
    pipeline.install("customer-360")
    _feed(pipeline, 400)
    pipeline.covers(VIEW, shop.TOPICS)
    _until(pipeline, lambda each: each["state"] == "live" and each["lag"]["state"] == "OK")
    return pipeline


@pytest.mark.timeout(600)
def test_the_silent_link_is_named_and_a_removed_view_vanishes(view: Pipeline) -> None:
    _while_the_applier_stands(view)
    _while_the_materializer_stands(view)


def _while_the_applier_stands(pipeline: Pipeline) -> None:
    states = set()
    with pipeline.processes["apply-changelogs"].frozen():
        _feed(pipeline, 500)

        def stalled(each: dict[str, Any]) -> bool:
            states.add((each["state"], each["lag"]["state"]))
            return "the applier does not bring them into the store" in str(each["lag"]["cause"])

        _until(pipeline, stalled)
    pipeline.covers(VIEW, shop.TOPICS)
    assert {state for state, _ in states} == {"live"}, states
    assert not {lag for _, lag in states} & {"STOPPED", "UNKNOWN"}, states
    _until(pipeline, lambda each: each["lag"]["state"] == "OK")


def _while_the_materializer_stands(pipeline: Pipeline) -> None:
    with pipeline.processes["materialize"].frozen():
        _feed(pipeline, 600)
        shown = _until(pipeline, lambda each: each["state"] == "unknown")
        for part in ("have been missing for", "Kafka answers", "the materializer process is alive"):
            assert part in shown["reason"], shown
        assert shown["lag"]["state"] == "UNKNOWN" and "have been missing" in shown["lag"]["cause"]
        assert pipeline.state(VIEW)["state"] == "unknown"
        assert "unknown" in call_hub(pipeline.settings, "view", "ls").stdout
        page = httpx2.get(f"{pipeline.url}/views", headers={"Accept": "text/html"}, timeout=30.0).text
        assert "have been missing for" in page
        _wait(lambda: {each["state"] for each in _lag(pipeline)} == {"UNKNOWN"}, lambda: _lag(pipeline))
        (pipeline.views / f"{VIEW}.yaml").unlink()
        _wait(lambda: VIEW not in _overview(pipeline), lambda: _overview(pipeline))
        removed = pipeline.state(VIEW)
        assert (removed["state"], "views.customer_360" in removed["reason"]) == ("removed", True)
        _wait(lambda: not _lag(pipeline), lambda: _lag(pipeline))


def _feed(pipeline: Pipeline, count: int) -> None:
    pipeline.feed(shop.TOPICS, shop.generate(11, 50, count))


def _overview(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    answer = httpx2.get(f"{pipeline.url}/api/overview", timeout=30.0).json()
    return {each["name"]: each for each in answer["views"]}


def _lag(pipeline: Pipeline) -> list[dict[str, Any]]:
    asked = {"kind": "view", "name": VIEW}
    found: list[dict[str, Any]] = httpx2.get(f"{pipeline.url}/api/lag", params=asked, timeout=30.0).json()
    return found


def _until(pipeline: Pipeline, ready: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def check() -> bool:
        found.update(_overview(pipeline).get(VIEW, {}))
        return bool(found) and bool(found.get("lag")) and ready(found)

    _wait(check, lambda: found)
    return found


def _wait(ready: Callable[[], bool], said: Callable[[], object]) -> None:
    wait_until(ready, NOTICED_S, said, pause_s=0.5)
