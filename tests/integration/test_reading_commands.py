"""Commands that only read answer beside a running hub: their tests stage what they print, not the server."""

from __future__ import annotations

import pytest
from processes import call_hub

from hub.config import Settings

COMMANDS = (
    "status",
    "status -o json",
    "lag",
    "latency",
    "lineage",
    "top -o json",
    "canary",
    "alert ls",
    "alert rules",
    "topic ls",
    "topic tree",
    "topic drift",
    "view ls",
    "schema ls",
    "schema search order",
    "dlq ls",
    "erase ls",
    "governance report",
    "access usage",
    "access requests ls",
    "config show",
    "config explain http_port",
    "upgrade --check",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_reads_answers(settings: Settings, hub_server: str, command: str) -> None:
    done = call_hub(settings, *command.split())
    assert done.returncode == 0 or (done.returncode == 1 and done.stdout + done.stderr), command
