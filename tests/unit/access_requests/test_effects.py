"""Effects of approved requests: access.yaml with its comments, kills in between, and two servers."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hub.access.access_yaml import AccessFile, load_access
from hub.access_requests import access_file
from hub.access_requests.access_file import AccessEditor
from hub.access_requests.grants import has_grant, shown_diff, with_grant
from hub.access_requests.log import REQUESTS_TOPIC, RequestLog, request_log
from hub.access_requests.model import DAY_MS, AccessRequest, approve, checked_request
from hub.access_requests.runner import RequestRunner
from hub.errors import CallerError
from hub.log import MemoryCluster
from hub.project_edits.yaml_text import NotEdited

NEW = AccessRequest(
    "r1", "read", "shop.orders", "", "user", "ana", 7.0, {}, "report", "ana", 1_000, 10 * DAY_MS
)
APPROVED = approve(NEW, "ben", "", 5_000, needs_second=True)
GRANT = "{role: read, topics: [shop.orders], until: 1970-01-08T00:00:05Z}"
HASH = "scrypt$14$8$5$c2FsdHNhbHRzYWx0c2FsdA$" + "aGFzaA" * 7


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "users:\n  ana: {groups: []}  # since May\n",
            f"users:\n  ana: {{groups: [], grants: [{GRANT}]}}  # since May\n",
        ),
        (
            "users:\n  ana:\n    groups: []\n\n# end\n",
            f"users:\n  ana:\n    groups: []\n    grants: [{GRANT}]\n\n# end\n",
        ),
        (
            'users:\n  ana:\n    grants:\n      - {role: read, topics: ["a"]}  # old\n  ben: {}\n',
            (
                'users:\n  ana:\n    grants:\n      - {role: read, topics: ["a"]}  # old\n'
                f"      - {GRANT}\n  ben: {{}}\n"
            ),
        ),
        (
            "users:\n  ana:\n    grants:\n    - role: read\n      topics:\n      - a\n  ben: {}\n",
            (
                "users:\n  ana:\n    grants:\n    - role: read\n      topics:\n      - a\n"
                f"    - {GRANT}\n  ben: {{}}\n"
            ),
        ),
        (
            'users:\n  ana: {grants: [{role: read, topics: ["a"]},\n    {role: write, topics: ["b"]}]}\n',
            (
                'users:\n  ana: {grants: [{role: read, topics: ["a"]},\n'
                f'    {{role: write, topics: ["b"]}}, {GRANT}]}}\n'
            ),
        ),
        (
            "# nobody yet\nusers: {ben: {}}\n",
            f"# nobody yet\nusers: {{ben: {{}}, ana: {{grants: [{GRANT}]}}}}\n",
        ),
        ("contact: us\n", f"contact: us\nusers:\n  ana:\n    grants: [{GRANT}]\n"),
    ],
)
def test_a_grant_is_added_and_comments_stay(tmp_path: Path, before: str, after: str) -> None:
    assert with_grant(before, APPROVED) == after
    (tmp_path / "access.yaml").write_text(after)
    assert has_grant(load_access(tmp_path / "access.yaml"), APPROVED)


def test_groups_and_tokens_get_grants_too() -> None:
    group = replace(APPROVED, grantee_kind="group", grantee="shop", topic="", view="customers")
    assert "shop: [{role: read, views: [customers], until" in with_grant("groups:\n  shop: []\n", group)
    token = replace(APPROVED, grantee_kind="token", grantee="ci")
    assert "grants: [{role" in with_grant("tokens: {ci: {token: x}}\n", token)


def test_a_form_that_is_not_edited_is_refused() -> None:
    with pytest.raises(NotEdited):
        with_grant("users: {ben: {},\n  cleo: {}}\n", APPROVED)
    with pytest.raises(NotEdited):
        with_grant("groups:\n  shop: none\n", replace(APPROVED, grantee_kind="group", grantee="shop"))


def test_the_shown_difference_has_no_hashes() -> None:
    text = f'users:\n  ana: {{password: "{HASH}"}}\n  ben: {{password: "{HASH}"}}\n'
    shown = shown_diff(text, with_grant(text, APPROVED))
    assert HASH not in shown and "scrypt$…" in shown and GRANT in shown and "ben" not in shown


class FakeTopics:
    """A topic editor whose file cannot be written until somebody merges the difference."""

    def __init__(self) -> None:
        self.merged, self.applied = False, 0

    def plan(self, change: Any) -> Any:
        return type("Plan", (), {"changes": not self.merged, "read_only": "read-only", "diff": "+ x"})()

    def apply(self, change: Any) -> Any:
        raise AssertionError("this server may not write topics.yaml")


class World:
    """A project, its cluster in memory, and servers of it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "access.yaml"
        self.path.write_text("# who may what\nusers: {ana: {}, ben: {}, cleo: {}}\n")
        self.path.chmod(0o600)
        self.cluster, self.now_ms, self.topics = MemoryCluster(now_ms=1), 2_000, FakeTopics()
        self.log = self.server().log

    def server(self) -> RequestRunner:
        log = request_log(self.cluster, 1)
        editor = AccessEditor(self.path, self.cluster, 1)
        topics: Any = self.topics
        return RequestRunner(log, editor, topics, 3 * DAY_MS, DAY_MS, None, lambda: self.now_ms)

    def ask(self, request: AccessRequest) -> None:
        self.log.submit(lambda known: checked_request(request, known))

    def approve(self, id: str) -> None:
        self.log.submit(lambda known: approve(known[id], "ben", "", self.now_ms, needs_second=True))

    def file(self) -> AccessFile:
        return load_access(self.path)

    def status(self, id: str = "r1") -> tuple[str, str]:
        found = request_log(self.cluster, 1).all()[id]
        return found.status, found.detail


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_an_approval_is_written_once_keeps_rights_and_ends(world: World) -> None:
    world.ask(NEW)
    runner = world.server()
    runner.step()
    assert world.status()[0] == "requested" and not world.file().users["ana"].grants
    world.approve("r1")
    runner.step()
    runner.step()
    assert world.status() == ("done", "access.yaml has the grant")
    assert len(world.file().users["ana"].grants) == 1 and "# who may what" in world.path.read_text()
    assert stat.S_IMODE(world.path.stat().st_mode) == 0o600
    end_ms = world.file().ends_ms()[0]
    world.now_ms = end_ms
    runner.step()
    assert world.status()[0] == "ended"
    world.now_ms = end_ms + DAY_MS + 1
    runner.step()
    assert request_log(world.cluster, 1).all() == {}


def test_a_kill_between_approval_and_effect_is_taken_up_by_another_server(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ask(NEW)
    world.approve("r1")
    killed = world.server()

    def dies(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:  # before the file
        patched.setattr(access_file, "write_text", dies)
        with pytest.raises(KeyboardInterrupt):
            killed.step()
    assert world.status()[0] == "approved" and not world.file().users["ana"].grants
    other = world.server()
    with monkeypatch.context() as patched:  # after the file, before the log
        patched.setattr(other, "_changed", lambda one, _change: one if one.status == "approved" else dies())
        other.step()
    assert world.status()[0] == "approved" and len(world.file().users["ana"].grants) == 1
    third = world.server()
    third.step()
    assert world.status()[0] == "done" and len(world.file().users["ana"].grants) == 1


def test_two_servers_agree_and_lose_no_grant(world: World) -> None:
    one, two = world.server(), world.server()
    for n, name in enumerate(("ana", "cleo")):
        world.ask(replace(NEW, id=f"r{n}", grantee=name, requested_by=name))
        world.approve(f"r{n}")
    one.step()
    two.step()
    grants = {name: len(world.file().users[name].grants) for name in ("ana", "cleo")}
    assert grants == {"ana": 1, "cleo": 1}
    assert [world.status(f"r{n}")[0] for n in range(2)] == ["done", "done"]
    before = len(world.cluster.logs[REQUESTS_TOPIC][0])
    two.step()
    one.step()
    assert len(world.cluster.logs[REQUESTS_TOPIC][0]) == before


def test_a_grant_that_another_server_wrote_meanwhile_is_not_written_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ask(NEW)
    world.approve("r1")

    @contextmanager
    def waited_for(*_args: object, **_more: object) -> Iterator[Any]:
        world.path.write_text(with_grant(world.path.read_text(), world.log.all()["r1"]))
        yield type("Hold", (), {"check": lambda _self: None})()

    monkeypatch.setattr(access_file, "one_apply", waited_for)
    world.server().step()
    assert world.status()[0] == "done" and len(world.file().users["ana"].grants) == 1


def test_a_file_that_may_not_be_written_waits_for_the_merge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_file, "is_writable", lambda _path: False)
    world.ask(NEW)
    world.approve("r1")
    runner = world.server()
    runner.step()
    assert world.status() == ("approved", "this server may not write access.yaml: merge the difference")
    request = world.log.all()["r1"]
    assert GRANT[1:20] in runner.access.diff(request)
    world.path.write_text(with_grant(world.path.read_text(), request))  # somebody merges it
    world.now_ms += 1_000
    runner.step()
    assert world.status()[0] == "approved"  # looked at again after a pause
    world.now_ms += 30_000
    runner.step()
    assert world.status()[0] == "done" and runner.access.diff(request) == ""


def test_what_nobody_merges_expires_and_harms_no_other(world: World) -> None:
    topic = replace(NEW, id="r2", role="", topic="shop.new", settings={"partitions": "3"})
    world.ask(topic)
    world.ask(NEW)
    world.approve("r2")
    world.approve("r1")
    runner = world.server()
    runner.step()
    assert world.status("r2")[0] == "approved" and "hub topic apply" in world.status("r2")[1]
    assert world.status("r1")[0] == "done"
    world.now_ms += 3 * DAY_MS + 1
    runner.step()
    assert world.status("r2")[0] == "expired"


def test_a_broken_file_is_the_state_of_the_request(world: World) -> None:
    world.ask(NEW)
    world.approve("r1")
    good = world.path.read_text()
    world.path.write_text("users: [")
    runner = world.server()
    runner.step()
    status, detail = world.status()
    assert status == "approved" and "access.yaml" in detail
    world.path.write_text(good)
    world.now_ms += 30_000
    runner.step()
    assert world.status()[0] == "done"


def test_a_request_without_an_answer_expires(world: World) -> None:
    world.ask(NEW)
    world.now_ms = NEW.open_until_ms
    world.server().step()
    assert world.status() == ("expired", "nobody answered in time")
    assert issubclass(NotEdited, CallerError)


def test_a_removed_request_stays_removed_for_all_readers(world: World) -> None:
    world.ask(NEW)
    reader: RequestLog = request_log(world.cluster, 1)
    assert "r1" in reader.all()
    world.log.remove(lambda known: [*known, "none"])
    assert reader.all() == {} and request_log(world.cluster, 1).all() == {}
