"""Canaries and mirror filters: canaries pass, or the route is reported as closed; they are never filtered
silently.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hub.completeness.canary.filters import fitted
from hub.completeness.canary.probes import CanaryState, Probe
from hub.completeness.canary.runner import Canaries, MirroredTopics, mirrored
from hub.kafka import KafkaCluster
from hub.replication.config.mirrors import Mirror, RecordCondition
from hub.replication.rewriting.record_filter import NoSchemas, RecordRewriter, RecordRules
from hub.replication.rewriting.reencode import rest_of
from hub.replication.rewriting.rules_of_schema import shape_of
from hub.schema_registry.compat.resolved_schema import SchemaSource

T = "nyc.canary"
PROBE = Probe("run", 0, 7, 1_700_000_000_000)


class Registered(NoSchemas):
    """Registry that returns the canaries' schema for any id."""

    def source(self, schema_id: int) -> SchemaSource:
        import json

        from hub.completeness.canary.probes import SCHEMA

        return SchemaSource.of("AVRO", json.dumps(SCHEMA))


def passes(where: tuple[RecordCondition, ...], headers: tuple[tuple[str, bytes], ...]) -> bool:
    """Apply the mirror's own filter to the record."""
    new = PROBE.record(T, 5, headers)
    rest = rest_of(new.key, new.value, [(name.encode(), value) for name, value in new.headers or ()])
    return RecordRewriter(RecordRules(T, where), Registered()).apply(rest) is not None


def only(*said: dict[str, Any]) -> tuple[RecordCondition, ...]:
    return tuple(RecordCondition.model_validate(each) for each in said)


_values = st.lists(st.sampled_from(["eu", "us", None]), min_size=1, max_size=3, unique=True)
_wheres = st.one_of(
    st.builds(lambda name, values: {"header": name, "in": values}, st.sampled_from(["a", "b"]), _values),
    st.builds(lambda name, values: {"header": name, "not_in": values}, st.sampled_from(["a", "b"]), _values),
    st.builds(
        lambda name, how, values: {"field": name, how: values},
        st.sampled_from(["kind", "seq", "item.x"]),
        st.sampled_from(["in", "not_in"]),
        _values,
    ),
)


@given(st.dictionaries(st.sampled_from(["m1", "m2", "m3"]), st.lists(_wheres, max_size=3)))
def test_who_is_not_told_of_lets_them_through(filters: dict[str, list[dict[str, Any]]]) -> None:
    rules = {name: only(*said) for name, said in filters.items()}
    found = fitted(rules)
    assert found.closed.keys() <= rules.keys()
    for name, where in rules.items():
        if name not in found.closed:
            assert passes(where, found.headers)
        else:
            alone = fitted({name: where})
            assert not alone.closed or not passes(where, alone.headers)
    assert fitted(dict(reversed(rules.items()))) == found


def test_headers_are_what_filters_ask_for_and_what_cannot_be_is_told() -> None:
    eu = only({"header": "region", "in": ["eu"]})
    assert fitted({"m": eu}).headers == (("region", b"eu"),)
    assert fitted({"m": only({"header": "region", "in": ["eu", None]})}).headers == ()
    assert fitted({"m": only({"header": "region", "not_in": ["eu", None]})}).headers == (
        ("region", b"canary"),
    )
    both = fitted({"a": eu, "b": only({"header": "region", "in": ["us"]})})
    assert both.headers == (("region", b"eu"),)
    assert both.closed == {
        "b": "no canary passes its filter (header region in [us]) and those of other mirrors together"
    }
    field = fitted({"m": only({"field": "item.kind", "in": ["chat"]})})
    assert field.closed == {"m": "its filter lets no canary through: field item.kind in [chat]"}
    assert not fitted({"m": only({"field": "item.kind", "not_in": ["test"]})}).closed


def test_a_way_that_is_closed_is_unknown_with_the_reason_and_loses_nothing(tmp_path: Path) -> None:
    said = """
clusters:
  nyc: {bootstrap: "127.0.0.1:9", owns: ["nyc.**"]}
  lon: {bootstrap: "127.0.0.1:10"}
  tyo: {bootstrap: "127.0.0.1:11"}
mirrors:
  nyc-lon:
    source: nyc
    target: lon
    topics: ["nyc.**"]
    only: [{topics: ["nyc.**"], where: {header: region, in: [eu]}}]
  nyc-tyo:
    source: nyc
    target: tyo
    topics: ["nyc.**"]
    only: [{topics: [nyc.canary], where: {field: kind, in: [chat]}}]
"""
    (tmp_path / "mirrors.yaml").write_text(said)
    cluster = KafkaCluster("127.0.0.1:9", 0.5)
    found = mirrored(tmp_path, cluster, T, 0.5)
    assert list(found.clusters) == ["nyc-lon"] and found.headers == (("region", b"eu"),)
    assert found.closed == {"nyc-tyo": "its filter lets no canary through: field kind in [chat]"}
    assert not mirrored(tmp_path, cluster, "nyc.other", 0.5).closed
    assert mirrored(tmp_path / "none", cluster, T, 0.5) == MirroredTopics()

    canaries = Canaries(
        cluster, None, T, found.clusters, headers=found.headers, closed=found.closed  # type: ignore[arg-type]
    )  # fmt: skip
    canaries.canary.next(0, 0, 0.0)
    row = next(each for each in canaries.rows() if each.way == "mirror:nyc-tyo")
    assert (row.state, row.cause, row.expected) == (CanaryState.UNKNOWN, found.closed["nyc-tyo"], 0)


def test_the_shape_of_the_file_is_what_is_fitted() -> None:
    mirror = Mirror.model_validate(
        {
            "source": "nyc",
            "target": "lon",
            "topics": ["nyc.**"],
            "only": [{"topics": [T], "where": {"header": "region", "in": ["eu"]}}],
        }
    )
    shape = shape_of(mirror, T)
    assert shape is not None and not passes(shape.only, ())
    assert passes(shape.only, fitted({"m": shape.only}).headers)
