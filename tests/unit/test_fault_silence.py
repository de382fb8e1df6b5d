"""Test the fault suite's faults of silent parts:
when states are asked for, and which bytes of a link are lost."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from fault_suite import kinds_silence
from fault_suite.faults import KINDS, possible
from fault_suite.journal import Journal
from fault_suite.kinds_silence import SILENCE
from fault_suite.states import LIMITS_S
from link_proxy import Link
from ports import free_ports

SILENT = [name for name, kind in KINDS.items() if kind.group == "silence"]


def fake_world(done: list[str]) -> Any:
    node = SimpleNamespace(freeze=lambda: done.append("hurt"), thaw=lambda: done.append("healed"))
    said = {signal.SIGSTOP: "hurt", signal.SIGCONT: "healed"}
    return SimpleNamespace(
        settings=SimpleNamespace(url="http://127.0.0.1:1"),
        journal=Journal(),
        live=lambda seconds: done.append("lived"),
        send=lambda part, number: done.append(said[number]),
        home=SimpleNamespace(nodes=[node]),
        away=SimpleNamespace(nodes=[node]),
        postgres=SimpleNamespace(kill=lambda: done.append("hurt"), start=lambda: done.append("healed")),
    )


@pytest.mark.parametrize("name", SILENT)
def test_states_are_asked_for_while_the_part_is_hurt(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    world = fake_world(done)

    def seen(part: str, *_: object) -> list[str]:
        done.append("asked")
        return [f"{part} is shown healthy"]

    monkeypatch.setattr(kinds_silence, "seen_wrong", seen)
    with KINDS[name].hurt(world, Random(1)):
        assert set(done) == {"hurt"}
    assert done.index("asked") < done.index("healed")
    assert done[-1] == "healed"
    assert len(world.journal.wrong) == 1


def test_there_is_a_fault_for_every_part_and_none_without_the_ability() -> None:
    assert len(SILENT) == len(LIMITS_S)
    assert not {kind.name for kind in possible(frozenset())} & {*SILENT, "HTTP: answers are lost"}
    assert {kind.name for kind in possible(frozenset({SILENCE}))} >= {*SILENT, "HTTP: answers are lost"}


def test_a_request_arrives_and_its_answer_is_lost() -> None:
    (port,) = free_ports(1)
    arrived = threading.Event()
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for wanted in ((b"first", b"second"), (b"third",)):
            side, _ = server.accept()
            for each in wanted:
                assert side.recv(100) == each
                arrived.set()
                side.sendall(b"answer")

    threading.Thread(target=serve, daemon=True).start()
    link = Link(port, server.getsockname()[1], framed=False)
    try:
        with socket.create_connection(("127.0.0.1", port), 10.0) as client:
            client.sendall(b"first")
            assert client.recv(100) == b"answer"
            arrived.clear()
            with KINDS["HTTP: answers are lost"].hurt(SimpleNamespace(http_link=link), Random(1)):  # type: ignore[arg-type]
                client.sendall(b"second")
                assert arrived.wait(10.0)
                client.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    client.recv(100)
        with socket.create_connection(("127.0.0.1", port), 10.0) as later:
            later.sendall(b"third")
            assert later.recv(100) == b"answer"
    finally:
        link.close()
        server.close()
