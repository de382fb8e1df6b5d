"""``hub schema`` without a registry: check in CI against git and a backup, its annotations,
infer and its exit codes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hub.cli import main
from hub.cli.git import extract
from hub.cli.schema.impact import topic_of
from hub.log import MemoryCluster
from hub.schema_registry.client import backup
from hub.schema_registry.model.facts import SCHEMAS_TOPIC, SchemaStored, record_of

Run = Callable[..., tuple[int, str, str]]

TOPICS = """
topics:
  shop:
    topics:
      orders: {schema: schemas/orders.avsc, compatibility: BACKWARD}
"""
VIEW = """
view: spent
sources:
  orders: {topic: shop.orders, key: id}
fields:
  total: sum(orders.total)
"""


def order(*fields: tuple[str, str]) -> str:
    made = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": made}, indent=1)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in a project of its own: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HUB_PROJECT", str(tmp_path))
    (tmp_path / "schemas").mkdir()
    (tmp_path / "views").mkdir()
    (tmp_path / "topics.yaml").write_text(TOPICS)
    (tmp_path / "views" / "spent.yaml").write_text(VIEW)
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "sums.sql").write_text('-- Sums\nselect sum(total) from "shop.orders"')
    (tmp_path / "queries" / "spenders.sql").write_text("select * from spent")
    (tmp_path / "queries" / "broken.sql").write_text("select from where")
    (tmp_path / "schemas" / "orders.avsc").write_text(order(("id", "string"), ("total", "int")))

    def called(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["schema", *arguments])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return called


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def test_check_against_a_revision_names_field_fix_and_the_view_that_breaks(run: Run, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    assert run("check", "--against-git", "main")[0] == 0
    (tmp_path / "schemas" / "orders.avsc").write_text(order(("id", "string"), ("sum", "int")))
    code, out, err = run("check", "--against-git", "main")
    assert code == 1 and "1 of 1 subjects are refused" in err
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in out and "fix: give `sum` a default" in out
    assert "! view spent reads orders.total, which version 2 removes" in out
    assert "! query sums reads shop.orders.total, which version 2 removes" in out
    assert "! query spenders reads spent.total, which needs orders.total, which version 2 removes" in out
    assert "not looked at" in err and "broken.sql" in err
    code, out, _ = run("check", "--against-git", "main", "--annotations", "github")
    error, renamed, warning, *queries = out.splitlines()
    assert "shop.orders-value::FIELD_RENAMED: sum" in renamed and 'seems to be "sum" now' in renamed
    assert len(queries) == 2 and all("::warning " in each and "query s" in each for each in queries)
    file = "schemas/orders.avsc"
    assert code == 1 and error.startswith(
        f"::error file={file},line=10,col=12,title=shop.orders-value::READER_FIELD"
    )
    assert warning.startswith(f"::warning file={file},line=1,col=1,title=shop.orders-value::view spent reads")
    found = json.loads(run("check", "--against-git", "main", "-o", "json")[1])
    (item,) = found["items"]
    assert (item["subject"], item["status"], item["version"]) == ("shop.orders-value", "refused", 2)
    assert item["impacts"][0]["column"] == "orders.total" and item["reasons"][0]["line"] == 10
    git(tmp_path, "commit", "-qam", "two")
    assert run("check", "schemas", "--against-git", "HEAD")[0] == 0
    assert run("check", "schemas", "--against-git", "HEAD~1")[0] == 1


def test_a_revision_that_is_none_and_a_folder_in_no_repository_are_told(run: Run, tmp_path: Path) -> None:
    code, _, err = run("check", "--against-git", "main")
    assert code == 1 and "git: fatal: not a git repository" in err
    git(tmp_path, "init", "-q")
    for revision in ("nope", "--output=x"):
        code, _, err = run("check", f"--against-git={revision}")
        assert code == 1 and f'"{revision}" is not a revision' in err and "fetch-depth" in err


def test_only_files_of_the_folder_are_taken_out_of_a_revision(run: Run, tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    (schemas / "link.avsc").symlink_to("/etc/hostname")
    (schemas / "deep").mkdir()
    (schemas / "deep" / "ø.avsc").write_text('"int"')
    (schemas / "README.md").write_text("no schema")
    (schemas / "large.avsc").write_text(" " * 1_100_000)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    into = tmp_path / "then"
    into.mkdir()
    assert extract(schemas, "HEAD", into, frozenset([".avsc"]), frozenset()) == 2
    found = sorted(each.relative_to(into).as_posix() for each in into.rglob("*") if each.is_file())
    assert found == ["deep/ø.avsc", "orders.avsc"]
    assert (into / "orders.avsc").read_text() == (schemas / "orders.avsc").read_text()


def test_a_revision_with_a_schemas_yaml_that_nobody_read_can_be_compared_with(
    run: Run, tmp_path: Path
) -> None:
    """Else the change that puts it right could not be checked."""
    below = tmp_path / "schemas" / "shop"
    below.mkdir()
    (below / "schemas.yaml").write_text("defaults: {owner: us}")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    code, _, err = run("check", "--against-git", "HEAD")
    assert code == 1 and "shop/schemas.yaml" in err and "move its content into" in err
    (below / "schemas.yaml").rename(tmp_path / "schemas" / "schemas.yaml")
    assert run("check", "--against-git", "HEAD")[0] == 0


def test_what_topics_yml_says_of_schemas_is_not_passed_over(run: Run, tmp_path: Path) -> None:
    (tmp_path / "topics.yaml").rename(tmp_path / "topics.yml")
    code, _, err = run("check", "--offline")
    assert code == 1 and "rename topics.yml to topics.yaml" in err


def test_a_link_is_compared_with_what_it_led_to(run: Run, tmp_path: Path) -> None:
    """The subject was new at each check, and everything passed."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "p.avsc").write_text(order(("id", "string")))
    (tmp_path / "schemas" / "shop.payments-value.avsc").symlink_to("../shared/p.avsc")
    (tmp_path / "schemas" / "gone.avsc").symlink_to("nowhere.avsc")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    (tmp_path / "schemas" / "gone.avsc").unlink()
    assert run("check", "--against-git", "HEAD")[0] == 0
    (shared / "p.avsc").write_text(order(("id", "int")))
    code, out, _ = run("check", "--against-git", "HEAD")
    assert code == 1 and "x shop.payments-value: refused" in out


def test_one_file_is_registered_and_checked_as_its_name_and_its_bytes_say(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JSON schema was sent as Avro; a mark of byte order, which editors of Windows write,
    as a part of the schema."""
    asked: list[tuple[str, str, str]] = []

    def registered(_: Any, subject: str, text: str, kind: str = "AVRO") -> int:
        asked.append((subject, text, kind))
        return 1

    def incompatible(_: Any, subject: str, text: str, kind: str, *_more: Any) -> list[str]:
        asked.append((subject, text, kind))
        return []

    monkeypatch.setattr("hub.schema_registry.client.registry_client.RegistryClient.register", registered)
    monkeypatch.setattr("hub.schema_registry.client.remote.RemoteRegistry.incompatibilities", incompatible)
    for name, kind in (("a.json", "JSON"), ("a.proto", "PROTOBUF"), ("a.avsc", "AVRO"), ("a.txt", "AVRO")):
        (tmp_path / name).write_text("\ufeff{}", encoding="utf-8")
        for command in ("register", "check"):
            asked.clear()
            assert run(command, "s", str(tmp_path / name))[0] == 0
            assert asked == [("s", "{}", kind)]


@pytest.mark.parametrize("option", ["--offline", "--against=backup.jsonl", "--against-git=HEAD", "--data"])
def test_one_file_is_checked_as_is_said_or_not_at_all(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """The folder was compared with the registry regardless of the options, and passed."""
    monkeypatch.setattr("hub.schema_registry.client.remote.RemoteRegistry.incompatibilities", lambda *_: [])
    code, _, err = run("check", "s", str(tmp_path / "schemas" / "orders.avsc"), option)
    assert code == 1 and "compared with the registry alone" in err


def test_check_against_a_backup_and_against_nothing(run: Run, tmp_path: Path) -> None:
    cluster = MemoryCluster()
    cluster.create_topic(SCHEMAS_TOPIC, partitions=1, config={}, replication_factor=1)
    stored = SchemaStored("shop.orders-value", 1, 1, order(("id", "string"), ("more", "int")))
    cluster.writer().append([record_of(stored)])
    file = tmp_path / "backup.jsonl"
    file.write_bytes(b"".join(backup.lines(backup.read_all(cluster))))
    code, out, _ = run("check", "--against", str(file))
    assert code == 1 and "field `more` (int) is removed" in out
    assert run("check", "--offline")[0] == 0
    (tmp_path / "schemas" / "orders.avsc").write_text("{")
    code, out, _ = run("check", "--offline")
    assert code == 1 and "orders.avsc:1:2: INVALID: not JSON" in out
    code, _, err = run("check", "--offline", "--against", str(file))
    assert code == 1 and "give one of them" in err
    code, _, err = run("check", "--offline", "--data")
    assert code == 1 and "--data asks Kafka" in err


def test_the_rules_of_the_tree_are_asked_before_the_registry_is(run: Run, tmp_path: Path) -> None:
    rules = """
policies:
  shop: {compatibility: NONE, naming: {fields: UPPER_CASE}, doc: every_field, severity: {doc: warn}, registrars: [x]}
"""  # noqa: E501
    (tmp_path / "policies.yaml").write_text(rules)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    (tmp_path / "topics.yaml").write_text(TOPICS.replace(", compatibility: BACKWARD", ""))
    (tmp_path / "schemas" / "orders.avsc").write_text(order(("id", "string"), ("sum", "int")))
    (item,) = json.loads(run("check", "--against-git", "HEAD", "-o", "json")[1])["items"]
    assert {each["rule"] for each in item["reasons"]} == {"naming.fields"}  # and no level: shop has NONE
    assert item["reasons"][0]["line"] > 1 and {each["rule"] for each in item["warnings"]} == {
        "doc",
        "FIELD_RENAMED",
    }
    annotations = run("check", "--against-git", "HEAD", "--annotations", "github")[1]
    assert "::error" in annotations and "::warning" in annotations
    (tmp_path / "policies.yaml").write_text("policies: {shop: {compatibility: FULL}}")
    (tmp_path / "topics.yaml").write_text(TOPICS)
    (item,) = json.loads(run("check", "--against-git", "HEAD", "-o", "json")[1])["items"]
    assert "level BACKWARD is looser than FULL" in str([each["what"] for each in item["reasons"]])


def test_what_is_in_an_annotation_cannot_end_it(run: Run, tmp_path: Path) -> None:
    text = json.dumps({"type": "record", "name": "A", "fields": [{"name": "x", "type": "a%\r\nb"}]})
    (tmp_path / "schemas" / "a,b:c.avsc").write_text(text)
    _, out, _ = run("check", "--offline", "--annotations", "github")
    (line,) = out.splitlines()
    assert line.startswith("::error file=schemas/a%2Cb%3Ac.avsc,line=")


def test_an_empty_folder_and_a_missing_one_are_told(run: Run, tmp_path: Path) -> None:
    code, _, err = run("check", "views", "--offline")
    assert code == 1 and "has no schemas" in err
    code, _, err = run("check", "nowhere", "--offline")
    assert code == 1 and "does not exist" in err


def test_infer_prints_the_schema_alone_and_the_report_beside_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "o.jsonl").write_text('{"id": 1, "mail": "a@b.example"}\n{"id": 2}\n')
    code, out, err = run("infer", "o.jsonl", "--name", "shop.Order")
    schema: Any = json.loads(out)
    assert code == 0 and (schema["namespace"], schema["name"]) == ("shop", "Order")
    assert "looks like email" in err and "From 2 samples" in err
    assert json.loads(run("infer", "o.jsonl", "-o", "json-schema")[1])["required"] == ["id"]
    report = json.loads(run("infer", "o.jsonl", "-o", "report")[1])
    assert report["samples"] == 2 and report["fields"][0]["seen"] == "2 of 2"
    (tmp_path / "o.csv").write_text("id,total\n1,2.5\n")
    assert json.loads(run("infer", "o.csv")[1])["fields"][1]["type"] == "double"
    for arguments, message in (
        (["infer"], "name files of samples"),
        (["infer", "o.jsonl", "o.csv"], "not taken as one"),
        (["infer", "topics.yaml"], "does not show its format"),
        (["infer", "no.json"], "cannot be read"),
    ):
        code, out, err = run(*arguments)
        assert code == 1 and message in err and out == ""


def test_a_subject_of_values_is_its_topic() -> None:
    assert (topic_of("shop.orders-value"), topic_of("shop.orders-key"), topic_of("Order")) == (
        "shop.orders",
        None,
        None,
    )
