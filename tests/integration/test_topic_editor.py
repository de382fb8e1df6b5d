"""A topic declared and changed over HTTP: topics.yaml is written, and a real Kafka changed, by one plan."""

from __future__ import annotations

import uuid
from pathlib import Path

import httpx2
import pytest

from hub.config import Settings
from hub.errors import CallerError, Conflict
from hub.kafka import KafkaCluster
from hub.schema_registry.client.registry_client import RegistryClient
from hub.topics.editing import editor as editing
from hub.topics.editing.change import TopicChange
from hub.topics.editing.editor import TopicEditor
from hub.topics.tree.apply_plan import read_topics


@pytest.fixture
def root() -> str:
    return f"e{uuid.uuid4().hex[:8]}"


@pytest.fixture
def editor(settings: Settings, kafka: str, tmp_path: Path, root: str) -> TopicEditor:
    (tmp_path / "topics.yaml").write_text(
        f"topics:\n  {root}:  # ours\n    owner: us\n    retention: 7d\n    topics:\n      a: {{}}\n"
    )
    cluster = KafkaCluster(settings.bootstrap, 20.0)
    return TopicEditor(tmp_path / "topics.yaml", cluster, RegistryClient("http://localhost:1"), 1)


def test_a_topic_is_created_and_changed_by_its_plan(editor: TopicEditor, root: str) -> None:
    new = TopicChange(f"{root}.b", partitions="2", config="cleanup.policy=compact")
    plan = editor.plan(new)
    assert plan.steps[0].startswith(f"+ topic {root}.b  partitions=2") and not plan.exists
    assert "+      b:" in plan.diff and new.topic not in editor.cluster.topics()
    assert editor.apply(new, plan.digest) == plan
    assert f"  {root}:  # ours\n" in editor.path.read_text()
    found = read_topics(editor.cluster, [new.topic])[new.topic]
    assert found.partitions == 2 and found.config["retention.ms"] == "604800000"
    assert found.config["cleanup.policy"] == "compact"
    assert not editor.plan(new).changes
    assert f"{root}.a" not in editor.cluster.topics()  # this topic alone

    more = TopicChange(new.topic, partitions="3", retention="30d")
    editor.apply(more, editor.plan(more).digest)
    found = read_topics(editor.cluster, [new.topic])[new.topic]
    assert found.partitions == 3 and found.config["retention.ms"] == "2592000000"

    text = editor.path.read_text()
    for less, reason in (
        (TopicChange(new.topic, partitions="1"), "partitions cannot shrink from 3 to 1"),
        (TopicChange(new.topic, retention="1d"), "lowers what the log keeps safe"),
        (TopicChange(new.topic, config="retention.mss=1"), "retention.mss"),
    ):
        plan = editor.plan(less)
        assert reason in plan.refusals[0].reason
        with pytest.raises(Conflict, match=new.topic):
            editor.apply(less, plan.digest)
    assert editor.path.read_text() == text


def test_a_stale_plan_is_refused(editor: TopicEditor, root: str) -> None:
    change = TopicChange(f"{root}.a", partitions="2")
    digest = editor.plan(change).digest
    editor.path.write_text(editor.path.read_text() + "# a colleague\n")
    with pytest.raises(Conflict, match="the situation has changed") as refused:
        editor.apply(change, digest)
    assert refused.value.code == "HUB-1941"
    digest = editor.plan(change).digest
    editor.cluster.create_topic(change.topic, partitions=1, config={}, replication_factor=1)
    with pytest.raises(Conflict, match="the situation has changed"):
        editor.apply(change, digest)
    assert "partitions" not in editor.path.read_text()


def test_an_apply_that_was_killed_after_the_file_goes_on(
    editor: TopicEditor, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = TopicChange(f"{root}.c", partitions="2")

    def killed(*_given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(editing, "apply", killed)
        with pytest.raises(KeyboardInterrupt):
            editor.apply(change)
    assert "      c:\n        partitions: 2\n" in editor.path.read_text()
    left = editor.plan(TopicChange(change.topic))
    assert left.diff == "" and len(left.steps) == 1
    editor.apply(TopicChange(change.topic), left.digest)
    assert editor.cluster.topics()[change.topic].partitions == 2


def test_a_project_that_may_not_be_written_shows_the_plan_alone(
    editor: TopicEditor, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editing, "is_writable", lambda _path: False)
    change = TopicChange(f"{root}.d", partitions="2")
    plan = editor.plan(change)
    assert plan.read_only and plan.diff
    with pytest.raises(CallerError, match="may not write"):
        editor.apply(change, plan.digest)
    assert change.topic not in editor.cluster.topics()


def test_a_server_plans_and_changes_a_topic(settings: Settings, hub_server: str, root: str) -> None:
    path = settings.project / "topics.yaml"
    before = path.read_bytes() if path.exists() else None
    topic, wanted = f"{root}.web", {"partitions": "2", "owner": "<b>us</b>"}
    with httpx2.Client(base_url=hub_server, timeout=60) as http:
        page = http.get(f"/topic-editor/{topic}", params=wanted, headers={"accept": "text/html"})
        assert page.status_code == 200 and "Create the topic" in page.text and "<b>us</b>" not in page.text
        plan = http.get(f"/api/topic-editor/{topic}", params=wanted).json()
        assert plan["steps"] and plan["settings"][0]["value"] == "<b>us</b>"
        refused = http.post(f"/api/topic-editor/{topic}", json={**wanted, "plan": "another"})
        assert refused.status_code == 409 and refused.json()["error_code"] == "HUB-1941"
        assert http.post(f"/topic-editor/{topic}", data={"plan": plan["digest"]}).status_code == 400
        wrong = http.get(f"/api/topic-editor/{topic}", params={"retention": "often"})
        assert wrong.status_code == 400 and "topics.yaml:" in wrong.text
        try:
            done = http.post(f"/api/topic-editor/{topic}", json={**wanted, "plan": plan["digest"]})
            assert done.status_code == 200, done.text
            assert not http.get(f"/api/topic-editor/{topic}", params=wanted).json()["diff"]
        finally:
            path.unlink(missing_ok=True)
            if before is not None:
                path.write_bytes(before)
    found = KafkaCluster(settings.bootstrap, 10.0).topics()
    assert found[topic].partitions == 2
