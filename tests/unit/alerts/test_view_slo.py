"""Objectives in a view's file: format, errors, and independence of the view's computation."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub.errors import ConfigError
from hub.materializers.applying.store_thread import objectives
from hub.materializers.definition.load import body_of, load_view, view_of
from hub.topics.tree.tree import LiveTree

VIEW = """view: v
sources:
  orders: {topic: shop.orders, key: id, order: at}
fields:
  amount: orders.amount
"""


def test_a_view_promises_for_itself(tmp_path: Path) -> None:
    path = tmp_path / "v.yaml"
    path.write_text(VIEW + "slo: {latency: 2s for 99.9%, freshness: 1m}\n")
    view = load_view(path)
    assert (view.slo.latency_ms, view.slo.latency_share, view.slo.freshness_ms) == (2_000, 0.999, 60_000)
    assert view_of(body_of(view)).slo == view.slo
    (tmp_path / "topics.yaml").write_text("topics: {shop: {slo: {latency: 100ms}, topics: {orders: {}}}}\n")
    tree = LiveTree(tmp_path / "topics.yaml")
    assert objectives([view], tree) == {"v": 2.0}
    path.write_text(VIEW)
    assert objectives([load_view(path)], tree) == {"v": 0.1}
    assert "slo" not in body_of(load_view(path))


@pytest.mark.parametrize(
    ("slo", "said"),
    [
        ("{latncy: 2s}", 'v.yaml:6:7: unknown key "latncy"'),
        ("{lag: 2s}", 'unknown key "lag"'),
        ("{latency: 2s for}", "is not a duration"),
        ("{freshness: 5}", 'v.yaml:6:18: slo.freshness: "5" is not a duration'),
    ],
)
def test_a_promise_that_is_said_wrongly(tmp_path: Path, slo: str, said: str) -> None:
    path = tmp_path / "v.yaml"
    path.write_text(f"{VIEW}slo: {slo}\n")
    with pytest.raises(ConfigError) as found:
        load_view(path)
    assert said in found.value.message
