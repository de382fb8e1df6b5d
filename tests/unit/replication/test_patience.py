"""For how long a broker may be silent: a half-open link is noticed soon,
and a broker that is merely slow gets its turn."""

from __future__ import annotations

import socket

import pytest

from hub.kafka.protocol.broker_client import BrokerConnection, ClusterAccess, ConnectionLost, Patience
from hub.replication.engine.shard_state import EngineSettings


def test_a_silent_broker_is_given_up_within_fifteen_seconds_and_a_slow_one_gets_longer() -> None:
    now = [0.0]
    patience = Patience(ClusterAccess(bootstrap="a:1"), lambda: now[0])
    assert EngineSettings().fetch_wait_ms / 1000 + patience.seconds < 15
    waits = []
    for _ in range(4):
        waits.append(patience.seconds)
        patience.exceeded()
        now[0] += 30.0
    assert waits == [10.0, 20.0, 30.0, 30.0]
    now[0] += 100.0
    assert patience.seconds == 10.0
    assert Patience(ClusterAccess(bootstrap="a:1", request_timeout_s=2.0)).seconds == 2.0


def test_a_connection_on_which_nothing_comes_is_lost_and_is_waited_for_longer_the_next_time() -> None:
    """It is accepted, as by a proxy or a NAT that has lost what is behind it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        access = ClusterAccess(bootstrap="a:1", silence_s=0.05, connect_timeout_s=0.2)
        patience = Patience(access)
        with pytest.raises(ConnectionLost, match="timed out"):
            BrokerConnection(access, "127.0.0.1", silent.getsockname()[1], patience)
        assert patience.seconds == 0.1
