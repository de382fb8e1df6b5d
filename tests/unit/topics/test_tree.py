"""Topic tree: inheritance, the deciding node, refusals with their place, and patterns."""

from __future__ import annotations

import doctest
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import ConfigError
from hub.topics.browse import routes
from hub.topics.tree import key_fields, tree
from hub.topics.tree.tree import Slo, TopicTree, load, matches

EXAMPLES = Path(__file__).parents[3] / "examples"

SHOP = """\
topics:
  shop:
    owner: shop-team
    partitions: 6
    retention: 7d
    tags: [core]
    config: {min.insync.replicas: 2, segment.ms: 1h}
    topics:
      orders:
        doc: Orders.
        schema: schemas/orders.avsc
        compatibility: FULL
      archive:
        topic: true
        retention: forever
        topics:
          cold: {partitions: 1, max_size: 1GiB, config: {unclean.leader.election.enable: false}}
  sandbox: {topic: false}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "topics.yaml"


def loaded(file: Path, text: str) -> TopicTree:
    file.write_text(text)
    return load(file)


def test_settings_are_inherited_and_remember_who_set_them(file: Path) -> None:
    made = loaded(file, SHOP)
    assert [topic.name for topic in made.topics] == ["shop.archive", "shop.archive.cold", "shop.orders"]
    orders, cold = made.find("shop.orders"), made.find("shop.archive.cold")
    assert orders is not None and cold is not None
    assert (orders.owner, orders.partitions, orders.tags, orders.doc) == (
        "shop-team",
        6,
        ("core",),
        "Orders.",
    )
    assert orders.config == {
        "min.insync.replicas": "2",
        "retention.ms": "604800000",
        "segment.ms": "3600000",
    }
    assert orders.schema == file.parent / "schemas/orders.avsc"
    assert orders.subject == "shop.orders-value"
    assert cold.config["retention.ms"] == "-1"
    assert cold.config["retention.bytes"] == str(1 << 30)
    assert cold.config["unclean.leader.election.enable"] == "false"
    assert cold.set_by == {
        "owner": "shop",
        "partitions": "shop.archive.cold",
        "replication_factor": "(default)",
        "tags": "shop",
        "config.min.insync.replicas": "shop",
        "config.segment.ms": "shop",
        "config.retention.ms": "shop.archive",
        "config.retention.bytes": "shop.archive.cold",
        "config.unclean.leader.election.enable": "shop.archive.cold",
    }


PROMISES = """\
defaults:
  owner: platform
  doc: Everything.
  slo: {latency: 5s}
  partitions: 3
  retention: 7d
  config: {segment.ms: 1h, cleanup.policy: delete}
topics:
  shop:
    slo: {freshness: 1m}
    tags: [core]
    topics:
      orders: {slo: {latency: 500ms}, doc: Orders., retention: default}
      carts: {tags: [], config: {segment.ms: null}}
"""


def test_owner_doc_tags_and_each_objective_are_inherited_by_themselves(file: Path) -> None:
    made = loaded(file, PROMISES)
    orders, carts = made.find("shop.orders"), made.find("shop.carts")
    assert orders is not None and carts is not None
    assert (orders.owner, orders.doc, orders.slo, orders.tags) == (
        "platform",
        "Orders.",
        Slo(500, 60_000),
        ("core",),
    )
    assert (carts.doc, carts.slo, carts.tags, carts.partitions) == ("Everything.", Slo(5_000, 60_000), (), 3)
    by = {key: orders.set_by[key] for key in ("owner", "doc", "slo.latency", "slo.freshness")}
    assert by == {
        "owner": "defaults of the file",
        "doc": "shop.orders",
        "slo.latency": "shop.orders",
        "slo.freshness": "shop",
    }


def test_what_is_inherited_can_be_given_back_to_the_brokers(file: Path) -> None:
    made = loaded(file, PROMISES)
    orders, carts = made.find("shop.orders"), made.find("shop.carts")
    assert orders is not None and carts is not None
    assert orders.config == {"cleanup.policy": "delete", "segment.ms": "3600000"}
    assert carts.config == {"cleanup.policy": "delete", "retention.ms": "604800000"}
    assert orders.set_by["config.retention.ms"] == "shop.orders"
    assert carts.set_by["config.segment.ms"] == "shop.carts"


def test_the_settings_of_the_hub_fill_in_the_replication_factor(file: Path) -> None:
    file.write_text("topics: {a: {}, b: {replication_factor: 2}}")
    assert [topic.replication_factor for topic in load(file, replication_factor=3).topics] == [3, 2]


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("topics:\n  a:\n    partitons: 3\n", "3:5", 'unknown key "partitons"'),
        ("topics:\n  a:\n    topics:\n      b: {retenion: 1d}\n", "4:11", 'did you mean "retention"?'),
        ("topics:\n  a: {partitions: 0}\n", "2:19", "greater than or equal to 1"),
        ("topics:\n  a: {retention: 7}\n", "2:18", '"7" is not a duration such as 12h, 7d or forever'),
        ("topics:\n  a: {retention: 7x}\n", "2:18", '"7x" is not a duration'),
        ("topics:\n  a: {max_size: 1GB}\n", "2:17", "is not a size such as 500MiB"),
        ("topics:\n  a: {config: {retention.ms: 7days}}\n", "2:15", "a number for retention.ms"),
        ("topics:\n  a: {compatibility: FULLY}\n", "2:22", "'BACKWARD'"),
        ("topics:\n  a b: {}\n", "2:3", 'label "a b" may have letters'),
        ("topics:\n  a.b: {}\n", "2:3", 'label "a.b" may have letters'),
        ("topics:\n  a:\n    schema: x.avsc\n    topics: {b: {}}\n", "3:5", "a schema belongs to a topic"),
        (
            "topics:\n  a: {retention: 1d, config: {retention.ms: 5}}\n",
            "2:6",
            "retention and config.retention.ms are the same setting",
        ),
        ("topics:\n  a: {slo: {latncy: 2s}}\n", "2:13", 'did you mean "latency"?'),
        ("topics:\n  a: {slo: {latency: 2}}\n", "2:22", '"2" is not a duration such as 500ms, 2s or 1m'),
        ("topics:\n  a: {slo: {freshness: forever}}\n", "2:24", 'not "forever"'),
        ("topics:\n  a: {slo: {lag: soon}}\n", "2:18", '"soon" is not a duration'),
        ("topics:\n  a: {slo: {completeness: 1.5}}\n", "2:27", '"1.5" is not a share such as 100% or 99.9%'),
        ("topics:\n  a: {slo: {completeness: 101%}}\n", "2:27", "is not a share"),
        ("topics:\n  a: {slo: {latency: 2s for most}}\n", "2:22", '"most" is not a share'),
        ("topics:\n  a: {slo: {completness: 100%}}\n", "2:13", 'did you mean "completeness"?'),
        ("topics:\n  '': {}\n", "2:3", "at least one"),
        ('topics:\n  "a\\n": {}\n', "2:3", "may have letters"),
        ("defaults: {ownr: x}\ntopics: {}\n", "1:12", 'did you mean "owner"?'),
        ("topics:\n  a: {prune: true}\n", "2:7", 'unknown key "prune"'),
        ("topic:\n  a: {}\n", "1:1", 'did you mean "topics"?'),
    ],
)
def test_what_is_wrong_is_said_with_its_place(file: Path, text: str, where: str, said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        loaded(file, text)
    assert said in str(refusal.value)
    assert refusal.value.where == f"{file}:{where}"


def test_a_name_that_is_too_long_for_kafka_is_said_with_its_place(file: Path) -> None:
    label = "x" * 120
    with pytest.raises(ConfigError, match="362 characters") as refusal:
        loaded(
            file,
            f"topics:\n  {label}:\n    topics:\n      {label}:\n        topics:\n          {label}: {{}}\n",
        )
    assert refusal.value.where == f"{file}:6:11"


@pytest.mark.parametrize("example", ["customer-360", "flights"])
def test_the_examples_load(example: str) -> None:
    made = load(EXAMPLES / example / "topics.yaml")
    assert all(topic.schema is not None and topic.schema.exists() for topic in made.topics)
    assert all(topic.owner for topic in made.topics)


# ---- patterns

labels = st.sampled_from(["a", "b", "a-b", "c_1", "aab", "bab"])
names = st.lists(labels, min_size=1, max_size=5)
wild = ["*", "**", "a*", "*b", "*a*b", "a*a*"]
patterns = st.lists(st.sampled_from(["a", "b", *wild]), min_size=1, max_size=5)


def _fits(pattern: list[str], name: list[str]) -> bool:
    """Reference implementation of pattern matching."""
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(_fits(pattern[1:], name[skipped:]) for skipped in range(len(name) + 1))
    return bool(name) and fnmatchcase(name[0], pattern[0]) and _fits(pattern[1:], name[1:])


partly = st.text("ab*", min_size=1, max_size=6).filter(lambda text: "**" not in text)


@given(partly, st.text("abc", min_size=1))
def test_stars_inside_a_label_are_any_characters(pattern: str, label: str) -> None:
    assert matches(pattern, label) == fnmatchcase(label, pattern)


@given(patterns, names)
def test_patterns_mean_what_the_plain_definition_says(pattern: list[str], name: list[str]) -> None:
    assert matches(".".join(pattern), ".".join(name)) == _fits(pattern, name)


def test_a_pattern_has_no_meaning_but_its_labels() -> None:
    assert not matches("a.b", "axb")
    assert not matches("a+", "aa")
    assert matches("a+", "a+")
    assert not matches("nyc.*", "nyc.")


def test_many_stars_do_not_take_for_ever() -> None:
    assert not matches(".".join(["**"] * 12 + ["z"]), ".".join(["a"] * 14))
    assert not matches("*" + "a*" * 40 + "b", "a" * 249)


def test_patterns_that_were_asked_long_ago_are_forgotten() -> None:
    for number in range(5_000):
        assert matches(f"silenced.{number}.*", f"silenced.{number}.orders")
    assert tree._compiled.cache_info().currsize < 5_000


def test_the_doctests_hold() -> None:
    for module in (tree, routes, key_fields):
        found = doctest.testmod(module)
        assert found.attempted and not found.failed


def test_names_as_a_tree() -> None:
    assert routes.nested(["a.b", "a.c", "d"]) == {
        "a": {"topics": {"b": {"topic": "a.b"}, "c": {"topic": "a.c"}}},
        "d": {"topic": "d"},
    }
    assert re.fullmatch(r"[a-z.]+", "a.b")


def test_a_key_is_of_one_topic_alone(file: Path) -> None:
    made = loaded(file, "topics: {a: {topic: true, key: customer.id, topics: {b: {}}}}")
    assert [each.key for each in made.topics] == ["customer.id", None]
    with pytest.raises(ConfigError, match="a key belongs to a topic"):
        loaded(file, "topics: {a: {key: id, topics: {b: {}}}}")
    with pytest.raises(ConfigError, match="not a path of fields"):
        loaded(file, "topics: {a: {key: customer..id}}")
    with pytest.raises(ConfigError, match="key"):
        loaded(file, "defaults: {key: id}\ntopics: {a: {}}")


def test_each_objective_is_inherited_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "topics.yaml"
    path.write_text(
        """
topics:
  nyc:
    slo: {lag: 30s, completeness: 99.9%, freshness: 5m, latency: 2s for 99.5%}
    topics:
      jfk: {slo: {lag: 1m, latency: 1s}}
      lga: {}
"""
    )
    jfk, lga = load(path).topics
    assert lga.slo == Slo(2_000, 300_000, 30_000, 0.999, 0.995)
    assert jfk.slo == Slo(1_000, 300_000, 60_000, 0.999, 0.99)
    assert (jfk.set_by["slo.lag"], jfk.set_by["slo.completeness"]) == ("nyc.jfk", "nyc")


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("_schemas", "the registry makes it"),
        ("__consumer_offsets", "Kafka makes"),
        ("_hub.alerts", "the hub makes it"),
        ("views.orders", "views/NAME.yaml"),
    ],
)
def test_names_that_are_somebody_elses_are_refused_with_the_way_out(
    tmp_path: Path, name: str, way: str
) -> None:
    path = tmp_path / "topics.yaml"
    first, _, rest = name.partition(".")
    inside = f"{{topics: {{{rest}: {{}}}}}}" if rest else "{}"
    path.write_text(f"topics:\n  {first}: {inside}\n")
    with pytest.raises(ConfigError, match="belongs to") as refused:
        load(path)
    assert way in str(refused.value.hint) and str(refused.value.where).startswith(f"{path}:2:")
    path.write_text("topics: {_own: {}, views: {}, shop: {topics: {views: {}}}}\n")
    assert [each.name for each in load(path).topics] == ["_own", "shop.views", "views"]
