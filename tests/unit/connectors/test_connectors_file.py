"""connectors.yaml: what is refused, at which line, and that no secret stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub.connectors.connectors_file import load_connectors
from hub.errors import ConfigError

GOOD = """\
connectors:
  crm:
    kind: postgres-cdc
    topics: [crm.**]
    config:
      database.hostname: db
      database.password: ${CRM_PASSWORD}
"""


def loaded(tmp_path: Path, text: str) -> ConfigError:
    (tmp_path / "connectors.yaml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_connectors(tmp_path)
    return refused.value


def test_a_good_file_and_no_file(tmp_path: Path) -> None:
    assert load_connectors(tmp_path).by_name == {}
    (tmp_path / "connectors.yaml").write_text(GOOD)
    found = load_connectors(tmp_path)
    crm = found.by_name["crm"]
    assert crm.direction == "source" and crm.java_class.endswith("PostgresConnector")
    assert found.variables == {"CRM_PASSWORD"}
    assert found.place("crm", "config", "database.hostname").endswith("connectors.yaml:6:26")


@pytest.mark.parametrize(
    ("before", "after", "line", "said"),
    [
        ("${CRM_PASSWORD}", "s3cret", 7, "stands in the file"),
        ("${CRM_PASSWORD}", "x${CRM_PASSWORD}", 7, "stands in the file"),
        (
            "database.hostname: db",
            "connection.url: jdbc:postgresql://a:s3cret@db/x",
            6,
            "a URL with a password",
        ),
        ("database.hostname: db", "tasks.max: 3", 6, "does not belong into config"),
        ("postgres-cdc", "postgres-cdx", 3, 'did you mean "postgres-cdc"?'),
        ("kind: postgres-cdc", "owner: x", 3, "either `kind` or `class`"),
        ("[crm.**]", "[views.**]", 4, "belong to a view"),
        ("[crm.**]", "[crm**]", 4, 'label "crm**"'),
        ("topics: [crm.**]", "topcis: [crm.**]", 4, 'unknown key "topcis"'),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    tmp_path: Path, before: str, after: str, line: int, said: str
) -> None:
    error = loaded(tmp_path, GOOD.replace(before, after))
    assert said in error.message and "s3cret" not in str(error)
    assert f"connectors.yaml:{line}:" in error.message


def test_a_secret_in_a_value_of_the_wrong_kind_is_not_shown(tmp_path: Path) -> None:
    error = loaded(tmp_path, GOOD.replace("${CRM_PASSWORD}", "[s3cret]"))
    assert "connectors.yaml:7:" in error.message and "s3cret" not in str(error)


def test_references_of_others_are_none_of_the_hubs(tmp_path: Path) -> None:
    """The router of Debezium's outbox has ``${routedByValue}``; providers are named in lower case."""
    text = GOOD.replace("db\n", "db\n      route: out.${routedByValue}\n")
    (tmp_path / "connectors.yaml").write_text(text.replace("${CRM_PASSWORD}", "${file:/run/secrets/a:pw}"))
    assert load_connectors(tmp_path).variables == frozenset()
